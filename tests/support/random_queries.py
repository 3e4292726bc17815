"""Random SQL conditions for tests through Spark, as trees that can be reduced after a failure."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

__all__ = ["WORDS", "Queries", "Tree", "shrunk"]

WORDS = ["", "a", "ab", "abc", "Abd", "b%c", "b_c", "zebra", "\U0001f40d", "\uffff", "\U0001f40dx", "aé", "a\u0301"]


@dataclass(frozen=True)
class Tree:
    """A condition: SQL with a ``{}`` for each part."""

    pattern: str
    parts: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        return self.pattern.format(*self.parts) if self.parts else self.pattern

    def smaller(self) -> Iterator[Tree]:
        """Its parts, then the tree with one part replaced by a part of that part."""
        yield from self.parts
        for at, part in enumerate(self.parts):
            for less in part.smaller():
                yield replace(self, parts=(*self.parts[:at], less, *self.parts[at + 1 :]))


def shrunk(tree: Tree, fails: Callable[[Tree], bool]) -> Tree:
    """The smallest tree found within this one for which the failure remains.

    >>> both = Tree("({} AND {})", (Tree("a"), Tree("NOT ({})", (Tree("b"),))))
    >>> str(shrunk(both, lambda tree: "b" in str(tree)))
    'b'
    """
    while (less := next(filter(fails, tree.smaller()), None)) is not None:
        tree = less
    return tree


class Queries:
    """Random conditions over the columns of tests/spark/test_random.py, safe to evaluate on every row."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def tree(self, depth: int) -> Tree:
        """A tree of at most this depth above its leaves."""
        pick = self.rng.random()
        if depth == 0 or pick < 0.25:
            return Tree(self.leaf())
        if pick < 0.55:
            return Tree("({} AND {})", (self.tree(depth - 1), self.tree(depth - 1)))
        if pick < 0.75:
            return Tree("({} OR {})", (self.tree(depth - 1), self.tree(depth - 1)))
        if pick < 0.9:
            return Tree("NOT ({})", (self.tree(depth - 1),))
        one, two, three = self.tree(0), self.tree(depth - 1), self.tree(0)
        return self.rng.choice(
            [
                Tree("coalesce({}, {})", (one, three)),
                Tree("if({}, {}, {})", (one, two, three)),
                Tree("CASE WHEN {} THEN {} WHEN {} THEN {} END", (one, two, three, one)),
                Tree("({}) <=> ({})", (one, three)),
                Tree("({}) IS NOT TRUE", (one,)),
                Tree("({}) = false", (two,)),
            ]
        )

    def leaf(self) -> str:
        return self.rng.choice(
            [self.number, self.number, self.text, self.text, self.when, self.flag, self.place, self.shapes, self.opaque]
        )()

    def op(self) -> str:
        return self.rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>", "="])

    def number(self) -> str:
        rng, near = self.rng, self.rng.randint(0, 23)
        column, value = rng.choice(
            [
                ("a", str(near)),
                ("a", f"{near}.5"),
                ("n", str(near * 1000 + rng.randint(0, 99))),
                ("x", rng.choice([str(near), f"{near}.25", "double('NaN')", "-0.0D", "double('infinity')", "1e300"])),
                ("f", rng.choice([f"float('{near}.3')", "0.1D", "float('NaN')"])),
                ("d", rng.choice([f"{near * 2.5:.2f}", f"{near}D", f"{near * 2.5:.4f}BD"])),
                ("a + 5L", str(near + 5)),
                ("10 - x", str(10 - near)),
                ("cast(a AS double)", f"{near}D"),
                ("cast(n AS decimal(20, 0))", f"{near * 1000}BD"),
                *self.computed(near),
            ]
        )
        shape = rng.random()
        if shape < 0.6:
            return f"{column} {self.op()} {value}" if rng.random() < 0.7 else f"{value} {self.op()} {column}"
        if shape < 0.75:
            count = rng.choice([1, 3, 12])
            several = ", ".join([value, *(str(near + i) for i in range(count))])
            # for NaN in a large set with NULL, Spark's interpreter returns FALSE and its compiled code NULL
            odd = count == 12 and re.search(r"\b[xf]\b", column)
            return f"{column} {rng.choice(['IN', 'NOT IN'])} ({several}{rng.choice(['', '' if odd else ', NULL'])})"
        if shape < 0.9:
            return f"{column} BETWEEN {value} AND {value} + {rng.randint(0, 3)}"
        return f"{column} IS {rng.choice(['', 'NOT '])}NULL"

    def computed(self, near: int) -> list[tuple[str, str]]:
        """Functions that MinMax supports, each with a value near its results."""
        return [
            ("x * 1.8D + 32", f"{near * 1.8 + 32}D"),
            ("abs(10 - x)", str(abs(10 - near))),
            ("rint(x)", str(near)),
            ("floor(d)", str(near * 2)),
            ("ceil(d)", str(near * 2)),
            ("round(x, 1)", f"{near}.5D"),
            ("d * -2.5BD", f"{near * -6}"),
            ("cast(n AS bigint) div 1000", str(near)),
            ("sqrt(abs(x))", f"{near**0.5}D"),
            ("ln(x)", "1"),
            ("try_cast(x AS int)", str(near)),
            ("f / 2F", f"{near}"),
        ]

    def text(self) -> str:
        rng = self.rng
        word = rng.choice([*WORDS, f"{chr(97 + rng.randint(0, 23))}{rng.randint(0, 99):02d}"])
        quoted = "'" + word + "'"
        start = word[: rng.randint(0, 2)]
        return rng.choice(
            [
                f"s {self.op()} {quoted}",
                f"s {rng.choice(['LIKE', 'NOT LIKE'])} '{start}%'",
                f"s {rng.choice(['LIKE', 'NOT LIKE'])} '{start}%{word[-1:]}'",
                f"s LIKE '{start}_%'",
                f"s LIKE '{start}!%%' ESCAPE '!'",
                f"startswith(s, '{start}')",
                f"s IN ({quoted}, 'q', NULL)",
                f"s NOT IN ({quoted})",
                f"s IS {rng.choice(['', 'NOT '])}NULL",
                f"length(s) {self.op()} {rng.randint(0, 4)}",
                f"upper(s) = upper({quoted})",
                f"s BETWEEN {quoted} AND 'm'",
            ]
        )

    def when(self) -> str:
        rng = self.rng
        day = dt.date(2024, 1, 1) + dt.timedelta(days=rng.randint(0, 170))
        return rng.choice(
            [
                f"day {self.op()} DATE'{day}'",
                f"ts {self.op()} TIMESTAMP'{day} 12:00:00'",
                f"cast(ts AS date) {self.op()} DATE'{day}'",
                f"day BETWEEN DATE'{day}' AND DATE'{day}' + INTERVAL 9 DAYS",
                f"day IN (DATE'{day}', NULL)",
                f"cast(day AS timestamp) > TIMESTAMP'{day} 00:00:00'",
                f"date_add(day, 3) = DATE'{day}'",
                f"year(day) {self.op()} {rng.choice([2023, 2024])}",
                f"trunc(day, 'month') {self.op()} DATE'{day.replace(day=1)}'",
                f"date_trunc('week', ts) {self.op()} TIMESTAMP'{day - dt.timedelta(days=day.weekday())} 00:00:00'",
                f"datediff(day, DATE'{day}') BETWEEN -3 AND 3",
                f"unix_seconds(ts) {self.op()} {int(dt.datetime.combine(day, dt.time()).timestamp())}",
                f"add_months(day, 1) IN (DATE'{day}', DATE'{day + dt.timedelta(days=1)}')",
            ]
        )

    def flag(self) -> str:
        return self.rng.choice(["b", "NOT b", "b = true", "b IS NULL", "b <=> false", "b IN (true)", "b IS NOT TRUE"])

    def place(self) -> str:
        lng, lat = -100 + self.rng.random() * 125, 30 + self.rng.random() * 25
        return self.rng.choice(
            [
                *(f"lng > {lng:.3f}", f"lat < {lat:.3f}", f"lng BETWEEN {lng:.2f} AND {lng + 9:.2f}", "lng IS NULL"),
                *(
                    f"lng + lat {self.op()} {lng + lat:.1f}D",
                    f"abs(lat - {lat:.1f}D) < 2",
                    f"round(lng, 0) = {lng:.0f}D",
                ),
            ]
        )

    def shapes(self) -> str:
        rng = self.rng
        x, y, r = -100 + rng.random() * 125, 30 + rng.random() * 25, rng.random() * 30
        ring = f"{x} {y}, {x + r} {y}, {x + r} {y + r}, {x} {y + r}, {x} {y}"
        hole = f", ({x + r / 4} {y + r / 4}, {x + r / 2} {y + r / 4}, {x + r / 2} {y + r / 2}, {x + r / 4} {y + r / 4})"
        polygon = f"ST_GeomFromText('POLYGON(({ring}){rng.choice(['', hole])})')"
        point = "ST_Point(lng, lat)"
        return rng.choice(
            [
                f"ST_Contains({polygon}, {point})",
                f"ST_Intersects({point}, {polygon})",
                f"ST_Within({point}, {polygon})",
                f"ST_Disjoint({polygon}, {point})",
                f"ST_Distance({point}, ST_Point({x}, {y})) {rng.choice(['<', '<=', '>', '>='])} {r}",
                f"ST_Distance({polygon}, {point}) < {r / 4}",
            ]
        )

    def opaque(self) -> str:
        return self.rng.choice(
            ["hash(a, s) % 3 = 0", "reverse(s) > 'm'", "sin(x) > 0.5", "array_contains(array(a), 3)"]
        )
