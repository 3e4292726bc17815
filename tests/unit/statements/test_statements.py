"""Statements on skipping indexes: pairs of a text and what is parsed, and of a text and its error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pytest

import geoskip
from geoskip.errors import GeoskipError, StatementError
from geoskip.indexes.base import index_kinds
from geoskip.statements import SkippingStatement, is_statement, parse
from geoskip.statements.tokens import Span


def entries(name: str) -> Iterator[tuple[str, ...]]:
    """Entries of a fixture: the lines of a statement, and the last line or two apart."""
    for part in Path(__file__).with_name(name).read_text("utf-8").strip().split("\n\n")[1:]:
        lines = part.split("\n")
        last = 2 if name.startswith("refused") else 1
        yield ("\n".join(lines[:-last]), *lines[-last:])


def shown(statement: SkippingStatement) -> str:
    """One line on a statement: its verb, dataset, indexes, and what else differs from the default."""
    verb = type(statement).__name__.removesuffix("Statement").lower()
    values = {f.name: getattr(statement, f.name) for f in fields(statement) if f.name != "span"}
    target = values.pop("target", "")
    items = [item.text for name in ("items", "which") for item in values.pop(name, ())]
    rest = {name: value for name, value in values.items() if value}
    text = f"{verb} {target}".rstrip() + (": " + ", ".join(items) if items else "")
    return f"{text} {rest}" if rest else text


@pytest.mark.parametrize(("text", "expected"), list(entries("accepted.txt")))
def test_a_statement_is_parsed(text: str, expected: str) -> None:
    assert is_statement(text)
    assert shown(parse(text)) == expected


@pytest.mark.parametrize(("text", "carets", "expected"), list(entries("refused.txt")))
def test_an_error_points_at_the_token(text: str, carets: str, expected: str) -> None:
    assert is_statement(text)
    with pytest.raises(StatementError) as caught:
        parse(text)
    problem, line, pointer, *way_out = str(caught.value).split("\n")
    wanted, _, out = expected.partition(" | ")
    assert wanted in problem
    assert (line, pointer) == (f"  {text}", f"  {carets}")
    assert out in "\n".join(way_out)


def test_the_errors_are_those_of_the_tree() -> None:
    with pytest.raises(SyntaxError) as caught:
        parse("DROP SKIPPING INDEX")
    assert isinstance(caught.value, GeoskipError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "DESCRIBE skipping index",  # a column of a table
        "DESCRIBE skipping index ;",
        "VACUUM skipping",
        "CREATE INDEX skipping ON t (a)",
        "-- CREATE SKIPPING INDEX ON t (a MINMAX)\nSELECT 1",
        "/* no end",
        "SHOW skippings",
        "",
    ],
)
def test_other_sql_is_left_to_spark(text: str) -> None:
    assert not is_statement(text)


def test_comments_before_a_statement_count_as_blanks() -> None:
    assert is_statement("-- nightly\n /* twice\n */ -- more\nOPTIMIZE SKIPPING INDEX ON t")


def test_an_error_in_a_long_line_shows_the_part_around_it() -> None:
    text = f"CREATE SKIPPING INDEX ON t ({', '.join(f'column{n} MINMAX' for n in range(50))}, a MINMOX)"
    with pytest.raises(StatementError) as caught:
        parse(text)
    _, line, pointer, _ = str(caught.value).split("\n")
    assert len(line) < 110
    assert line[pointer.index("^") : pointer.rindex("^") + 1] == "MINMOX"


def test_an_error_in_a_later_line_counts_lines() -> None:
    with pytest.raises(StatementError, match=r"got MINMOX \(line 3, position 7\)\n      b MINMOX\)\n        \^{6}\n"):
        parse("CREATE SKIPPING INDEX ON t (\n  a MINMAX,\n    b MINMOX)")


def test_every_index_type_has_a_name_in_sql() -> None:
    arguments = {"geobox": "(x, y)", "metricdist": "(a, metric = hamming)", "formatted": "(a, 'f')"}
    for kind, index_type in index_kinds().items():
        parsed: Any = parse(f"CREATE SKIPPING INDEX ON t ({kind.upper()}{arguments.get(kind, '(a)')})")
        assert type(parsed.items[0].index) is index_type


def test_a_type_of_ones_own_has_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.indexes.base._kinds", dict(index_kinds()))

    @geoskip.index
    @dataclass(frozen=True)
    class LastDigits(geoskip.MinMax):
        digits: int = 2
        kind: ClassVar[str] = "last_digits"

    parsed: Any = parse("CREATE SKIPPING INDEX ON t (zip LAST_DIGITS(3), LASTDIGITS(id, digits = 1))")
    assert [item.index for item in parsed.items] == [LastDigits("zip", 3), LastDigits("id", 1)]


def test_strings_are_read_as_spark_reads_them() -> None:
    options = r"""a '\'''\n\\x\%', b 'it''s', c r'\d', d -3, e NULL, f "say ""it" """
    parsed: Any = parse(f"REPAIR SKIPPING INDEX ON t WITH ({options})")
    assert parsed.options == {"a": "''\n\\x\\%", "b": "it's", "c": r"\d", "d": -3, "e": None, "f": 'say "it'}


def test_a_pointer_stays_within_its_line() -> None:
    assert Span(0, 9).pointer("ab\ncdefgh") == "  ab\n  ^^"
