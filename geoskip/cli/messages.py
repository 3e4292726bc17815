"""Messages of geoskip's Python interface, rewritten with the equivalent commands."""

from __future__ import annotations

import re
import shlex

_COMMANDS: tuple[tuple[str, str], ...] = (
    (r"; or geoskip\.build\(path, \[MinMax\('column'\)\]\) without Spark", ""),
    (r"dataset\.create_index\(MinMax\('column'\)\)", "geoskip index PATH --minmax COLUMN"),
    (r"build it by geoskip\.dataset\(spark, path\)\.create_index\(\.\.\.\)", "build it with --spark"),
    (r"build (?:with|it by) (?:Spark: )?geoskip\.dataset\(spark, (?:path|table=\.\.\.)\)(?:\.create_index\(\.\.\.\))?",
     "build with --spark"),
    (r"(?:dataset\.)?create_index\(\)", "geoskip index"),
    (r"refresh_index\(mode='(\w+)'\)", r"geoskip refresh PATH --mode \1"),
    (r"(?:dataset\.)?refresh_index\(\)", "geoskip refresh PATH"),
    (r"(?:dataset\.)?restore_index\(\)", "geoskip restore PATH"),
    (r"(?:dataset\.)?delete_index\(('[^']*')\)", r"geoskip drop PATH \1"),
    (r"(?:dataset\.)?delete_index\(\)", "geoskip drop PATH"),
    (r"(?:dataset\.)?vacuum_index\(retain=\)", "--retain"),
    (r"(?:dataset\.)?vacuum_index\(\)", "geoskip vacuum PATH"),
    (r"dataset\.repair\(\)", "geoskip repair PATH"),
    (r"geoskip\.(?:build|dataset)\([^)]*\)(?:\.create_index\(\.\.\.\))? makes them", "geoskip index PATH makes them"),
    (r"verify\(sample=\)", "--sample"),
    (r"\bsedona=True\b", "--sedona"),
    (r"(?:dataset|geoskip\.build)\(\.\.\., metadata='folder'\)|metadata='folder'", "--metadata FOLDER"),
    (r"\bbudget= (?=takes|of)", "--budget "),
    (r"metadata=(?= is)", "--metadata"),
    (r"; or give store=|, or give store=", ""),
    (r"geoskip\.(?:files|build)\(\)", "geoskip"),
    (r"geoskip reads Parquet, other formats need Spark",
     "say which format it is: --format json, --format csv --option header=true, ..."),
    (r"a time is a timedelta, a number of hours, or a text such as", "--retain takes a time such as"),
    (r"^(table \S+ cannot be read: .*cannot be found\..*?)\.?$",
     r"\1; give the settings of its catalog, as --conf spark.sql.catalogImplementation=hive"),
    (r"^(there is no file or folder \S+)$", r"\1; check the path, and quote a glob"),
    (r"(has no files to index)$", r"\1; name the folder that holds them"),
    (r"^(there is no index that is \w+( use)?)$", r"\1; geoskip describe PATH shows what there is"),
)  # fmt: skip
"""Python calls in messages, and their equivalents in the shell; the order matters."""


def in_commands(text: str) -> str:
    """Rewrite the Python calls in a message as commands and options of the shell.

    >>> in_commands("data has no index yet; create one: dataset.create_index(MinMax('column'))")
    'data has no index yet; create one: geoskip index PATH --minmax COLUMN'
    >>> in_commands("it has no metadata; geoskip.dataset(spark, ...).create_index(...) makes them")
    'it has no metadata; geoskip index PATH makes them'
    >>> in_commands("index GeoBox('ST_GeomFromWKB(shape)') or Prefix('path', length=20)")
    "index --geobox 'ST_GeomFromWKB(shape)' or --prefix 'path, length=20'"
    """
    from geoskip.statements.python_calls import INDEX_CALL  # imported late: the help must appear at once

    for call, command in _COMMANDS:
        text = re.sub(call, command, text)
    return INDEX_CALL.sub(_option, text.replace(".;", ";"))


def _option(found: re.Match[str]) -> str:
    """Convert an index in Python to an option."""
    inside = re.sub(r"(^|, ?|=)(['\"])(.*?)\2(?=,|$)", r"\1\3", found[2])
    return f"--{found[1].lower()} {shlex.quote(inside)}"
