"""MetricDist through Spark: the spellings of distances as its optimizer leaves them, and the life of origins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MetricDist
from geoskip.errors import InvalidSpecificationError
from geoskip.registry import mappings
from tests.conftest import files_kept, same_as_off
from tests.support.metric_worlds import edit_distance
from udf_mappings import metric_functions

pytestmark = pytest.mark.spark

CENTRES = [(0, 0), (60, 10), (-70, -40), (120, 60), (-20, 80), (179, -5)]
WORDS = ["abacab abacad abbcab", "kitten sitten mitten", "smith smyth smithe", "\U0001f600x \U0001f600y éa"]


def table_at(number: int) -> pa.Table:
    """Twelve rows around one centre, words of one kind; one row of NULLs."""
    rng = np.random.default_rng(number)
    x, y = (np.append(np.round(at + rng.uniform(-2, 2, 11), 3), np.nan) for at in CENTRES[number % len(CENTRES)])
    null = np.isnan(x)
    words = (WORDS[number % len(WORDS)].split() * 4)[:12]
    tags = [[f"t{number}{k}" for k in rng.integers(0, 4, 3)] for _ in range(12)]
    vectors = [(np.eye(6)[number % 6] + rng.normal(0, 0.05, 6)).tolist() for _ in range(12)]
    columns = {
        "word": pa.array(words, mask=null),
        "x": pa.array(x, mask=null),
        "y": pa.array(y, mask=null),
        "i": pa.array(np.nan_to_num(x).round().astype(np.int32), mask=null),
        "j": pa.array(np.nan_to_num(y).round().astype(np.int64), mask=null),
        "f": pa.array(x, mask=null).cast(pa.float32()),
        "m": pa.array(np.nan_to_num(x).round(2), mask=null).cast(pa.decimal128(10, 2), safe=False),
        "h": pa.array([(1 << (8 * number)) * 255 ^ (1 << int(b)) for b in rng.integers(0, 60, 12)], pa.int64()),
        "tags": pa.array(tags),
        "v": pa.array(vectors),
    }
    return pa.table(columns)


KINDS = [
    MetricDist("word", metric="levenshtein"),
    MetricDist("x", "y", metric="euclidean"),
    MetricDist("i", "j", metric="euclidean"),
    MetricDist("i", "j", metric="manhattan"),
    MetricDist("x", "y", metric="chebyshev"),
    MetricDist("x", "y", metric="haversine"),
    MetricDist("f", "m", metric="euclidean"),
    MetricDist("h", metric="hamming"),
    MetricDist("v", metric="angular"),
    MetricDist("tags", metric="jaccard"),
]

SKIPPING = [
    "levenshtein(word, 'abacaX') <= 1",
    "levenshtein('mitten', word, 2) >= 0",
    "levenshtein(word, 'smith', 3) BETWEEN 0 AND 2",
    "levenshtein(word, '\U0001f600é') < 1.5",
    "NOT levenshtein(word, 'mitten') > 1",
    "word = 'kitten'",
    "sqrt(pow(x - 60, 2) + pow(y - 10, 2)) < 3",
    "3 > sqrt((x - 60) * (x - 60) + (10 - y) * (10 - y))",
    "power(pow(x - 60, 2) + pow(y - 10, 2), 0.5) <= 3",
    "(x - 60) * (x - 60) + (y - 10) * (y - 10) < 9",
    "hypot(x - 60, y - 10) BETWEEN 0.5 AND 2",
    "hypot(x, y) > 150",
    "greatest(abs(x - 60), abs(y - 10)) < 2",
    "sqrt(pow(i - 60, 2) + pow(j - 10, 2)) < 3",
    "sqrt((i - 60) * (i - 60) + (j - 10) * (j - 10)) < 3",
    "hypot(i - 60, j - 10) <= 2",
    "abs(i - 60) + abs(j - 10) < 4",
    "sqrt(pow(f - 60.5, 2) + pow(m - 10.25, 2)) < 60",
    "ST_Distance(ST_Point(x, y), ST_Point(60, 10)) < 3",
    "ST_DWithin(ST_Point(y, x), ST_Point(10, 60), 3)",
    "ST_DistanceSphere(ST_Point(x, y), ST_Point(-179, -5)) < 500000",
    "haversine(x, y, -179, -5) < 500000",
    "haversine(-179, -5, x, y, 3959) > 10000",
    "bit_count(h ^ 255) <= 1",
    "angular(v, array(1D, 0D, 0D, 0D, 0D, 0D)) < 0.3",
    "jaccard(tags, array('t10', 't11', 't12')) < 0.6",
    "1 - size(array_intersect(tags, array('t10', 't11')))/size(array_union(tags, array('t10', 't11'))) < 0.6",
]


@pytest.fixture(scope="module")
def points(plain: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All kinds over six files."""
    place = tmp_path_factory.mktemp("points")
    for number in range(6):
        pq.write_table(table_at(number), place / f"part-{number}.parquet")
    metric_functions.register(plain)
    found = geoskip.dataset(plain, str(place))
    report = found.create_index(*KINDS)
    assert not report.incomplete
    assert set(report.readers.values()) == {"arrow", "spark"} or set(report.readers.values()) == {"spark"}
    return found


@pytest.mark.slow
def test_distances_skip_however_they_are_spelt(points: Any, plain: Any) -> None:
    """What each spelling skips, and one query over all of them for the rows; without ANSI, arithmetic is another."""
    frame = points.to_df()
    for text in SKIPPING:
        report = geoskip.explain(frame.where(text))
        assert 0 <= report.files_kept <= 3, f"{text}: {report}"
    groups = [" OR ".join(f"({text})" for text in SKIPPING[start::3]) for start in range(3)]
    for text in (*groups, SKIPPING[0], SKIPPING[14]):
        same_as_off(lambda text=text: frame.where(text).select("x", "y", "word"))
    plain.conf.set("spark.sql.ansi.enabled", "false")
    try:
        frame = points.to_df()
        for text in SKIPPING[14:18]:
            assert geoskip.explain(frame.where(text)).files_kept <= 3, text
        same_as_off(lambda: frame.where(SKIPPING[14]))
    finally:
        plain.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.slow
def test_ends_of_doubles_whole_numbers_and_texts_lose_no_row(plain: Any, parts: Callable[..., Path]) -> None:
    """What SQL computes is no metric there; and what is not UTF-8 has no distance that is known."""
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xffab"]).buffers())
    place = parts(
        {"x": [1e200, 1e200], "y": [0.0, 0.0], "i": [2**31 - 1, 0], "w": ["a", "b"]},
        {"x": [0.0, 0.0], "y": [1e-200, 1e-200], "i": [-(2**31), 0], "w": ["", "\U0001f600"]},
        pa.table({"x": [float("nan")], "y": [1.0], "i": [5], "w": bad}),
        {"x": [5.0, None], "y": [None, 5.0], "i": [70000, 1], "w": ["zzzzzzzz", None]},
    )
    data = geoskip.dataset(plain, str(place))
    numbers = [MetricDist("x", "y", metric=metric) for metric in ("euclidean", "chebyshev")]
    data.create_index(*numbers, MetricDist("cast(i AS int)", metric="euclidean"), MetricDist("w", metric="levenshtein"))
    for text in (
        "sqrt(pow(x - 1, 2)  + pow(y, 2)) > 1e201D",
        "sqrt(pow(x, 2) + pow(y, 2)) < 1e-250D OR hypot(x, y - 9) < 1",
        "hypot(x, y - 9) = 0 OR greatest(abs(x), abs(y - 5)) < 1",
        "levenshtein(w, 'ab') <= 1",
        "levenshtein(w, 'ab', 0) = -1 AND levenshtein(w, '', 1) IN (0, 1)",
        "levenshtein(w, 'zzzzzzzz', 7) > 0",
    ):
        same_as_off(lambda text=text: data.to_df().where(text))
    plain.conf.set("spark.sql.ansi.enabled", "false")  # whole numbers wrap around
    try:
        frame = geoskip.dataset(plain, str(place)).to_df()
        text = "abs(cast(i AS int) - 1) < 0 OR sqrt((cast(i AS int) - 1) * (cast(i AS int) - 1)) < 60000"
        same_as_off(lambda: frame.where(text))
    finally:
        plain.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.slow
def test_origins_stay_when_files_are_added_and_are_chosen_anew_with_the_index(plain: Any, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(table_at(number), tmp_path / f"part-{number}.parquet")
    data = geoskip.dataset(plain, str(tmp_path))
    asked = MetricDist("abs(x)", "y", metric="euclidean", origins=5)  # through Spark's reader, the sample too
    data.create_index(asked)
    (before,) = data.indexes
    assert str(before) == str(asked) == "metricdist(abs(x), y, metric=euclidean)"
    assert len(before.origins) == 5
    pq.write_table(table_at(3), tmp_path / "part-3.parquet")
    query = "sqrt(pow(abs(x) - 120, 2) + pow(y - 60, 2)) < 4"
    assert geoskip.explain(data.to_df().where(query)).files_kept == 1  # the new one
    data.refresh_index()
    assert data.indexes == (before,)
    assert same_as_off(lambda: data.to_df().where(query)).files_kept == 1
    assert (
        same_as_off(
            lambda: data.to_df().where(query.replace("120", "60").replace("- 60, 2)) < 4", "- 10, 2)) < 4"))
        ).files_kept
        == 1
    )
    data.refresh_index(mode="full")
    assert data.indexes == (before,)
    data.create_index(asked)
    assert data.indexes[0] != before
    assert geoskip.explain(data.to_df().where(query)).files_kept == 1
    data.create_index(MetricDist("abs(x)", "y", metric="euclidean", origins=[(0, 0), (50, 50)]))
    assert data.indexes[0].origins == ((0.0, 0.0), (50.0, 50.0))
    assert same_as_off(lambda: data.to_df().where(query)).files_kept == 1


def test_a_file_that_cannot_be_read_is_passed_over_by_the_sample(plain: Any, tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(table_at(number), tmp_path / f"part-{number}.parquet")
    schema = geoskip.dataset(plain, str(tmp_path)).to_df().schema
    (tmp_path / "part-9.parquet").write_bytes(os.urandom(500))
    data = geoskip.dataset(plain, str(tmp_path), schema=schema)
    report = data.create_index(MetricDist("upper(word)", metric="levenshtein"), MetricDist("x", metric="manhattan"))
    assert list(report.excluded) == ["part-9.parquet"]
    assert all(len(index.origins) > 2 for index in data.indexes)


def away(a: float, b: float) -> float:
    return abs(a - b)


@pytest.mark.slow
def test_a_function_declared_to_be_a_metric(plain: Any, parts: Callable[..., Path]) -> None:
    place = parts({"a": [1.0, 2.0]}, {"a": [50.0, 51.0]}, {"a": [90.0, 99.0]})
    data = geoskip.dataset(plain, str(place))
    plain.udf.register("away", away, "double")
    query = "away(a, 50D) < 5"
    with pytest.raises(InvalidSpecificationError, match="declare"):
        data.create_index(MetricDist("a", metric=away))
    with mappings():
        geoskip.declare(away, metric=True)
        data.create_index(MetricDist("a", metric="away"))
        assert same_as_off(lambda: data.to_df().where(query)).files_kept == 1
        assert same_as_off(lambda: data.to_df().where("NOT away(50D, a) <= 45")).files_kept == 2
        plain.udf.register("away", lambda a, b: abs(a - b) / 100, "double")  # another one under the name
        assert same_as_off(lambda: data.to_df().where(query)).files_kept == 3
        plain.udf.register("away", away, "double")
        geoskip.declare(away, metric=True, version="other")
        (scan,) = same_as_off(lambda: data.to_df().where(query)).scans
        assert scan.files_kept == 3
        assert "was built with another away than is declared here" in " ".join(scan.reasons)
        parts({"a": [7.0]}, {"a": [50.0, 51.0]}, {"a": [90.0, 99.0]})
        with pytest.raises(InvalidSpecificationError, match="another away than is declared"):
            data.refresh_index()


@pytest.mark.slow
def test_what_a_metric_or_an_inverse_reads_may_change(
    plain: Any, parts: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers have the globals of when the function was registered; the driver has those of now."""
    place = parts({"a": [1, 2]}, {"a": [50, 51]}, {"a": [90, 99]})
    data = geoskip.dataset(plain, str(place))

    def kept(query: str) -> int:
        return same_as_off(lambda: data.to_df().where(query)).files_kept

    cell: dict[str, Any] = {"__name__": "__main__", "factor": 1}  # as in a notebook
    exec("def scaled(a, b):\n    return abs(a - b) * factor", cell)
    exec("def moved(a):\n    return a + 7 * factor\n\ndef back(a):\n    return a - 7 * factor", cell)
    plain.udf.register("scaled", cell["scaled"], "bigint")
    plain.udf.register("moved", cell["moved"], "bigint")
    with mappings():
        geoskip.declare(cell["scaled"], metric=True)
        geoskip.declare(cell["moved"], inverse=cell["back"], null_in_null_out=True)
        data.create_index(MetricDist("a", metric="scaled"), geoskip.MinMax("a"))
        assert [kept(query) for query in ("scaled(a, 50L) < 5", "moved(a) = 58")] == [1, 1]
        cell["factor"] = 10
        assert [kept(query) for query in ("scaled(a, 51L) < 5", "moved(a) = 57")] == [3, 3]
        for module in ("geoskip.indexes.metricdist.index", "geoskip.rewrite"):
            monkeypatch.setattr(f"{module}.is_unchanged", lambda function: True)
        for query in ("scaled(a, 90L) < 5", "moved(a) = 97"):
            with pytest.raises(AssertionError):
                kept(query)


@pytest.mark.slow
def test_what_else_a_row_may_be_joins_distances_by_or(spark: Any, tmp_path: Path) -> None:
    """Beside bounds of another column, and of texts that end with NUL, which are not NULL."""
    texts = [["smith", "smyth"], ["kitten", "sitten"], ["zzzzzzzz", "yyyyyyy"], ["hello\0", "\0"], ["a\0\0", None]]
    for number, words in enumerate(texts):
        ids = [-1 if number == 2 else 7, number]
        pq.write_table(pa.table({"word": words, "id": ids}), tmp_path / f"part-{number}.parquet")
    indexes = [geoskip.MinMax("id"), MetricDist("word", metric="levenshtein")]
    geoskip.dataset(spark, str(tmp_path)).create_index(*indexes)
    expected = {
        "levenshtein(word, 'smith') <= 2 OR id < 0": 2,
        "NOT (levenshtein('smith', word) > 2 AND id >= 0)": 2,
        "levenshtein(word, 'smith') IN (0, 1) OR id IN (-1, -5)": 2,
        "levenshtein(word, 'smith', 2) BETWEEN 0 AND 2 OR id = -1": 2,
        "word IS NULL": 1,
        "word IS NULL OR id < 0": 2,
        "word <=> NULL": 1,
    }
    assert files_kept(spark.read.parquet(str(tmp_path)), expected) == expected
    for index in (geoskip.MinMax, geoskip.ValueList, geoskip.BloomFilter, geoskip.Prefix, geoskip.Suffix):
        geoskip.dataset(spark, str(tmp_path)).delete_index()
        geoskip.dataset(spark, str(tmp_path)).create_index(index("word"))
        assert files_kept(spark.read.parquet(str(tmp_path)), ["word IS NULL"]) == {"word IS NULL": 1}


@pytest.mark.slow
def test_words_in_no_order_read_the_files_that_have_a_near_one(spark: Any, tmp_path: Path) -> None:
    names = sorted(set(pq.read_table("datasets/zipcodes.parquet", columns=["city"])["city"].to_pylist()))
    mixed = [names[at] for at in np.random.default_rng(3).permutation(len(names))]
    files = [mixed[at::60] for at in range(60)]
    for number, words in enumerate(files):
        pq.write_table(pa.table({"word": words}), tmp_path / f"part-{number:02}.parquet")
    geoskip.dataset(spark, str(tmp_path)).create_index(MetricDist("word", metric="levenshtein"))
    near = {
        most: sum(any(edit_distance(word, "Springfeld") <= most for word in words) for words in files)
        for most in (1, 2)
    }
    assert 1 <= near[1] <= near[2] < 30
    spark.read.parquet(str(tmp_path)).createOrReplaceTempView("mixed")
    for most, holding in near.items():
        found = same_as_off(
            lambda most=most: spark.sql(f"SELECT * FROM mixed WHERE levenshtein(word, 'Springfeld') <= {most}")
        )
        assert (found.files_kept, found.files_total) == (holding, 60)
