"""DuckDB SQL statements: their Parquet tables, and replacement of file names in their text.

DuckDB parses the text itself (``json_serialize_sql``), and only the words that name files are replaced in it: every
other byte stays, so that no text is printed from a parse tree. Statements that DuckDB does not serialise are
left as they are; of ``CREATE TABLE .. AS``, ``INSERT INTO`` and ``EXPLAIN`` the query is looked at.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geoskip.engines.duckdb_scopes import READERS, Json, alias_of, fold_case, nodes_of, replace_nodes

_NOWHERE = (1 << 64) - 1
BUILT_IN = frozenset(("contains", "date_trunc", "datetrunc", "ends_with", "isnan", "starts_with", "year"))
"""DuckDB's own functions that conditions are translated with, beside operators and those named ``ST_``."""
_FOLDED = BUILT_IN | frozenset(
    (
        *("+", "-", "*", "||", "concat", "lower", "make_date", "make_timestamp", "trunc", "upper"),
        *(f"to_{unit}" for unit in ("years", "months", "weeks", "days", "hours", "minutes", "seconds", "milliseconds")),
    )
)
"""Functions of constants that DuckDB evaluates for us; none of them depends on the session."""
_FOLDED_TYPES = ("BIGINT", "DATE", "INTEGER", "TIMESTAMP", "VARCHAR")
_OPTIONS = {
    "binary_as_string", "can_have_nan", "file_row_number", "filename", "hive_partitioning", "hive_types",
    "hive_types_autocast", "union_by_name",
}  # fmt: skip
_HEADS = re.compile(
    rb"\s*(?:EXPLAIN\s+(?:ANALYZE\s+)?|CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\s+|TEMPORARY\s+)?TABLE\s[^'?$]*?\sAS\s+"
    rb"|INSERT\s+INTO\s[^'?$]*?[\s)])(?=\(?\s*(?:SELECT|WITH|FROM)\b)",
    re.IGNORECASE,
)


class NotUnderstoodError(Exception):
    """A text, table or option that is left as it is; its message is the reason."""


@dataclass(frozen=True)
class Parquet:
    """The call of a reader of Parquet files, as a statement writes it."""

    patterns: tuple[str, ...]
    """Paths and globs, in order."""
    options: str
    """The text of the named arguments, with a comma before it; empty where there are none."""
    named: frozenset[str]
    """The names of the options, in small letters."""
    start: int
    """The first byte of the text to replace."""
    stop: int
    alias: str
    """The alias to write after the replaced text; empty where the statement has one."""
    filename: str = "filename"
    """The column in which DuckDB gives the file's name, where it was asked to."""
    folder: str = ""
    """The folder of a registered dataset."""
    without_partitions: bool = False
    """True where the option ``hive_partitioning`` is false."""

    def text(self, files: Sequence[str], hive: Mapping[str, str] | None = None, *, empty: bool = False) -> str:
        """Return the call over these files.

        Parameters
        ----------
        files
            The files to read, at least one.
        hive
            The types of the columns in the files' paths, which DuckDB would infer from the files that are left.
        empty
            True for a relation of the same columns without rows.
        """
        options = self.options
        if hive:
            types = ", ".join(f"{quote_name(name)}: {kind}" for name, kind in hive.items())
            options += "" if "hive_partitioning" in self.named else ", hive_partitioning = true"
            options += "" if self.named & {"hive_types", "hive_types_autocast"} else f", hive_types = {{{types}}}"
        call = f"read_parquet([{', '.join(map(literal, files))}]{options})"
        call = f"(SELECT * FROM {call} WHERE false)" if empty else call
        return f"{call} AS {quote_name(self.alias)}" if self.alias else call


Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""What runs a statement of our own and returns its rows."""


def head_and_query(text: str) -> tuple[str, str]:
    """Split a statement into what stands before its query, and the query.

    >>> head_and_query("CREATE TABLE t AS SELECT 1")
    ('CREATE TABLE t AS ', 'SELECT 1')
    >>> head_and_query("FROM t")
    ('', 'FROM t')
    """
    found = _HEADS.match(text.encode())
    stop = found.end() if found else 0
    return text.encode()[:stop].decode(), text.encode()[stop:].decode()


def parse_query(query: str, run: Run) -> Json:
    """Return DuckDB's parse tree of a single query; raises NotUnderstoodError."""
    tree = json.loads(run("SELECT json_serialize_sql(?)", [query])[0][0])
    if tree.get("error"):
        raise NotUnderstoodError(f"DuckDB gives no parse tree of the statement: {tree.get('error_message', '')}")
    if len(tree["statements"]) != 1:
        raise NotUnderstoodError("the text has several statements")
    node: Json = tree["statements"][0]["node"]
    return node


def _constant(kind: str, value: Any) -> Json:
    typed = {"type": {"id": kind, "type_info": None}, "is_null": value is None}
    return {
        "class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": 0,
        "value": typed if value is None else {**typed, "value": value},
    }  # fmt: skip


def _cast(child: Json, kind: str) -> Json:
    return {
        "class": "CAST", "type": "OPERATOR_CAST", "alias": "", "query_location": 0, "child": child,
        "cast_type": {"id": kind, "type_info": None}, "try_cast": False,
    }  # fmt: skip


def with_parameters(node: Any, values: Mapping[str, Any]) -> Any:
    """Return a tree with parameters replaced by the constants given for them.

    Names are numbers from 1 for positional parameters. Parameters of other types stay; conditions with them are not
    used.
    """

    def constant(part: Json) -> Json | None:
        name = str(part.get("identifier"))
        return _of_python(values[name]) if part.get("class") == "PARAMETER" and name in values else None

    return replace_nodes(node, constant)


def named_parameters(parameters: Any) -> dict[str, Any]:
    """Parameters by their names, or by their numbers from 1."""
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    return {str(number): value for number, value in enumerate(parameters or (), 1)}


def _of_python(value: Any) -> Json | None:
    match value:
        case bool():
            return _cast(_constant("VARCHAR", "t" if value else "f"), "BOOLEAN")
        case int() if -(1 << 63) <= value < 1 << 63:
            return _constant("BIGINT" if abs(value) >= 1 << 31 else "INTEGER", value)
        case float() if math.isfinite(value):
            return _cast(_constant("VARCHAR", repr(float(value))), "DOUBLE")
        case str():
            return _cast(_constant("VARCHAR", value), "VARCHAR")
        case datetime.datetime() if value.tzinfo is None:
            return _cast(_constant("VARCHAR", value.isoformat(" ")), "TIMESTAMP")
        case datetime.datetime():
            return _cast(_constant("VARCHAR", value.isoformat(" ")), "TIMESTAMP WITH TIME ZONE")
        case datetime.date():
            return _cast(_constant("VARCHAR", value.isoformat()), "DATE")
    return None


def functions_of(node: Any) -> frozenset[str]:
    """The names of all functions and operators in a tree, in small letters."""
    return frozenset(fold_case(part["function_name"]) for part in nodes_of(node) if part.get("class") == "FUNCTION")


def text_of_condition(condition: Json, known: Collection[str], query: Json, run: Run) -> str:
    """Return the text that DuckDB writes for a condition.

    Functions of constants are replaced by their values: DuckDB parses ``INTERVAL 1 DAY`` as a call of ``to_days``. A
    literal ``1.5e0``, which DuckDB writes as the decimal ``1.5``, is written as a cast to DOUBLE.

    Parameters
    ----------
    condition
        The condition in DuckDB's parse tree.
    known
        Names of functions; others get the name of a schema, since a parser of texts may take them for others.
    query
        Parse tree of a query without conditions, in which DuckDB writes this one.
    run
        Runs a statement in DuckDB.
    """

    def text(node: Json, known: Collection[str]) -> str:
        whole = {**query, "where_clause": _unambiguous(node, known)}
        tree = {"error": False, "statements": [{"node": whole, "named_param_map": []}]}
        return str(run("SELECT json_deserialize_sql(?)", [json.dumps(tree)])[0][0]).partition(" WHERE ")[2]

    def folded(node: Json) -> Json | None:
        if node.get("class") != "FUNCTION" or not _is_constant(node):
            return None
        own = text(node, _FOLDED)
        value, kind = run(f"SELECT CAST({own} AS VARCHAR), typeof({own})", [])[0]
        if kind in ("BIGINT", "INTEGER") and value is not None:
            return _constant(kind, int(value))
        return _cast(_constant("VARCHAR", value), kind) if kind in _FOLDED_TYPES else node

    return text(replace_nodes(condition, folded), known)


def _is_constant(node: Json) -> bool:
    """Test for constants, casts of them that do not depend on the time zone, and functions of them."""
    match node.get("class"):
        case "CONSTANT":
            return True
        case "CAST":
            return node["cast_type"]["id"] in (*_FOLDED_TYPES, "DOUBLE", "INTERVAL") and _is_constant(node["child"])
        case "FUNCTION":
            return fold_case(node["function_name"]) in _FOLDED and all(map(_is_constant, node["children"]))
    return False


def _unambiguous(node: Json, known: Collection[str]) -> Any:
    def change(part: Json) -> Json | None:
        if part.get("class") == "CONSTANT" and part["value"]["type"]["id"] == "DOUBLE" and not part["value"]["is_null"]:
            return _of_python(float(part["value"]["value"]))
        is_function = part.get("class") == "FUNCTION" and not part.get("is_operator")
        if not is_function or part["schema"] or fold_case(part["function_name"]) in known:
            return None
        return dict(replace_nodes({**part, "schema": "other"}, change))

    return replace_nodes(node, change)


def parquet_of(ref: Json, query: str, tokens: Sequence[int]) -> Parquet | None:
    """Return the reader's call that a table of FROM is; None for another table.

    Raises NotUnderstoodError for a call whose options may make rows depend on other files.

    Parameters
    ----------
    ref
        The table's node.
    query
        The text that was parsed.
    tokens
        The first bytes of its tokens.
    """
    text = query.encode()
    alias = "" if ref.get("alias") else alias_of(ref)
    if ref["type"] == "BASE_TABLE":
        path = ref["table_name"]
        if ref["schema_name"] or ref["catalog_name"] or ".parquet" not in path.lower():
            return None
        start, stop = token(ref["query_location"], tokens, text)
        return Parquet((path,), "", frozenset(), start, stop, alias)
    function = ref["function"]
    if function.get("function_name", "").lower() not in READERS or function.get("class") != "FUNCTION":
        return None
    first, *rest = function["children"]
    names = frozenset(fold_case(_option(argument)) for argument in rest)
    if unknown := sorted(names - _OPTIONS):
        raise NotUnderstoodError(f"the option {unknown[0]} of read_parquet may make rows depend on other files")
    values = {fold_case(_option(part)): part["right"] for part in rest}
    filename = _text_of(values.get("filename", {}))
    without_partitions = _is_false(values.get("hive_partitioning", {}))
    start, _ = token(function["query_location"], tokens, text)
    opened = next(place for place in tokens if place > start and text[place : place + 1] == b"(")
    comma, stop = _first_argument(opened, tokens, text)
    options = text[comma : stop - 1].decode() if comma else ""
    return Parquet(
        _paths(first), options, names, start, stop, alias, filename or "filename", without_partitions=without_partitions
    )


def _option(argument: Json) -> str:
    if argument.get("type") == "COMPARE_EQUAL" and argument["left"]["class"] == "COLUMN_REF":
        return str(argument["left"]["column_names"][-1])
    if argument.get("alias"):
        return str(argument["alias"])
    raise NotUnderstoodError("an argument of read_parquet is neither a path nor a named option")


def _text_of(node: Json) -> str | None:
    value = node.get("value", {})
    return str(value["value"]) if value.get("type", {}).get("id") == "VARCHAR" and not value["is_null"] else None


def _is_false(node: Json) -> bool:
    value = node.get("child", node).get("value", {}).get("value")
    return value == "f" or (value in (False, 0) and value is not None)


def _paths(node: Json) -> tuple[str, ...]:
    if node["class"] == "FUNCTION" and node["function_name"] == "list_value":
        return tuple(path for child in node["children"] for path in _paths(child))
    path = _text_of(node) if node["class"] == "CONSTANT" else None
    if path is None:
        raise NotUnderstoodError("the files of read_parquet are not given as texts")
    return (path,)


def token(place: int, tokens: Sequence[int], text: bytes) -> tuple[int, int]:
    """The bytes of the token that begins at a place."""
    if place == _NOWHERE or place not in tokens:
        raise NotUnderstoodError("DuckDB does not tell where the table stands in the text")
    after = next((start for start in tokens if start > place), len(text))
    return place, place + len(text[place:after].rstrip())


def _first_argument(opened: int, tokens: Sequence[int], text: bytes) -> tuple[int, int]:
    """The comma behind a call's first argument, 0 where there is none, and the byte behind the call."""
    depth, comma = 0, 0
    for place in tokens:
        if place < opened:
            continue
        sign = text[place : place + 1]
        if sign in b"([{" and sign:
            depth += 1
        elif sign in b")]}" and sign:
            depth -= 1
            if depth == 0:
                return comma, place + 1
        elif sign == b"," and depth == 1 and not comma:
            comma = place
    raise NotUnderstoodError("the call of read_parquet does not end")


def splice(query: str, pieces: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with some of its bytes replaced.

    >>> splice("FROM 'é.parquet' t", [(5, 17, "x")])
    'FROM x t'
    """
    text, parts, at = query.encode(), [], 0
    for start, stop, piece in sorted(pieces):
        parts += [text[at:start], piece.encode()]
        at = stop
    return b"".join([*parts, text[at:]]).decode()


def literal(value: str) -> str:
    """A text as SQL's literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """A name as SQL's identifier."""
    return '"' + name.replace('"', '""') + '"'
