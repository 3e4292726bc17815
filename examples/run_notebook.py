"""Execute the notebooks, or those that are named, and keep their outputs: ``python -m examples.run_notebook``.

What is kept names no folder of this machine and holds nothing that a library wrote to stderr. The notebook's metadata
say how many seconds it took, start of the kernel and of Spark included.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = tuple(sorted(Path(__file__).parent.glob("*_notebook.ipynb")))
_FOLDERS = re.compile(r"(?:/[\w.+-]+)*/(?:tmp|var/folders)/[\w.+/-]*?tmp\w{8}")


def executed(notebook: Path, *, environment: Mapping[str, str] | None = None, seconds: int = 600) -> Any:
    """The notebook with the outputs of a fresh kernel; raises CellExecutionError where a cell fails."""
    book = nbformat.read(notebook, as_version=4)
    client = NotebookClient(book, timeout=seconds, kernel_name="python3", record_timing=False)
    client.execute(env={**os.environ, **(environment or {})}, cwd=str(notebook.parent))
    return book


def tidied(book: Any) -> Any:
    """The same notebook without noise and without this machine's folders."""
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                data = output.get("data", {})
                if "text/html" in data:
                    data["text/plain"] = data["text/plain"][:200]  # the page shows the other
                for content in (output, data):
                    for kind in [kind for kind in content if kind.startswith("text")]:
                        content[kind] = _FOLDERS.sub("/data", content[kind])
    book.metadata.pop("widgets", None)
    return book


def main(names: Sequence[str]) -> None:
    """Execute, tidy and write."""
    for notebook in NOTEBOOKS:
        if not names or notebook.name in names:
            began = time.perf_counter()
            book = tidied(executed(notebook))
            book.metadata["seconds"] = round(time.perf_counter() - began)
            nbformat.write(book, notebook)
            size = notebook.stat().st_size / 1e3
            print(f"{notebook.name}: executed in {book.metadata['seconds']} s, {size:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
