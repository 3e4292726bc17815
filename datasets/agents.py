"""Make ``user_agents.parquet`` of this folder from two pinned public packages.

    python -m datasets.agents

Columns: ``agent``, the text of the header; ``kind``, ``browser`` or ``crawler``; ``tag``, a crawler's first purpose
(``scanner``, ``seo``, ``search-engine``, ...); ``weight``, the share of a browser's visits, 0 for crawlers. Texts are
as the packages have them, each once, crawlers without those that a browser has too. Needs npm and pip.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BROWSERS = ("user-agents@2.1.198", "package/dist/user-agents.json")
CRAWLERS = ("crawler-user-agents==1.67.0", "crawleruseragents/crawler-user-agents.json")
SHA256 = {
    BROWSERS[0]: "5432ce503c8d18fb6ac2dd668d019df3fdd94843a9472fda2525507f988e0022",
    CRAWLERS[0]: "9ba93f0a7bae60de20e185c52f76db78699a0aad2f1a65103abbbf5b10e93e89",
}
TARGET = Path(__file__).parent / "user_agents.parquet"


def fetched() -> tuple[list[Any], list[Any]]:
    """What the two packages hold, browsers first."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", CRAWLERS[0]]
        for client in (["npm", "pack", "--silent", BROWSERS[0]], pip):
            subprocess.run(client, check=True, cwd=work, stdout=subprocess.DEVNULL)
        with tarfile.open(next(work.glob("*.tgz"))) as npm, zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
            texts = {BROWSERS[0]: npm.extractfile(BROWSERS[1]).read(), CRAWLERS[0]: wheel.read(CRAWLERS[1])}
    for package, text in texts.items():
        if hashlib.sha256(text).hexdigest() != SHA256[package]:
            raise ValueError(f"{package} does not hold what it held; see SHA256 in {__file__}")
    browsers, crawlers = map(json.loads, texts.values())
    return browsers, crawlers


def main() -> None:
    """Write the file and say what is in it."""
    browsers, crawlers = fetched()
    weights: Counter[str] = Counter()
    for visit in browsers:
        weights[visit["userAgent"]] += visit["weight"]
    rows = [{"agent": a, "kind": "browser", "tag": None, "weight": w} for a, w in weights.most_common()]
    tags = {a: (c.get("tags") or [None])[0] for c in crawlers for a in c["instances"] if a not in weights}
    rows += [{"agent": a, "kind": "crawler", "tag": tag, "weight": 0.0} for a, tag in tags.items()]
    pq.write_table(pa.Table.from_pylist(rows), TARGET, compression="zstd", compression_level=22, write_statistics=False)
    print(f"{TARGET.name}: {len(rows)} agents, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
