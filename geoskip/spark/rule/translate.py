"""Translate Catalyst expressions, as JSON from the rule, to predicates.

An unsupported expression becomes a :class:`~geoskip.predicates.Call` with its implementing class if it is a function,
else an :class:`~geoskip.predicates.Opaque` with its columns. Both are sound: they keep every file unless a mapping
supports them.

Collated strings can be equal although their bytes differ (soundness rule 4): each expression over them becomes a call
of a function without rules, so that only ValueList supports it, by letting Spark evaluate it.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeGuard

import shapely

from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
    columns_of,
    transform,
    walk,
)
from geoskip.registry import SPELLINGS, current
from geoskip.registry.fingerprint import (
    UNIDENTIFIED,
    Unidentifiable,
    module_state,
    own_identity,
    qualified_name,
    reached_modules,
    versioned_identity,
)
from geoskip.registry.functions import CATALYST
from geoskip.registry.installed import is_offered
from geoskip.rewrite.composed import MOST_RECORDS, is_record, record
from geoskip.sources.column_names import quote_if_needed
from geoskip.types import sql_type

Json = Mapping[str, Any]
_BY_BYTES = re.compile(r" collate UTF8_BINARY\b")
_AND = CATALYST + "And"
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_OPERATORS = {"Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%", "UnaryMinus": "negative"}
_TEXTS: dict[str, Callable[[Predicate, str], Predicate]] = {
    "StartsWith": StartsWith,
    "EndsWith": EndsWith,
    "Contains": Contains,
}


SPATIAL = "org.apache.spark.sql.catalyst.util.STUtils."
_SPATIAL = {
    "stGeomFromWKB": "ST_GeomFromWKB",
    "stAsBinary": "ST_AsBinary",
    "stGeomAsBinary": "ST_AsBinary",
    "stSetSrid": "ST_SetSRID",
    "stGeomSetSrid": "ST_SetSRID",
}
"""Functions over Spark's built-in geometries (since 4.1), by the static methods that Spark replaces them with."""
_SRID = 4
"""Number of bytes before the WKB of such a geometry."""


class Translator:
    """Translates the conditions of one query.

    ``slots`` are the values of expressions over partition columns, for one partition: each is the JSON of a literal, or
    None if the evaluation threw. ``names`` maps a column's name in the query's relation to its name in the index.
    """

    def __init__(self, *, slots: Sequence[Json | None] = (), names: Callable[[str], str] = lambda name: name) -> None:
        self.slots = slots
        self.names = names

    def predicate(self, node: Json) -> Predicate:
        """Translate an expression with its children."""
        if "slot" in node and node["slot"] < len(self.slots):
            value = self.slots[node["slot"]]
            return Opaque("a partition's value that could not be had") if value is None else literal(value)
        if "class" not in node:
            return literal(node)
        if "opaque" in node:
            return Opaque(node["opaque"], tuple(map(self.names, node.get("columns", ()))), "renamed" in node)
        if "column" in node:
            shown = quote_if_needed(node["shown"]) if "shown" in node else None
            return Column(self.names(quote_if_needed(node["column"])), type_name(node["type"]), shown)
        children = tuple(map(self.predicate, node.get("children", ())))
        if any(sql_type(child.type).kind == "string collate" for child in children):
            return _of_collated(node, children)
        if "field" in node:
            return _field(children[0], node)
        kind = node["class"].removeprefix(CATALYST)
        return self._vertex(kind, node, children)

    def _vertex(self, kind: str, node: Json, children: tuple[Predicate, ...]) -> Predicate:
        match kind, children:
            case "And", _:
                return And(children)
            case "Or", _:
                return Or(children)
            case "Not", (child,):
                return Not(child)
            case "IsNull", (child,):
                return IsNull(child)
            case "IsNotNull", (child,):
                return Not(IsNull(child))
            case "In", (child, *values):
                if all(isinstance(v, Literal) for v in values):
                    return In(child, tuple(v for v in values if isinstance(v, Literal)))
                return Or(tuple(Comparison("=", child, v) for v in values))
            case "InSet", (child,):
                members = tuple(map(literal, node["values"]))
                if all(isinstance(v, Literal) for v in members):
                    return In(child, tuple(v for v in members if isinstance(v, Literal)))
                if len(members) <= MOST_RECORDS and all(map(is_record, members)):
                    return Or(tuple(Comparison("=", child, v) for v in members))
                return Opaque(f"{child} in a set of values without an order", tuple(columns_of(child)))
            case "Like", (child, Literal(str() as pattern)):
                return Like(child, pattern, node["args"][0] if node.get("args") else "\\")
            case (("StartsWith" | "EndsWith" | "Contains"), (child, Literal(str() as text))):
                return _TEXTS[kind](child, text)
            case "Cast", (child,):
                return _cast(child, node)
            case "CaseWhen", _:
                return _case(children, node)
            case "If", (test, then, other):
                return Call("if", (test, then, other), type=type_name(node["type"]))
            case "NaNvl", (number, other):
                is_nan = Call("isnan", (number,), CATALYST + "IsNaN", (), "boolean")
                return Call("if", (is_nan, other, number), type=type_name(node["type"]))
        if kind in _COMPARISONS and len(children) == 2:
            return Comparison(_COMPARISONS[kind], *children)
        return self._call(kind, node, children)

    def _call(self, kind: str, node: Json, children: tuple[Predicate, ...]) -> Predicate:
        result = type_name(node["type"])
        if "python" in node:
            if len(children) == 1 and "python" in node["children"][0] and not is_offered(children[0]):
                if not _is_passed_on(children[0]):
                    return Opaque(f"{node['name']} of what another Python function returns", _columns(children))
                children = (replace(children[0], flags=(*children[0].flags, _UNCONVERTED)),)
            flags = (f"eval:{node['evalType']}",)
            implementation = _add_version(node["name"], implementation_of(node["python"]))
            return _call_as_declared(Call(node["name"], children, implementation, flags, result))
        name: str = _OPERATORS.get(kind) or node.get("name", kind)
        if "isFunction" in node:  # of the JVM: its class tells neither state nor version, and lambdas' names vary
            implementation = _add_version(name, kind.partition("$$Lambda")[0] + UNIDENTIFIED)
            return _call_as_declared(Call(name, children, implementation, (), result))
        match kind, children:
            case "objects.Invoke", (Opaque(text), *arguments) if text.startswith("ParseUrlEvaluator("):  # since Spark 4
                return Call("parse_url", tuple(arguments), CATALYST + "ParseUrl", (text,), result)
            case "GetTimestamp", _:  # since Spark 4.1 a flag with error advice distinguishes to_date and to_timestamp
                flags = tuple(flag for flag in node["args"] if not flag.startswith("try_to_"))
                return Call("gettimestamp", children, node["class"], flags, result)
            case "objects.StaticInvoke", _ if (method := _spatial(node)) is not None:
                name, flags = _SPATIAL[method], tuple(node["args"])
                return Call(name, children, f"{SPATIAL}{method}", flags, result)
        if kind != node["class"]:
            name = SPELLINGS.get(name.lower(), name.lower())
        if node["class"].startswith("org.apache.spark.sql.sedona_sql."):
            name = node["class"].rpartition(".")[2]
        call = Call(name, children, node["class"], tuple(node.get("args", ())), result)
        return name_variables(call) if kind == "LambdaFunction" else call


_UNCONVERTED = "unconverted"
"""Flag of a call that is the only argument of another Python function: it is not the indexed value of the same call.

In ``f(g(x))`` Spark passes what g returns to f as it is. It does not convert it to the declared type, so f gets the
text that a g of type int returns, for which ``g(x)`` is NULL.
"""


def _is_passed_on(inner: Predicate) -> TypeGuard[Call]:
    """Test whether Spark converts a result of the declared type to an equal value."""
    kind = sql_type(inner.type)
    return isinstance(inner, Call) and (kind.is_integral or inner.type in ("string", "boolean", "double"))


def _spatial(node: Json) -> str | None:
    """The method of Spark's built-in spatial functions that a StaticInvoke calls, or None."""
    match node.get("args"):
        case [str() as owner, _, str() as method, *_] if owner == f"class {SPATIAL[:-1]}" and method in _SPATIAL:
            return method
    return None


def members_as_written(conditions: Iterable[Json]) -> tuple[Predicate, ...]:
    """Translate the members of a condition with partition columns instead of their values."""
    return tuple(parts_of(conditions, Translator(), [], whole=True))


def parts_of(
    conditions: Iterable[Json], translator: Translator, reasons: list[str], *, whole: bool = False
) -> Iterator[Predicate]:
    """Translate conditions and the members of their ANDs; untranslatable ones become :class:`Opaque`.

    Parameters
    ----------
    conditions, translator
        The conditions as JSON, and the translator.
    reasons
        List to which a sentence is appended for each condition that is not translated.
    whole
        True to treat an AND over only partition columns as one member, even without their values.
    """
    for node in conditions:
        evaluated = "slot" in node and (translator.slots or whole)  # over partition columns: evaluated by Spark
        if node.get("class") == _AND and not evaluated:
            yield from parts_of(node["children"], translator, reasons, whole=whole)
            continue
        try:
            yield translator.predicate(node)
        except BaseException as error:
            reasons.append(f"a condition could not be translated: {type(error).__name__}: {error}")
            yield Opaque("(a condition that could not be translated)")


def _call_as_declared(call: Call) -> Predicate:
    """The call, or Opaque if it is declared as nondeterministic, even if Spark considers it deterministic."""
    said = current().properties_of(call)
    return Opaque(str(call), _columns([call])) if said is not None and said.deterministic is False else call


def _add_version(name: str, implementation: str) -> str:
    """Add the version declared for the name to an unidentified function."""
    version = current().version_of(name) if implementation.endswith(UNIDENTIFIED) else None
    return implementation if version is None else f"{implementation.removesuffix(UNIDENTIFIED)}#version:{version}"


def literal(node: Json) -> Predicate:
    """Translate a literal to a physical value with its type (see :mod:`geoskip.predicates`)."""
    kind = type_name(node["type"])
    if "opaque" in node:
        return Opaque(node["opaque"])
    if "array" in node:
        parts = tuple(map(literal, node["array"]))
        if all(isinstance(part, Literal) for part in parts):
            return Literal(tuple(part.value for part in parts if isinstance(part, Literal)), kind)
        return Opaque("an array of values that have no written form")
    if "keys" in node:
        keys, values = literal(node["keys"]), literal(node["values"])
        if isinstance(keys, Literal) and isinstance(values, Literal):
            return Literal(tuple(zip(keys.value, values.value, strict=True)), kind)
        return Opaque("a map of values that have no written form")
    if "struct" in node:
        return record(tuple(map(literal, node["struct"])), kind)
    if "bits" in node:
        return Literal(struct.unpack("<d", struct.pack("<q", node["bits"]))[0], kind)
    if "decimal" in node:
        return Literal(Decimal(node["decimal"]), kind)
    if "utf8" in node:
        return Literal(base64.b64decode(node["utf8"]).decode("utf-8", "surrogateescape"), kind)
    if "bytes" in node:
        data = base64.b64decode(node["bytes"])
        return _geometry(data, node["type"]) if kind == "geometry" else Literal(data, kind)
    return Literal(node["literal"], kind)


def _geometry(data: bytes, kind: str) -> Predicate:
    if kind.startswith("geometry"):
        own = shapely.from_wkb(data[_SRID:], on_invalid="ignore")
        return Opaque("a geometry that GEOS cannot read") if own is None else Literal(own, "geometry")
    try:
        from sedona.spark.utils import geometry_serde
    except ImportError:
        return Opaque("a geometry, which needs the apache-sedona package to be read")
    shape, _ = geometry_serde.deserialize(bytearray(data))
    return Literal(shape, "geometry")


def _field(child: Predicate, node: Json) -> Predicate:
    kind = type_name(node["type"])
    if isinstance(child, Column):
        name = f"{child.name}.{quote_if_needed(node['field'])}"
        shown = f"{child}.{quote_if_needed(node.get('shown', node['field']))}"
        return Column(name, kind, shown if shown != name else None)
    return Call("getfield", (child, Literal(node["field"], "string")), node["class"], (), kind)


def _cast(child: Predicate, node: Json) -> Predicate:
    texts = node.get("args", [])
    mode = next((t for t in texts if t in ("ANSI", "LEGACY", "TRY")), "LEGACY")
    zone = next((t for t in texts[1:] if t not in ("ANSI", "LEGACY", "TRY", "None", "true", "false")), None)
    source = child.type
    return Cast(child, type_name(node["type"]), source, mode == "ANSI", zone, mode == "TRY")


def _case(children: tuple[Predicate, ...], node: Json) -> Predicate:
    """``CASE WHEN a THEN x WHEN b THEN y ELSE z`` as ``if(a, x, if(b, y, z))``."""
    kind = type_name(node["type"])
    branches, other = children, Literal(None, kind)
    result: Predicate = other
    if len(children) % 2:
        branches, result = children[:-1], children[-1]
    for test, value in reversed(list(zip(branches[::2], branches[1::2], strict=True))):
        result = Call("if", (test, value, result), type=kind)
    return result


def _of_collated(node: Json, children: tuple[Predicate, ...]) -> Predicate:
    """Make conditions on collated strings opaque, except IS NULL."""
    kind = node["class"].removeprefix(CATALYST)
    values = tuple(map(literal, node.get("values", ())))
    if kind in ("IsNull", "IsNotNull"):
        return IsNull(children[0]) if kind == "IsNull" else Not(IsNull(children[0]))
    if "python" in node or kind == node["class"] or not all(isinstance(value, Literal) for value in values):
        return Opaque(f"{node.get('name', 'expression')} of a collated string", _columns(children))
    name = _COMPARISONS.get(kind) or node.get("name", kind)
    flags = tuple(node.get("args", ()))
    return Call(name, (*children, *values), f"collated {node['class']}", flags, type_name(node["type"]))


def _columns(nodes: Sequence[Predicate]) -> tuple[str, ...]:
    return tuple(sorted(columns_of(*nodes)))


def type_name(text: str) -> str:
    """Return Spark's catalog name of a type.

    Geometries of Sedona and of Spark are ``geometry``, with any SRID; strings that are compared by bytes are
    ``string``, although Spark 4.3 adds their explicit collation to the name.

    >>> type_name("udt org.apache.spark.sql.sedona_sql.UDT.GeometryUDT"), type_name("geometry(4326)")
    ('geometry', 'geometry')
    >>> type_name("array<string collate UTF8_BINARY>"), type_name("string collate UTF8_BINARY_RTRIM")
    ('array<string>', 'string collate UTF8_BINARY_RTRIM')
    """
    if text.startswith("udt "):
        kind = text.rpartition(".")[2].rstrip("$")
        return "geometry" if kind == "GeometryUDT" else kind
    if text.startswith("geometry("):
        return "geometry"
    return _BY_BYTES.sub("", text)


def implementation_of(command: str) -> str:
    """Identity of the Python function of a UDF, from Spark's pickled command in base64."""
    data = base64.b64decode(command)
    key = hashlib.sha256(data).digest()
    known, modules = _implementations.get(key, ("", {}))
    now = {name: module_state(name) for name in modules}
    if not known or any(now[name][0] is not modules[name][0] for name in modules):
        if len(_implementations) >= _MOST_IMPLEMENTATIONS:
            _implementations.clear()
        known, modules = _implementations[key] = _implementation(key, data)
    elif now != modules:  # workers may import either version
        return f"python:{key.hex()}{UNIDENTIFIED}"
    kind, colon, found = known.partition(":")
    return f"{kind}{colon}{versioned_identity(found)}"


_MOST_IMPLEMENTATIONS = 512
_implementations: dict[bytes, tuple[str, Mapping[str, tuple[Any, Any]]]] = {}
"""Identities by the digests of the pickled functions, with the states of the modules that a function reaches."""


def _implementation(digest: bytes, command: bytes) -> tuple[str, Mapping[str, tuple[Any, Any]]]:
    # Unpickling is safe: Spark has pickled the user's function in this process.
    try:
        function: Any = pickle.loads(command)
    except BaseException:  # a large function is a broadcast variable, which only workers can read
        return f"python:{digest.hex()}{UNIDENTIFIED}", {}
    if isinstance(function, tuple):
        function = function[0]
    while str(getattr(function, "__globals__", {}).get("__name__")).startswith("pyspark."):  # wrapper of a profiler
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    try:
        return f"python:{own_identity(function)}", reached_modules(function)
    except Unidentifiable:
        return f"python:{qualified_name(function)}{UNIDENTIFIED}", {}


_VARIABLE = CATALYST + "NamedLambdaVariable"
_VARIABLE_NUMBER = 3
"""Position of Spark's number in the flags of a variable: after name, type and nullability."""


def name_variables(function: Call) -> Call:
    """Name the variables of a lambda by position, so that ``x -> x > 5`` equals ``y -> y > 5``.

    Spark numbers variables differently in each query. Here a variable is named by the nesting depth of lambdas within
    the one that binds it, and by its position there.

    >>> x, y = (Call("v", (), _VARIABLE, ("x", "int", "true", number, "null"), "int") for number in "78")
    >>> one, other = (Call("lambdafunction", (Call("f", (a, b)), a, b)) for a, b in ((x, y), (y, x)))
    >>> swapped = Call("lambdafunction", (Call("f", (y, x)), x, y))
    >>> one == other, name_variables(one) == name_variables(other), name_variables(one) == name_variables(swapped)
    (False, True, False)
    >>> inner = (name_variables(Call("lambdafunction", (body, y))) for body in (x, y))
    >>> len({name_variables(Call("lambdafunction", (function, x))) for function in inner})
    2
    """
    body, *variables = function.args
    places = {
        v.flags[_VARIABLE_NUMBER]: str(place)
        for place, v in enumerate(variables)
        if _is_open(v) and isinstance(v, Call)
    }
    if len(places) < len(variables):
        return function
    variables_within = (v for v in walk(body) if isinstance(v, Call) and v.implementation == _VARIABLE)
    level = str(1 + max((int(v.flags[0]) for v in variables_within if not _is_open(v)), default=-1))

    def name_variable(node: Predicate) -> Predicate:
        if isinstance(node, Call) and _is_open(node) and node.flags[_VARIABLE_NUMBER] in places:
            return replace(node, flags=(level, places[node.flags[_VARIABLE_NUMBER]]))
        return node

    found = transform(function, name_variable)
    assert isinstance(found, Call)
    return found


def _is_open(node: Predicate) -> bool:
    """True for a variable that is not yet named by its position."""
    return isinstance(node, Call) and node.implementation == _VARIABLE and len(node.flags) > _VARIABLE_NUMBER
