"""Commands that run in Spark alone: layout, recommend, thrift-server, extension-jar."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from geoskip.cli.application import command
from geoskip.cli.datasets import Dataset_, MetadataOptions, SparkOptions, check_pyspark, pairs_of
from geoskip.cli.output import Json, check_folder_of, show, show_activity, show_json
from geoskip.cli.query_commands import QUERY


@command("geoskip layout data/weather", "geoskip layout data/weather lng lat --json", panel="Inspection")
def layout(
    path: Dataset_,
    metadata: MetadataOptions,
    spark: SparkOptions,
    columns: Annotated[
        list[str] | None,
        typer.Argument(metavar="COLUMN", help="Default: those of the recorded layout and of the indexes."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how well the files cluster some columns, and the files that points and ranges need."""
    spark.needed_for([path])
    with spark.dataset([path], metadata, "layout needs Spark") as handle, show_activity("measuring the layout"):
        found = handle.layout(*columns or ())
    if as_json:
        show_json(found.to_dict())
    else:
        show(str(found))


@command(
    "geoskip recommend data/weather \"temp > 30 AND city = 'Oslo'\" \"lat > 60\" --budget '1 MiB'",
    'geoskip recommend data/weather "SELECT max(temp) FROM parquet.`data/weather` WHERE day > 3" --json',
    panel="Inspection",
)
def recommend(
    path: Dataset_,
    metadata: MetadataOptions,
    spark: SparkOptions,
    queries: Annotated[
        list[str], typer.Argument(metavar="QUERY", help="Conditions on the dataset, or whole queries in Spark's SQL.")
    ],
    budget: Annotated[str, typer.Option(metavar="SIZE", help="What new indexes may store together.")] = "10 MiB",
    layouts: Annotated[bool, typer.Option(help="Try layouts of the files too.")] = True,
    as_json: Json = False,
) -> None:
    """Recommend indexes, and a layout, that save the most bytes of some queries; nothing is built."""
    spark.needed_for([path])
    with spark.dataset([path], metadata, "recommend needs Spark") as handle, show_activity("recommending indexes"):
        from geoskip.spark.advisor.recommend import recommend as recommended

        given = [text if QUERY.match(text) else handle.to_df().where(text) for text in queries]
        found = recommended(handle, given, budget, layouts)
    if as_json:
        show_json(found.to_dict())
        return
    show(str(found).removesuffix(found.code))
    rest = shlex.join([*metadata.words(), *spark.words()])
    if found.indexes:
        from geoskip.advisor.advice import item_of

        options = [f"--index {shlex.quote(item_of(each.index))}" for each in found.indexes]
        typer.echo(" ".join([f"geoskip index {shlex.quote(path)}", *options, rest]).rstrip())
    for each in found.superfluous:
        typer.echo("# saves nothing beside the other indexes:")
        typer.echo(f"geoskip drop {shlex.quote(path)} {shlex.quote(each.name)} {rest}".rstrip())
    if found.layout:
        typer.echo("# a better layout, in Python:")
        typer.echo(f"dataset = {found.handle}\n{found.layout.code}")


@command(
    "geoskip thrift-server --port 10000 --master yarn",
    "beeline -u jdbc:hive2://localhost:10000",
    name="thrift-server",
    panel="Clients",
)
def thrift_server(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at; 0 for a free one.")] = 10000,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all.")] = "localhost",
    master: Annotated[
        str | None, typer.Option(help="Spark's master, such as local[4], yarn or spark://host:7077.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark's, as in spark.sql.warehouse.dir=/data/tables."),
    ] = None,
) -> None:
    """Serve JDBC clients, such as beeline, whose queries skip files, until Ctrl-C.

    Prints the address for clients on standard output, once it serves. Tables are those of the Hive metastore, by
    default one in the working directory; --conf spark.sql.catalogImplementation=in-memory keeps them with the server.
    """
    settings = pairs_of(conf or (), "--conf", "spark.driver.memory=4g")
    settings |= {"spark.master": master} if master else {}
    check_pyspark("a Thrift server needs Spark")
    from geoskip.spark.jdbc.thrift_server import run

    run(port, host, settings)


@command("geoskip extension-jar geoskip-extension.jar", name="extension-jar", panel="Clients")
def extension_jar(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The jar to write.")],
    as_json: Json = False,
) -> None:
    """Make the jar that switches geoskip on by spark.sql.extensions, for servers and shells."""
    check_folder_of(file)
    check_pyspark("the compiler of the jar is one of Spark's")
    from geoskip.spark.jdbc.extension_jar import EXTENSION, USE
    from geoskip.spark.jdbc.extension_jar import extension_jar as write_jar

    with show_activity("compiling"):
        write_jar(file)
    if as_json:
        show_json({"jar": str(file), "extension": EXTENSION})
    else:
        typer.echo(f"{file}: {USE}")
