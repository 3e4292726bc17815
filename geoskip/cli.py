"""The command ``geoskip``; needs the extra ``geoskip[cli]``."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(help="Data skipping for Apache Spark.", no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Data skipping for Apache Spark."""


@app.command()
def mappings() -> None:
    """Print the table of all mapped functions, as Markdown."""
    from geoskip.spark.mapped import table

    typer.echo(table(), nl=False)
