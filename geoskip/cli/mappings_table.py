"""Table of all mapped functions, as Markdown, from the registry.

The arguments of a function are those of its declaration, else of its Python, PySpark or Sedona function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from geoskip.registry import Function, Given, Registry, current
from geoskip.registry.fingerprint import qualified_name
from geoskip.registry.functions import Reference

_INTRODUCTION = """# Functions that are mapped

Written by `python -m geoskip mappings > udf_mappings/README.md`, from the registry. A function is met under its name
and by its implementation: the one of the library named here, not another of that name. *Serves* names the rules, which
the module explains one by one. Indexes over a function's value, such as `ValueList("f(x)")`, serve every function,
mapped or not.
"""
_ARGUMENTS = {
    "charindex": "substr, str, [start]",
    "getarrayitem": "array, place",
    "integraldivide": "left, right",
    "timeadd": "start, interval",
    "timestampadd": "unit, quantity, timestamp",
    "timestampdiff": "unit, start, end",
}
"""Arguments of Spark's functions that PySpark lacks, or has under another name."""
_SEDONA = ("st_functions", "st_predicates", "st_constructors")


@dataclass
class _FunctionRow:
    """One function of a library."""

    shown: str
    makers: dict[str, None] = field(default_factory=dict)
    indexes: dict[str, None] = field(default_factory=dict)
    serves: dict[str, None] = field(default_factory=dict)


def table() -> str:
    """Table of the mappings that installed packages and this process have declared, by library."""
    from geoskip.registry.installed import load_mappings

    load_mappings()
    modules: dict[str, dict[str, _FunctionRow]] = {}
    for module, function, indexes, serves in _entries(current()):
        rows = modules.setdefault(module, {})
        row = rows.setdefault(function.name.lower(), _FunctionRow(_call_text(function)))
        row.makers |= dict.fromkeys(_makers(function))
        row.indexes |= dict.fromkeys(indexes)
        row.serves |= {serves: None}
        if len(shown := _call_text(function)) > len(row.shown):
            row.shown = shown
    _gather(modules)
    parts = [_INTRODUCTION]
    for module, rows in sorted(modules.items()):
        parts.append(f"## `{module}`\n\n{_title(module)}\n\n| function | of | indexes | serves |\n|---|---|---|---|")
        parts += ["\n".join(_line(row) for _, row in sorted(rows.items())) + "\n"]
    return "\n".join(parts).rstrip() + "\n"


def _gather(modules: dict[str, dict[str, _FunctionRow]]) -> None:
    """Move the entries of a function in other modules to the module that maps it to indexes."""
    mapped = [(rows, row, name) for rows in modules.values() for name, row in rows.items() if row.indexes]
    for module, rows in list(modules.items()):
        for name, row in list(rows.items()):
            places = [
                r for other, r, n in mapped if n == name and other is not rows and set(row.makers) & set(r.makers)
            ]
            if not row.indexes and places:
                places[0].serves |= row.serves
                del rows[name]
        if not rows:
            del modules[module]


def _entries(registry: Registry) -> Iterator[tuple[str, Function, list[str], str]]:
    """Module, function, indexes and purpose of each declaration."""
    for mapping in registry.mappings.values():
        together = " and " if mapping.together else ", "
        kinds = [together.join(kind.__name__ for kind in mapping.indexes)]
        for reference in mapping.functions:
            yield mapping.rule.__module__, _function(reference), kinds, mapping.rule.__name__.replace("_", " ").strip()
    for properties in registry.properties:
        kinds = ["MinMax"] if properties.monotone else ["MetricDist"] if properties.metric else []
        yield (
            properties.module,
            _function(properties.function),
            kinds,
            ", ".join(properties.to_dict()).replace("_", " "),
        )
    for denotation in registry.all_denotations():
        yield denotation.meaning.__module__, _function(denotation.function), ["GeoBox"], "seen through"
    for constant in registry.all_constants():
        yield constant.evaluate.__module__, _function(constant.function), [], "of constants"


def _function(reference: Reference) -> Function:
    """Function that a reference names, with its implementation."""
    if isinstance(reference, Given):
        return Function(reference.name, python=(qualified_name(reference.function),))
    return reference if isinstance(reference, Function) else Function(reference.name)


def _line(row: _FunctionRow) -> str:
    cells = (row.shown, ", ".join(row.makers), ", ".join(_single(row.indexes)), ", ".join(row.serves))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _single(names: dict[str, None]) -> list[str]:
    """Names in lists of names, once each."""
    return list(dict.fromkeys(name for several in names for name in several.split(", ")))


def _title(module: str) -> str:
    """First sentence of a module's docstring, or the name of its package."""
    text = " ".join((inspect.getdoc(import_module(module)) or "").partition("\n\n")[0].split())
    text = text or f"Functions of the package ``{module.partition('.')[0]}`` itself."
    return re.sub(r":\w+:`", "`", text.replace("``", "`")).rstrip(":")


def _makers(function: Function) -> Iterator[str]:
    """Libraries that a function belongs to."""
    for name in function.classes:
        yield "Sedona" if "sedona" in name else "Spark" if name.startswith("org.apache.spark.") else name
    for name in function.python:
        module = name.removesuffix(".vectorised").rpartition(".")[0]  # one row for both forms
        yield f"`{module.rpartition('.')[2]}`"


def _call_text(function: Function) -> str:
    if not function.name[:1].isalpha():
        return f"`{function.name}`"
    return f"`{function.name}({function.arguments or _arguments(function)})`"


def _arguments(function: Function) -> str:
    """Arguments of a function's Python form, if it has one."""
    places = [f"sedona.spark.sql.{name}" for name in _SEDONA] if function.name.lower().startswith("st_") else []
    names = [(module, function.name) for module in places]
    names += [(module, attribute) for module, _, attribute in (name.rpartition(".") for name in function.python)]
    names += [("pyspark.sql.functions", function.name.lower())] if not names else []
    found = (_signature(module, name) for module, name in names if name)
    return next((text for text in found if text is not None), _ARGUMENTS.get(function.name.lower(), "…"))


def _signature(module: str, name: str) -> str | None:
    try:
        function: Any = getattr(import_module(module), name)
        parameters = inspect.signature(function).parameters.values()
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL and p.name == "arguments" for p in parameters):
        return None
    shown = [("*" if p.kind is p.VAR_POSITIONAL else "") + p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    optional = [p.default is not p.empty for p in parameters if p.kind is not p.KEYWORD_ONLY]
    words = [f"[{word}]" if free else word for word, free in zip(shown, optional, strict=True)]
    return ", ".join(words)
