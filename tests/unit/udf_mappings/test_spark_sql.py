"""Spark's own functions, mapped: by what Spark itself makes of them, and by the laws that the rules rest on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoskip
import udf_mappings.spark_texts
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.predicates import Call, Column, Comparison, EndsWith, In, Like, Literal, Not, Predicate, StartsWith
from tests.support.mapped import CATALYST, files_kept, kept, metadata, spark

S, DAY, N, TS = Column("s", "string"), Column("day", "date"), Column("n", "int"), Column("ts", "timestamp")
KINDS = [MinMax("s"), Prefix("s", length=2), Suffix("s", length=2)]
WORDS = [
    *["", " ", "ab", "aB", "AB", "ab-cd", "ab-", "-ab", " ab", "ab ", " ab ", "b-ab", "cd-ab", "a-b-c", "xab", "abx"],
    *["\u212aab", "kab", "KAB", "ßx", "SSX", "ssx", "ſab", "éab", "\U0001f600", "ab\u212a", "zz", "İx", "i̇x", None],
]


def text_of(value: Any) -> Literal:
    return Literal(value, "string")


def split_part(place: int, separator: str = "-") -> Call:
    parts = spark("StringSplitSQL", "stringsplitsql", S, separator, type="array<string>")
    return spark("ElementAt", "element_at", parts, place, "", type="string")


PARTS: dict[str, tuple[Call, Callable[[str], str]]] = {
    "the first part": (split_part(1), lambda s: s.split("-")[0]),
    "the last part": (split_part(-1), lambda s: s.split("-")[-1]),
    "before the first": (
        spark("SubstringIndex", "substring_index", S, "-", 1, type="string"),
        lambda s: s.split("-")[0],
    ),
    "before the second": (
        spark("SubstringIndex", "substring_index", S, "-", 2, type="string"),
        lambda s: "-".join(s.split("-")[:2]),
    ),
    "after the last": (
        spark("SubstringIndex", "substring_index", S, "-", -1, type="string"),
        lambda s: s.split("-")[-1],
    ),
    "split": (
        spark(
            "GetArrayItem",
            "getarrayitem",
            spark("StringSplit", "split", S, "[-x]", -1, type="array<string>"),
            0,
            type="string",
        ),
        lambda s: s.replace("x", "-").split("-")[0],
    ),
    "trim": (spark("StringTrim", "trim", S, type="string"), lambda s: s.strip(" ")),
    "ltrim": (spark("StringTrimLeft", "ltrim", S, type="string"), lambda s: s.lstrip(" ")),
    "rtrim": (spark("StringTrimRight", "rtrim", S, type="string"), lambda s: s.rstrip(" ")),
    "trim of letters": (spark("StringTrim", "trim", S, "ax", type="string"), lambda s: s.strip("ax")),
    "upper": (spark("Upper", "upper", S, type="string"), str.upper),
    "lower": (spark("Lower", "lower", S, type="string"), str.lower),
}


@pytest.mark.slow
@pytest.mark.parametrize("index", KINDS, ids=str)
@pytest.mark.parametrize("name", PARTS)
def test_no_text_is_lost(name: str, index: Any) -> None:
    call, function = PARTS[name]
    bound = index.bind((S,))
    pairs = [(word, WORDS[n % len(WORDS)]) for at, word in enumerate(WORDS) for n in (at, at + 1, at + 7)]
    files = metadata(bound, [(pa.array(pair, pa.string()),) for pair in pairs], ("string",))
    values = sorted({function(word) for word in WORDS if word is not None} | {"q"})
    skipped = 0
    for value in values:
        tests: list[tuple[Predicate, Callable[[str], bool]]] = [
            (Comparison("=", call, text_of(value)), lambda s, value=value: s == value),
            (Comparison(">=", call, text_of(value)), lambda s, value=value: s.encode() >= value.encode()),
            (Comparison("<", call, text_of(value)), lambda s, value=value: s.encode() < value.encode()),
            (In(call, (text_of(value), text_of("zz"))), lambda s, value=value: s in (value, "zz")),
            (StartsWith(call, value), lambda s, value=value: s.startswith(value)),
        ]
        for node, holds in tests:
            for asked, wanted in ((node, True), (Not(node), False)):
                answer = kept(asked, bound, files)
                for pair, keeps in zip(pairs, answer, strict=True):
                    assert keeps or not any(w is not None and holds(function(w)) is wanted for w in pair), (asked, pair)
                skipped += answer.count(False)
    ends = name in ("the last part", "after the last", "ltrim")
    serves = isinstance(index, Suffix) if ends else not isinstance(index, Suffix) or "trim" in name
    assert skipped > 0.5 * len(pairs) * len(values) if serves else True


UNDECODED = [b"\x80-\xff", b"u=\xff", b"\xff-ab", b"ab\xfe", b"\xa9ab", "é\ufffd-".encode()]
DECODED: dict[str, tuple[Predicate, Any, list[bool]]] = {
    "the first part": (Comparison("=", split_part(1), text_of("\ufffd")), MinMax("s"), [True] * 6),
    "split, above": (Comparison(">", PARTS["split"][0], text_of("é")), MinMax("s"), [True] * 6),
    "split, beginning": (
        StartsWith(PARTS["split"][0], "ab\ufffd"),
        Prefix("s"),
        [False, False, False, True, False, False],
    ),
    "the last part": (Comparison("=", split_part(-1), text_of("\ufffd")), Suffix("s"), [True] * 6),
    "after a separator": (Comparison("=", split_part(-1, "u=\ufffd"), text_of("")), Suffix("s"), [True] * 6),
    "a group": (
        Comparison("=", spark("RegExpExtract", "regexp_extract", S, "^u=(.*)", 1, type="string"), text_of("\ufffd")),
        Prefix("s"),
        [False, True, False, False, False, False],
    ),
    "half a character": (
        Comparison("=", spark("StringTrim", "trim", S, "é", type="string"), text_of("ab")),
        Prefix("s"),
        [True] * 6,
    ),
}


@pytest.mark.parametrize("name", DECODED)
def test_what_is_not_utf8_may_be_decoded_or_cut(name: str) -> None:
    node, index, expected = DECODED[name]
    texts = [pa.array([text], pa.binary()).view(pa.string()) for text in UNDECODED]
    bound = index.bind((S,))
    assert kept(node, bound, metadata(bound, [(text,) for text in texts], ("string",))) == expected


@pytest.mark.parametrize("call", [split_part(1), PARTS["split"][0]])
def test_parts_of_what_another_function_returns_may_be_anything(call: Call) -> None:
    split, *rest = call.args
    other = replace(call, args=(replace(split, implementation="python:mine.split#1"), *rest))
    bound = MinMax("s").bind((S,))
    files = metadata(bound, [(pa.array(["zz"]),)], ("string",))
    assert [kept(Comparison("=", node, text_of("ab")), bound, files) for node in (call, other)] == [[False], [True]]


@pytest.mark.spark
def test_no_row_is_lost_that_is_not_utf8(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts(*(pa.table({"s": pa.array([text], pa.binary()).view(pa.string())}) for text in UNDECODED))
    geoskip.dataset(spark, str(place)).create_index(MinMax("s"), Prefix("s"), Suffix("s"))
    found = files_kept(
        spark.read.parquet(str(place)),
        [
            "split_part(s, '-', 1) = '\ufffd'",
            "split(s, '[-x]')[0] > 'é'",
            "startswith(split(s, '[-x]')[0], 'ab\ufffd')",
            "split_part(s, '-', -1) = '\ufffd'",
            "regexp_extract(s, '^u=(.*)', 1) = '\ufffd'",
            "trim('é' FROM s) = 'ab'",
        ],
    )
    assert sum(found.values()) < 6 * len(UNDECODED)


T = Column("t", "string")
GLUED: dict[str, tuple[Any, ...]] = {
    "before": ("a", S),
    "behind": (S, "b"),
    "around": ("-", S, "ab"),
    "two": (S, T),
    "two and more": ("a", S, "-", T, "b"),
}


@pytest.mark.parametrize("index", [*KINDS, ValueList("s")], ids=str)
@pytest.mark.parametrize("name", GLUED)
def test_no_text_that_is_put_together_is_lost(name: str, index: Any) -> None:
    call = spark("Concat", "concat", *GLUED[name], type="string")
    words = ["", "a", "b", "ab", "ba", "-", "a-b", "ab-", "abab", "\udcffa", "zz", None]
    rows = [(s, t) for s in words for t in ("", "b", "a-", None)]
    made = [None if None in row else "".join({S: row[0], T: row[1]}.get(p, p) for p in GLUED[name]) for row in rows]
    bound = index.bind((S,))
    texts = [pa.array([row[0] and row[0].encode("utf-8", "surrogateescape")], pa.binary()).view(pa.string())
             for row in rows]  # fmt: skip
    files = metadata(bound, [(text,) for text in texts], ("string",))
    skipped = 0
    for value in ["", "a", "ab", "abb", "-abab", "aa-b-bb", "q"]:
        tests: list[tuple[Predicate, Callable[[str], bool]]] = [
            (Comparison("=", call, text_of(value)), lambda m, value=value: m == value),
            (In(call, (text_of(value), text_of("abab"))), lambda m, value=value: m in (value, "abab")),
            (StartsWith(call, value), lambda m, value=value: m.startswith(value)),
            (EndsWith(call, value), lambda m, value=value: m.endswith(value)),
            (Like(call, value + "%b", "\\"), lambda m, v=value: m[len(v):].endswith("b") and m.startswith(v)),
        ]  # fmt: skip
        for node, holds in tests:
            for row, text, keeps in zip(rows, made, kept(node, bound, files), strict=True):
                assert keeps or text is None or not holds(text), (node, row)
                skipped += not keeps
    assert skipped > 0.3 * len(rows) * 35


def test_other_letters_may_turn_into_ascii_ones() -> None:
    """The mutant: if only spellings in ASCII were looked for, the Kelvin sign and the long s would be lost."""
    assert ("\u212aab".lower(), "ſab".upper(), "ßx".upper()) == ("kab", "SAB", "SSX")
    index = Prefix("s", length=2).bind((S,))
    files = metadata(index, [(pa.array([word]),) for word in ("\u212aab", "kab", "xab")], ("string",))
    lower = PARTS["lower"][0]
    assert kept(Comparison("=", lower, text_of("kab")), index, files) == [True, True, False]


def test_what_is_no_letter_is_looked_for_beyond_the_letters() -> None:
    lower = PARTS["lower"][0]
    words = ("San Jose", "SAN ", "Sandusky", "sanitas", "sa\u0146", "ſan jose")
    for index, expected in ((Prefix("s"), "110011"), (MinMax("s"), "110011")):
        bound = index.bind((S,))
        files = metadata(bound, [(pa.array([word]),) for word in words], ("string",))
        asked = kept(StartsWith(lower, "san "), bound, files)
        assert "".join(str(int(keeps)) for keeps in asked) == expected, index
    prefix = Prefix("s").bind((S,))
    files = metadata(prefix, [(pa.array([word]),) for word in ("Spruce", "Springdale", "SPRINT")], ("string",))
    assert kept(StartsWith(lower, "springfield"), prefix, files) == [False, True, True], "four letters are looked for"


PATTERNS = {
    "^ab": ["ab"],
    "^(?:ab|cd)-": ["ab", "cd"],
    "^a(b|c)*d": [],
    "^(a|b)|c": [],
    "^(ab|cd)?": [],
    "^(ab|cd)+x": ["ab", "cd"],
    "ab": [],
    "^ab*": ["a"],
    "(?m)^ab": [],
    "^10[.]6\\.1": ["10.6.1"],
    "^a[.]?b": ["a"],
    "^a\\.*b": ["a"],
    "^a\\(b[)]": ["a(b)"],
    "^a\\[b": ["a[b"],
    "^(a[.]b|c\\.d)e": ["a.b", "c.d"],
    "^a[.b]": ["a"],
    "^a[^.]": ["a"],
    "^a\\d": ["a"],
    "^a\\Q.": ["a"],
    "^a[|]b": [],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_beginnings_of_patterns(pattern: str) -> None:
    assert udf_mappings.spark_texts.regex_prefixes(pattern) == PATTERNS[pattern]


@pytest.mark.parametrize(
    ("pattern", "group", "value", "starts"),
    [
        ("^u=(\\w+)", 1, "ann", ["u=ann"]),
        ("^(?<ip>\\S+) .*\\[(?<day>[^:]+)", 1, "10.0.0.1", ["10.0.0.1"]),
        ("^(?<ip>\\S+) .*\\[(?<day>[^:]+)", 2, "day", []),
        ("^u=(\\w+);v=(\\d+)", 2, "7", ["u="]),
        ("^(ab)*", 1, "ab", []),
        ("^(ab)|(c)", 1, "ab", []),
        ("^x(a(b))", 1, "ab", ["x"]),
        ("^u=(\\w+)", 0, "u=ann", ["u=ann"]),
        ("^u=(\\w+)", 1, "", []),
        ("^u[=](\\w+)", 1, "ann", ["u=ann"]),
        ("^10\\.0[.](\\S+)", 1, "0.1", ["10.0.0.1"]),
    ],
)
def test_groups_at_the_beginning(pattern: str, group: int, value: str, starts: list[str]) -> None:
    index = Prefix("s", length=9).bind((S,))
    words = ["u=ann", "u=bob", "10.0.0.1 x", "xab", "zz", "ab"]
    files = metadata(index, [(pa.array([word]),) for word in words], ("string",))
    node = Comparison("=", spark("RegExpExtract", "regexp_extract", S, pattern, group, type="string"), text_of(value))
    expected = [not starts or any(word.startswith(start) for start in starts) for word in words]
    assert kept(node, index, files) == expected


# ---- what starts anew

DATES = {
    "Month": lambda d: d.month,
    "Quarter": lambda d: (d.month + 2) // 3,
    "DayOfMonth": lambda d: d.day,
    "DayOfYear": lambda d: d.timetuple().tm_yday,
    "DayOfWeek": lambda d: d.isoweekday() % 7 + 1,
    "WeekDay": lambda d: d.weekday(),
    "WeekOfYear": lambda d: d.isocalendar().week,
}
EPOCH = dt.date(1970, 1, 1)


def ranges(kind: str, draw: Any) -> list[tuple[int, int]]:
    starts = draw.integers(-700_000, 2_900_000, 70) if kind == "date" else draw.integers(-300, 300, 70)
    return [(int(start), int(start + draw.integers(0, 1 + 10 ** draw.integers(0, 4)))) for start in starts]


@pytest.mark.parametrize("kind", DATES)
def test_within_a_period_the_bounds_bound(kind: str) -> None:
    index = MinMax("day").bind((DAY,))
    found = [(a, min(b, 2_932_896)) for a, b in ranges("date", np.random.default_rng(1))]
    files = metadata(index, [(pa.array(pair, pa.int32()).cast(pa.date32()),) for pair in found], ("date",))
    call, skipped = spark(kind, kind.lower(), DAY, type="int"), 0
    for value in (0, 1, 2, 4, 6, 12, 29, 300):
        tests = [(Comparison("=", call, Literal(value, "int")), value.__eq__)]
        tests += [(Comparison("<", call, Literal(value, "int")), value.__gt__)]
        for node, holds in [*tests, (Not(tests[0][0]), value.__ne__)]:
            answer = kept(node, index, files)
            for (first, last), keeps in zip(found, answer, strict=True):
                days = {first, last, *range(first, min(last, first + 400))}
                results = {DATES[kind](EPOCH + dt.timedelta(days=day)) for day in days}
                assert keeps or not any(map(holds, results)), (node, first, last)
            skipped += answer.count(False)
    assert skipped > 0.2 * 8 * 3 * len(found)


@pytest.mark.parametrize("kind", ["Remainder", "Pmod"])
def test_remainders(kind: str) -> None:
    index = MinMax("n").bind((N,))
    found = [(-5, 5), (-7, -6), (7, 9), (9, 12), (0, 0), (-10, -10), (10, 19), (-(2**31), 2**31 - 1)]
    files = metadata(index, [(pa.array(pair, pa.int32()),) for pair in found], ("int",))
    call = spark(kind, "%" if kind == "Remainder" else "pmod", N, Literal(10, "int"), type="int")
    for value in range(-10, 11):
        answer = kept(Comparison("=", call, Literal(value, "int")), index, files)
        for (first, last), keeps in zip(found, answer, strict=True):
            numbers = range(first, last + 1) if last - first < 99 else range(-20, 20)
            results = {n % 10 if kind == "Pmod" or n >= 0 else -(-n % 10) for n in numbers}
            assert keeps or value not in results, (value, first, last)
        assert answer.count(False) > 0


def test_hours_in_utc_alone() -> None:
    index = MinMax("ts").bind((TS,))
    hour = 3_600_000_000
    stamps = [(2 * hour, 3 * hour - 1), (23 * hour, 25 * hour)]
    files = metadata(
        index, [(pa.array(p, pa.int64()).cast(pa.timestamp("us", "UTC")),) for p in stamps], ("timestamp",)
    )
    for zone, expected in (("UTC", [False, True]), ("Asia/Kolkata", [True, True])):
        node = Comparison(">", spark("Hour", "hour", TS, type="int", flags=(zone,)), Literal(2, "int"))
        assert kept(node, index, files) == expected


@pytest.mark.parametrize(("unit", "ticks"), [("Seconds", 1), ("Millis", 1_000), ("Micros", 1_000_000)])
def test_instants_that_are_counted(unit: str, ticks: int) -> None:
    index = MinMax("n").bind((N,))
    most = 2**63 - 1
    found = [(-ticks, -1), (0, 2 * ticks), (2 * ticks, 2 * ticks), (3 * ticks, 9 * ticks), (5, most), (-most, 0)]
    files = metadata(index, [(pa.array(pair, pa.int64()),) for pair in found], ("bigint",))
    call = spark(f"{unit}ToTimestamp", "_", Column("n", "bigint"), type="timestamp")
    index = index.bind((Column("n", "bigint"),))
    answer = kept(Comparison("=", call, Literal(2_000_000, "timestamp")), index, files)
    overflows = ticks < 1_000_000  # 5 microseconds and more are times, and so is any number of them
    assert answer == [False, True, True, False, True, overflows]


def test_only_uniquely_named_stretches_of_time() -> None:
    index = MinMax("ts").bind((TS,))
    stamps = [int(dt.datetime(2024, m, 29, tzinfo=dt.UTC).timestamp() * 1e6) for m in (1, 2, 3)]
    files = metadata(index, [(pa.array([s]).cast(pa.timestamp("us", "UTC")),) for s in stamps], ("timestamp",))

    def answer(form: str, text: str, zone: str = "UTC") -> list[bool]:
        call = Call("date_format", (TS, text_of(form)), CATALYST + "DateFormatClass", (zone,), "string")
        return kept(Comparison("=", call, text_of(text)), index, files)

    assert answer("yyyy-MM", "2024-02") == [False, True, False]
    assert answer("yyyy-MM-dd HH", "2024-02-29 00") == [False, True, False]
    assert answer("yyyy", "2025") == [False, False, False]
    for form, text, zone in (("MM", "02", "UTC"), ("yyyy-MM", "2024-2", "UTC"), ("yyyy-MM", "2024-02", "Asia/Tokyo")):
        assert answer(form, text, zone) == [True, True, True]
