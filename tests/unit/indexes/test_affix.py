"""Prefix and Suffix: sound for any bytes, exact where texts are their own entries, merged, limited, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip import Prefix, Suffix
from geoskip import predicates as p
from geoskip.clauses import keep_mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.affix import Affix
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.indexes.postings import reverse_bytes
from geoskip.metadata import FileMetadata
from tests.support.evaluator import outcomes
from tests.support.harness import COLUMNS, World, sound
from tests.support.strategies import examples

BOTH = [Prefix, Suffix]
COLUMN = COLUMNS["s"]
PIECES = [
    b"a",
    b"b",
    "é".encode(),
    "中".encode(),
    "😀".encode(),
    b"\x80",
    b"\xbf",
    b"\xc3",
    b"\xe4\xb8",
    b"\xff",
    b"_",
    b"%",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map(
    lambda parts: b"".join(parts).decode("utf-8", "surrogateescape")
)
VALID = st.text(st.sampled_from("abé中😀_%"), max_size=5)


def leaf(text: str, other: str) -> st.SearchStrategy[p.Predicate]:
    """A leaf over the column, about these texts."""
    literal = p.Literal(text, "string")
    shapes: list[p.Predicate] = [kind(COLUMN, text) for kind in (p.StartsWith, p.EndsWith, p.Contains)]
    shapes += [p.Comparison(op, COLUMN, literal) for op in ("=", "<=>", "<", "<=", ">", ">=")]
    shapes += [p.In(COLUMN, (literal, p.Literal(other, "string"))), p.IsNull(COLUMN)]
    shapes += [
        p.Like(COLUMN, pattern, "!") for pattern in (text, f"{text}%", f"%{text}", f"{text}_{other}", f"_{text}!%")
    ]
    return st.sampled_from([*shapes, *map(p.Not, shapes)])


@st.composite
def cases(draw: Any, texts: st.SearchStrategy[str]) -> tuple[World, p.Predicate]:
    """Files of texts, and a predicate about pieces of them, longer and shorter than an entry."""
    kind, length = draw(st.sampled_from(BOTH)), draw(st.integers(1, 3))
    files = draw(st.lists(st.lists(st.none() | texts, max_size=3), min_size=1, max_size=4))
    known = sorted({text for file in files for text in file if text is not None}) or [""]

    def asked() -> str:
        text = draw(st.sampled_from(known) | texts)
        at = draw(st.integers(0, len(text)))
        return str(draw(st.sampled_from([text, text[:at], text[at:], text + "a", "a" + text])))

    parts = [draw(leaf(asked(), asked())) for _ in range(draw(st.integers(1, 2)))]
    rows = [[{"s": text} for text in file] for file in files]
    world = World(rows, set(), draw(st.integers(0, 2)), (lambda name: kind(name, length=length),))
    return world, parts[0] if len(parts) == 1 else p.And(tuple(parts))


@pytest.mark.hypothesis
def test_no_verdict_excludes_what_a_text_of_any_bytes_makes_true() -> None:
    @settings(max_examples=examples(250), deadline=None, database=None)
    @given(cases(TEXTS))
    def holds(case: tuple[World, p.Predicate]) -> None:
        world, predicate = case
        sound(predicate, world)

    holds()


@pytest.mark.parametrize(("op", "expected"), [("<", "YYN"), ("<=", "YYN"), (">=", "NYY"), (">", "NYY")])
def test_texts_beyond_their_entries_are_compared(op: str, expected: str) -> None:
    files = [[{"s": text}] for text in ("aaa", "bad", "bcd")]
    world = World(files, set(), 0, (lambda name: Prefix(name, length=2),))
    said = sound(p.Comparison(op, COLUMN, p.Literal("bac", "string")), world)
    assert said.true.tolist() == [letter == "Y" for letter in expected]  # the second has the literal's entry


@pytest.mark.hypothesis
def test_texts_that_are_entries_are_decided_exactly() -> None:
    exact = (p.StartsWith, p.Comparison, p.In, p.IsNull)

    @settings(max_examples=examples(300), deadline=None, database=None)
    @given(cases(VALID), st.sampled_from(BOTH))
    def holds(case: tuple[World, p.Predicate], kind: type[Affix]) -> None:
        drawn, predicate = case
        plain = predicate.child if isinstance(predicate, p.Not) else predicate
        ranged = isinstance(plain, p.Comparison) and plain.op in ("<", "<=", ">", ">=")
        kinds = (p.EndsWith, *exact[1:]) if kind is Suffix else exact
        if not isinstance(plain, kinds) or (ranged and kind is Suffix):
            return
        world = World(drawn.files, set(), drawn.cut, (lambda name: kind(name, length=6),))
        said = sound(predicate, world)
        matching = [any(True in outcomes(predicate, row) for row in rows) for rows in world.files]
        assert said.true.tolist() == (matching if any(world.files) else [True] * len(matching))

    holds()


@pytest.mark.parametrize("kind", BOTH)
def test_an_entry_has_as_many_characters_as_asked_for(kind: type[Any]) -> None:
    texts = ["naïve café", "中文字", "", "😀😀😀😀", "abc"]
    found = kind("s", length=3).collect(pa.array(texts))
    cut = {text[:3] if kind is Prefix else text[-3:] for text in texts if len(text) > 3}
    assert {entry.decode() for entry in found["cut"]} == cut
    assert {entry.decode() for entry in found["whole"]} == {"中文字", "", "abc"}
    one_by_one = kind("s", length=3)._one_by_one(pa.array([text.encode() for text in texts], pa.large_binary()))
    assert [sorted(side.unique().to_pylist()) for side in one_by_one] == [found["whole"], found["cut"]]


@pytest.mark.parametrize("kind", BOTH)
def test_long_runs_of_bytes_that_begin_no_character_make_short_entries(kind: type[Any]) -> None:
    raw = pa.array([b"a" + b"\x80" * 1000 + b"z", b"\x80" * 7], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    found = kind("s", length=2).collect(strings)
    assert [len(entry) for entry in found["cut"]] == [8]
    assert found["whole"] == [b"\x80" * 7]


@pytest.mark.parametrize("kind", BOTH)
def test_parts_are_united_and_a_file_over_the_limit_stores_counts_alone(kind: type[Any]) -> None:
    index = kind("s", length=2, limit=3)
    parts = [index.collect(pa.array(texts)) for texts in (["a", "abc"], ["a", None], ["b"])]
    united = index.merge(parts)
    assert (united["whole"], united["nulls"], united["rows"]) == ([b"a", b"b"], 1, 5)
    for over in (index.merge([*parts, index.collect(pa.array(["c"]))]), index.collect(pa.array(list("abcd")))):
        assert (over["whole"], over["cut"]) == (None, None)
        assert index.merge([over, parts[0]])["whole"] is None
    assert index.collect(pa.array(["a"] * 100))["whole"] == [b"a"]


@pytest.mark.parametrize("kind", BOTH)
def test_many_files_with_many_entries_are_found_as_one_by_one(kind: type[Any]) -> None:
    random = np.random.default_rng(1)
    texts = [["".join(random.choice(list("abc"), random.integers(0, 6))) for _ in range(4)] for _ in range(200)]
    index = kind("s", length=3).bind([COLUMN])
    stored = index.metadata_type(SourceColumn("s", "string", pa.string()))
    files = FileMetadata.of(pa.table({str(index): pa.array([index.collect(pa.array(t)) for t in texts], stored)}))
    for node in (p.StartsWith(COLUMN, "ab"), p.EndsWith(COLUMN, "ab"), p.Comparison("=", COLUMN, p.Literal("ab"))):
        for asked in (node, p.Not(node)):
            kept = keep_mask(index.clause(asked), files).tolist()
            held = [any(True in outcomes(asked, {"s": text}) for text in file) for file in texts]
            assert all(keep or not has for keep, has in zip(kept, held, strict=True))
            decided = not isinstance(node, p.EndsWith if kind is Prefix else p.StartsWith)
            assert (sum(kept) == sum(held)) is decided or sum(held) == 200


def test_reading_backwards_twice_is_reading() -> None:
    texts = pa.array([b"abc", b"", "é".encode(), b"xy"], pa.large_binary())
    assert reverse_bytes(reverse_bytes(texts[1:])).to_pylist() == texts[1:].to_pylist()


@pytest.mark.parametrize("kind", BOTH)
def test_specifications(kind: type[Any]) -> None:
    assert index_from_json(kind("s", length=4).to_json()) == kind("s", length=4)
    for wrong in ({"length": 0}, {"length": 2.5}, {"length": True}, {"length": 10**6}, {"limit": 0}):
        with pytest.raises(InvalidSpecificationError, match=rf"{kind.__name__}\('s'\) keeps"):
            kind("s", **wrong)
    for type_, way in (
        ("int", "BloomFilter"),
        ("array<string>", "size(s)"),
        ("string collate UNICODE", "ValueList('s')"),
    ):
        with pytest.raises(UnsupportedColumnError, match=r"\(s\) needs text, got") as caught:
            kind("s").metadata_type(SourceColumn("s", type_, pa.null()))
        assert way in str(caught.value)
    assert kind("s").metadata_type(SourceColumn("s", "varchar(10)", pa.string())).num_fields == 4
