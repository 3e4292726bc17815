"""Definitions of the settings that geoskip itself reads: name, default, accepted values, meaning.

Sessions are validated against these definitions, and the table of the guide is generated from them
(``python -m geoskip.sources.declared_settings``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from geoskip.metadata import bytes_of

PREFIX = "spark.geoskip."
_TIME = re.compile(r"(.*?)(ms|s|m|min)?$")


@dataclass(frozen=True)
class Setting:
    """A setting: its name without the prefix, its default ("" for none) and its meaning in Markdown."""

    name: str
    default: str
    meaning: str
    wanted: str
    """The accepted values, as described in errors."""
    accepts: Callable[[str], bool]
    """Test of a value without surrounding white space."""


def parse_number(text: str) -> float | None:
    """Parse a finite number, None for any other text."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _is_time(text: str) -> bool:
    found = _TIME.match(text)
    return found is not None and (parse_number(found[1]) or 0) > 0


def _is_between(least: float, most: float) -> Callable[[str], bool]:
    return lambda text: (found := parse_number(text)) is not None and least <= found <= most


def _is_one_of(*texts: str) -> Callable[[str], bool]:
    return lambda text: text.lower() in texts


SETTINGS = (
    Setting(
        "enabled",
        "true",
        "whether queries skip files; `geoskip.enable`, `geoskip.disable` and `with geoskip.disabled(spark):` set it",
        "true or false (all but false, no, off and 0 switch it on)",
        _is_one_of("true", "false"),
    ),
    Setting(
        "planning.budget",
        "5",
        "seconds (or `500ms`, `1m`) that a query waits for geoskip's decision, a fifth of them for the evaluation of "
        "listed values; after that it reads every file",
        "a time above 0 such as 5, 5s or 500ms",
        _is_time,
    ),
    Setting(
        "audit",
        "0",
        "share of the skipped files to read again after a query, in the background, with the query's own filter; a "
        "matching row is reported in the log and in `report.lost`, and the index or mapping that skipped it is "
        "quarantined (`geoskip.quarantined()`, `geoskip.release(name)`)",
        "a share from 0 to 1 such as 0.02",
        _is_between(0, 1),
    ),
    Setting(
        "metadata.cacheSize",
        "1g",
        "estimated memory for the metadata of all datasets in this driver; beyond it the least recently used metadata "
        "are dropped, and read again when they are needed",
        "a size such as 512m",
        lambda text: bytes_of(text) is not None,
    ),
    Setting(
        "metadata.cacheTtl",
        "1",
        "for metadata on other file systems and servers: the seconds for which queries use the newest snapshot that an "
        "earlier query found, even if other drivers have written newer ones; with `0` each query looks up the "
        "newest one; snapshots written by this driver are used at once",
        "a number of seconds such as 1",
        _is_between(0, math.inf),
    ),
    Setting(
        "fingerprint.maxRechecks",
        "2000",
        "largest number of local files to skip that are checked for changes, when a query is planned and at each run; "
        "above it none is checked",
        "a number of files such as 2000",
        _is_between(0, math.inf),
    ),
    Setting(
        "workload",
        "off",
        "`on` records the conditions of the session's queries, the newest 1000 distinct ones, with a placeholder for "
        "each literal: `geoskip.workload_log(spark)` shows how often they ran and what they read; `literals` also "
        "records the literals, which `geoskip.recommend` and `geoskip.what_if` need",
        "off, on or literals",
        _is_one_of("off", "false", "on", "true", "literals"),
    ),
    Setting(
        "encryption.keyRing",
        "",
        "key ring for reading encrypted metadata, if no handle has supplied one: the path of a file, or `env:` and the "
        "name of an environment variable",
        "the path of a file, or env: and a name",
        lambda text: True,
    ),
)


def default_of(name: str) -> str:
    """Look up the default of a setting by its name without the prefix."""
    return next(setting.default for setting in SETTINGS if setting.name == name)


def settings_table() -> str:
    """Write all settings as a Markdown table, one row each."""
    rows = [
        f"| `{PREFIX}{setting.name}` | {f'`{setting.default}`' if setting.default else 'none'} | {setting.meaning} |"
        for setting in SETTINGS
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    print(settings_table(), end="")
