"""The command ``geoskip``; needs the extra ``geoskip[cli]``.

::

    application.py         errors as one line, exit codes, options that commands share
    datasets.py            the dataset of a command: through its metadata alone, or through Spark
    build_commands.py      index, refresh, verify, repair
    metadata_commands.py   describe, history, statistics, optimize, drop, restore, vacuum
    query_commands.py      explain, files, report
    spark_commands.py      layout, recommend, thrift-server, extension-jar
    doctor.py              doctor
    mappings_table.py      the table of all mapped functions
    output.py              tables, JSON, progress
    messages.py            messages of the Python interface, rewritten for the shell

Modules are imported when a command needs them, so that ``--help`` and completion are fast. Without PySpark, commands on
local Parquet that need no Spark still work.
"""

from __future__ import annotations

import typer

from geoskip.cli import build_commands, doctor, metadata_commands, query_commands, spark_commands
from geoskip.cli.application import app, command

__all__ = ["app", "build_commands", "doctor", "metadata_commands", "query_commands", "spark_commands"]


@command(panel="Inspection")
def mappings() -> None:
    """Print the table of all mapped functions, as Markdown."""
    from geoskip.cli.mappings_table import table

    typer.echo(table(), nl=False)
