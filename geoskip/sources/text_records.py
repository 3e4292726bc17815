"""Records of CSV and JSON whose values depend on the columns that a query reads.

Spark has the parser of CSV skip the columns that a query does not need. The parser ends a skipped value by other rules
than a value that it keeps: it takes some escaped quotes, and some separators within quotes, for the end. Then the rest
of the record has other values than for a query that reads all columns. An index stores the values that Spark finds when
it reads the indexed columns alone, so a file with such a record must not be skipped. Of JSON, Spark compares with its
parser's limits only some of what a query does not read.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

PRUNING = "spark.sql.csv.parser.columnPruning.enabled"
TWOFOLD = (
    "a quoted value with an escaped quote or escape character, after which Spark reads other values in a query over "
    f"other columns; set {PRUNING}=false to index it"
)
"""Problem of a file with a record that matches :func:`twofold_record`."""
_DEPENDS = "what a column holds depends on the columns read beside it"
_ASCII_BASED = ("us-ascii", "iso-8859-1")  # encodings that write an ASCII character, and nothing else, as its byte
_ESCAPED = re.compile(r"\\(u0000|.)")
_CONTROLS = {"t": "\t", "r": "\r", "n": "\n", "b": "\b", "f": "\f", "u0000": "\0"}


def reason_csv_declined(options: Mapping[str, str], pruning: str | None) -> str | None:
    """Reason why the values of CSV files depend on the columns that a query reads, or None.

    Where Spark has the parser skip the other columns, the parser loses records of several lines, leaves text to the
    next line with BACK_TO_DELIMITER, and ends a skipped column at the first character of a long separator.

    Parameters
    ----------
    options
        Reader options by lower-case name.
    pruning
        Value of the session's setting ``spark.sql.csv.parser.columnPruning.enabled``.

    >>> reason_csv_declined({"sep": "||"}, "true")[:44]
    'with a separator of several characters what '
    >>> reason_csv_declined({"sep": "\N{GRINNING FACE}"}, "true")[:38]
    'with a separator of several characters'
    """
    if options.get("multiline") == "true":  # only the option makes Spark skip columns here
        return f"with multiLine and columnPruning {_DEPENDS}" if options.get("columnpruning") == "true" else None
    if not _skips_columns(options, pruning):
        return None
    if options.get("unescapedquotehandling", "").upper() == "BACK_TO_DELIMITER":
        return f"with unescapedQuoteHandling=BACK_TO_DELIMITER {_DEPENDS}; set {PRUNING}=false"
    if len(_separator(options).encode("utf-16-le", "surrogatepass")) > 2:  # characters of Java
        return f"with a separator of several characters {_DEPENDS}; set {PRUNING}=false"
    encoding = options.get("encoding", options.get("charset", "UTF-8"))
    of_bytes = encoding.lower() in _ASCII_BASED and _special(options).isascii()
    if not of_bytes and encoding.lower() not in ("utf-8", "utf8"):
        return f"with encoding={encoding} {_DEPENDS}; set {PRUNING}=false"
    return None


def twofold_record(options: Mapping[str, str], pruning: str | None) -> str | None:
    r"""Java regular expression for CSV lines that Spark may read in two ways, or None.

    The parser (univocity 2.9.1) skips a quoted value by ``CharInput.skipQuotedString``, which does not count the
    escapes before a quote as the code for values that it keeps does. Without such escapes both end a value at the same
    character. With equal quote and escape, two quotes before other text in quotes are the case that differs; else it is
    an escape before an escaped quote. The expression finds more lines than are read in two ways.

    Parameters
    ----------
    options, pruning
        As for :func:`reason_csv_declined`.

    >>> twofold_record({}, "false")
    """
    if options.get("multiline") == "true" or not _skips_columns(options, pruning):
        return None
    separator, quote, escape, *other = (rf"\u{ord(character):04x}" for character in _special(options))
    if escape != quote:
        return (
            f"[{escape}{''.join(other)}]{escape}{quote}[^{quote}]*+(?:(?<={escape}){quote}[^{quote}]*+)*+"
            f"(?<!{escape}){quote}{separator}"
        )
    if other:
        return rf"\A(?>(?s:.*?){escape}{quote})(?s:.*){quote}{separator}"
    return rf"(?:^|{separator})[\x00-\x20]*{quote}(?:{quote}{quote})*{quote}[^{quote}]+{quote}{separator}"


def _skips_columns(options: Mapping[str, str], pruning: str | None) -> bool:
    return options.get("columnpruning", str(pruning).lower()) != "false"


def _special(options: Mapping[str, str]) -> str:
    """Separator, quote, escape, and the character that escapes escapes if the option names one."""
    quote, escape = (options.get(name, default)[:1] or "\0" for name, default in (("quote", '"'), ("escape", "\\")))
    return _separator(options)[:1] + quote + escape + options.get("chartoescapequoteescaping", "")[:1]


def _separator(options: Mapping[str, str]) -> str:
    return _ESCAPED.sub(
        lambda found: _CONTROLS.get(found[1], found[1]), options.get("sep", options.get("delimiter", ","))
    )


# --- JSON -------------------------------------------------------------------------------------------------------------

_LIMITS = {"maxStringLen": 20_000_000, "maxNumLen": 1000, "maxNestingDepth": 1000}
"""Options of JSON with their defaults."""


def reason_of_limits(options: Mapping[str, str]) -> str | None:
    """Return why an option, named in small letters, makes values depend on the columns read, or None."""
    for name, usual in _LIMITS.items():
        limit = options.get(name.lower(), str(usual))
        if not limit.isdecimal() or int(limit) < usual:
            return f"with {name}={limit} {_DEPENDS}"
    return None


def is_json(record: Any) -> bool:
    """Test whether a record that Spark could not convert is valid JSON, with values of other types."""
    try:
        text = record.as_py()
        json.loads(text, parse_constant=int)  # fails for NaN and Infinity, which are not JSON
    except (ValueError, RecursionError):
        return False
    if len(text) > _LIMITS["maxStringLen"] or _depth(text) > _LIMITS["maxNestingDepth"]:
        return False
    return re.search(rf"\d{{{_LIMITS['maxNumLen']}}}", text) is None


def _depth(text: str) -> int:
    """Number of arrays and objects within each other in valid JSON."""
    brackets = re.findall(r"[][{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
    return max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
