"""SQL of every shape over the view ``t`` of test_shapes.py, and the number of files that scans keep.

``t`` has four files, ``temp`` 0..8, 10..18, 20..28 and 30..38, each with one NULL; ``plain_t`` has no metadata. The
views ``hot`` and ``hotter`` and the global view ``hot_everywhere`` are over ``t``.
"""

from __future__ import annotations

__all__ = ["SHAPES"]

Kept = list[tuple[int, int]]

SHAPES: dict[str, tuple[str, Kept]] = {
    "a range": ("SELECT * FROM t WHERE temp > 25", [(2, 4)]),
    "literal first": ("SELECT id FROM t WHERE 25 < temp", [(2, 4)]),
    "another case": ("SELECT ID FROM t WHERE TEMP > 25", [(2, 4)]),
    "nothing matches": ("SELECT * FROM t WHERE temp > 1000", [(0, 4)]),
    "count of nothing": ("SELECT count(*) FROM t WHERE temp > 1000", [(0, 4)]),
    "groups of nothing": ("SELECT city, count(*) FROM t WHERE temp > 1000 GROUP BY city", [(0, 4)]),
    "join with nothing": ("SELECT * FROM t JOIN plain_t USING (id) WHERE temp > 1000", [(0, 4)]),
    "temporary view": ("SELECT * FROM hot WHERE warmth > 35", [(1, 4)]),
    "view over a view": ("SELECT * FROM hotter WHERE label LIKE 'c%'", [(1, 4)]),
    "global view": ("SELECT * FROM global_temp.hot_everywhere WHERE id < 40", [(2, 4)]),
    "CTE": ("WITH c AS (SELECT id, temp AS x FROM t) SELECT * FROM c WHERE x < 5", [(1, 4)]),
    "CTE used twice": (
        "WITH c AS (SELECT id, temp FROM t) SELECT * FROM c WHERE temp < 5 UNION ALL SELECT * FROM c WHERE temp > 35",
        [(1, 4), (1, 4)],
    ),
    "scalar subquery": (
        "SELECT (SELECT max(temp) FROM t WHERE temp < 15) AS m, id FROM t WHERE temp > 35",
        [(1, 4), (2, 4)],
    ),
    "IN subquery": ("SELECT * FROM t WHERE id IN (SELECT twice FROM plain_t) AND temp > 25", [(2, 4)]),
    "IN over the dataset": ("SELECT * FROM plain_t WHERE id IN (SELECT id FROM t WHERE temp > 35)", [(1, 4)]),
    "NOT IN": ("SELECT * FROM t WHERE temp > 25 AND id NOT IN (SELECT id FROM t WHERE temp < 15)", [(2, 4), (2, 4)]),
    "EXISTS": (
        "SELECT * FROM plain_t p WHERE EXISTS (SELECT 1 FROM t WHERE t.id = p.id AND t.temp BETWEEN 12 AND 18)",
        [(1, 4)],
    ),
    "NOT EXISTS": (
        "SELECT * FROM t a WHERE temp < 5 AND NOT EXISTS (SELECT 1 FROM t b WHERE b.id = a.id AND b.temp > 35)",
        [(1, 4), (1, 4)],
    ),
    "correlated scalar": (
        "SELECT id, (SELECT max(b.temp) FROM t b WHERE b.city = a.city AND b.temp < 5) FROM t a WHERE a.temp > 35",
        [(1, 4), (1, 4)],
    ),
    "correlated, outer column of the same name": (
        "SELECT * FROM plain_t WHERE id IN (SELECT id FROM t WHERE temp < 15 AND t.id > plain_t.id - 1)",
        [(2, 4)],
    ),
    "lateral": (
        "SELECT * FROM plain_t p, LATERAL (SELECT temp FROM t WHERE t.id = p.id AND temp > 25) ORDER BY 1",
        [(2, 4)],
    ),
    "self-join, other filters": (
        "SELECT a.id, b.id FROM t a JOIN t b ON a.city = b.city WHERE a.temp < 5 AND b.temp > 35",
        [(1, 4), (1, 4)],
    ),
    "left join, filter on the right": (
        "SELECT * FROM plain_t p LEFT JOIN (SELECT id, temp FROM t WHERE temp > 25) q ON p.id = q.id",
        [(2, 4)],
    ),
    "left join, condition in ON": ("SELECT * FROM t a LEFT JOIN t b ON a.id = b.id AND b.temp > 25", [(4, 4), (2, 4)]),
    "left join, filter on the left": (
        "SELECT * FROM t a LEFT JOIN plain_t p ON a.id = p.id WHERE a.temp > 25",
        [(2, 4)],
    ),
    "left join, IS NULL on the right": (
        "SELECT * FROM plain_t p LEFT JOIN t ON p.id = t.id WHERE t.temp IS NULL",
        [(4, 4)],
    ),
    "full outer join": (
        "SELECT * FROM (SELECT * FROM t WHERE temp < 5) a FULL JOIN (SELECT * FROM t WHERE temp > 35) b ON a.id = b.id",
        [(1, 4), (1, 4)],
    ),
    "anti join": ("SELECT * FROM t a LEFT ANTI JOIN plain_t p ON a.id = p.id WHERE a.temp > 25", [(2, 4)]),
    "union": ("SELECT id FROM t WHERE temp < 5 UNION SELECT id FROM t WHERE temp > 35", [(1, 4), (1, 4)]),
    "filter over a union": (
        "SELECT * FROM (SELECT id, temp FROM t UNION ALL SELECT id, twice FROM plain_t) WHERE temp > 35",
        [(1, 4)],
    ),
    "intersection": (
        "SELECT city FROM t WHERE temp < 5 INTERSECT SELECT city FROM t WHERE temp > 35",
        [(1, 4), (1, 4)],
    ),
    "aggregates": ("SELECT city, max(temp), count(*) FROM t WHERE temp > 25 GROUP BY city", [(2, 4)]),
    "HAVING": ("SELECT city, max(temp) AS m FROM t WHERE temp > 25 GROUP BY city HAVING m > 37", [(2, 4)]),
    "HAVING on the key": ("SELECT temp, count(*) FROM t GROUP BY temp HAVING temp > 35", [(1, 4)]),
    "filtered aggregate": ("SELECT count(*) FILTER (WHERE temp > 25) FROM t WHERE temp > 15", [(3, 4)]),
    "rollup": ("SELECT city, id, count(*) FROM t WHERE temp > 35 GROUP BY ROLLUP (city, id)", [(1, 4)]),
    "DISTINCT": ("SELECT DISTINCT city FROM t WHERE temp > 25", [(2, 4)]),
    "ORDER BY LIMIT": ("SELECT id FROM t WHERE temp > 15 ORDER BY id DESC LIMIT 3", [(3, 4)]),
    "LIMIT and OFFSET": ("SELECT id FROM t WHERE temp > 15 ORDER BY id LIMIT 3 OFFSET 2", [(3, 4)]),
    "window": ("SELECT id, row_number() OVER (ORDER BY id) FROM t WHERE temp > 25", [(2, 4)]),
    "filter over a window": (
        "SELECT * FROM (SELECT temp, rank() OVER (PARTITION BY temp ORDER BY id) r FROM t) WHERE temp > 25 AND r = 1",
        [(2, 4)],
    ),
    "top of each group": (
        "SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY city ORDER BY id) r FROM t) WHERE r = 1 AND id > 5",
        [(4, 4)],
    ),
    "generator": ("SELECT id, w FROM t LATERAL VIEW explode(words) AS w WHERE temp > 25 AND w <> 'all'", [(2, 4)]),
    "pivot": (
        "SELECT * FROM (SELECT city, temp FROM t WHERE temp > 25) PIVOT (max(temp) FOR city IN ('c0', 'c1'))",
        [(2, 4)],
    ),
    "nested field": ("SELECT id FROM t WHERE s.a > 25", [(2, 4)]),
    "nested field through an alias": ("SELECT x.b FROM (SELECT s AS x FROM t) WHERE x.a > 25", [(2, 4)]),
    "field of a struct made above": ("SELECT * FROM (SELECT struct(temp AS q) AS z FROM t) WHERE z.q > 25", [(2, 4)]),
    "name with a dot": ("SELECT `odd.name` FROM t WHERE `odd.name` < 5", [(1, 4)]),
    "alias": ("SELECT * FROM (SELECT temp + 0 AS t0, temp AS warmth FROM t) WHERE warmth > 25", [(2, 4)]),
    "swapped aliases": ("SELECT * FROM (SELECT id AS temp, -temp AS id FROM t) WHERE temp > 25 AND id < 0", [(2, 4)]),
    "input_file_name": ("SELECT id FROM t WHERE temp > 25 AND input_file_name() LIKE '%part-3%'", [(2, 4)]),
    "non-deterministic beside": ("SELECT id FROM t WHERE temp > 25 AND monotonically_increasing_id() >= 0", [(2, 4)]),
    "subquery in the condition": (
        "SELECT id FROM t WHERE temp > (SELECT min(twice) FROM plain_t) AND temp > 25",
        [(2, 4)],
    ),
    "CASE": ("SELECT id FROM t WHERE CASE WHEN temp IS NULL THEN false ELSE true END AND temp > 25", [(2, 4)]),
    "hint": ("SELECT /*+ REPARTITION(2) */ id FROM t WHERE temp > 25", [(2, 4)]),
    "no filter": ("SELECT count(*) FROM t", [(4, 4)]),
}
"""For each shape its SQL, and for each scan of ``t`` the number of files kept and in total."""
