"""Execute the notebook and keep its outputs: ``python -m examples.run_notebook``.

What is kept names no folder of this machine and holds nothing that a library wrote to stderr.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "geospatial_notebook.ipynb"
_FOLDERS = re.compile(r"(?:/[\w.+-]+)*/(?:tmp|var/folders)/[\w.+/-]*?tmp\w{8}")


def executed(notebook: Path = NOTEBOOK, *, environment: Mapping[str, str] | None = None, seconds: int = 600) -> Any:
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


def main() -> None:
    """Execute, tidy and write."""
    nbformat.write(tidied(executed()), NOTEBOOK)
    print(f"{NOTEBOOK.name}: executed, {NOTEBOOK.stat().st_size / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
