"""The result of a check: :class:`MappingCheck`, and the rows that a wrong mapping loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import shapely

__all__ = ["CounterExample", "Effect", "MappingCheck", "UnquotedText", "geometry_of"]


@dataclass(frozen=True)
class CounterExample:
    """One file that is skipped although a row of it matches; as a text, a table."""

    blame: str
    """The culprit: the name of a mapping, or of a property and its function."""
    why: str
    query: str = ""
    rows: tuple[Mapping[str, Any], ...] = ()
    """The file's rows, by column, with TRUE or not TRUE under ``the query says``."""
    lost: tuple[int, ...] = ()
    """The numbers of the rows that the query selects."""
    summaries: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of the file, by the index's text."""
    clause: str = ""

    def __str__(self) -> str:
        lines = [f"{self.blame}: {self.why}"]
        if self.query:
            lines.append(f"  the query        WHERE {_short(self.query, 100)}")
        if self.clause:
            lines.append(f"  the clause       {_short(self.clause, 100)}")
        for index, summary in self.summaries.items():
            lines.append(f"  what is stored   {index}: {_short(_words(summary), 90)}")
        if self.rows:
            lines.append("  the file's rows")
            lines += ["    " + line for line in _table(self.rows, self.lost)]
        return "\n".join(lines)

    __repr__ = __str__


@dataclass
class Effect:
    """The effect of a mapping; files are counted once for each condition."""

    name: str
    indexes: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    """Conditions that were tried."""
    answered: int = 0
    """Those for which it had a clause."""
    trials: int = 0
    skipped: int = 0
    skippable: int = 0
    """Files without a matching row, of conditions for which it had a clause."""

    def __str__(self) -> str:
        over = f" over {_listed(list(self.indexes))}" if self.indexes else ""
        if not self.indexes:
            return f"{self.name}: useless, no index that it takes can be made of these arguments; say which: index=..."
        if not self.answered:
            return f"{self.name}{over}: useless, it has no clause for any of {self.asked:,} conditions"
        if not self.skipped:
            return f"{self.name}{over}: useless, its clauses skip none of {self.trials:,} files"
        share = 100 * self.skipped / max(1, self.skippable)
        return (
            f"{self.name}{over}: a clause for {self.answered:,} of {self.asked:,} conditions, which skips "
            f"{share:.0f} % of the files that could be skipped"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class MappingCheck:
    """The outcome of :func:`geoskip.check_mapping`; ``print`` it."""

    function: str
    counter_example: CounterExample | None
    trials: int
    """Files that were judged, each once for a condition and mapping."""
    skipped: int
    """Files that were skipped, rightly."""
    effects: tuple[Effect, ...] = ()
    problems: tuple[str, ...] = ()
    """Faults that lose no row: queries leave out a mapping that raises or returns no clause."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if neither a counter-example nor a problem was found."""
        return self.counter_example is None and not self.problems

    @property
    def useless(self) -> tuple[str, ...]:
        """The names of the mappings that never skip."""
        return tuple(effect.name for effect in self.effects if not effect.skipped)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        tried = f"{self.trials:,} trials in {self.seconds:.1f} s"
        if self.counter_example is not None:
            lines = [f"{self.function}: WRONG, rows are lost ({tried})", str(self.counter_example)]
        elif self.problems:
            lines = [f"{self.function}: FAILS ({tried})"]
        else:
            lines = [f"{self.function}: no counter-example in {tried}; {self.skipped:,} files skipped, all rightly"]
        lines += [f"  - {problem}" for problem in self.problems]
        if self.counter_example is None:
            lines += [f"  - {effect}" for effect in self.effects]
        lines += [f"  - {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__


def _table(rows: Sequence[Mapping[str, Any]], lost: Sequence[int]) -> list[str]:
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    lines[1:] = [line + ("   <- lost" if number in lost else "") for number, line in enumerate(lines[1:])]
    return [lines[0].rstrip(), "-+-".join("-" * width for width in widths), *(line.rstrip() for line in lines[1:])]


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        return _short(
            repr(text) if text.isprintable() and "\ufffd" not in text else str(geometry_of(value) or repr(value)), 60
        )
    return _short(repr(value) if not isinstance(value, UnquotedText) else str(value), 60)


class UnquotedText(str):
    """A text that tables show without quotes."""


def geometry_of(value: Any) -> Any:
    """The geometry that a value is, or is as WKB; else None."""
    if isinstance(value, bytes):
        try:
            return shapely.from_wkb(value)
        except shapely.errors.ShapelyError:
            return None
    return value if isinstance(value, shapely.Geometry) else None


def _words(summary: Any) -> str:
    if not isinstance(summary, Mapping):
        return _cell(summary)
    return ", ".join(f"{name}={_cell(value)}" for name, value in summary.items())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
