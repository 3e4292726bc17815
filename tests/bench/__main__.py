"""Run all sections of the benchmark, or those named on the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from importlib import import_module

from tests.bench.measure import console

SECTIONS: Mapping[str, str] = {
    "kernels": "deciding over 10,000 to 1,000,000 synthetic files, without an engine",
    "probing": "equality through 10,000 to 1,000,000 synthetic files",
    "distances": "conditions on a distance through MetricDist",
    "queries": "what geoskip adds to a Spark query on real files",
    "joins": "joins of 2,000 files with a small table, and first rows of an order",
    "files": "geoskip.files over the metadata of 1,000,000 files, without Spark",
    "many": "what it adds to planning on 100,000 files, in a driver of 1 GB",
    "wide": "TPC-H and TPC-DS with every column indexed, and a table of 150 indexes",
    "build": "building indexes, beside Spark scanning the same columns",
    "lifecycle": "refreshing 10,000 files, and what stores need for it",
    "kinds": "all kinds of index together and apart, and what they store",
    "sizes": "the paper's table II: what indexes of a log store and take to build",
    "columns": "its figure 7: columns indexed together and apart",
    "equality": "its figure 8: equality through no index and three",
    "windows": "its figure 9: ST_Contains over months of weather",
    "rewriting": "its figure 10: the same rewritten with BETWEEN, at an object store's latency",
    "factors": "its figures 11 and 12: selectivity, layout, metadata and scanning factors",
    "effectiveness": "of what was read, how much had to be",
    "what_if": "how often what_if's intervals hold the truth, and how quick its sample is",
    "advice": "what recommended indexes save and store beside all that could be built",
    "layouts": "files read in geoskip's layouts beside Delta's and Iceberg's Z-orders, and what writing takes",
    "engines": "pyarrow, polars and DuckDB over 2,000 files, alone and with the metadata",
    "tables": "the demo's queries over tables of Delta and Iceberg, beside the same files as plain Parquet",
    "demo": "the demo's queries",
}


def main(arguments: list[str] | None = None) -> None:
    """Run the sections in their order."""
    listed = "\n".join(f"  {name:13} {what}" for name, what in SECTIONS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=f"Measure geoskip side by side with its floors.\n\nSections:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("section", nargs="*", metavar="section", help="default: all")
    named = parser.parse_args(arguments).section or list(SECTIONS)
    console.print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name in SECTIONS:
        if name in named:
            console.rule(f"[bold]{name}[/]: {SECTIONS[name]}")
            run: Callable[[], None] = import_module(f"tests.bench.{name}").run
            run()


if __name__ == "__main__":
    main()
