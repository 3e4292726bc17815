"""May the result of a Python function depend on hashes of texts, which are others in Spark's workers than here?

A set's order is that of its values' hashes, so what goes through one may come out otherwise there. Looked at is all
that a function reaches: its code and constants, defaults, closure and globals, methods and attributes of objects, and
what it takes from modules; but for Python's own, whose results do not. To ask what a set holds (``x in WORDS``) is
harmless; whatever else may be done to a set counts.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["MOST", "PLAIN", "hashes", "is_pythons", "modules_of", "names_of", "reached"]

_HASHING = frozenset(["hash", "set", "frozenset", "__hash__"])
_OF_SETS = frozenset(["&", "|", "^", "-", "&=", "|=", "^=", "-="])
_OPERATIONS = frozenset(["BINARY_AND", "BINARY_OR", "BINARY_XOR", "BINARY_SUBTRACT"])
MOST = 20_000
"""So many objects of a function's are looked at."""
PLAIN = (str, bytes, int, float, complex, type(None))


def hashes(function: Any) -> bool:
    """Does a function hash, or go through a set, as far as can be seen? True as well where too much is to be seen.

    >>> hashes(lambda s: s in {"a", "b"}), hashes(lambda s: [w for w in {"a", "b"} if w in s])
    (False, True)
    """
    for number, value in enumerate(reached(function)):
        if isinstance(value, set | frozenset) or number > MOST:
            return True
        if isinstance(value, types.FunctionType) and (
            any(map(_goes_through, _codes(value.__code__))) or _is_used(value)
        ):
            return True
    return False


def reached(function: Any) -> Iterator[Any]:
    """All that a function reaches, itself first, but for texts and numbers and what is of Python's own modules."""
    seen: dict[int, Any] = {}
    waiting = [function]
    while waiting:
        value = waiting.pop()
        if isinstance(value, PLAIN) or id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that its id is not used again
        if not isinstance(value, types.FunctionType):
            yield value
            waiting.extend(_parts(value))
        elif not is_pythons(value.__globals__.get("__name__")):
            yield value
            waiting.extend(_reached(value))


def names_of(function: types.FunctionType) -> frozenset[str]:
    """The names that the code of a function, and of those within it, has of globals and attributes."""
    return frozenset(name for code in _codes(function.__code__) for name in code.co_names)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of the functions within it."""
    waiting = [code]
    while waiting:
        yield (found := waiting.pop())
        waiting.extend(constant for constant in found.co_consts if isinstance(constant, types.CodeType))


def _goes_through(code: types.CodeType) -> bool:
    """Does the code itself hash, make a set, or do anything to a constant one but ask what it holds?"""
    if not _HASHING.isdisjoint(code.co_names):
        return True
    views = not {"keys", "items"}.isdisjoint(code.co_names)  # of dictionaries, of which two make a set
    for step, following in _steps(code):
        if step.opname == "BUILD_SET" or (isinstance(step.argval, frozenset) and not _asks(following)):
            return True
        if views and (step.opname in _OPERATIONS or (step.opname == "BINARY_OP" and step.argrepr in _OF_SETS)):
            return True
    return False


def _steps(code: types.CodeType) -> Iterator[tuple[dis.Instruction, dis.Instruction | None]]:
    steps = list(dis.get_instructions(code))
    return zip(steps, [*steps[1:], None], strict=True)


def _asks(step: dis.Instruction | None) -> bool:
    return step is not None and step.opname == "CONTAINS_OP"


def _is_used(function: types.FunctionType) -> bool:
    """Is a set among the globals or in the closure used, but to ask what it holds?"""
    named = _sets(function)
    return bool(named) and any(
        step.argval in named and "ATTR" not in step.opname and "METHOD" not in step.opname and not _asks(following)
        for code in _codes(function.__code__)
        for step, following in _steps(code)
        if isinstance(step.argval, str)
    )


def _sets(function: types.FunctionType) -> set[str]:
    """The names by which a function's code knows sets."""
    cells = zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True)
    names = names_of(function)
    known = [*cells, *((name, function.__globals__.get(name)) for name in names)]
    return {name for name, value in known if isinstance(value, set | frozenset)}


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _reached(function: types.FunctionType) -> Iterator[Any]:
    """What a function's code may meet: sets that it knows by a name are looked at with the code."""
    names = names_of(function)
    own = _sets(function)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()
    cells = zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True)
    yield from (value for name, value in cells if name not in own)
    met = (function.__globals__.get(name) for name in names - own)
    yield from (value for value in met if not isinstance(value, types.ModuleType))
    for module in modules_of(function):
        yield from (vars(module).get(name) for name in names)


def modules_of(function: types.FunctionType) -> Iterator[types.ModuleType]:
    """The modules, but for Python's own, from which a function's code may take what it names."""
    names = names_of(function)
    met = [value for name in names for value in (function.__globals__.get(name), sys.modules.get(name))]
    met += [*map(_content, function.__closure__ or ()), *(function.__defaults__ or ())]
    known: set[int] = set()
    while met:
        module = met.pop()
        if isinstance(module, types.ModuleType) and id(module) not in known and not is_pythons(module.__name__):
            known.add(id(module))
            yield module
            met.extend(vars(module).get(name) for name in names)


def _parts(value: Any) -> Iterable[Any]:
    """What an object is made of, as far as its kind is known."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, types.MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    if isinstance(value, property):
        return (value.fget,)
    if isinstance(value, types.ModuleType):
        return ()
    kind = value if isinstance(value, type) else type(value)
    found = [] if value is kind else list(getattr(value, "__dict__", {}).values())
    if not is_pythons(kind.__module__):
        found.extend(part for base in kind.__mro__ if not is_pythons(base.__module__) for part in vars(base).values())
    return found


def is_pythons(module: object) -> bool:
    """Is it one of the modules that come with Python?"""
    return isinstance(module, str) and module.partition(".")[0] in _OF_PYTHON


_OF_PYTHON = sys.stdlib_module_names | {"builtins"}
