"""Files of data that a layout has written."""

from __future__ import annotations

import glob
from pathlib import Path


def files_of(folder: Path | str) -> list[str]:
    """The files of data; those of the metadata have parts of names that begin with an underscore."""
    return [file for file in sorted(glob.glob(f"{folder}/**/part-*.parquet", recursive=True)) if "/_" not in file]
