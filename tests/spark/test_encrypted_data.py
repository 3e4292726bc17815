"""Encrypted Parquet data (paper section III-C): Spark's own crypto factory reads it, to build and to query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import Encryption, GeoskipError, KeyRing, MinMax, Sort, ValueList
from tests.conftest import same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

KEEPER = """
package org.apache.parquet.crypto.keytools;

public class GeoskipTestsKeeper implements KmsClient {
    private String known;

    public void initialize(
            org.apache.hadoop.conf.Configuration conf, String instance, String url, String token) {
        known = conf.get("geoskip.tests.keys", "");
    }

    public String wrapKey(byte[] key, String master) {
        return java.util.Base64.getEncoder().encodeToString(key);
    }

    public byte[] unwrapKey(String wrapped, String master) {
        if (known.indexOf(master) < 0) {
            throw new org.apache.parquet.crypto.KeyAccessDeniedException("no key " + master);
        }
        return java.util.Base64.getDecoder().decode(wrapped);
    }
}
"""


@pytest.fixture(scope="module")
def crypto(spark: Any) -> Iterator[None]:
    """The session with parquet-java's crypto factory, and a keeper of keys that is compiled here."""
    jvm, name = spark._jvm, "org.apache.parquet.crypto.keytools.GeoskipTestsKeeper"
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(KEEPER)
    handles = jvm.java.lang.invoke.MethodHandles
    neighbour = jvm.java.lang.Class.forName("org.apache.parquet.crypto.keytools.KeyToolkit")
    handles.privateLookupIn(neighbour, handles.lookup()).defineClass(compiler.getBytecodes()[name])  # for all threads
    factory = "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory"
    with settings(
        spark,
        {
            "parquet.crypto.factory.class": factory,
            "parquet.encryption.kms.client.class": name,
            "parquet.encryption.cache.lifetime.seconds": "0",
            "geoskip.tests.keys": "footer-key column-key",
        },
    ):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("plain", ["false", "true"], ids=["encrypted footers", "signed footers"])
def test_encrypted_data_are_skipped_like_others(spark: Any, crypto: None, tmp_path: Path, plain: str) -> None:
    place = str(tmp_path / "data")
    frame = spark.range(0, 12, 1, 4).selectExpr("id", "id * 10 AS pay", "concat('n', id) AS name")
    options = {
        "parquet.encryption.footer.key": "footer-key",
        "parquet.encryption.column.keys": "column-key: pay, name",
        "parquet.encryption.plaintext.footer": plain,
    }
    frame.write.options(**options).parquet(place)
    magic = {file.read_bytes()[-4:] for file in Path(place).glob("*.parquet")}
    assert magic == {b"PAR1" if plain == "true" else b"PARE"}

    keys = Encryption(KeyRing({"column-key": bytes(32)}), "column-key")
    handle = geoskip.dataset(spark, place, encryption=keys)
    report = handle.create_index(MinMax("id"), MinMax("pay"), ValueList("name"))
    assert (report.files, report.excluded) == (4, {})
    assert set(report.readers.values()) == {"spark"}

    def where(condition: str) -> Any:
        return same_as_off(lambda: spark.read.parquet(place).where(condition))

    for condition, kept in {"pay = 70": 1, "id > 8": 1, "name LIKE '%11'": 1, "pay < 0": 0}.items():
        assert where(condition).files_kept == kept, condition
    frame.limit(1).selectExpr("id + 99 AS id", "pay + 990 AS pay", "name").write.mode("append").options(
        **options
    ).parquet(place)
    handle.refresh_index()
    assert where("pay = 990").files_kept == 1

    with pytest.raises(GeoskipError, match=r"is an encrypted Parquet file, .* in clear; geoskip\.write"):
        geoskip.dataset(spark, place, encryption=keys).rewrite(Sort("id"), to=str(tmp_path / "sorted"))
    assert not (tmp_path / "sorted").exists()
    written = geoskip.write(frame, tmp_path / "written", layout=Sort("id"), files=2, **options)
    assert {file.read_bytes()[-4:] for file in (tmp_path / "written").glob("*.parquet")} == magic
    assert written.to_df().count() == 12
