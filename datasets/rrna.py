"""Pick the reads of ``rrna.parquet`` out of Debian's package vsearch-examples 2.22.1.

    apt-get download vsearch-examples && dpkg-deb -x vsearch-examples_*.deb unpacked
    python -m datasets.rrna unpacked/usr/share/doc/vsearch-examples/BioMarKs50k.fsa.gz

Of the 50,000 reads of ribosomal RNA it takes twelve that are far apart in edits and the twenty nearest to each, since
a few hundred random ones have no near ones among them. The reads are in this order, so twenty make a file of one kind.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

KINDS, READS, EVERY = 12, 20, 7
HERE = Path(__file__).parent


def main(path: str) -> None:
    """Write ``rrna.parquet`` beside this file."""
    with gzip.open(path, "rt") as lines:
        entries = lines.read().split(">")[1:]
    found = {"".join(body).upper(): name.split(";")[0] for name, *body in (e.split("\n") for e in entries[::EVERY])}
    reads = [read for read in found if 300 <= len(read) <= 450]
    chosen, apart = [0], np.full(len(reads), np.inf)
    kinds = []
    for _ in range(KINDS):
        distances = cdist([reads[chosen[-1]]], reads, scorer=Levenshtein.distance)[0]
        kinds.append(np.argsort(distances, kind="stable")[:READS])
        apart = np.minimum(apart, distances)
        apart[np.concatenate(kinds)] = 0
        chosen.append(int(apart.argmax()))
    order = list(dict.fromkeys(np.concatenate(kinds).tolist()))
    table = pa.table({"read": [found[reads[i]] for i in order], "sequence": [reads[i] for i in order]})
    pq.write_table(table, HERE / "rrna.parquet", compression="zstd", compression_level=19)


if __name__ == "__main__":
    main(sys.argv[1])
