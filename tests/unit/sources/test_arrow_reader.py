"""What a build's Python tasks make of Parquet files, without a session: which reader serves, and what is declined."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from geoskip import GeoBox, MinMax
from geoskip.indexes.base import Index
from geoskip.sources.arrow_reader import (
    SPARK,
    FileResult,
    ValueGatherer,
    collect_summary,
    read_files,
    store_summaries,
)
from geoskip.sources.built_rows import misfit
from geoskip.sources.footers import IndexPlan

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(values: Any, arrow: pa.DataType | None = None, name: str = "c", **options: Any) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(pa.table({name: pa.array(values, arrow)}), path, **options)
        return str(path)

    return written


def read(path: str, kind: str, *, name: str = "c", index: Index | None = None, sensitive: bool = False) -> FileResult:
    (result,) = read_files([("it", path)], [IndexPlan("i", index or MinMax("c"), ((name, kind),))], sensitive)
    return result


def bounds_of(result: FileResult) -> tuple[Any, ...]:
    found = result.summaries["i"]
    assert found is not None
    return (result.readers["i"], found["min"], found["max"], found["nulls"], found["rows"])


EXACT = [
    ("tinyint", pa.int8(), [3, None, -4]),
    ("smallint", pa.int16(), [3, None, -4]),
    ("int", pa.int32(), [3, None, -(2**31)]),
    ("bigint", pa.int64(), [2**63 - 1, None, -(2**63)]),
    ("boolean", pa.bool_(), [True, False, None]),
    ("date", pa.date32(), [dt.date(1900, 1, 1), None, dt.date(2024, 2, 29)]),
    ("date", pa.date32(), pa.array([2**31 - 1, None, 0], pa.int32()).cast(pa.date32())),
    ("timestamp", pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 12), None]),
    ("timestamp", pa.timestamp("us", "UTC"), pa.array([2**62, None], pa.int64()).cast(pa.timestamp("us", "UTC"))),
    ("timestamp", pa.timestamp("ms", "UTC"), [dt.datetime(2024, 1, 1, 12, 0, 0, 5000), None]),
    ("timestamp_ntz", pa.timestamp("us"), [dt.datetime(2024, 1, 1, 12), None]),
    ("decimal(5,2)", pa.decimal128(5, 2), [Decimal("-999.99"), None, Decimal("0.01")]),
    ("decimal(18,6)", pa.decimal128(18, 6), [Decimal("1.5"), Decimal("-123456789012.654321")]),
    ("decimal(38,10)", pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10")]),
    ("string", pa.string(), ["\U0001f600", None, "\ud7ff", "", "z"]),
    ("string", pa.string(), ["x" * 31 + "\ufffd", "x" * 40, "\U0010ffff" * 20, "a" * 3000]),
    ("string", pa.string(), ["x" * 5000, "a"]),
    ("binary", pa.binary(), [b"\xff\x00", None, b"\x7f", b""]),
    ("binary", pa.large_binary(), [b"\xff" * 40, b"\x80" * 40]),
]


@pytest.mark.parametrize(("kind", "arrow", "values"), EXACT, ids=[f"{k} {i}" for i, (k, _, _) in enumerate(EXACT)])
@pytest.mark.parametrize("options", [{}, {"store_decimal_as_integer": True}, {"row_group_size": 1}], ids=str)
def test_footers_say_what_the_data_do(write, monkeypatch, kind, arrow, values, options):
    path = write(values, arrow, **options)
    quick = read(path, kind)
    monkeypatch.setattr(MinMax, "from_statistics", lambda *_: None)
    slow = read(path, kind)
    too_long = any(isinstance(value, str) and len(value) > 4096 for value in values)
    assert (quick.readers, slow.readers) == ({"i": "arrow" if too_long else "footers"}, {"i": "arrow"})
    assert quick.summaries == slow.summaries
    assert [type(value) for value in bounds_of(quick)] == [type(value) for value in bounds_of(slow)]


@pytest.mark.parametrize(("kind", "values"), [("double", [1.0, float("nan")]), ("float", [1.0, 2.0])])
def test_footers_of_floats_are_not_trusted(write, kind, values):
    arrow = {"float": pa.float32()}.get(kind)
    assert bounds_of(read(write(values, arrow), kind))[0] == "arrow"


@pytest.mark.parametrize("writer", [b"parquet-mr version 1.8", b"parquet-rs version 55."])
def test_texts_in_footers_of_writers_that_order_or_shorten_them_otherwise_are_not_trusted(write, writer):
    path = write(["a", "b"])
    data = Path(path).read_bytes()
    ours = next(data[at : at + len(writer)] for at in [data.rindex(b"parquet-cpp-arrow")])
    Path(path).write_bytes(data.replace(ours, writer))
    assert bounds_of(read(path, "string"))[:3] == ("arrow", b"a", b"b")


def test_footers_of_columns_that_arrow_wrote_with_a_dictionary_are_not_trusted(write):
    values = pa.DictionaryArray.from_arrays(pa.array([1, 1]), pa.array(["a", "b", "c"]))
    assert bounds_of(read(write(values), "string"))[:3] == ("arrow", b"b", b"b")


@pytest.mark.parametrize("options", [{"write_statistics": False}, {}], ids=["no statistics", "all nulls"])
def test_a_column_of_nulls(write, options):
    found = bounds_of(read(write([None, None], pa.int32(), **options), "int"))
    assert found == ("footers" if not options else "arrow", None, None, 2, 2)


def test_a_file_without_rows_is_known_to_be_empty(write):
    assert bounds_of(read(write([], pa.int32()), "int")) == ("arrow", None, None, 0, 0)


DIFFERENT = {
    "an int32 read as bigint": ("bigint", pa.int32(), [1], {}),
    "an unsigned integer": ("bigint", pa.uint32(), [1], {}),
    "binary read as a string": ("string", pa.binary(), [b"a"], {}),
    "nanoseconds": ("timestamp", pa.timestamp("ns", "UTC"), [1], {"version": "2.6"}),
    "INT96": ("timestamp", pa.timestamp("ns"), [1], {"use_deprecated_int96_timestamps": True}),
    "a local time read as an instant": ("timestamp", pa.timestamp("us"), [1], {}),
    "a decimal of another scale": ("decimal(10,2)", pa.decimal128(10, 3), [Decimal("1.234")], {}),
    "a date before the calendars agree": ("date", pa.date32(), [dt.date(1400, 1, 1)], {}),
    "a time before the zones agree": ("timestamp", pa.timestamp("us", "UTC"), [dt.datetime(1850, 1, 1)], {}),
    "a list": ("array<int>", pa.list_(pa.int32()), [[1]], {}),
    "an interval": ("interval day to second", pa.duration("us"), [1], {}),
}


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.parametrize("statistics", [True, False])
def test_what_arrow_might_read_otherwise_is_left_to_spark(write, case, statistics):
    kind, arrow, values, options = DIFFERENT[case]
    assert read(write(values, arrow, write_statistics=statistics, **options), kind).problem == SPARK


def spark_file(path: Path, days: list[int], *said: str) -> str:
    schema = pa.schema([("c", pa.date32())], metadata=dict.fromkeys(said, "") | {"org.apache.spark.version": said[0]})
    pq.write_table(pa.table([pa.array(days, pa.int32()).cast(pa.date32())], schema=schema), path)
    return str(path)


def test_old_dates_are_as_written_by_a_spark_of_the_new_calendar(tmp_path):
    assert bounds_of(read(spark_file(tmp_path / "a", [-200_000], "4.0.5"), "date"))[1] == -200_000
    for said in (("2.4.8",), ("4.0.5", "org.apache.spark.legacyDateTime")):
        assert read(spark_file(tmp_path / "b", [-200_000], *said), "date").problem == SPARK


def test_columns_are_found_by_sparks_rule_on_case(write):
    path = write([1], pa.int32(), name="Temp")
    assert bounds_of(read(path, "int", name="temp"))[1] == 1
    assert read(path, "int", name="temp", sensitive=True).problem == SPARK  # Spark knows what a lacking column reads
    assert read(path, "int", name="other").problem == SPARK


def test_two_names_that_differ_in_case_are_left_to_spark(tmp_path):
    pq.write_table(pa.table([[1], [2]], names=["a", "A"]), tmp_path / "f")
    assert read(str(tmp_path / "f"), "bigint", name="a").problem == SPARK
    assert bounds_of(read(str(tmp_path / "f"), "bigint", name="A", sensitive=True))[1] == 2


@pytest.mark.parametrize("name", ["a.b", "a b", "`", "a`.b", "naïve", "a,b", 'quo"te', "x'y", "(c)"])
def test_columns_with_odd_names(write, name):
    quoted = "`" + name.replace("`", "``") + "`"
    assert bounds_of(read(write([7, 9], pa.int64(), name=name), "bigint", name=quoted))[1:3] == (7, 9)


def test_a_name_with_a_dot_beside_a_nested_field_of_that_path(tmp_path):
    table = pa.table({"a": [{"b": 5}], "a.b": pa.array([1], pa.int64())})
    pq.write_table(table, tmp_path / "f")
    assert read(str(tmp_path / "f"), "bigint", name="`a.b`").problem == SPARK


@pytest.mark.parametrize("arrow", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize("statistics", [True, False])
def test_pyarrows_other_string_types(write, arrow, statistics):
    path = write(["b", "a"], arrow, write_statistics=statistics)
    reader = "footers" if statistics and pa.types.is_large_string(arrow) else "arrow"
    assert bounds_of(read(path, "string"))[:3] == (reader, b"a", b"b")


def test_strings_that_are_not_utf_8(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\x41"]).buffers())
    pq.write_table(pa.table({"c": bad}), tmp_path / "f")
    assert bounds_of(read(str(tmp_path / "f"), "string"))[1:3] == (b"ok", b"\xff\x41")


@pytest.mark.parametrize("damage", ["empty", "garbage", "truncated", "pages"])
def test_an_unreadable_file_says_why_and_spares_the_others(write, damage):
    good, bad = write([1], pa.int32()), write([2.5] * 100, pa.float64())
    content = Path(bad).read_bytes()
    damaged = {
        "empty": b"",
        "garbage": b"x" * 500,
        "truncated": content[: len(content) // 2],
        "pages": content[:4] + b"\xff" * 60 + content[64:],
    }[damage]
    Path(bad).write_bytes(damaged)
    plans = [IndexPlan("i", MinMax("c"), (("c", "int"),))], [IndexPlan("i", MinMax("c"), (("c", "double"),))]
    (broken,) = read_files([("bad", bad)], plans[1], False)
    (sound,) = read_files([("good", good)], plans[0], False)
    assert broken.problem is not None
    assert broken.problem.startswith("unreadable: ")
    assert not broken.summaries
    assert sound.problem is None


def test_files_of_several_schemas_in_turn_are_each_resolved(tmp_path, monkeypatch):
    monkeypatch.setattr("geoskip.sources.arrow_reader._FILES_TOGETHER", 3)
    values = pa.array([1, 3], pa.int64())
    tables = {
        "plain": pa.table({"c": values, "d": values}),
        "moved": pa.table({"d": pa.array([5, 6], pa.int64()), "c": values}),
        "other type": pa.table({"c": [1.0, 3.0], "d": values}),
        "lacking": pa.table({"d": values}),
        "other case": pa.table({"C": values, "d": values}),
        "as large strings": pa.table({"c": pa.array(["1", "3"], pa.large_string()), "d": values}),
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / name)
    (tmp_path / "broken").write_bytes(b"PAR1")
    turns = [*tables, "broken", *reversed(tables), "plain", "plain", "plain"]
    plans = [
        IndexPlan("minmax", MinMax("c"), (("c", "bigint"),)),
        IndexPlan("box", GeoBox("c", "d"), (("c", "bigint"), ("d", "bigint"))),
    ]
    found = list(read_files([(name, str(tmp_path / name)) for name in turns], plans, False))
    assert [result.path for result in found] == turns
    for result in found:
        if result.path in ("plain", "moved", "other case"):
            bounds, boxes = result.summaries["minmax"], result.summaries["box"]
            assert bounds is not None
            assert boxes is not None
            assert (bounds["min"], bounds["max"], len(boxes["boxes"]) > 0) == (1, 3, True)
            assert boxes["boxes"][0]["ymin"] == (5 if result.path == "moved" else 1)
            assert (result.rows, result.readers) == (2, {"minmax": "footers", "box": "arrow"})
        else:
            assert (result.problem or "").startswith("unreadable" if result.path == "broken" else SPARK)
            assert not result.summaries


def test_a_file_that_does_not_fit_costs_no_other_its_summary(write):
    class Fitted(MinMax):
        def for_files(self, summaries, sizes):
            return [{"a quarter": 8 // (summary["max"] - 3)} for summary in summaries]

    paths = [(str(last), write([float(last)])) for last in (2, 3, 4)]
    found = list(read_files(paths, [IndexPlan("i", Fitted("c"), (("c", "double"),))], False))
    assert [result.summaries["i"] for result in found] == [{"a quarter": -8}, None, {"a quarter": 8}]
    assert [list(result.failures) for result in found] == [[], ["i"], []]


def test_an_encrypted_file_is_left_to_spark(write):
    path = Path(write([1], pa.int32()))
    path.write_bytes(path.read_bytes()[:-4] + b"PARE")
    assert read(str(path), "int").problem == SPARK


class OneKey(encryption.KmsClient):
    """A keeper of keys that hides nothing."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plain", [False, True], ids=["encrypted footer", "signed footer"])
def test_a_file_with_encrypted_columns_is_left_to_spark(tmp_path, plain):
    """To look at an encrypted column in a signed footer would end the worker's process."""
    factory = encryption.CryptoFactory(lambda config: OneKey())
    how = encryption.EncryptionConfiguration(footer_key="k", column_keys={"k": ["a"]}, plaintext_footer=plain)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, 2], pa.int32())})
    with pq.ParquetWriter(tmp_path / "1.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    for name in ("a", "b"):
        plan = IndexPlan("it", MinMax(name), ((name, "int"),))
        (result,) = read_files([("1", str(tmp_path / "1.parquet"))], [plan], False)
        assert (result.problem, result.summaries) == (SPARK, {})


def test_the_summary_does_not_depend_on_row_groups(tmp_path):
    table = pa.table({"x": [float(i * 37 % 101) for i in range(1000)], "y": [float(i * 53 % 97) for i in range(1000)]})
    plan = IndexPlan("g", GeoBox("x", "y"), (("x", "double"), ("y", "double")))
    found = []
    for number, size in enumerate((1000, 10)):
        pq.write_table(table, tmp_path / str(number), row_group_size=size)
        (result,) = read_files([("it", str(tmp_path / str(number)))], [plan], False)
        found.append(result.summaries["g"])
    assert found[0] == found[1]


@dataclass(frozen=True)
class Fails(Index):
    """An index whose collecting fails."""

    column: str
    kind: ClassVar[str] = "fails"

    def metadata_type(self, *columns: Any) -> pa.DataType:
        return pa.struct([("n", pa.int64())])

    def collect(self, *values: pa.Array) -> Any:
        raise RuntimeError("no luck")

    def merge(self, summaries: Any) -> Any:
        raise RuntimeError("no luck either")

    def clause(self, node: Any) -> None:
        return None


def test_an_index_that_fails_spares_the_others():
    plans = [("minmax(c)", MinMax("c")), ("fails(c)", Fails("c"))]
    gatherer = ValueGatherer([(index, (0,)) for _, index in plans])
    gatherer.add([pa.array([1, 2])], 2)
    result = FileResult("it")
    store_summaries([(result, plans, gatherer.finish())], "spark")
    assert result.failures == {"fails(c)": "RuntimeError: no luck"}
    assert result.summaries["fails(c)"] is None
    assert result.summaries["minmax(c)"] is not None


def test_a_collect_that_returns_no_dict_fails(monkeypatch):
    monkeypatch.setattr(Fails, "collect", lambda self, values: [1])
    assert collect_summary(Fails("c"), [pa.array([1])]) == "collect returned list instead of a dict or None"


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        ({"m": 1}, "collect or merge returned the field 'm', but metadata_type has 'n'"),
        ({"n": "one"}, "collect or merge returned {'n': 'one'}, which is not struct<n: int64>: "),
        ({"n": 2**70}, "collect or merge returned {'n': 1180591620717411303424}, which is not struct<n: int64>: "),
    ],
)
def test_a_summary_that_cannot_be_stored_is_said_to_be_so(summary, why):
    assert misfit(summary, Fails("c").metadata_type()).startswith(why)


@pytest.mark.parametrize("summary", [None, {}, {"n": 1}, {"n": None}, {"n": 1, "further": 2}])
def test_a_summary_that_can_be_stored_is_not_complained_of(summary):
    assert misfit(summary, Fails("c").metadata_type()) is None


def test_an_index_of_which_a_part_is_unknown_knows_nothing_of_the_file(monkeypatch):
    monkeypatch.setattr("geoskip.sources.arrow_reader._ROWS_AT_ONCE", 2)
    monkeypatch.setattr(MinMax, "collect", lambda self, values: None if len(values) == 3 else {"rows": len(values)})
    gatherer = ValueGatherer([(MinMax("c"), (0,))])
    gatherer.add([pa.array([1, 2])], 2)
    gatherer.add([pa.array([3, 4, 5])], 3)
    result = FileResult("it")
    store_summaries([(result, [("i", MinMax("c"))], gatherer.finish())], "arrow")
    assert (result.rows, result.summaries) == (5, {"i": None})
