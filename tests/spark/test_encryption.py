"""Protected metadata through Spark: who has which keys skips by which indexes, and nobody's result changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip import MinMax, Sort, ValueList
from geoskip.errors import InvalidSpecificationError, MissingKeyError
from geoskip.spark.session import known
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from geoskip.stores.parquet import ParquetStore
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

RING = KeyRing({"base": bytes(32), "hr": bytes(16)})
NAMES = ("Quasimodo", "Esmeralda", "Frollo", "Gringoire")


@pytest.fixture
def place(parts: Any) -> str:
    return str(parts(*(pa.table({"day": [n * 10], "pay": [n * 1000], "name": [name]}) for n, name in enumerate(NAMES))))


@pytest.mark.slow
def test_keys_decide_which_indexes_serve(spark: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "encryption", None)
    pay = ValueList("if(name = 'Quasimodo', pay, 0)")
    with pytest.raises(InvalidSpecificationError, match="would be in clear"):
        geoskip.dataset(spark, place, encryption=Encryption(RING)).create_index(MinMax("day"))
    encryption = Encryption(RING, "base", indexes={MinMax("pay"): "hr", pay: "hr"})
    handle = geoskip.dataset(spark, place, encryption=encryption)
    handle.create_index(MinMax("pay"), MinMax("day"), pay)
    stored = b"".join(file.read_bytes() for file in Path(place, "_geoskip").rglob("*") if file.is_file())
    assert not any(text in stored for text in (b"part-00000", b"Quasimodo", b"minmax", b"bigint"))

    def where(condition: str) -> Any:
        return same_as_off(lambda: spark.read.parquet(place).where(condition))

    assert where("pay = 2000").files_kept == 1
    assert where("day < 5").files_kept == 1
    assert [row["index"] for row in handle.describe().collect()] == [str(MinMax("pay")), str(MinMax("day")), str(pay)]
    handle.refresh_index()
    handle.rotate_keys()
    assert where("pay = 2000").files_kept == 1
    assert handle.history().where("verb = 'rotate keys'").count() == 1

    moved = str(shutil.copytree(place, Path(place).with_name("moved")))
    with_keys = geoskip.dataset(spark, moved, encryption=Encryption(RING))
    assert with_keys.repair().files == 4, "in a log of its own"
    stored = b"".join(file.read_bytes() for file in Path(moved, "_geoskip").rglob("*") if file.is_file())
    assert not any(text in stored for text in (b"part-00000", b"Quasimodo", b"minmax", b"bigint"))

    fewer = geoskip.dataset(spark, place, encryption=Encryption(RING.only("base")))
    assert where("pay = 2000").files_kept == 1, "a handle that is made changes nothing"
    fewer.use_metadata()  # as a driver that has no more keys
    report = where("pay = 2000")
    assert report.files_kept == 4
    assert "needs the key 'hr'" in "".join(report.reasons)
    assert "minmax(pay)" not in "".join(report.reasons)
    assert where("day < 5").files_kept == 1

    geoskip.dataset(spark, place, encryption=Encryption(KeyRing({"other": bytes(16)}))).use_metadata()
    report = where("day < 5")
    assert report.files_kept == 4
    assert "needs the key 'base'" in "".join(report.reasons)
    stranger = geoskip.dataset(spark, place)
    assert "needs the key 'base'" in repr(stranger)
    for verb in (stranger.repair, stranger.history):
        with pytest.raises(MissingKeyError, match="not for everybody"):
            verb()


@pytest.mark.slow
def test_a_session_knows_its_keys(spark: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ParquetStore(Path(place, "_geoskip"), encryption=Encryption(RING, "base"))
    geoskip.dataset(spark, place, store=store).create_index(MinMax("day"))
    monkeypatch.setattr(known, "encryption", None)
    monkeypatch.setattr(known, "_stores", {})  # as in another driver

    def kept() -> tuple[int, str]:
        report = same_as_off(lambda: spark.read.parquet(place).where("day < 5"))
        return report.files_kept, " ".join(report.reasons)

    assert kept()[0] == 4
    assert "spark.geoskip.encryption.keyRing" in kept()[1]
    RING.save(tmp_path / "keys.json")
    spark.conf.set("spark.geoskip.encryption.keyRing", str(tmp_path / "keys.json"))
    try:
        assert kept()[0] == 1
        monkeypatch.setattr(known, "_stores", {})
        monkeypatch.setattr(known, "encryption", None)
        geoskip.enable(spark)
        assert kept()[0] == 1
        assert geoskip.dataset(spark, place).indexes == (MinMax("day"),)
        spark.conf.set("spark.geoskip.encryption.keyRing", str(tmp_path / "no.json"))
        assert kept()[0] == 1, "the keys of before serve"
        assert "no.json cannot be read" in kept()[1]
        spark.conf.set("spark.geoskip.encryption.keyRing", "env:NOWHERE_AT_ALL")
        with pytest.raises(InvalidSpecificationError, match="NOWHERE_AT_ALL holds no keys"):
            geoskip.enable(spark)
    finally:
        spark.conf.unset("spark.geoskip.encryption.keyRing")
    monkeypatch.setattr(known, "_stores", {})
    monkeypatch.setattr(known, "encryption", None)
    geoskip.enable(spark, keys=RING)
    assert kept()[0] == 1


def test_a_key_for_an_index_that_there_is_not(spark: Any, place: str) -> None:
    """Else the index that was meant would be under the key that everybody has."""
    mistyped = Encryption(RING, "base", indexes={MinMax("pya"): "hr"})
    handle = geoskip.dataset(spark, place, encryption=mistyped)
    with pytest.raises(
        InvalidSpecificationError, match=r"minmax\(pya\).*is it minmax\(pay\)\?.*create minmax\(pya\) in"
    ):
        handle.create_index(MinMax("pay"), MinMax("day"))
    assert not Path(place, "_geoskip").exists()
    geoskip.dataset(spark, place, encryption=Encryption(RING, "base")).create_index(MinMax("day"))
    both = Encryption(RING, "base", indexes={MinMax("day"): "hr", MinMax("pay"): "hr"})
    geoskip.dataset(spark, place, encryption=both).create_index(MinMax("pay"))
    with pytest.raises(InvalidSpecificationError, match="an index that there is not"):
        handle.create_index(MinMax("name"))


@pytest.mark.parametrize("given", ["ring of the session", "keys of the handle", "base key of the handle"])
def test_a_rewritten_folder_is_protected_as_the_old_one(
    spark: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    encryption = Encryption(RING, "base", indexes={MinMax("pay"): "hr"})
    geoskip.dataset(spark, place, encryption=encryption).create_index(MinMax("pay"))
    monkeypatch.setattr(known, "_stores", {})  # as in another driver
    monkeypatch.setattr(known, "_defaults", {})
    monkeypatch.setattr(known, "encryption", Encryption(RING))
    handles = {"keys of the handle": Encryption(RING), "base key of the handle": Encryption(RING, "base")}
    new = str(tmp_path / "new")
    geoskip.dataset(spark, place, encryption=handles.get(given)).rewrite(Sort("day"), files=1, to=new)
    stored = b"".join(file.read_bytes() for file in Path(new, "_geoskip").rglob("*") if file.is_file())
    assert stored
    assert not any(text in stored for text in (b"part-00000", b"minmax", b"bigint"))
    for keys, names in ((RING, ["minmax(pay)"]), (RING.only("base"), [])):
        store = ParquetStore(Path(new, "_geoskip"), encryption=Encryption(keys))
        assert [entry.name for entry in store.load(store.latest() or 0).header.entries] == names
