"""Conditions of a DuckDB query on each single table, from DuckDB's own parse tree.

The tree is that of ``json_serialize_sql``, so that DuckDB itself decides what a text means. A condition is *usable* for
a table where rows of the table that do not satisfy it cannot change the result: conjuncts of WHERE for tables that no
outer join supplies with nulls, of an inner join's ON for both sides, of a left join's ON for the right side, and of an
outer query through a derived table that only projects and filters. Nothing passes LIMIT, SAMPLE, windows, aggregates,
DISTINCT ON, POSITIONAL joins, the looked-up side of ASOF joins, or set operations; the queries below them have
conditions of their own.

A column without a table's name belongs to the one table that has it; where a table with unknown columns stands beside,
to none. DuckDB prefers a column of FROM over an alias of SELECT and over a column of an outer query (executed), and a
table's alias over a struct's name. Names of fields may follow that of a column, ``place.city``, if it cannot be that of
a table or a schema.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
"""A node of DuckDB's parse tree."""

READERS = ("read_parquet", "parquet_scan")
GLOB_MARKS = "*?["
_RENAMED = re.compile(r"(.+)_\d+", re.DOTALL)
_PLAIN = frozenset(("COLUMN_REF", "CONSTANT", "CAST", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "CASE"))
_NOT_A_CONDITION = frozenset(("SUBQUERY", "WINDOW", "LAMBDA", "DEFAULT", "PARAMETER", "POSITIONAL_REFERENCE"))


def fold_case(name: str) -> str:
    """A name as DuckDB compares it: without regard to the case of ASCII letters alone."""
    return name.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


@dataclass
class TableScan:
    """A table of FROM with the conditions that its rows must satisfy."""

    ref: Json
    """The node: of type BASE_TABLE or TABLE_FUNCTION."""
    conditions: list[Json] = field(default_factory=list)
    """Conjuncts whose columns are the table's, by their names alone."""
    reasons: list[str] = field(default_factory=list)


Columns = Callable[[Json], "list[str] | None"]
IsScalar = Callable[[str], bool]


def find_scans(query: Json, columns: Columns, is_scalar: IsScalar, above: list[Json] | None = None) -> list[TableScan]:
    """Return the tables of a query with their usable conditions.

    Parameters
    ----------
    query
        The node of a whole statement.
    columns
        The columns of a table in their order; None where they are unknown.
    is_scalar
        True for the name of a function that yields one value a row.
    above
        Conditions on the query's output, by its columns' names, which a query around it has.
    """
    return _Walk(query, columns, is_scalar).query(query, above or [], frozenset())


@dataclass
class _Walk:
    """A walk from query to query, with conditions on the result of each, and the names of CTEs around it."""

    whole: Json
    columns: Columns
    is_scalar: IsScalar

    def __post_init__(self) -> None:
        every = list(nodes_of(self.whole))
        self.uses = Counter(fold_case(node["table_name"]) for node in every if node.get("type") == "BASE_TABLE")
        self.defined = Counter(fold_case(entry["key"]) for node in every for entry in _ctes(node))
        self.pushed: dict[str, list[Json]] = {}
        self.of_ctes: set[int] = set()

    def query(self, node: Json, above: list[Json], ctes: frozenset[str]) -> list[TableScan]:
        """The scans of one query node; conditions for its CTEs are known once its body was walked.

        Parameters
        ----------
        node
            The node of DuckDB's parse tree.
        above
            Conditions that hold for every row of its result that matters.
        ctes
            The names of CTEs that it may read.
        """
        own = _ctes(node)
        inner = ctes | {fold_case(entry["key"]) for entry in own}
        if node.get("type") == "SELECT_NODE":
            found = self.select(node, above, inner)
        else:
            found = self.scans_below([value for key, value in node.items() if key != "cte_map"], inner)
        for entry in reversed(own):  # a CTE is used by later ones and by the body
            value = entry["value"]
            plain = not value.get("aliases") and not value.get("key_targets")
            pushed = self.pushed.pop(fold_case(entry["key"]), []) if plain else []
            found += self.query(value["query"]["node"], pushed, inner)
        return found

    def scans_below(self, value: Any, ctes: frozenset[str]) -> list[TableScan]:
        """The scans of queries anywhere below a value, without conditions from above."""
        if isinstance(value, list):
            return [scan for part in value for scan in self.scans_below(part, ctes)]
        if not isinstance(value, dict):
            return []
        kind = value.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE"):
            return self.query(value, [], ctes)
        if kind == "BASE_TABLE":
            return [] if self._cte(value, ctes) else [TableScan(value, reasons=["it is read without a condition"])]
        if kind == "TABLE_FUNCTION":
            return [TableScan(value)]
        return [scan for part in value.values() for scan in self.scans_below(part, ctes)]

    def select(self, node: Json, above: list[Json], ctes: frozenset[str]) -> list[TableScan]:
        """The scans of a SELECT, each with the conditions that hold for every row of it that matters.

        Parameters
        ----------
        node, above, ctes
            As for :meth:`query`.
        """
        tables = list(_tables(node["from_table"]))
        self.of_ctes.update(id(ref) for ref in tables if ref["type"] == "BASE_TABLE" and self._cte(ref, ctes))
        passed = self._push_down(node, above, tables) if above else []
        where = [] if node.get("sample") else [*_conjuncts(node["where_clause"]), *passed]
        found = self._refs(node["from_table"], where, tables, ctes)
        rest = [value for key, value in node.items() if key not in ("from_table", "cte_map")]
        return found + self.scans_below(rest, ctes)

    def _refs(self, ref: Json, filters: list[Json], tables: list[Json], ctes: frozenset[str]) -> list[TableScan]:
        """The scans of a table reference, given conditions that hold for every row that matters."""
        kind = ref["type"]
        if ref.get("sample"):
            filters = []
        if kind == "JOIN":
            left, right = _sides(ref, filters)
            found = self._refs(ref["left"], left, tables, ctes) + self._refs(ref["right"], right, tables, ctes)
            return found + self.scans_below(ref.get("condition"), ctes)
        mine = [moved for part in filters if (moved := self._bare_condition(part, ref, tables)) is not None]
        if ref.get("column_name_alias") or ref.get("at_clause"):
            mine = []
        if kind == "BASE_TABLE" and (name := self._cte(ref, ctes)):
            if mine and self.uses[name] == self.defined[name] == 1:
                self.pushed[name] = mine
            return []
        if kind == "BASE_TABLE" or (kind == "TABLE_FUNCTION" and _reader(ref)):
            left_out = [] if mine or not filters else ["no condition is over this table alone"]
            return [TableScan(ref, mine, left_out)]
        if kind == "SUBQUERY":
            return self.query(ref["subquery"]["node"], mine, ctes)
        return self.scans_below(list(ref.values()), ctes)

    @staticmethod
    def _cte(ref: Json, ctes: frozenset[str]) -> str | None:
        name = fold_case(ref["table_name"])
        return name if name in ctes and not ref["schema_name"] and not ref["catalog_name"] else None

    def _bare_condition(self, condition: Json, ref: Json, tables: list[Json]) -> Json | None:
        """The condition with bare names of columns, if all of them are this table's; else None."""
        if any(node.get("class") in _NOT_A_CONDITION for node in nodes_of(condition)):
            return None
        moved = copy.deepcopy(condition)
        owned = 0
        for node in nodes_of(moved):
            if node.get("class") == "COLUMN_REF":
                found = self._own_column(node["column_names"], ref, tables)
                if found is None:
                    return None
                node["column_names"] = found
                owned += 1
            elif node.get("class") == "STAR":
                return None
        return moved if owned else None

    def _own_column(self, names: list[str], ref: Json, tables: list[Json]) -> list[str] | None:
        """The column's name, and those of fields in it, if it is one of this table, with certainty."""
        first, *rest = map(fold_case, names)
        aliases = [fold_case(alias_of(table)) for table in tables]
        if first in aliases and rest:
            is_own = aliases.count(first) == 1 and tables[aliases.index(first)] is ref
            if len(rest) > 1:  # perhaps a field of a field, or the column of a table in a schema
                is_own = is_own and rest[0] not in aliases and not any(self._may_have(each, first) for each in tables)
            return names[1:] if is_own and self._may_have(ref, rest[0]) else None
        if not set(aliases).isdisjoint(rest):
            return None  # a schema's or a database's name may stand before that of the table
        if len(tables) == 1 and not rest:
            return names if tables[0] is ref and self._may_have(ref, first) else None
        known = [(table, self._columns_of(table)) for table in tables]
        owners = [table for table, columns in known if columns is None or first in columns]
        return names if len(owners) == 1 and owners[0] is ref and self._columns_of(ref) is not None else None

    def _columns_of(self, ref: Json) -> set[str] | None:
        if ref["type"] not in ("BASE_TABLE", "TABLE_FUNCTION") or ref.get("column_name_alias"):
            return None
        if id(ref) in self.of_ctes:
            return None
        columns = self.columns(ref)
        return None if columns is None else {fold_case(column) for column in columns}

    def _may_have(self, ref: Json, name: str) -> bool:
        """True if a table has a column, or is a query, whose columns are looked up in its SELECT later."""
        return (known := self._columns_of(ref)) is None or name in known

    # ---- through derived tables

    def _push_down(self, node: Json, above: list[Json], tables: list[Json]) -> list[Json]:
        """Conditions on a query's output, as conditions on the rows of its FROM."""
        if not self._only_projects(node):
            return []
        named: dict[str, Json | None] = {}
        stars = 0
        for item in node["select_list"]:
            if item["class"] == "STAR":
                stars += 1
                continue
            name = fold_case(item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else ""))
            named[name] = None if name in named else item
        return [moved for part in above if (moved := self._substitute(part, named, stars, tables)) is not None]

    def _only_projects(self, node: Json) -> bool:
        if any(node.get(key) for key in ("group_expressions", "group_sets", "having", "sample", "qualify")):
            return False
        if node["aggregate_handling"] != "STANDARD_HANDLING":
            return False
        for modifier in node["modifiers"]:
            distinct = modifier["type"] == "DISTINCT_MODIFIER" and not modifier["distinct_on_targets"]
            if modifier["type"] != "ORDER_MODIFIER" and not distinct:
                return False
        return all(_plain_star(item) or self._one_value_a_row(item) for item in node["select_list"])

    def _one_value_a_row(self, item: Json) -> bool:
        for node in nodes_of(item):
            kind = node.get("class")
            if kind == "FUNCTION" and not (self.is_scalar(node["function_name"]) and not node.get("filter")):
                return False
            if kind is not None and kind != "FUNCTION" and kind not in _PLAIN:
                return False
        return True

    def _substitute(
        self, condition: Json, named: dict[str, Json | None], stars: int, tables: list[Json]
    ) -> Json | None:
        failed = False

        def sources(name: str) -> int:
            """The number of columns of the output that may have a name; DuckDB calls the second ``name_1``."""
            listed = 0 if name not in named else 2 if named[name] is None else 1
            return listed + stars * sum(self._may_have(table, name) for table in tables)

        def value(node: Json) -> Json | None:
            nonlocal failed
            if node.get("class") != "COLUMN_REF":
                return None
            name = fold_case(node["column_names"][0])
            is_field = len(node["column_names"]) > 1  # of a column that may be an expression here
            failed = failed or is_field or any(sources(stem) > 1 for stem in _stems(name))
            failed = failed or (name not in named and not stars)
            return copy.deepcopy(named.get(name, node))

        moved: Json = replace_nodes(condition, value)
        return None if failed else moved


def alias_of(ref: Json) -> str:
    """The name under which a query's columns are of this table."""
    if ref.get("alias"):
        return str(ref["alias"])
    if ref["type"] == "TABLE_FUNCTION":
        return str(ref["function"].get("function_name", ""))
    if ref["type"] == "BASE_TABLE":
        name = str(ref["table_name"])
        if ".parquet" in name.lower() and not any(mark in name for mark in GLOB_MARKS):
            return name.rpartition("/")[2].partition(".")[0]  # DuckDB names a single file by its stem
        return name
    return ""


def _reader(ref: Json) -> bool:
    function = ref["function"]
    named = function.get("function_name", "").lower() in READERS
    return named and ref.get("with_ordinality") in (None, "WITHOUT_ORDINALITY")


def _ctes(node: Json) -> list[Json]:
    table = node.get("cte_map")
    return list(table["map"]) if isinstance(table, dict) and isinstance(table.get("map"), list) else []


def cte_names(query: Json) -> set[str]:
    """The names of all common table expressions in a query, in small letters."""
    return {fold_case(entry["key"]) for node in nodes_of(query) for entry in _ctes(node)}


def table_names(query: Json) -> set[str]:
    """The names of all tables in a query, in small letters."""
    return {fold_case(node["table_name"]) for node in nodes_of(query) if node.get("type") == "BASE_TABLE"}


def _sides(join: Json, filters: list[Json]) -> tuple[list[Json], list[Json]]:
    """Conditions of the rows that matter on the left and the right side of a join."""
    on = _conjuncts(join.get("condition"))
    kind, form = join["join_type"], join["ref_type"]
    if form == "POSITIONAL":
        return [], []
    if form == "ASOF":
        return (filters, []) if kind in ("INNER", "LEFT") else ([], [])
    if form not in ("REGULAR", "NATURAL", "CROSS"):
        return [], []
    match kind:
        case "INNER":
            return [*filters, *on], [*filters, *on]
        case "LEFT":
            return filters, on
        case "RIGHT":
            return on, filters
        case "SEMI":
            return [*filters, *on], on
        case "ANTI":
            return filters, on
    return [], []


def _conjuncts(condition: Json | None) -> list[Json]:
    if condition is None:
        return []
    if condition.get("type") == "CONJUNCTION_AND":
        return [part for child in condition["children"] for part in _conjuncts(child)]
    return [condition]


def _tables(ref: Json) -> Iterator[Json]:
    """The tables of a FROM, joins taken apart."""
    if ref["type"] == "JOIN":
        yield from _tables(ref["left"])
        yield from _tables(ref["right"])
    elif ref["type"] != "EMPTY":
        yield ref


def nodes_of(value: Any) -> Iterator[Json]:
    """All nodes of a tree, parents first."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(reversed(list(part.values())))
        elif isinstance(part, list):
            waiting.extend(reversed(part))


def replace_nodes(value: Any, change: Callable[[Json], Json | None]) -> Any:
    """A tree with the nodes replaced for which a function returns another one, parents first."""
    if isinstance(value, list):
        return [replace_nodes(part, change) for part in value]
    if not isinstance(value, dict):
        return value
    found = change(value)
    return {key: replace_nodes(part, change) for key, part in value.items()} if found is None else found


def _stems(name: str) -> Iterator[str]:
    """A name, and the names from which DuckDB may have made it for a second column, as ``x_1`` from ``x``.

    >>> list(_stems("x_1_20"))
    ['x_1_20', 'x_1', 'x']
    """
    yield name
    while renamed := _RENAMED.fullmatch(name):
        yield (name := renamed[1])


def _plain_star(item: Json) -> bool:
    """True for ``*`` without EXCLUDE, REPLACE, RENAME or COLUMNS."""
    changed = ("replace_list", "rename_list", "columns", "expr", "relation_name", "exclude_list")
    return item["class"] == "STAR" and not any(item.get(key) for key in (*changed, "qualified_exclude_list"))
