"""A web log: hostile clients, paths, accounts and days, networks, and the night after.

    python -m examples.log_analytics [--lines 3000000] [--days 14] [--files 20] [--folder .demo/weblog]

Makes a seeded log of a storage service (``datasets/weblog.py``), indexes it in one job, asks what an operator asks with
geoskip off and on, checks that the rows are equal and prints one table. Then a nightly job adds a day and refreshes.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from ua_parser import parse_user_agent

import geoskip
from datasets.weblog import HOSTILE, a_day, weblog
from geoskip import Formatted, Hybrid, Index, MinMax, Prefix, Report, Suffix, ValueList, declare

FOLDER = Path(__file__).resolve().parent.parent / ".demo" / "weblog"

# ---- a function of the house, as in the paper (Extensible Data Skipping, section V-F)


def get_agent_name(user_agent: str | None) -> str | None:
    """``Hacker`` for the tools of attackers, else the program's family as ua-parser knows it."""
    if user_agent is None:
        return None
    if HOSTILE.search(user_agent):
        return "Hacker"
    found = parse_user_agent(user_agent)
    return found.family if found is not None else "Unknown"


declare(get_agent_name, version="1")  # raise it when the function changes: what was indexed is then not used any more


INDEXES: tuple[Index, ...] = (
    Formatted("user_agent", extract="get_agent_name"),  # what the function makes of each file's agents
    Prefix("path", length=40),
    Suffix("path", length=12),
    ValueList("account"),
    MinMax("day"),
    MinMax("packed_address(ip)"),  # for in_network(ip, '10.0.0.0/8')
    Hybrid("request_id"),  # a Bloom filter where a list would be larger
)


@dataclass(frozen=True)
class Question:
    """What an operator asks of the log."""

    title: str
    condition: str


def questions(request: str) -> tuple[Question, ...]:
    """All of them; one looks for a request by its id."""
    return (
        Question("the paper's: hostile agents", "get_agent_name(user_agent) = 'Hacker'"),
        Question("who read a table", "path LIKE '/cobalt/warehouse/orders/%'"),
        Question("probes for a script", "path LIKE '%/setup.php'"),
        Question("an account on a day", "account = 'heron-2' AND day = DATE'2026-03-02'"),
        Question("errors from a network", "in_network(ip, '203.0.113.0/24') AND status >= 400"),
        Question("one request", f"request_id = '{request}'"),
    )


@dataclass(frozen=True)
class Answer:
    """A question's answer, and what it cost both ways."""

    question: Question
    rows: int
    off: float
    on: float
    report: Report


def register(spark: SparkSession) -> None:
    """The function of the house under its name; ``in_network`` and others come with the session."""
    spark.udf.register("get_agent_name", get_agent_name, "string")


def ask(spark: SparkSession, question: Question) -> Answer:
    """The question with geoskip off and on; raises AssertionError where the rows are not the same."""
    sql = f"SELECT time, account, ip, path, status, user_agent, request_id FROM weblog WHERE {question.condition}"
    with geoskip.disabled(spark):
        began = time.perf_counter()
        expected = spark.sql(sql).toPandas()
        off = time.perf_counter() - began
    began = time.perf_counter()
    frame = spark.sql(sql)
    found = frame.toPandas()
    on = time.perf_counter() - began
    before, after = (_in_order(rows) for rows in (expected, found))
    if not before.equals(after):
        raise AssertionError(f"{question.title}: {len(expected):,} rows with geoskip off, {len(found):,} with it on")
    return Answer(question, len(found), off, on, geoskip.report(frame))


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(["request_id", "time"], ignore_index=True)


def table(answers: Sequence[Answer], title: str) -> Table:
    """One row a question."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    shown.add_column("question", min_width=28)
    for head in ("rows", "files read", "MB read", "seconds off", "on", "ratio"):
        shown.add_column(head, justify="right", no_wrap=True)
    for answer in answers:
        report = answer.report
        shown.add_row(
            answer.question.title,
            f"{answer.rows:,}",
            f"{report.files_kept:,} of {report.files_total:,}",
            f"{report.bytes_kept / 1e6:.2f} of {report.bytes_total / 1e6:.2f}",
            f"{answer.off:.2f}",
            f"{answer.on:.2f}",
            f"{answer.off / answer.on:.1f}",
        )
    return shown


def run(spark: SparkSession, folder: Path, console: Console, *, lines: int, days: int, files: int) -> list[Answer]:
    """Everything but the session: the log, its indexes, the questions, and the night after."""
    register(spark)
    weblog(folder, lines, days=days, files=files)
    log = geoskip.dataset(spark, str(folder))
    console.print(str(log.create_index(*INDEXES)), highlight=False, soft_wrap=True)
    spark.read.parquet(str(folder)).createOrReplaceTempView("weblog")
    request = spark.sql("SELECT min(request_id) FROM weblog").first()[0]
    asked = questions(request)
    answers = [ask(spark, question) for question in asked]
    console.print(table(answers, f"\n{lines:,} lines, {days} days"))
    console.print(f"\nThe files that each clause alone skips, of: {asked[0].title}", highlight=False)
    for clause, count in answers[0].report.scans[0].clauses():
        console.print(f"  {count:>5,}  {clause}", highlight=False, soft_wrap=True)
    return [*answers, *night(spark, folder, console, asked[0], lines=lines // days, day=days, files=files)]


def night(
    spark: SparkSession, folder: Path, console: Console, question: Question, *, lines: int, day: int, files: int
) -> list[Answer]:
    """A nightly job: a new day's files come, the index is refreshed, and meanwhile every question has its answer."""
    a_day(folder, day, lines, files=files)
    spark.read.parquet(str(folder)).createOrReplaceTempView("weblog")
    before = ask(spark, question)  # the new files have no metadata yet, so they are read
    report = geoskip.dataset(spark, str(folder)).refresh_index()
    after = ask(spark, question)
    console.print(
        f"\nA night later: {files} files of {lines:,} lines more. Before the refresh the question reads "
        f"{before.report.files_kept} files; the refresh reads {report.read} in {report.seconds:.1f} s; after it "
        f"{after.report.files_kept} files.",
        highlight=False,
    )
    return [before, after]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make, index, ask, print."""
    parser = argparse.ArgumentParser(description="Skip files of a web log.")
    parser.add_argument("--lines", type=int, default=3_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--files", type=int, default=20, help="a day")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    named = parser.parse_args(arguments)
    shutil.rmtree(named.folder, ignore_errors=True)  # the nightly job has changed what an earlier run made
    spark = geoskip.session("log analytics", config={"spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    run(spark, named.folder, Console(width=120), lines=named.lines, days=named.days, files=named.files)
    spark.stop()


if __name__ == "__main__":
    main()
