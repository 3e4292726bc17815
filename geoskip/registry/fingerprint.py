"""Identities of Python functions: a name and a digest of everything that the result can depend on.

An index over ``f(x)`` and a mapping for ``f`` are valid only for exactly the same ``f``. A digest of its own code is
not enough: the code of ``def f(ua): return lib.parse(ua)`` is the same when ``lib`` changes. So the digest covers,
transitively, code, constants, defaults, closure and the globals that the code reads; an object from an installed
distribution is represented by the distribution's version. If there is no digest (for a closure over a socket, say),
:class:`Unidentifiable` is raised with the reason, and the author can declare a version:
``geoskip.declare(f, version="2")``.

A function is identified as this very object: another object is not the same function because ``functools.wraps`` copied
a name, a module and a ``__dict__`` to it, or because it compares equal. Names are those under which the code was
compiled, versions are kept in a weak table, and the state of a callable object is part of its digest.

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
import copyreg
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from geoskip.errors import InvalidSpecificationError

T = TypeVar("T")


class _ByObject(Generic[T]):
    """A weak table keyed by the identity of objects, hashable or not.

    A bound method is a new object at every access: its key is the pair of its function and its instance, and the table
    keeps it alive.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], tuple[Any, T]] = {}

    def get(self, function: Any) -> T | None:
        referent, value = self._kept.get(_key(function), (None, None))
        return value if referent is not None and _key(referent()) == _key(function) else None

    def set(self, function: Any, value: T) -> None:
        key = _key(function)
        referent: Any = lambda: function  # noqa: E731
        if not isinstance(function, types.MethodType):
            with contextlib.suppress(TypeError):  # no weak references to it are possible
                referent = weakref.ref(function, lambda _: self._kept.pop(key, None))
        self._kept[key] = (referent, value)

    def drop(self, function: Any) -> None:
        self._kept.pop(_key(function), None)


def _key(function: Any) -> tuple[int, ...]:
    is_method = isinstance(function, types.MethodType)
    return (id(function.__func__), id(function.__self__)) if is_method else (id(function),)


_known: _ByObject[tuple[Any, str]] = _ByObject()
"""The code of functions, which reloading may replace, and their identities."""
_stated: _ByObject[str] = _ByObject()
"""The declared versions."""
_undigested: dict[str, list[Any]] = {}
"""Functions with a declared version and without a computed digest, by the name of their code."""
_versions: dict[str, Any] = {}
"""Functions with a declared version, by their identity without the version."""

UNIDENTIFIED = "#unidentified"
"""Suffix of the implementation of an unidentifiable function."""


class Unidentifiable(InvalidSpecificationError):
    """The content of a function cannot be digested."""


def identity(function: Any) -> str:
    """Return ``module.qualified.name#digest``, or ``...#version:2`` if the author declared a version.

    Raises :class:`Unidentifiable`. The result is cached for each function object, so redefine a function rather than
    change its globals.
    """
    return versioned_identity(own_identity(function))


def versioned_identity(found: str) -> str:
    """Return the identity with a version that was declared after the function was registered.

    A session may have registered a copy of the function before its version was declared; the content is the same.
    """
    for function in _undigested.pop(found.rpartition("#")[0], ()):
        with contextlib.suppress(Unidentifiable):
            _versions[f"{_code_name(function)}#{digest(function)}"] = function
    return _identity(_versions[found]) if found in _versions else found


def own_identity(function: Any) -> str:
    """Return the identity of a function itself, without versions that were declared since it was copied."""
    if not isinstance(function, types.FunctionType):  # the state of a callable object may change
        return _identity(function)
    code, found = _known.get(function) or (None, "")
    if code is not function.__code__:
        found = _identity(function)
        _known.set(function, (function.__code__, found))
    return found


def is_unchanged(function: Any) -> bool:
    """Test whether the function still has the content that was identified first.

    A global or a class attribute that it reads may have been assigned since. Calls in the driver must agree with the
    function that was sent to the workers then; with a declared version its author guarantees this.
    """
    known = _known.get(function)
    try:
        return known is None or known[1] == _identity(function)
    except Unidentifiable:
        return False


def check_identifiable(function: Any) -> None:
    """Raise :class:`Unidentifiable` as :func:`identity` would, without caching the digest."""
    _identity(function)


def state_version(function: Any, version: str) -> None:
    """Declare a version that replaces the digest of the function's content."""
    if _stated.get(function) is None:
        _undigested.setdefault(_code_name(function), []).append(function)
    _stated.set(function, version)
    _known.drop(function)


def _identity(function: Any) -> str:
    declared = _stated.get(function)
    tag = f"version:{declared}" if declared is not None else digest(function)
    return f"{qualified_name(function)}#{tag}"


def qualified_name(function: Any) -> str:
    """Return the part of an identity before the digest: ``module.qualified.name``.

    With a declared version it is the function's ``__module__`` and ``__qualname__``, otherwise the name of its code,
    which ``functools.wraps`` does not copy.
    """
    if _stated.get(function) is None and not isinstance(function, type):
        return _code_name(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"


def _code_name(function: Any) -> str:
    if isinstance(function, types.MethodType):
        return _code_name(function.__func__)
    if isinstance(function, types.FunctionType):
        return f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"
    if isinstance(function, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        return f"{getattr(function, '__module__', None) or 'builtins'}.{function.__qualname__}"
    return f"{type(function).__module__}.{type(function).__qualname__}"


def digest(function: Any) -> str:
    """Return 16 hexadecimal digits of a hash of everything that the function's result can depend on."""
    state = hashlib.sha256()
    try:
        for part in _parts(function, {}, 0):
            state.update(part.encode("utf-8", "surrogatepass") + b"\0")
    except Unidentifiable as error:
        raise Unidentifiable(_sentence(function, error.args[0])) from None
    return state.hexdigest()[:16]


def reached_modules(function: Any) -> dict[str, tuple[Any, Any]]:
    """Return the users' modules that the digest of a function covers, with their states.

    A state is the module's specification, which is another object once it is reloaded, and size and time of its file.
    """
    seen: Seen = {}
    with contextlib.suppress(Unidentifiable):
        for _ in _parts(function, seen, 0):
            pass
    met = [value for _, value in seen.values()]
    names = {value.__name__ for value in met if isinstance(value, types.ModuleType)}
    names |= {str(value.__module__) for value in met if isinstance(value, types.FunctionType | type)}
    return {name: module_state(name) for name in names - {"__main__"} if not _distribution_version(name)}


def module_state(name: str) -> tuple[Any, Any]:
    """Return the state of a module as in :func:`reached_modules`."""
    module = sys.modules.get(name)
    try:
        found = os.stat(getattr(module, "__file__", None) or "")
    except OSError:
        return getattr(module, "__spec__", None), None
    return getattr(module, "__spec__", None), (found.st_size, found.st_mtime_ns)


_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_DEEPEST = 50
Seen = dict[tuple[int, str], tuple[int, Any]]  # number of a visited object; the object itself, to reserve its id


def _parts(value: Any, seen: Seen, depth: int) -> Iterator[str]:
    kind = type(value)
    if kind in _ATOMS or value is Ellipsis:
        yield f"{kind.__name__}:{value!r}"
        return
    if (id(value), "") in seen:
        yield f"again:{seen[id(value), ''][0]}"
        return
    seen[id(value), ""] = (len(seen), value)
    if depth > _DEEPEST:
        raise Unidentifiable(f"it reaches {kind.__qualname__}, nested too deeply")
    if kind is types.CodeType:
        yield from _code(value, seen, depth)
    elif isinstance(value, types.ModuleType):
        yield f"module:{_distribution_version(value.__name__) or value.__name__}"
    elif kind is types.FunctionType:
        yield from _function(value, seen, depth)
    elif kind is types.MethodType:
        yield from _parts(value.__func__, seen, depth + 1)
        yield from _parts(value.__self__, seen, depth + 1)
    elif isinstance(value, types.BuiltinFunctionType | type(len) | types.MethodDescriptorType):
        yield from _builtin(value, seen, depth)
    elif isinstance(value, type):
        yield from _class(value, seen, depth)
    elif kind in (list, tuple):
        yield f"{kind.__name__}:{len(value)}"
        for item in value:
            yield from _parts(item, seen, depth + 1)
    elif kind is dict:
        yield f"dict:{len(value)}"
        for item in value.items():
            yield from _parts(item, seen, depth + 1)
    elif kind in (set, frozenset):
        yield f"set:{sorted('|'.join(_parts(item, dict(seen), depth + 1)) for item in value)}"
    else:
        yield from _instance(value, seen, depth)


def _builtin(value: Any, seen: Seen, depth: int) -> Iterator[str]:
    """Parts of a C function and of the object it is bound to: ``{...}.get``, ``re.compile(...).match``."""
    bound = getattr(value, "__self__", None)
    owner = str(getattr(value, "__module__", None) or getattr(bound, "__name__", "builtins"))
    yield f"builtin:{_distribution_version(owner) or owner}:{value.__qualname__}"
    if bound is not None and not isinstance(bound, types.ModuleType):
        yield from _parts(bound, seen, depth + 1)


def _code(code: types.CodeType, seen: Seen, depth: int) -> Iterator[str]:
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    yield f"code:{sys.version_info[:2]}:{code.co_code.hex()}:{code.co_names}:{code.co_varnames}:{arguments}"
    yield f"exceptions:{getattr(code, 'co_exceptiontable', b'').hex()}"
    for constant in code.co_consts:
        yield from _parts(constant, {} if isinstance(constant, types.CodeType) else seen, depth + 1)


def _function(function: types.FunctionType, seen: Seen, depth: int) -> Iterator[str]:
    if (release := _distribution_version(function.__module__)) and _is_in_its_module(function):
        yield f"function:{release}:{function.__qualname__}"
        return
    yield from _parts(function.__code__, seen, depth + 1)
    if attributes := {name: value for name, value in vars(function).items() if name not in _OF_EVERY_FUNCTION}:
        yield from _parts(attributes, seen, depth + 1)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen, depth + 1)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            raise Unidentifiable(f"it reaches {name}, which has no value yet") from None
        yield from _parts(content, seen, depth + 1)
    names = _names(function.__code__)
    for name in sorted(_names_read(function.__code__, _GLOBALS)):
        if name in function.__globals__:
            yield f"global:{name}"
            yield from _reachable_parts(function.__globals__[name], names, seen, depth + 1)
    for module in sorted(_imported_modules(function)):
        yield f"import:{_distribution_version(module) or module}"
        if not _distribution_version(module):
            for loaded in (_loaded_module(module), _loaded_module(module.partition(".")[0])):
                yield from _reachable_parts(loaded, names, seen, depth + 1)


_OF_EVERY_FUNCTION = ("__wrapped__",)
"""An attribute that wrappers add for introspection; they refer to the wrapped function themselves."""


def _is_in_its_module(function: types.FunctionType) -> bool:
    """Test whether the module and name of a function refer to this very object; not so for a wrapper."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _reachable_parts(value: Any, names: set[str], seen: Seen, depth: int) -> Iterator[str]:
    """Parts of a value; for a module without a distribution also of its attributes with these names."""
    yield from _parts(value, seen, depth)
    key = (id(value), ",".join(sorted(names)))
    if isinstance(value, types.ModuleType) and not _distribution_version(value.__name__) and key not in seen:
        seen[key] = (len(seen), value)
        for name in sorted(names):
            if hasattr(value, name):
                yield f"attribute:{value.__name__}.{name}"
                yield from _reachable_parts(getattr(value, name), names, seen, depth + 1)


_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


def _names_read(code: types.CodeType, operations: tuple[str, ...]) -> set[str]:
    """The names that these operations read in the code and in nested code."""
    found = {str(step.argval) for step in dis.get_instructions(code) if step.opname in operations}
    return found.union(*(_names_read(c, operations) for c in code.co_consts if isinstance(c, types.CodeType)))


def _names(code: types.CodeType) -> set[str]:
    """All names in the code, including those of attributes."""
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def names_in(function: Any) -> set[str]:
    """All names in a function's code, including those of attributes; empty if it is no Python function."""
    return _names(function.__code__) if isinstance(function, types.FunctionType) else set()


def _imported_modules(function: types.FunctionType) -> set[str]:
    """The modules that a function imports in its body; relative imports are resolved."""
    package = function.__globals__.get("__package__") or ""
    found: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        constants: list[Any] = [None, None]  # pushed operands: the level precedes the names
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":
                level = constants[-2] if isinstance(constants[-2], int) else 0
                found.add(importlib.util.resolve_name("." * level + step.argval, package) if level else step.argval)
            if step.opname != "EXTENDED_ARG":
                constants.append(step.argval)
    return found


def _loaded_module(name: str) -> types.ModuleType:
    if name not in sys.modules:
        raise Unidentifiable(f"it imports {name}, which is not loaded here: import it beside the function")
    return sys.modules[name]


_OF_EVERY_CLASS = frozenset(
    ["__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__slotnames__", "_abc_impl"]
)


def _class(kind: type, seen: Seen, depth: int) -> Iterator[str]:
    yield f"class:{_distribution_version(kind.__module__) or kind.__module__}:{kind.__qualname__}"
    if not _distribution_version(kind.__module__):
        for name, value in sorted(vars(kind).items()):
            if name not in _OF_EVERY_CLASS:
                yield name
                plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                methods = (plain.fget, plain.fset) if isinstance(plain, property) else plain
                yield from _parts(methods, seen, depth + 1)
        yield from _parts(kind.__bases__, seen, depth + 1)


def _instance(value: Any, seen: Seen, depth: int) -> Iterator[str]:
    """Parts of an object that pickle serializes: workers receive nothing else."""
    kind = type(value)
    if kind.__module__ == "re" and hasattr(value, "pattern"):
        yield f"regex:{value.pattern!r}:{value.flags}"
        return
    yield from _parts(kind, seen, depth + 1)
    try:
        reduced = copyreg.dispatch_table[kind](value) if kind in copyreg.dispatch_table else value.__reduce_ex__(4)
    except Exception:
        raise Unidentifiable(f"it reaches {kind.__qualname__}, which has no content that can be digested") from None
    if isinstance(reduced, str):
        yield f"named:{reduced}"
        reduced = (getattr(value, "__dict__", None),)  # functools.lru_cache stores the function there
    for part in reduced:
        yield from _parts(list(part) if isinstance(part, Iterator) else part, seen, depth + 1)


def _sentence(function: Any, why: str) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    plain = name.rpartition(".")[2]
    return (
        f"cannot tell one version of {name} from another: {why}; "
        f'state a version that you raise with every change: geoskip.declare({plain}, version="1")'
    )


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """The distributions of each top-level package, except editable ones, which change under one version."""
    found = importlib.metadata.packages_distributions()
    return {package: names for package, names in found.items() if not any(map(_is_editable, names))}


@functools.cache
def _is_editable(name: str) -> bool:
    said = importlib.metadata.distribution(name).read_text("direct_url.json")
    return bool(said and json.loads(said).get("dir_info", {}).get("editable"))


@functools.cache
def _distribution_version(module: str | None) -> str | None:
    """``module@name==version`` of a module's distribution, or ``module@python==3.11.7``; None if unknown."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return f"{module}@python=={sys.version.split()[0]}"
    names = _distributions().get(top)
    if not names:
        return None
    return f"{module}@" + ",".join(f"{name}=={importlib.metadata.version(name)}" for name in sorted(set(names)))
