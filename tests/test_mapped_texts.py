"""Distances of texts, mapped: the laws of metrics, genetic similarity on reads of RNA, similarity of documents."""

from __future__ import annotations

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
import udf_mappings.metrics
import udf_mappings.text_metrics  # noqa: F401
from geoskip import MetricDist
from geoskip.errors import InvalidSpecificationError
from geoskip.predicates import Column, Comparison, Literal, Not
from tests.conftest import same_as_off
from tests.mapped import kept, metadata, python, spark
from udf_mappings import metric_functions
from udf_mappings.text_functions import FUNCTIONS, damerau_levenshtein, indel, word_jaccard

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


def documents() -> tuple[list[list[list[float]]], Any]:
    """Paragraphs of Python's reference as vectors: words by how rare they are, in 24 dimensions (latent semantics)."""
    topics: dict[str, str] = pydoc_data.topics.topics
    texts = [part for name in sorted(topics) for part in topics[name].split("\n\n") if len(part) > 400][:300]
    words = [re.findall(r"[a-z]{3,}", text.lower()) for text in texts]
    vocabulary = {word: n for n, word in enumerate(sorted({word for some in words for word in some}))}
    counts = np.zeros((len(texts), len(vocabulary)))
    for row, some in enumerate(words):
        for word in some:
            counts[row, vocabulary[word]] += 1
    weighted = np.log1p(counts) * np.log(len(texts) / (counts > 0).sum(axis=0))
    left, values, _ = np.linalg.svd(weighted, full_matrices=False)
    vectors = left[:, :24] * values[:24]
    order = np.lexsort(np.argsort(-np.abs(vectors[:, :3]), axis=1).T)
    return [vectors[order[start : start + 6]].tolist() for start in range(0, len(texts), 6)], vectors


def test_similar_documents_are_in_few_files() -> None:
    """Document similarity: the angle between the vectors of words, by ``angular``."""
    files, vectors = documents()
    array = pa.list_(pa.float64())
    index, summaries = over(MetricDist("vector", metric="angular", origins=32), VECTOR, files, "array<double>", array)
    skipped = 0
    for query in vectors[::60].tolist():
        literal = Literal(tuple(query), "array<double>")
        asked = python(metric_functions.angular, VECTOR, literal, type="double")
        answer = kept(Comparison("<", asked, Literal(0.3)), index, summaries)
        for rows, keeps in zip(files, answer, strict=True):
            found = [metric_functions.angular(row, query) for row in rows]
            assert keeps or not any(d is not None and d < 0.3 for d in found)
        skipped += answer.count(False)
    assert skipped > 0.3 * len(files) * len(vectors[::60])
    assert math.isclose(metric_functions.angular([1.0, 0.0], [1.0, 1.0]) or 0, math.pi / 4)


@pytest.mark.spark
def test_similar_texts_through_spark(spark: Any, parts: Callable[..., Path]) -> None:
    geoskip.register_functions(spark)
    files = [READS[start : start + 20] for start in range(0, 160, 20)]
    place = parts(
        *({"sequence": rows, "name": [f"read {row[:2]} x{n}" for row in rows]} for n, rows in enumerate(files))
    )
    geoskip.dataset(spark, str(place)).create_index(
        MetricDist("sequence", metric="levenshtein"), MetricDist("name", metric=word_jaccard)
    )
    frame = spark.read.parquet(str(place))
    read = READS[45]
    texts = {
        f"levenshtein(sequence, '{read}') <= 12": 7,
        f"damerau_levenshtein(sequence, '{read}') <= 6": 7,
        f"word_jaccard(name, 'read {read[:2]} x3') < 0.1": 2,
    }
    found = {text: geoskip.explain(frame.where(text)).files_kept for text in texts}
    assert all(found[text] <= most for text, most in texts.items()), found.values()
    same_as_off(lambda: frame.where(" OR ".join(texts)))
