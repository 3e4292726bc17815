"""A dataset whose data and metadata are on another Hadoop file system, through its whole life."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import MEMORY_COMMAND_NAME

import geoskip
from geoskip import MinMax, ValueList
from geoskip.spark import filesystem
from geoskip.spark.filesystem import HadoopFolder
from geoskip.stores import ParquetStore
from tests.conftest import kept_of_all
from tests.spark.test_paths import fill, mounted  # noqa: F401
from tests.stores.test_store_machine import drive
from tests.support.dataset_life import whole_life
from tests.support.races import race_to_create

pytestmark = pytest.mark.spark


def long_ago(place: Path) -> None:
    """Files that were written before the clock's last tick, which indexing would wait for."""
    for path in place.glob("*.parquet"):
        os.utime(path, (1.7e9, 1.7e9))


def kept(spark: Any, uri: str, where: str) -> tuple[int, int]:
    return kept_of_all(lambda: spark.read.schema("a BIGINT").parquet(uri).where(where))


@pytest.mark.slow
def test_the_whole_life_of_a_dataset_on_another_file_system(
    spark: Any,
    mounted: tuple[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    uri, place = mounted
    whole_life(spark, f"{uri}/my data", tmp_path)
    assert (place / "my data" / "_geoskip").is_dir(), "and it is there that the metadata are"


@pytest.mark.slow
def test_copies_of_metadata_do_not_pile_up(
    spark: Any,
    mounted: tuple[str, Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, place = mounted
    uri, place = f"{uri}/copied", place / "copied"
    fill(place, 0, 10, 20)
    long_ago(place)
    monkeypatch.setattr(filesystem, "_made", [])
    monkeypatch.setattr(filesystem, "_MOST_COPIED", 0)
    handle = geoskip.dataset(spark, uri)
    handle.create_index(MinMax("a"))
    handle.create_index(ValueList("a"))
    assert kept(spark, uri, "a = 10") == (1, 3)
    copies = filesystem._cache()
    assert len(list(copies.iterdir())) == 1, "of the part that was used last"
    for copy in copies.iterdir():
        copy.unlink()
    assert kept(spark, uri, "a > 20 OR a IN (0, 99)") == (2, 3), "and what is needed again is copied again"
    shutil.rmtree(copies)


def test_of_many_writers_one_creates_a_file(mounted: tuple[str, Path], spark: Any) -> None:  # noqa: F811
    uri, place = mounted
    won = race_to_create(f"{uri}/race", 8)
    assert sorted(name for names in won for name in names) == sorted(map(str, range(8)))
    for who, names in enumerate(won):
        assert {(place / "race" / "sub" / name).read_text() for name in names} <= {str(who)}


def test_a_long_folder_is_listed_at_once(
    spark: Any,
    mounted: tuple[str, Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, place = mounted
    names = {f"_{number:08d}.json" for number in range(300)} | {"a\nb, c", "ä b", "[x]"}
    (place / "many" / "empty").mkdir(parents=True)
    for name in names:
        (place / "many" / name).touch()
    client, asked = type(spark.sparkContext._gateway._gateway_client), []
    send = client.send_command

    def sent(self: Any, command: str, **more: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):  # objects that other tests have dropped, collected just now
            asked.append(command)
        return send(self, command, **more)

    monkeypatch.setattr(client, "send_command", sent)
    assert set(HadoopFolder(f"{uri}/many").names(".")) == {*names, "empty"}
    assert HadoopFolder(f"{uri}/many").names("empty") == []
    assert len(asked) < 200


def test_the_parquet_store_there_does_what_the_memory_store_does(spark: Any, mounted: tuple[str, Path]) -> None:  # noqa: F811
    drive(lambda: ParquetStore(HadoopFolder(f"{mounted[0]}/machine")), 2, 8)
