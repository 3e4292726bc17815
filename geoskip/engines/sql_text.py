"""Conditions in the SQL of Spark and DuckDB as predicates, parsed by sqlglot.

Only conditions with the same meaning in all engines are translated, by :mod:`geoskip.engines.implied_conditions`; each
other part is left out with a reason, and skips no files. Where the dialects differ, the rule is the weaker one:

=========================== ============================================================================================
texts                       with a backslash, an escape in Spark alone, are not used in its dialect; nor are adjacent
                            ones, which Spark 3 joins and DuckDB reads as one with a quote
LIKE                        a backslash in the pattern is an escape in Spark and a letter in DuckDB: not used; nor is
                            ESCAPE
numbers                     ``0.1`` is a decimal; compared with a float it is rounded to one of 32 bits by DuckDB, and
                            the float is widened by Spark: ranges include both. DuckDB divides a decimal by a power of
                            ten, which may miss the nearest float: ranges around those of many digits
doubles                     are compared by DuckDB with constants rounded to 32 bits in files that have floats in place
                            of doubles: ranges include both
IN, BETWEEN                 members and ends are brought to one type, by Spark only those of IN: not used where whole
                            numbers or decimals may become floats in it
numbers and texts           ``n = '5.5'`` rounds in DuckDB and is an error in Spark: not used
NaN                         is equal to itself and above all numbers, in both
days and times              only ``2024-02-29`` and ``2024-02-29 12:30:00`` in texts, in DuckDB's ``12:30`` too; local
                            times and instants are compared where the session's zone is given, and the time is neither
                            skipped nor repeated, nor before 1970 in a zone with an offset
arithmetic, casts of texts  not used: they fail, wrap around, are NULL or round in one and not in the other
operators                   a comparison within a comparison is not used: precedence differs
=========================== ============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from geoskip.engines.constant_bounds import NEGATED, Constant, compared, disjunction
from geoskip.engines.extras import require_package
from geoskip.engines.implied_conditions import EngineCondition, Rounded, YearOf
from geoskip.engines.sql_operands import (
    QUOTES,
    SqlOperands,
    StartOfUnit,
    TextLiteral,
    quoting_hint,
)
from geoskip.engines.time_texts import SqlTime
from geoskip.errors import InvalidSpecificationError
from geoskip.predicates import (
    FALSE,
    FLIPPED,
    Call,
    Column,
    Contains,
    EndsWith,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Predicate,
    StartsWith,
)
from geoskip.report import shorten
from geoskip.types import sql_type

_CONSTANTS = (Constant, TextLiteral, SqlTime)
_COMPARISONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""The comparisons by sqlglot's names, as are the others."""
_SIDES = ("this", "expression", "negate")
_CONDITIONS = frozenset(
    (
        *("Between", "Contains", "EndsWith", "In", "Is", "IsNan", "Like"),
        *("NullSafeEQ", "NullSafeNEQ", "StartsWith"),
    )
)
"""Other nodes that are TRUE, FALSE or NULL."""
_WHOLE = 1 << 53
"""Below this, whole numbers are exact as doubles."""


def predicate_of_sql(
    text: str,
    columns: Mapping[str, str],
    dialect: str = "spark",
    *,
    time_zone: str | None = None,
    names: Sequence[str] | None = None,
) -> tuple[Predicate, list[str]]:
    """Translate the text of a condition, as it stands after WHERE.

    Parameters
    ----------
    text, dialect
        The condition and its dialect: ``"spark"`` or ``"duckdb"``.
    columns
        Spark's names of the types by column, ``geometry`` for DuckDB's geometries; a column that is not there is of no
        use.
    time_zone
        The zone of the engine's session; None where it is not known.
    names
        All columns of the dataset; None where others may exist.

    Returns
    -------
    tuple
        A predicate that Spark finds TRUE, or that is unknown, for each row for which the engine finds the condition
        TRUE, and sentences on the parts that could not be used.

    Raises
    ------
    InvalidSpecificationError
        For a text that is no condition, or another dialect.
    UnknownColumnError
        For a name that is not among ``names``.
    """
    tree = parse_condition(text, dialect, names or ())
    translator = SqlTranslator(text, columns, dialect, time_zone, names)
    try:
        found = translator.condition(tree)
    except RecursionError:
        return translator.unknown("a condition that is nested too deep is not used").true, translator.builder.reasons
    return found.true, translator.builder.reasons


def parse_condition(text: str, dialect: str, names: Sequence[str] = ()) -> Any:
    """Parse a condition; raises InvalidSpecificationError with the position of what is wrong."""
    if dialect not in QUOTES:
        raise InvalidSpecificationError(f"dialect= is one of {', '.join(QUOTES)}, got {dialect!r}")
    sqlglot = require_package("sqlglot", "a condition in SQL")
    try:
        return sqlglot.parse_one(text, read=dialect, into=sqlglot.exp.Condition)
    except sqlglot.errors.SqlglotError as error:
        places = getattr(error, "errors", None) or [{}]
        where, near = places[0], str(places[0].get("highlight") or "")
        position = f" at line {where['line']}, column {where['col']}, near {near!r}" if near else ""
        hint = quoting_hint(text, names, dialect) or "; write what stands after WHERE"
        raise InvalidSpecificationError(f"{text!r} is no condition in the dialect {dialect}{position}{hint}") from None
    except RecursionError:
        raise InvalidSpecificationError("the condition is nested too deep to be parsed; split it") from None


def has_only(node: Any, *names: str) -> bool:
    """True where a node has no further settings, which a newer parser may add."""
    return all(name in names or not value for name, value in node.args.items())


class SqlTranslator(SqlOperands):
    """Translator of the nodes of one parsed condition."""

    def condition(self, node: Any) -> EngineCondition:
        """A node that is TRUE, FALSE or NULL."""
        kind = type(node).__name__
        if kind == "Paren":
            return self.condition(node.this)
        if kind == "And":
            return self.builder.both([self.condition(part) for part in node.flatten()])
        if kind == "Or":
            return self.builder.either([self.condition(part) for part in node.flatten()])
        if kind == "Not":
            return self.condition(node.this).negate()
        handler: Callable[[Any], EngineCondition] | None = getattr(self, f"_{kind.lower()}", None)
        if kind in _COMPARISONS and has_only(node, "this", "expression"):
            return self.compare(_COMPARISONS[kind], self.operand(node.this), self.operand(node.expression), node)
        if kind in _CONDITIONS and handler is not None:
            return handler(node)
        if kind in ("Column", "Boolean", "Null", "Cast"):
            part = self.operand(node)
            if isinstance(part, Column) and self.dialect == "spark" and part.type not in ("boolean", None):
                raise InvalidSpecificationError(f"{part} is {part.type}, not a condition: compare it with a value")
            return self.builder.condition(part) if isinstance(part, Column | Constant) else self.not_used(node)
        return self._spatial_condition(node)

    def not_used(self, node: Any) -> EngineCondition:
        """A condition without a meaning that all engines share; its columns are looked up all the same."""
        text = node.sql(dialect=self.dialect)
        shown = shorten(text, 200)
        self.unknown(self.reason_not_used(node, shown))
        opaque = Opaque(shown)
        return EngineCondition(opaque, opaque)

    def _nullsafeeq(self, node: Any) -> EngineCondition:
        left, right = self.operand(node.this), self.operand(node.expression)
        if isinstance(left, _CONSTANTS):
            left, right = right, left
        if not (isinstance(left, Column) and has_only(node, *_SIDES)):
            return self.not_used(node)
        found = self.builder.null_safe(self.compare("=", left, right, node), left, right)
        return found.negate() if node.args.get("negate") else found

    _is = _nullsafeeq

    def _nullsafeneq(self, node: Any) -> EngineCondition:
        return self._nullsafeeq(node).negate()

    def _between(self, node: Any) -> EngineCondition:
        if not has_only(node, "this", "low", "high"):
            return self.not_used(node)
        part, low, high = (self.operand(node.args[name]) for name in ("this", "low", "high"))
        if self.dialect == "duckdb" and not self.are_alike(part, [low, high]):
            return self.not_used(node)
        return self.builder.both([self.compare(">=", part, low, node), self.compare("<=", part, high, node)])

    def _in(self, node: Any) -> EngineCondition:
        if not has_only(node, "this", "expressions"):
            return self.not_used(node)
        part = self.operand(node.this)
        values = [self.operand(value) for value in node.expressions]
        if not self.are_alike(part, values):
            return self.not_used(node)
        if isinstance(part, Column):
            constants = [self.constant(value, part) for value in values]
            if all(isinstance(value, Constant) for value in constants):
                known = [value for value in constants if isinstance(value, Constant)]
                found = self.builder.is_in(part, known, null_is_in=False, null_is_out=False)
                if any(value.kind == "null" for value in known) and not sql_type(part.type).is_floating:
                    return replace(found, false=FALSE)
                return found
        if len(values) > 100:
            return self.not_used(node)
        return self.builder.either([self.compare("=", part, value, node) for value in values])

    def _like(self, node: Any) -> EngineCondition:
        negated = bool(node.args.get("negate"))
        part, pattern = self.operand(node.this), self.operand(node.expression)
        if not (isinstance(part, Column) and isinstance(pattern, TextLiteral) and has_only(node, *_SIDES)):
            return self.not_used(node)
        found = self.builder.like(part, pattern.text, Like)
        return found.negate() if negated else found

    def _starts(self, node: Any) -> EngineCondition:
        form = {"StartsWith": StartsWith, "EndsWith": EndsWith, "Contains": Contains}[type(node).__name__]
        part, text = self.operand(node.this), self.operand(node.expression)
        if not (isinstance(text, TextLiteral) and isinstance(part, Column) and has_only(node, "this", "expression")):
            return self.not_used(node)
        return self.builder.text(part, form, text.text)

    _startswith = _endswith = _contains = _starts

    def _isnan(self, node: Any) -> EngineCondition:
        part = self.operand(node.this)
        found = self.builder.is_nan(part)
        if self.dialect == "spark" and isinstance(part, Column):  # FALSE of NULL
            return EngineCondition(found.true, disjunction([found.false, IsNull(part)]))
        return found

    def _spatial_condition(self, node: Any) -> EngineCondition:
        found = self._spatial(node)
        if isinstance(found, Call) and found.type == "boolean":
            return EngineCondition(found, Not(found))
        return self.not_used(node)

    # --- comparisons

    def compare(self, op: str, left: object, right: object, node: Any) -> EngineCondition:
        """Compare two operands.

        Parameters
        ----------
        op
            One of ``= != < <= > >=``.
        left, right
            Columns, constants or functions of these; a sentinel for what is of no use.
        node
            The comparison in sqlglot's tree, for the sentence on one that is not used.
        """
        if isinstance(left, _CONSTANTS) and not isinstance(right, _CONSTANTS):
            left, right, op = right, left, FLIPPED.get(op, op)
        match left, right:
            case (Constant("null"), _) | (_, Constant("null")):
                return EngineCondition(FALSE, FALSE)
            case Column() as part, Constant() | TextLiteral() | SqlTime():
                if (value := self.constant(right, part)) is not None:
                    return self.builder.compare(op, part, value)
            case Rounded() as part, Constant(kind):
                value = self.as_double(right)
                if value is not None and abs(value.value) < _WHOLE:
                    return self.builder.compare(op, part, right if kind == "integer" else value)
            case (Column(), Column()) | (YearOf(), Constant()):
                return self.builder.compare(op, left, right)
            case StartOfUnit() as part, Constant() | TextLiteral() | SqlTime():
                return self._compare_start(op, part, right, node)
            case Call() as call, Constant() if call.type == "double":
                if (number := self.as_double(right)) is not None and not number.error:
                    literal = Literal(number.value, "double")
                    return EngineCondition(compared(op, call, literal), compared(NEGATED[op], call, literal))
        return self.not_used(node)

    def _compare_start(self, op: str, part: StartOfUnit, value: object, node: Any) -> EngineCondition:
        """Compare the start of a calendar unit with a constant, by the times that lie in such units."""
        time = self.time_of(value.text) if isinstance(value, TextLiteral) else value
        if (
            not isinstance(time, SqlTime)
            or time.kind == "instant"
            or (time.kind == "time" and isinstance(value, TextLiteral))
        ):
            return self.not_used(node)
        return self.builder.compare_start(
            op, part.column, part.unit, time.microseconds, self.zone, null_differs=self.dialect == "duckdb"
        )
