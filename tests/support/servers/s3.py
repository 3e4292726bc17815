"""An S3-compatible server and Hadoop's client of it: moto from PyPI, S3A with the parts of Amazon's SDK that it needs.

Both come into the cache of :mod:`tests.support.servers`, some 40 MB, once; the lists beside this file say what they
are. The client is put among the file systems of the running driver, with a class loader of its own, so that no session
has to be started for it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.support.servers import WATCHING, cache, jars
from tests.support.tagged_files import opened

__all__ = ["HADOOP", "fetched", "s3a"]

HADOOP = "3.4.1"
BUCKET = "s3a://geoskip"
SERVE = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

WSGIRequestHandler.disable_nagle_algorithm = True  # else a body waits until the headers are acknowledged, 40 ms
# one request at a time: it looks for an object and then puts one, as if in one step
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""
SETTINGS = {
    "access.key": "key",
    "secret.key": "secret",
    "endpoint.region": "us-east-1",
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    "attempts.maximum": "1",
    "retry.limit": "1",
    "optimized.copy.from.local.enabled": "false",  # of the server, which says "100 Continue" in its own way
}


def fetched() -> tuple[Path, Path]:
    """The folders of the client's jars and of the server's packages; RuntimeError where they cannot be had."""
    return jars("s3a"), _packages()


@contextmanager
def s3a(spark: Any) -> Iterator[str]:
    """The URI of an empty bucket, which the session reaches."""
    archives, packages = fetched()
    loader = _loader(spark, sorted(archives.glob("*.jar")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, str(port)]
    with subprocess.Popen(
        ["sh", "-c", WATCHING, "sh", *command],
        env={**os.environ, "PYTHONPATH": str(packages)},
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        _ready(f"{url}/{BUCKET.partition('//')[2]}")
        kind = loader.loadClass("org.apache.hadoop.fs.s3a.S3AFileSystem")
        nothing = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, 0)
        settings = {f"fs.s3a.{name}": value for name, value in {"endpoint": url, **SETTINGS}.items()}
        with opened(spark, BUCKET, kind.getConstructors()[0].newInstance(nothing), settings):
            yield BUCKET
        assert process.stdin is not None
        process.stdin.close()


def _ready(bucket: str) -> None:
    """Make a bucket, when the server is there."""
    until = time.monotonic() + 60
    while True:
        try:
            urlopen(Request(bucket, method="PUT"), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _loader(spark: Any, files: list[Path]) -> Any:
    jvm = spark._jvm
    urls = spark.sparkContext._gateway.new_array(jvm.java.net.URL, len(files))
    for number, file in enumerate(files):
        urls[number] = jvm.java.net.URL(f"file:{file}")
    return jvm.java.net.URLClassLoader(urls, jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())


def _packages() -> Path:
    """The folder with the server's packages, fetched when they are not there."""
    listed = Path(__file__).parent / "moto.txt"
    key = hashlib.sha256(f"{sys.version_info[:2]} {listed.read_text()}".encode()).hexdigest()[:12]
    folder = cache() / f"moto-{key}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            target = Path(scratch, "packages")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, "-r", listed]
            told = subprocess.run(command, capture_output=True, text=True)
            if told.returncode:
                raise RuntimeError(f"the server's packages could not be fetched:\n{told.stderr[-3000:]}")
            with suppress(OSError):  # somebody else was faster
                target.rename(folder)
    return folder
