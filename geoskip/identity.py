"""What identifies a Python function: its name and a digest of everything that its result can depend on.

An index over ``f(x)`` and a mapping for ``f`` hold only for the very same ``f``. A digest of its own code is not
enough: ``def f(ua): return lib.parse(ua)`` keeps it when ``lib`` changes. So the digest covers, transitively, code,
constants, defaults, closure and the globals that the code reads; for what comes from an installed distribution, the
distribution's version stands for its content. Where it cannot be had (a closure over a socket, say),
:class:`Unidentifiable` says so, and the author can declare a version: ``geoskip.declare(f, version="2")``.

>>> def plus_one(x):
...     return x + 1
>>> def plus_two(x):
...     return x + 2
>>> identity(plus_one) == identity(plus_one), digest(plus_one) == digest(plus_two)
(True, False)
>>> state_version(plus_one, "2")
>>> identity(plus_one).rpartition("#")[2]
'version:2'
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

from geoskip.errors import InvalidSpecificationError

__all__ = ["Unidentifiable", "digest", "identity", "state_version"]

_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class Unidentifiable(InvalidSpecificationError):
    """A function whose content cannot be digested."""


def identity(function: Any) -> str:
    """``module.qualified.name#digest``, or ``...#version:2`` where the author declared one.

    Raises :class:`Unidentifiable`. Remembered per function object: redefine a function rather than mutate its globals.
    """
    try:
        if function in _known:
            return _known[function]
    except TypeError:  # not hashable, or not weakly referable
        return _identity(function)
    found = _identity(function)
    _known[function] = found
    return found


def state_version(function: Any, version: str) -> None:
    """From now on the version stands for the function's content."""
    function.__geoskip_version__ = version
    with contextlib.suppress(TypeError):
        _known.pop(function, None)


def _identity(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    declared = getattr(function, "__geoskip_version__", None)
    tag = f"version:{declared}" if declared is not None else digest(function)
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}#{tag}"


def digest(function: Any) -> str:
    """16 hexadecimal digits over everything that the function's result can depend on."""
    state = hashlib.sha256()
    for part in _parts(function, set(), 0):
        state.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return state.hexdigest()[:16]


_ATOMS = (type(None), bool, int, float, complex, str, bytes)


def _parts(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if isinstance(value, _ATOMS) or value is Ellipsis:
        yield f"{type(value).__name__}:{value!r}"
        return
    if id(value) in seen:
        yield "again"
        return
    seen.add(id(value))
    if depth > 50:
        raise Unidentifiable(_sentence(value, "it is nested too deeply"))
    if isinstance(value, types.CodeType):
        yield from _code(value, seen, depth)
    elif isinstance(value, types.ModuleType):
        yield f"module:{_released(value.__name__) or value.__name__}"
    elif isinstance(value, functools.partial):
        for part in (value.func, value.args, value.keywords):
            yield from _parts(part, seen, depth + 1)
    elif isinstance(value, types.FunctionType):
        yield from _function(value, seen, depth)
    elif isinstance(value, types.MethodType):
        yield from _parts(value.__func__, seen, depth + 1)
        yield from _parts(value.__self__, seen, depth + 1)
    elif isinstance(value, types.BuiltinFunctionType | type(len) | types.MethodDescriptorType):
        owner = getattr(value, "__module__", None) or getattr(getattr(value, "__self__", None), "__name__", "builtins")
        yield f"builtin:{_released(str(owner)) or owner}:{value.__qualname__}"
    elif isinstance(value, type):
        yield from _class(value, seen, depth)
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__}:{len(value)}"
        for item in value:
            yield from _parts(item, seen, depth + 1)
    elif isinstance(value, dict):
        yield f"dict:{len(value)}"
        for key, item in value.items():
            yield from _parts(key, seen, depth + 1)
            yield from _parts(item, seen, depth + 1)
    elif isinstance(value, set | frozenset):
        yield f"set:{sorted('|'.join(_parts(item, set(seen), depth + 1)) for item in value)}"
    else:
        yield from _instance(value, seen, depth)


def _code(code: types.CodeType, seen: set[int], depth: int) -> Iterator[str]:
    yield f"code:{sys.version_info[:2]}:{code.co_code.hex()}:{code.co_names}:{code.co_varnames}:{code.co_flags}"
    for constant in code.co_consts:
        if constant != code.co_consts[0] or not isinstance(constant, str):  # the docstring changes nothing
            yield from _parts(constant, set() if isinstance(constant, types.CodeType) else seen, depth + 1)


def _function(function: types.FunctionType, seen: set[int], depth: int) -> Iterator[str]:
    if release := _released(function.__module__):
        yield f"function:{release}:{function.__qualname__}"
        return
    yield from _parts(function.__code__, seen, depth + 1)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen, depth + 1)
    for cell in function.__closure__ or ():
        yield from _parts(cell.cell_contents, seen, depth + 1)
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield f"global:{name}"
            value = function.__globals__[name]
            yield from _parts(value, seen, depth + 1)
            if isinstance(value, types.ModuleType) and not _released(value.__name__):
                yield from _attributes(value, _names(function.__code__), seen, depth)


def _attributes(module: types.ModuleType, names: set[str], seen: set[int], depth: int) -> Iterator[str]:
    for name in sorted(names):  # what may be read from a module that no distribution vouches for
        if hasattr(module, name):
            yield f"attribute:{module.__name__}.{name}"
            yield from _parts(getattr(module, name), seen, depth + 1)


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _class(kind: type, seen: set[int], depth: int) -> Iterator[str]:
    yield f"class:{_released(kind.__module__) or kind.__module__}:{kind.__qualname__}"
    if not _released(kind.__module__):
        for name, value in sorted(vars(kind).items()):
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"):
                yield name
                plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                yield from _parts(plain.fget if isinstance(plain, property) else plain, seen, depth + 1)
        yield from _parts(kind.__bases__, seen, depth + 1)


def _instance(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    kind = type(value)
    if kind.__module__ == "re" and hasattr(value, "pattern"):
        yield f"regex:{value.pattern!r}:{value.flags}"
        return
    state = getattr(value, "__getstate__", lambda: None)()
    if state is None and not getattr(value, "__dict__", None) and not getattr(kind, "__slots__", None):
        reduced = _reduced(value)
        if reduced is None:
            raise Unidentifiable(_sentence(value, "it has no content that can be digested"))
        state = reduced
    yield from _parts(kind, seen, depth + 1)
    yield from _parts(state, seen, depth + 1)


def _reduced(value: Any) -> Any:
    try:
        return value.__reduce_ex__(4)[1:3]
    except Exception:
        return None


def _sentence(value: Any, why: str) -> str:
    return (
        f"cannot tell one version of this function from another: it reaches {type(value).__qualname__} and {why}; "
        'state a version that you raise with every change: geoskip.declare(function, version="1")'
    )


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@functools.cache
def _released(module: str | None) -> str | None:
    """``name==version`` of the distribution that a module belongs to, ``python==3.11.7`` for the standard library."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return f"{module}@python=={sys.version.split()[0]}"
    names = _distributions().get(top)
    if not names:
        return None
    return f"{module}@" + ",".join(f"{name}=={importlib.metadata.version(name)}" for name in sorted(set(names)))
