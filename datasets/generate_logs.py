"""A seeded log of a database service, for the benchmark: 4,000 files a day and group of accounts each.

    python -m datasets.generate_logs TARGET [--files 4000] [--rows 1000] [--seed 0]

The same arguments write the same rows. Its shape is that of the *cloud database logs* of Extensible Data Skipping,
section V: days apart, and a day laid out by account. Databases are sharded and a request asks all shards of one, so
that their names come together; a name begins with its account's number and its own, and is four times as long as
that. Requests name their session, which lies in one file. User agents are real ones (``user_agents.parquet``), one
an account; everything else is invented.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets.layout import laid_out_once, write_parts
from datasets.weblog import visitors

__all__ = ["SHARDS", "database_log"]

VERSION = 1  # raise it when the code below writes other rows for the same arguments
FIRST_DAY = np.datetime64("2026-03-01", "D")
GROUPS = 100
"""Groups of accounts, each of which has a file a day."""
SHARDS = 4
MOST_ACCOUNTS = 60
"""Of a group; the smallest has one."""
MOST_DATABASES = 6
"""Of an account; the smallest has one. On a day a third of them are asked for, some daily and some hardly ever."""
SESSIONS = 40
"""Of a file."""

_BIRDS = ("heron", "wren", "plover", "dunlin", "avocet", "curlew", "godwit", "knot")
_COLOURS = ("amber", "cobalt", "umber", "sienna", "indigo", "ochre", "teal", "coral")
_PURPOSES = ("warehouse_orders_history", "telemetry_readings_raw", "customers_by_region_v2", "sessions_of_the_web_shop")
_METHODS = ("GET", "GET", "GET", "POST", "PUT", "HEAD")
_CALLS = ("_find", "_all_docs", "_changes", "_bulk_docs", "_design/stock/_view/by_day")
_REGIONS = ("eu-de", "eu-gb", "us-south", "us-east", "jp-tok", "au-syd")
_STATUSES = (200, 200, 200, 200, 201, 202, 304, 404, 409, 500)


def database_log(
    target: Path,
    files: int = 4_000,
    *,
    rows: int = 1_000,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Fill the directory `target` with the log, unless it is; return it.

    Sixteen columns: time timestamp, day date, account_name, db_name, http_request, user_agent, session, document,
    method, ip, node, region string, status int, bytes_in, bytes_out, micros bigint. `progress` is as for `lay_out`.
    """
    stamp = {"version": VERSION, "files": files, "rows": rows, "seed": seed}

    def write(empty: Path) -> None:
        done = None if progress is None else lambda count: progress(target.name, count, files)
        write_parts(empty, files, lambda number: part(number, rows, seed), done=done)

    return laid_out_once(Path(target), stamp, write)


def part(number: int, rows: int, seed: int) -> pa.Table:
    """The table of file `number`, from a random stream of its own."""
    day, group = divmod(number, GROUPS)
    random = np.random.default_rng([seed, number])
    databases, chances, owners, accounts, agents = _group(group, seed)
    asked = _requests(chances, -(-rows // SHARDS), random)
    request = np.repeat(np.arange(len(asked)), SHARDS)[:rows]
    shard = np.arange(len(request)) % SHARDS
    database = asked[request]
    sessions = _hexadecimal(random, SESSIONS, 6)
    session = random.integers(SESSIONS, size=len(asked))[request]
    method = random.integers(len(_METHODS), size=len(asked))[request]
    call = random.integers(len(_CALLS), size=len(asked))[request]
    times = np.sort(random.integers(86_400_000_000, size=len(asked)))[request] + 37 * shard
    names = [databases[d][s] for d, s in zip(database.tolist(), shard.tolist(), strict=True)]
    written = zip(method.tolist(), session.tolist(), names, call.tolist(), strict=True)
    return pa.table(
        {
            "time": pa.array((FIRST_DAY + day).astype("datetime64[us]") + times, pa.timestamp("us", tz="UTC")),
            "day": pa.array(np.full(len(request), FIRST_DAY + day)),
            "account_name": _taken(accounts, owners[database]),
            "db_name": pa.array(names),
            "http_request": pa.array([f"{_METHODS[m]} /{sessions[s]}/{name}/{_CALLS[c]}" for m, s, name, c in written]),
            "user_agent": _taken(agents, owners[database]),
            "session": _taken(sessions, session),
            "document": pa.array(_hexadecimal(random, len(request), 8)),
            "method": _taken(_METHODS, method),
            "ip": pa.array([f"10.{group}.{c % 256}.{c >> 8}" for c in (256 * session + database).tolist()]),
            "node": pa.array([f"db{n}.node" for n in (database * SHARDS + shard) % 48]),
            "region": pa.array([_REGIONS[group % len(_REGIONS)]] * len(request)),
            "status": pa.array(np.array(_STATUSES, np.int32)[random.integers(len(_STATUSES), size=len(request))]),
            "bytes_in": pa.array(random.lognormal(6, 1, len(request)).astype(np.int64)),
            "bytes_out": pa.array(random.lognormal(9, 2, len(request)).astype(np.int64)),
            "micros": pa.array(random.lognormal(8, 1.5, len(request)).astype(np.int64)),
        }
    )  # fmt: skip


def _requests(chances: NDArray[np.float64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Which database each request asks: of those that are in use on this day, the first ones more often, each once."""
    active = np.flatnonzero(random.random(len(chances)) < chances)
    active = (active if len(active) else np.array([int(np.argmax(chances))]))[:count]
    more = (len(active) * random.random(count - len(active)) ** 2).astype(np.int64)
    return np.asarray(random.permutation(np.concatenate([active, active[more]])))


@cache
def _group(
    number: int, seed: int
) -> tuple[list[list[str]], NDArray[np.float64], NDArray[np.int64], list[str], list[str]]:
    """A group's databases as the names of their shards, the chance that each is in use on a day, its account; the
    accounts and their agents.
    """
    random = np.random.default_rng([seed, 1, number])
    count = int(MOST_ACCOUNTS ** random.random())
    numbers = _hexadecimal(random, count, 4)
    accounts = [
        f"{_COLOURS[c]}-{_BIRDS[b]}-{account}"
        for account, c, b in zip(numbers, *random.integers(8, size=(2, count)).tolist(), strict=True)
    ]
    known, weights = visitors()
    agents = [known[n] for n in random.choice(len(known), count, p=weights).tolist()]
    owners = np.repeat(np.arange(count), random.integers(1, MOST_DATABASES + 1, count))
    databases = []
    for owner in owners.tolist():
        own, tail = _hexadecimal(random, 2, 4)
        purpose = _PURPOSES[int(random.integers(len(_PURPOSES)))]
        databases.append([f"{numbers[owner]}.{own[:6]}_{purpose}.{tail}-shard{n:02}" for n in range(SHARDS)])
    return databases, random.random(len(owners)) ** 2, owners, accounts, agents


def _hexadecimal(random: np.random.Generator, count: int, size: int) -> list[str]:
    """So many texts of twice so many digits."""
    digits = random.bytes(count * size).hex()
    return [digits[2 * size * n : 2 * size * (n + 1)] for n in range(count)]


def _taken(values: Any, places: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(places))


def main(arguments: list[str] | None = None) -> None:
    """Generate into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write the log of a database service as Parquet files.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--files", type=int, default=4_000)
    parser.add_argument("--rows", type=int, default=1_000, help="a file")
    parser.add_argument("--seed", type=int, default=0)
    named = parser.parse_args(arguments)
    print(database_log(named.target, named.files, rows=named.rows, seed=named.seed))


if __name__ == "__main__":
    main()
