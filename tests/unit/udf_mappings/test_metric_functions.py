"""Distances of texts, mapped: the laws of metrics, genetic similarity on reads of RNA, similarity of documents."""

from __future__ import annotations

import functools
import itertools
import math
import pydoc_data.topics
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rapidfuzz import fuzz
from rapidfuzz.distance import OSA, Indel, Jaro, JaroWinkler, Levenshtein

import geoskip
from geoskip import MetricDist
from geoskip.errors import InvalidSpecificationError
from geoskip.predicates import Column, Comparison, Literal, Not
from tests.conftest import same_as_off
from tests.support.mapped import kept, metadata, python, spark
from udf_mappings import metric_functions, metrics  # noqa: F401
from udf_mappings.metric_functions import FUNCTIONS, damerau_levenshtein, indel, word_jaccard

WORD, READ, VECTOR = Column("word", "string"), Column("sequence", "string"), Column("vector", "array<double>")
SHORT = ["".join(letters) for n in range(4) for letters in itertools.product("ab", repeat=n)]
READS = pq.read_table("datasets/rrna.parquet")["sequence"].to_pylist()


def over(index: MetricDist, column: Column, files: list[list[Any]], kind: str, arrow: pa.DataType) -> tuple[Any, Any]:
    """The index with its origins, bound, and what it stores of the files."""
    everything = pa.array([row for rows in files for row in rows], arrow)
    bound = index.prepare(everything).bind((column,))
    return bound, metadata(bound, [(pa.array(rows, arrow),) for rows in files], (kind,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_declared_to_be_a_metric_is_one(name: str) -> None:
    function = FUNCTIONS[name].function
    texts = SHORT if name != "word_jaccard" else [" ".join(words) for words in SHORT]
    known = {(a, b): function(a, b) for a in texts for b in texts}
    for (a, b), distance in known.items():
        assert distance == known[b, a] >= 0 == known[a, a]
        assert all(known[a, c] <= distance + known[b, c] + 1e-12 for c in texts)
    assert function(None, "a") is None is function("a", None)


@pytest.mark.parametrize(("function", "least", "most"), [(damerau_levenshtein, 1, 2), (indel, 0.5, 1)])
def test_levenshteins_distance_bounds_another(function: Any, least: float, most: float) -> None:
    assert all(
        least * function(a, b) <= Levenshtein.distance(a, b) <= most * function(a, b) for a in SHORT for b in SHORT
    )


@pytest.mark.parametrize("function", [damerau_levenshtein, indel])
@pytest.mark.parametrize("metric", ["levenshtein", "itself"])
def test_no_word_is_lost(function: Any, metric: str) -> None:
    words = ["", "ab", "ba", "abba", "baab", "bbbbbb", "ca", "abc", "acb", "x" * 12, None]
    files = [[a, b] for a in words for b in words]
    index = MetricDist("word", metric=function if metric == "itself" else metric, origins=4)
    bound, summaries = over(index, WORD, files, "string", pa.string())
    holds: dict[str, Callable[[float, float], bool]] = {"<": float.__lt__, "<=": float.__le__, "=": float.__eq__}
    holds |= {">": float.__gt__, ">=": float.__ge__}
    skipped = 0
    for (op, holding), value, other in itertools.product(holds.items(), (0, 1, 2, 3.5, 9), ("ab", "abc", "")):
        for args in ((WORD, other), (other, WORD)):
            answer = kept(Comparison(op, python(function, *args, type="int"), Literal(value)), bound, summaries)
            for rows, keeps in zip(files, answer, strict=True):
                found = [function(row, other) for row in rows]
                assert keeps or not any(d is not None and holding(float(d), float(value)) for d in found), (op, value)
            skipped += answer.count(False)
    assert skipped > 0.25 * len(files) * 2 * 5 * 5 * 3


def test_with_equal_distances_words_would_be_lost() -> None:
    """The mutant: ca is two transposing edits from abc, and three of Levenshtein's."""
    index, files = over(
        MetricDist("word", metric="levenshtein", origins=["abc"]), WORD, [["ca"]], "string", pa.string()
    )
    asked = python(damerau_levenshtein, WORD, "abc", type="int")
    assert damerau_levenshtein("ca", "abc") == 2 < Levenshtein.distance("ca", "abc")
    assert kept(Comparison("<=", asked, Literal(2)), index, files) == [True]
    assert kept(Comparison("<=", asked, Literal(1)), index, files) == [False]


# A detour that is shorter, by name: the distance of the ends, and the way.
DETOURS: dict[str, tuple[Callable[[Any, Any], float], tuple[str, str, str]]] = {
    "jaro": (Jaro.distance, ("a", "aa", "ba")),
    "jaro_winkler": (JaroWinkler.distance, ("a", "aa", "ba")),
    "JaroWinkler.distance": (JaroWinkler.distance, ("a", "aa", "ba")),
    "osa": (OSA.distance, ("ca", "ac", "abc")),
    "normalized_levenshtein": (Levenshtein.normalized_distance, ("ab", "aba", "ba")),
    "fuzz.ratio": (Indel.normalized_distance, ("ab", "aba", "ba")),
    "partial ratio": (lambda a, b: 1 - fuzz.partial_ratio(a, b) / 100, ("a", "ab", "b")),
}


@pytest.mark.parametrize("name", DETOURS)
def test_what_is_no_metric_is_refused_with_a_detour(name: str) -> None:
    distance, (a, b, c) = DETOURS[name]
    assert distance(a, c) > distance(a, b) + distance(b, c) + 1e-9
    with pytest.raises(InvalidSpecificationError, match=rf"(?s){re.escape(name)} is no metric.*; use metric=|declare"):
        MetricDist("word", metric=name)


def test_a_function_of_the_name_is_refused_as_well() -> None:
    def jaro_winkler(a: str, b: str) -> float:
        return float(JaroWinkler.distance(a, b))

    with pytest.raises(InvalidSpecificationError, match="is no metric"):
        MetricDist("word", metric=jaro_winkler)


# ---- the paper's uses of a metric index


def test_reads_of_similar_genes_are_in_few_files() -> None:
    """Genetic similarity: within 12 edits of a read, in files of ten reads each."""
    files = [READS[start : start + 10] for start in range(0, len(READS), 10)]
    index, summaries = over(MetricDist("sequence", metric="levenshtein"), READ, files, "string", pa.string())
    shares = []
    for read in READS[5::37]:
        altered = read[:100] + "ACGT" + read[107:]
        asked = spark("Levenshtein", "levenshtein", READ, altered, type="int")
        answer = kept(Comparison("<=", asked, Literal(12)), index, summaries)
        for rows, keeps in zip(files, answer, strict=True):
            assert keeps or all(Levenshtein.distance(row, altered) > 12 for row in rows)
        shares.append(sum(answer) / len(answer))
        distant = kept(Not(Comparison("<=", asked, Literal(12))), index, summaries)
        assert all(
            distant[n] for n, rows in enumerate(files) if any(Levenshtein.distance(r, altered) > 12 for r in rows)
        )
    assert np.mean(shares) < 0.35


@functools.cache
def documents() -> list[list[list[float]]]:
    """Paragraphs of Python's reference, each the mean of its words' vectors without the commonest, in files by kind."""
    table = pq.read_table("datasets/word_vectors.parquet")
    vectors = dict(
        zip(table["word"].to_pylist()[150:], np.array(table["vector"].to_pylist()[150:], float), strict=True)
    )
    topics: dict[str, str] = pydoc_data.topics.topics
    texts = [part for name in sorted(topics) for part in topics[name].split("\n\n")]
    found = [[w for w in re.findall(r"[a-z]{3,}", text.lower()) if w in vectors] for text in texts]
    means = np.array([np.mean([vectors[word] for word in words], axis=0) for words in found if len(words) >= 25])
    units = means / np.linalg.norm(means, axis=1, keepdims=True)
    kinds, nearest = [0], units @ units[0]
    for _ in range(20):  # the one that is farthest from all before
        kinds.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, units @ units[kinds[-1]])
    order = np.argsort((units @ units[kinds].T).argmax(axis=1), kind="stable")
    return [means[order[start : start + 10]].tolist() for start in range(0, len(means), 10)]


def test_similar_documents_are_in_few_files() -> None:
    """Document similarity: the angle between the mean word vectors of two texts, by ``angular``."""
    files = documents()
    array = pa.list_(pa.float64())
    index, summaries = over(MetricDist("vector", metric="angular", origins=32), VECTOR, files, "array<double>", array)
    queries = [rows[3] for rows in files[::4]]
    skipped = 0
    for query in queries:
        literal = Literal(tuple(query), "array<double>")
        asked = python(metric_functions.angular, VECTOR, literal, type="double")
        answer = kept(Comparison("<", asked, Literal(0.15)), index, summaries)
        for rows, keeps in zip(files, answer, strict=True):
            found = [metric_functions.angular(row, query) for row in rows]
            assert keeps or not any(d is not None and d < 0.15 for d in found)
        skipped += answer.count(False)
    assert skipped > 0.4 * len(files) * len(queries)
    assert math.isclose(metric_functions.angular([1.0, 0.0], [1.0, 1.0]) or 0, math.pi / 4)


@pytest.mark.slow
@pytest.mark.spark
def test_similar_texts_through_spark(spark: Any, parts: Callable[..., Path]) -> None:
    geoskip.register_functions(spark)
    files = [READS[start : start + 20] for start in range(0, 160, 20)]
    spark.udf.register("angular", metric_functions.angular, "double")
    place = parts(
        *(
            {"sequence": rows, "name": [f"read {row[:2]} x{n}" for row in rows], "document": documents()[n] * 2}
            for n, rows in enumerate(files)
        )
    )
    geoskip.dataset(spark, str(place)).create_index(
        MetricDist("sequence", metric="levenshtein"),
        MetricDist("name", metric=word_jaccard),
        MetricDist("document", metric="angular", origins=32),
    )
    frame = spark.read.parquet(str(place))
    read = READS[45]
    texts = {
        f"levenshtein(sequence, '{read}') <= 12": 7,
        f"damerau_levenshtein(sequence, '{read}') <= 6": 7,
        f"word_jaccard(name, 'read {read[:2]} x3') < 0.1": 2,
        f"angular(document, array({', '.join(f'{x!r}D' for x in documents()[4][3])})) < 0.15": 5,
    }
    found = {text: geoskip.explain(frame.where(text)).files_kept for text in texts}
    assert all(found[text] <= most for text, most in texts.items()), found.values()
    same_as_off(lambda: frame.where(" OR ".join(texts)))
