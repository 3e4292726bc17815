"""A seeded web log of a storage service: accounts, days, hierarchical paths, real user agents, hostile clients.

    python -m datasets.weblog TARGET [--lines 3000000] [--days 14] [--files 20] [--seed 0]

The same arguments write the same rows. A file holds one day of some accounts; lines are in the order of account and
time. Names repeat prefixes and suffixes, as the paths of databases do. User agents are real ones
(``user_agents.parquet``); accounts, addresses and paths are invented. Hostile clients are rare: on one day in three a
scanner walks through an account or two, from a network of its own. Three million lines would make some 700 MB as text.
"""

from __future__ import annotations

import argparse
import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets.layout import laid_out_once, read, write_parts

__all__ = ["FIRST_DAY", "HOSTILE", "a_day", "account_of", "weblog"]

VERSION = 1  # raise it when the code below writes other rows for the same arguments
FIRST_DAY = dt.date(2026, 3, 1)
ACCOUNTS = 60
HOSTILE = re.compile(r"nikto|sqlmap|zmeu|masscan|wpscan|nmap scripting|zgrab", re.IGNORECASE)
"""What the agents of attacking tools have in common: nobody else's agent matches."""
HOSTILE_NETWORK = ipaddress.ip_network("203.0.113.0/24")
LINES_OF_AN_ATTACK = 40
ATTACKED_EVERY = 3
"""Days."""

_NAMES = ("acme", "birch", "cobalt", "delta", "ember", "fjord", "grove", "heron", "indigo", "juniper", "krill", "lumen")
_CONTAINERS = ("warehouse", "backup", "media", "web", "scratch")
_TABLES = ("orders", "orders_history", "customers", "clicks", "clicks_raw", "invoices", "stock", "stock_daily")
_ENDS = ("parquet", "parquet", "parquet", "csv.gz", "json", "jpg", "html", "log")
_METHODS = ("GET", "GET", "GET", "GET", "HEAD", "PUT", "DELETE")
_STATUSES = (200, 200, 200, 200, 200, 206, 304, 404, 403, 500)
_OBJECTS = 4000
"""Objects of an account."""


def weblog(
    target: Path,
    lines: int = 3_000_000,
    *,
    days: int = 14,
    files: int = 20,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Fill the directory `target` with `files` Parquet files a day, unless it is; return it.

    Columns: time timestamp, day date, account, ip, method, path string, status int, bytes bigint, user_agent,
    request_id string. `progress` is as for `lay_out`.
    """
    stamp = {"version": VERSION, "lines": lines, "days": days, "files": files, "seed": seed}

    def write(empty: Path) -> None:
        done = None if progress is None else lambda count: progress(target.name, count, days * files)
        write_parts(empty, days * files, lambda n: part(n // files, n % files, files, lines // days, seed), done=done)

    return laid_out_once(Path(target), stamp, write)


def a_day(folder: Path, number: int, lines: int, *, files: int = 20, seed: int = 0) -> list[Path]:
    """Add the files of day `number` (from 0) to a log that does not have them: what a nightly job does."""
    written = []
    for share in range(files):
        name = f"part-{number * files + share:05}.parquet"
        if (folder / name).exists():
            raise FileExistsError(f"{folder / name} is there already; add a later day")
        inbox = folder / f"_{name}"  # hidden to Spark by its underscore while it is being written
        inbox.mkdir()
        write_parts(inbox, 1, lambda _, share=share: part(number, share, files, lines, seed))
        (inbox / "part-00000.parquet").rename(folder / name)
        inbox.rmdir()
        written.append(folder / name)
    return written


def part(day: int, share: int, files: int, lines: int, seed: int) -> pa.Table:
    """The lines of one file: share `share` of `files` of day number `day`, which has `lines` in all."""
    random = np.random.default_rng([seed, day, share])
    rows = lines * (share + 1) // files - lines * share // files
    here = np.array_split(np.arange(ACCOUNTS), files)[share]
    chances = 1.0 / (1 + np.arange(len(here)))
    account = random.choice(here, rows, p=chances / chances.sum())
    time = np.datetime64(_date(day), "us") + random.integers(86_400_000_000, size=rows)
    order = np.lexsort((time, account))
    account, time = account[order], time[order]
    agents, weights = visitors()
    table = pa.table(
        {
            "time": pa.array(time, pa.timestamp("us", tz="UTC")),
            "day": pa.array(np.full(rows, np.datetime64(_date(day), "D"))),
            "account": _taken([account_of(number) for number in range(ACCOUNTS)], account),
            "ip": _of_each(account, lambda number: _clients(number, seed), 2.0, random),
            "method": _taken(_METHODS, random.integers(len(_METHODS), size=rows)),
            "path": _of_each(account, lambda number: _paths(number, seed), 3.0, random),
            "status": pa.array(np.array(_STATUSES, np.int32)[random.integers(len(_STATUSES), size=rows)]),
            "bytes": pa.array(random.lognormal(9, 2, rows).astype(np.int64)),
            "user_agent": _taken(agents, random.choice(len(agents), rows, p=weights)),
            "request_id": _hexadecimal(random.bytes(8 * rows)),
        }
    )
    attacked = day % ATTACKED_EVERY == ATTACKED_EVERY - 1 and share == 7 * day % files
    return _with_an_attack(table, random) if attacked else table


def _with_an_attack(table: pa.Table, random: np.random.Generator) -> pa.Table:
    """The lines with a scanner's in place of some in the middle."""
    count = min(LINES_OF_AN_ATTACK, len(table))
    first = (len(table) - count) // 2
    lines = table.slice(first, count)
    tools = _tools()
    replaced = {
        "ip": pa.array([str(HOSTILE_NETWORK[int(host)]) for host in random.integers(1, 255, count)]),
        "path": pa.array([f"/{account}/web/admin/setup.php" for account in lines["account"].to_pylist()]),
        "status": pa.array(np.full(count, 404, np.int32)),
        "user_agent": pa.array([tools[int(random.integers(len(tools)))]] * count),
    }
    for name, values in replaced.items():
        lines = lines.set_column(lines.schema.get_field_index(name), name, values)
    return pa.concat_tables([table.slice(0, first), lines, table.slice(first + count)])


def account_of(number: int) -> str:
    """The name of an account: ``acme``, ``birch``, ..., ``acme-2``.

    >>> account_of(0), account_of(13)
    ('acme', 'birch-2')
    """
    generation, name = divmod(number, len(_NAMES))
    return _NAMES[name] + (f"-{generation + 1}" if generation else "")


def _date(day: int) -> dt.date:
    return FIRST_DAY + dt.timedelta(days=day)


@cache
def visitors() -> tuple[list[str], NDArray[np.float64]]:
    """The agents of peaceful clients and how often they come: crawlers make a tenth of the visits."""
    table = read("user_agents")
    agents, weights = table["agent"].to_pylist(), table["weight"].to_numpy()
    peaceful = np.array([not HOSTILE.search(agent) for agent in agents])
    crawls = (weights == 0) & peaceful
    shares = np.where(peaceful, weights, 0) / weights[peaceful].sum() * 0.9 + crawls / crawls.sum() * 0.1
    return agents, shares / shares.sum()


@cache
def _tools() -> list[str]:
    """The agents of attacking tools."""
    return [agent for agent in read("user_agents")["agent"].to_pylist() if HOSTILE.search(agent)]


@cache
def _clients(account: int, seed: int) -> list[str]:
    """The addresses of an account's clients, from 10 to 50,000, in a network of its own."""
    random = np.random.default_rng([seed, 1, account])
    count = int(10 ** random.uniform(1, 4.7))
    return [f"10.{account}.{host >> 8}.{host & 255}" for host in random.choice(65_536, count, replace=False).tolist()]


@cache
def _paths(account: int, seed: int) -> list[str]:
    """The objects of an account, the popular ones first."""
    random = np.random.default_rng([seed, 2, account])
    picks = random.integers(0, 1 << 30, size=(_OBJECTS, 5)).tolist()
    name = account_of(account)
    return [
        f"/{name}/{_CONTAINERS[c % len(_CONTAINERS)]}/{_TABLES[t % len(_TABLES)]}/day={_date(-(d % 400))}/"
        f"part-{n % 500:05}.{_ENDS[e % len(_ENDS)]}"
        for c, t, d, n, e in picks
    ]


def _of_each(
    account: NDArray[np.int64], values: Callable[[int], list[str]], power: float, random: np.random.Generator
) -> pa.Array:
    """A value of its account for each line; the higher the power, the more often the first ones come."""
    found = []
    for number, count in zip(*np.unique(account, return_counts=True), strict=True):
        known = values(int(number))
        found.append(_taken(known, (len(known) * random.random(count) ** power).astype(np.int64)))
    return pa.concat_arrays(found) if found else pa.array([], pa.string())


def _taken(values: Sequence[str], places: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(places))


def _hexadecimal(data: bytes) -> pa.Array:
    """Sixteen hexadecimal digits for every eight bytes."""
    count = len(data) // 8
    offsets = pa.array(np.arange(0, 16 * count + 1, 16, dtype=np.int32))
    return pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(data.hex().encode()))


def main(arguments: list[str] | None = None) -> None:
    """Generate into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write a web log as Parquet files.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--lines", type=int, default=3_000_000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--files", type=int, default=20, help="a day")
    parser.add_argument("--seed", type=int, default=0)
    named = parser.parse_args(arguments)
    print(weblog(named.target, named.lines, days=named.days, files=named.files, seed=named.seed))


if __name__ == "__main__":
    main()
