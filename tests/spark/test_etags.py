"""Etags, where a file system says them with its listings: a file of the same size and time is told from another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.metadata import FileMetadata
from tests.conftest import kept_of_all
from tests.spark.test_readers import settings
from tests.support.planting import before
from tests.support.tagged_files import tagged_files

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*has no way of creating a file")]


@pytest.fixture
def tagged(spark: Any) -> Iterator[Any]:
    with tagged_files(spark) as system:
        yield system


def fill(place: Path, **values: int) -> str:
    """Files of CSV, all of one size; as a URI."""
    place.mkdir(exist_ok=True)
    for name, value in values.items():
        (place / f"{name}.csv").write_text(f"{value:04}\n")
    return f"tagged:{place}"


def read(spark: Any, uri: str) -> Any:
    return spark.read.schema("a INT").csv(uri)


def dataset(spark: Any, uri: str) -> Any:
    return geoskip.dataset(spark, uri, format="csv", schema="a INT")


def kept(spark: Any, uri: str, where: str) -> tuple[int, int]:
    return kept_of_all(lambda: read(spark, uri).where(where))


@pytest.mark.slow
@pytest.mark.parametrize("located", [True, False], ids=["with blocks", "Spark asks for no blocks"])
def test_a_file_replaced_within_the_clocks_tick(spark: Any, tagged: Any, tmp_path: Path, located: bool) -> None:
    tagged.locate(located)
    with settings(spark, {"spark.sql.sources.ignoreDataLocality": str(not located)}):
        uri = fill(tmp_path / "data", x=1, y=2, z=3)
        handle = dataset(spark, uri)
        assert handle.create_index(MinMax("a")).excluded == {}
        assert kept(spark, uri, "a = 2") == (1, 3)
        fill(tmp_path / "data", x=7)
        assert kept(spark, uri, "a = 7") == (1, 3)
        assert handle.refresh_index().read == 1, "and a refresh sees it too"
        assert kept(spark, uri, "a = 7") == (1, 3)
        assert kept(spark, uri, "a = 1") == (0, 3)
        assert handle.refresh_index().read == 0


def test_a_refresh_asks_for_etags_that_sparks_listing_has_lost(spark: Any, tagged: Any, tmp_path: Path) -> None:
    tagged.say(True)
    uri = fill(tmp_path / "data", x=1, y=2)
    handle = dataset(spark, uri)
    assert handle.create_index(MinMax("a")).excluded == {}
    assert handle.refresh_index().read == 0
    fill(tmp_path / "data", x=7)
    assert handle.refresh_index().read == 1
    assert kept(spark, uri, "a = 7") == (1, 2)
    tagged.locate(True)
    assert kept(spark, uri, "a = 7") == (1, 2), "where listings have them they are compared"
    fill(tmp_path / "data", x=8)
    assert kept(spark, uri, "a = 8") == (1, 2)


def test_by_size_and_time_alone_its_rows_would_be_lost(
    spark: Any, tagged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the rule above: without it that test would fail."""
    before(monkeypatch, FileMetadata, "paths_text", lambda original, files, etags=False: original(files))
    uri = fill(tmp_path / "data", x=1, y=2)
    dataset(spark, uri).create_index(MinMax("a"))
    fill(tmp_path / "data", x=7)
    tagged.locate(True)
    assert read(spark, uri).where("a = 7").count() == 0


@pytest.mark.slow
def test_without_an_etag_on_one_side_size_and_time_decide(spark: Any, tagged: Any, tmp_path: Path) -> None:
    uri = fill(tmp_path / "data", x=1, y=2, z=3)
    tagged.locate(True)
    handle = dataset(spark, uri)
    handle.create_index(MinMax("a"))
    tagged.locate(False)  # Spark makes statuses of its own then, which have none
    assert kept(spark, uri, "a = 2") == (1, 3)
    assert handle.refresh_index().read == 0
    again = dataset(spark, uri)
    assert again.create_index(MinMax("a * 2")).read == 3
    tagged.locate(True)
    assert kept(spark, uri, "a * 2 = 4") == (1, 3)
    assert handle.verify().ok


def test_quotes_around_etags_are_not_part_of_them(spark: Any, tagged: Any, tmp_path: Path) -> None:
    """S3A tells them with quotes since Hadoop 3.4, and told them without."""
    tagged.locate(True)
    uri = fill(tmp_path / "data", x=1, y=2)
    handle = dataset(spark, uri)
    handle.create_index(MinMax("a"))
    tagged.quote(True)
    assert kept(spark, uri, "a = 2") == (1, 2)
    assert handle.refresh_index().read == 0
    fill(tmp_path / "data", x=7)
    assert kept(spark, uri, "a = 7") == (1, 2)


def test_a_file_that_is_replaced_while_it_is_indexed(
    spark: Any, tagged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from geoskip.spark.build import job

    tagged.locate(True)
    uri = fill(tmp_path / "data", x=1, y=2)
    through_spark = job.read_through_spark

    def meanwhile(*given: Any, **named: Any) -> Any:
        found = through_spark(*given, **named)
        fill(tmp_path / "data", x=7)
        return found

    monkeypatch.setattr(job, "read_through_spark", meanwhile)
    report = dataset(spark, uri).create_index(MinMax("a"))
    assert (report.files, list(report.excluded)) == (1, ["x.csv"])
    assert kept(spark, uri, "a = 7") == (1, 2)


def test_of_many_roots_the_folders_that_they_share_are_looked_into(spark: Any, tagged: Any, tmp_path: Path) -> None:
    tagged.locate(True)
    for number in range(40):
        fill(tmp_path / f"{number}", x=number)
    with settings(spark, {"spark.sql.sources.parallelPartitionDiscovery.threshold": "100"}):  # no job to list them
        dataset(spark, f"tagged:{tmp_path}/*").create_index(MinMax("a"))
        before = tagged.looks()
        assert kept(spark, f"tagged:{tmp_path}/*", "a = 7") == (1, 40)
        assert kept(spark, f"tagged:{tmp_path}/{{1,2,3}}", "a = 2") == (1, 3)
        assert tagged.looks() - before < 20


def test_a_look_for_metadata_that_was_cut_short_is_not_remembered(spark: Any, tagged: Any, tmp_path: Path) -> None:
    tagged.locate(True)
    uri = fill(tmp_path / "data", x=1, y=2)
    dataset(spark, uri).create_index(MinMax("a"))
    tagged.interrupt(True)
    assert kept(spark, uri, "a = 2") == (2, 2)
    tagged.interrupt(False)
    assert kept(spark, uri, "a = 2") == (1, 2)
