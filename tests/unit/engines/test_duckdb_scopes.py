"""Which conditions of a DuckDB query are usable for which of its tables."""

from __future__ import annotations

import copy
import json
from typing import Any

import duckdb
import pytest

from geoskip.engines.duckdb_scopes import alias_of, find_scans
from geoskip.engines.duckdb_statement import parse_query

COLUMNS = {"t": ["a", "b", "s"], "u": ["a", "c"], "x*.parquet": ["a", "b"], "t2": ["d"], "v": ["a", "a_1", "c_1"]}


def usable(query: str) -> dict[str, str]:
    """The usable conditions of each table of a query, by its alias."""
    con = duckdb.connect()

    def run(text: str, parameters: Any) -> list[tuple[Any, ...]]:
        return con.execute(text, parameters).fetchall()

    scans = find_scans(
        parse_query(query, run),
        lambda ref: COLUMNS.get(ref.get("table_name", "")),
        lambda name: name in ("+", "abs", "lower"),
    )
    return {alias_of(scan.ref): " ".join(printed(condition, run) for condition in scan.conditions) for scan in scans}


def printed(condition: Any, run: Any) -> str:
    """A condition as DuckDB prints it."""
    tree = {"error": False, "statements": [{"node": {**parse_query("SELECT 1", run), "where_clause": condition}}]}
    tree["statements"][0]["named_param_map"] = []
    return run("SELECT json_deserialize_sql(?)", [json.dumps(tree)])[0][0].partition(" WHERE ")[2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("FROM t WHERE a > 5 AND b = 'x'", {"t": "(a > 5) (b = 'x')"}, id="where"),
        pytest.param("FROM t WHERE a > 5 OR b = 'x'", {"t": "((a > 5) OR (b = 'x'))"}, id="or"),
        pytest.param("FROM t WHERE T.A > 5", {"t": "(A > 5)"}, id="names in any case"),
        pytest.param("FROM t z WHERE z.a > 5", {"z": "(a > 5)"}, id="an alias"),
        pytest.param("FROM t WHERE z > 5", {"t": ""}, id="a column that the table does not have"),
        pytest.param("SELECT a + 1 AS z FROM t WHERE z > 5", {"t": ""}, id="an alias of SELECT"),
        pytest.param("FROM t WHERE s.f > 5 AND t.s.f.g < 7", {"t": "(s.f > 5) (s.f.g < 7)"}, id="fields of a struct"),
        pytest.param("FROM t s WHERE s.f > 5 AND s.s.f > 5 AND s.a > 5", {"s": "(a > 5)"}, id="a table and a struct"),
        pytest.param("FROM t a WHERE a.s.f > 5 AND s.a > 5", {"a": ""}, id="a field, or a column of a schema's table"),
        pytest.param("FROM t, u WHERE s.f > 5 AND a.f > 5", {"t": "(s.f > 5)", "u": ""}, id="a struct of one table"),
        pytest.param("FROM (FROM t) q WHERE s.f > 5 AND q.s.f > 5", {"t": ""}, id="fields of a derived column"),
        pytest.param("FROM nobody WHERE s.f > 5", {"nobody": ""}, id="a struct of unknown columns"),
        pytest.param("FROM t WHERE a IN (SELECT c FROM u WHERE c > 3)", {"t": "", "u": "(c > 3)"}, id="a subquery"),
        pytest.param("FROM t WHERE EXISTS (FROM u WHERE c = t.a AND c > 3)", {"t": "", "u": "(c > 3)"}, id="exists"),
        pytest.param("FROM t JOIN u ON t.a = u.a AND u.c > 3 WHERE b < 2", {"t": "(b < 2)", "u": "(c > 3)"}, id="join"),
        pytest.param("FROM t JOIN u ON t.a = u.a WHERE a > 3", {"t": "", "u": ""}, id="a column of both"),
        pytest.param("FROM t JOIN u USING (a) WHERE a > 3", {"t": "", "u": ""}, id="a merged column"),
        pytest.param("FROM t, nobody WHERE b > 3 AND t.a < 1", {"t": "(a < 1)", "nobody": ""}, id="an unknown table"),
        pytest.param("FROM t LEFT JOIN u ON t.b > 3 AND c > 4", {"t": "", "u": "(c > 4)"}, id="ON of a left join"),
        pytest.param("FROM t LEFT JOIN u ON true WHERE c > 4 AND b > 3", {"t": "(b > 3)", "u": ""}, id="left"),
        pytest.param("FROM t RIGHT JOIN u ON b > 1 AND c > 4", {"t": "(b > 1)", "u": ""}, id="ON of a right join"),
        pytest.param("FROM t RIGHT JOIN u ON true WHERE c > 4 AND b > 3", {"t": "", "u": "(c > 4)"}, id="right"),
        pytest.param("FROM t FULL JOIN u ON b > 1 AND c > 4 WHERE b > 2 AND c > 5", {"t": "", "u": ""}, id="full"),
        pytest.param("FROM t SEMI JOIN u ON b > 1 AND c > 4", {"t": "(b > 1)", "u": "(c > 4)"}, id="semi"),
        pytest.param("FROM t ANTI JOIN u ON b > 1 AND c > 4", {"t": "", "u": "(c > 4)"}, id="anti"),
        pytest.param("FROM t ANTI JOIN u ON c > 4 WHERE t.b > 1", {"t": "(b > 1)", "u": "(c > 4)"}, id="anti, WHERE"),
        pytest.param("FROM t POSITIONAL JOIN u WHERE b > 1 AND c > 4", {"t": "", "u": ""}, id="positional"),
        pytest.param(
            "FROM t ASOF JOIN u ON t.a >= u.a WHERE b > 1 AND c > 4", {"t": "(b > 1)", "u": ""}, id="the nearest row"
        ),
        pytest.param(
            "FROM t2 LEFT JOIN (t JOIN u ON t.b > 1) ON c > 4 WHERE b > 9",
            {"t2": "", "t": "(b > 1)", "u": "(c > 4)"},
            id="a join below an outer join",
        ),
        pytest.param("FROM t, t2 LEFT JOIN u ON true WHERE b > 1", {"t": "(b > 1)", "t2": "", "u": ""}, id="comma"),
        pytest.param("FROM t, LATERAL (FROM u WHERE c > b) WHERE t.b > 1", {"t": "(b > 1)", "u": ""}, id="lateral"),
        pytest.param("FROM t WHERE a > 5 USING SAMPLE 10", {"t": ""}, id="a sample before WHERE"),
        pytest.param("FROM t TABLESAMPLE 10% WHERE a > 5", {"t": ""}, id="a sample of the table"),
        pytest.param("FROM t WHERE a > 5 LIMIT 3", {"t": "(a > 5)"}, id="WHERE before LIMIT"),
        pytest.param("SELECT a, row_number() OVER () FROM t WHERE a > 5", {"t": "(a > 5)"}, id="WHERE before windows"),
        pytest.param("SELECT a, max(b) FROM t WHERE a > 5 GROUP BY a HAVING max(b) > 2", {"t": "(a > 5)"}, id="groups"),
        pytest.param("FROM t WHERE a > 5 QUALIFY row_number() OVER () = 1", {"t": "(a > 5)"}, id="qualify"),
        pytest.param("FROM (FROM t) WHERE a > 5", {"t": "(a > 5)"}, id="a derived table"),
        pytest.param("FROM (SELECT b AS z, a FROM t) q WHERE q.z > 5", {"t": "(b > 5)"}, id="a renamed column"),
        pytest.param("FROM (SELECT abs(b) + 1 AS z FROM t) WHERE z > 5", {"t": "((abs(b) + 1) > 5)"}, id="a sum"),
        pytest.param("FROM (SELECT t.b AS a FROM t) WHERE a > 5", {"t": "(b > 5)"}, id="two columns exchange names"),
        pytest.param("FROM (SELECT b AS a, * FROM t) WHERE a > 5", {"t": ""}, id="two columns of one name"),
        pytest.param("FROM (SELECT b AS a, * FROM v) WHERE a_1 > 5", {"v": ""}, id="a column that DuckDB renamed"),
        pytest.param("FROM (FROM t, v) WHERE a_1 > 5", {"t": "", "v": ""}, id="a column of a join that DuckDB renamed"),
        pytest.param("FROM (FROM t, v) WHERE c_1 > 5", {"t": "", "v": "(c_1 > 5)"}, id="a name with a number"),
        pytest.param("FROM (SELECT 2 * a AS z, * FROM t) WHERE b < 3", {"t": ""}, id="below a function of many rows"),
        pytest.param("FROM (SELECT max(a) AS a FROM t) WHERE a > 5", {"t": ""}, id="an aggregate"),
        pytest.param("FROM (SELECT a FROM t GROUP BY a) WHERE a > 5", {"t": ""}, id="a group"),
        pytest.param("FROM (FROM t LIMIT 3) WHERE a > 5", {"t": ""}, id="below LIMIT"),
        pytest.param("FROM (FROM t ORDER BY a) WHERE a > 5", {"t": "(a > 5)"}, id="below ORDER BY"),
        pytest.param("FROM (SELECT DISTINCT a FROM t) WHERE a > 5", {"t": "(a > 5)"}, id="below DISTINCT"),
        pytest.param("FROM (SELECT DISTINCT ON (b) a, b FROM t) WHERE a > 5", {"t": ""}, id="below DISTINCT ON"),
        pytest.param("FROM (SELECT a, row_number() OVER () r FROM t) WHERE a > 5", {"t": ""}, id="below a window"),
        pytest.param("FROM (SELECT unnest(a) AS a FROM t) WHERE a > 5", {"t": ""}, id="below unnest"),
        pytest.param("FROM (FROM t QUALIFY rank() OVER () = 1) WHERE a > 5", {"t": ""}, id="below QUALIFY"),
        pytest.param("FROM (SELECT * EXCLUDE (a) FROM t) WHERE b > 5", {"t": ""}, id="below EXCLUDE"),
        pytest.param("FROM (FROM t) z(p, q, r) WHERE p > 5", {"t": ""}, id="columns renamed by position"),
        pytest.param("FROM (FROM t WHERE a > 1 UNION ALL FROM t z) WHERE a > 5", {"t": "(a > 1)", "z": ""}, id="union"),
        pytest.param("WITH c AS (FROM t) FROM c WHERE a > 5", {"t": "(a > 5)"}, id="a CTE"),
        pytest.param("WITH c AS (FROM t) FROM c JOIN c d ON c.a > 5", {"t": ""}, id="a CTE used twice"),
        pytest.param("WITH c(z) AS (SELECT a FROM t) FROM c WHERE z > 5", {"t": ""}, id="a CTE with names"),
        pytest.param("WITH c AS (FROM t), d AS (FROM c WHERE a > 5) FROM d WHERE b > 2",
                     {"t": "(a > 5) (b > 2)"}, id="a CTE of a CTE"),
        pytest.param("WITH t AS (FROM u) FROM t WHERE c > 5", {"u": "(c > 5)"}, id="a CTE that hides a table"),
        pytest.param("WITH RECURSIVE c AS (FROM t WHERE b > 1 UNION ALL FROM c WHERE a < 5) FROM c WHERE a > 7",
                     {"t": "(b > 1)"}, id="a recursive CTE"),
        pytest.param("FROM 'x*.parquet' WHERE \"x*.parquet\".a > 5", {"x*.parquet": "(a > 5)"}, id="a path"),
        pytest.param("FROM t WHERE list_sum([z + a for z in s]) > 1", {"t": ""}, id="a lambda"),
        pytest.param("FROM t WHERE COLUMNS(*) > 1", {"t": ""}, id="columns"),
        pytest.param("SELECT (SELECT max(c) FROM u WHERE c > b AND c < 9) FROM t WHERE b > 1",
                     {"u": "(c < 9)", "t": "(b > 1)"}, id="a correlated subquery"),
    ],
)  # fmt: skip
def test_a_condition_is_used_where_it_cannot_change_the_result(query, expected):
    assert usable(query) == expected


def test_the_tree_is_not_changed_by_looking_at_it():
    con = duckdb.connect()
    tree = parse_query("FROM t z WHERE z.a > 5", lambda text, parameters: con.execute(text, parameters).fetchall())
    before = copy.deepcopy(tree)
    find_scans(tree, lambda ref: ["a"], lambda name: False)
    assert tree == before
