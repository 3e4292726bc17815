"""Which constants of modules does a function read, and may one have another value in Spark's workers?

A function of a module is pickled by its name, and workers import the module anew: they see what its source says, not
what the driver's program has assigned since (``rules.LIMIT = 3``), nor what an environment variable says here. Looked
at are texts, numbers and tuples of them in modules of one's own; of installed packages nobody assigns constants.
Containers and other objects are taken to be what the module made of them.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from geoskip.spark.hashing import MOST, PLAIN, modules_of, names_of, reached

__all__ = ["Constant", "constants", "reassigned"]

_LITERAL = (
    ast.Expression, ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip
_INSTALLED = ("site-packages", "dist-packages")
_OURS = ("geoskip", "udf_mappings")


Constant = tuple[types.ModuleType, str]


def constants(function: Any) -> tuple[Constant, ...] | None:
    """Those that a function reads, of all modules of one's own; None where too much is to be looked through."""
    found: dict[Constant, None] = {}
    for number, value in enumerate(reached(function)):
        if number > MOST:
            return None
        if isinstance(value, types.FunctionType):
            names = names_of(value)
            for module in _modules(value):
                if module.__name__ == "__main__" or _source(module) is None:
                    continue
                for name in sorted(names & vars(module).keys()):
                    if not name.startswith("__") and (_is_plain(vars(module)[name]) or _has_literal(module, name)):
                        found[module, name] = None
    return tuple(found)


def reassigned(constants: Iterable[Constant]) -> str | None:
    """The first that is not what its module's source makes it, by literals and at one place, as ``module.NAME``."""
    return next((f"{module.__name__}.{name}" for module, name in constants if not _is_as_stated(module, name)), None)


def _modules(function: types.FunctionType) -> Iterator[types.ModuleType]:
    """Modules of one's own that a function reads from: the one that it is in, and those that it knows."""
    own = sys.modules.get(function.__module__ or "")
    if own is not None and vars(own) is function.__globals__:
        yield own
    yield from modules_of(function)


def _source(module: types.ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py") or any(part in path for part in _INSTALLED):
        return None
    if module.__name__.partition(".")[0] in _OURS:
        return None
    return path


@dataclass(frozen=True)
class _Imported:
    """What a source binds a name to by ``from module import name``."""

    module: str
    name: str


def _is_as_stated(module: types.ModuleType, name: str) -> bool:
    value, stated = vars(module).get(name, ...), _states(module).get(name, ...)
    if not isinstance(stated, _Imported):
        return _same(stated, value)
    try:
        origin = sys.modules[importlib.util.resolve_name(stated.module, module.__package__)]
    except (ImportError, KeyError):
        return False
    return _same(vars(origin).get(stated.name), value) and (
        _source(origin) is None or _is_as_stated(origin, stated.name)
    )


def _has_literal(module: types.ModuleType, name: str) -> bool:
    return not isinstance(_states(module).get(name, _Imported("", "")), _Imported)


def _states(module: types.ModuleType) -> Mapping[str, Any]:
    """What a module's source makes of names; nothing where it cannot be read."""
    try:
        path = str(_source(module))
        return _stated(path, os.stat(path).st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return {}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, PLAIN)


@functools.lru_cache(maxsize=64)
def _stated(path: str, _: int) -> Mapping[str, Any]:
    """The names that a module's source binds once, to an expression of literals, with their values."""
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            found |= {alias.asname or alias.name: _Imported(source, alias.name) for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            whole = ast.Expression(node.value)
            if isinstance(target, ast.Name) and all(isinstance(part, _LITERAL) for part in ast.walk(whole)):
                found[target.id] = eval(compile(whole, path, "eval"), {"__builtins__": {}})
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    bound = Counter(
        name for node in tree.body if not isinstance(node, scopes) for part in ast.walk(node) for name in _bound(part)
    )
    bound.update(name for part in ast.walk(tree) if isinstance(part, ast.Global) for name in part.names)
    return {name: value for name, value in found.items() if bound[name] == 1}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
