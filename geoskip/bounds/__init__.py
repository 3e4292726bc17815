"""Bounds of expressions in every unit: intervals, transfer functions and their interpreter.

A unit is a part of the data with stored bounds: a file for MinMax, a segment of a file for GapList, a box for GeoBox.
These modules turn ``year(day) = 2024`` into a verdict for each unit:

============== ============================================================
module         content
============== ============================================================
``interval``   intervals of all units, read from stored bounds
``transfer``   transfer functions by Catalyst class: ``Year`` is monotone
here           intervals of an expression from those of the columns
``arithmetic`` sums, products and curves of intervals
``monotone``   monotone functions, evaluated at both ends by Spark
``time_zones`` functions of local time, parts of dates, remainders
``casts``      casts of NumPy, dates and times in strings
``sort_keys``  comparisons with literals as integers; the ends of LIKE
============== ============================================================

``pytest tests/unit/bounds tests/unit/indexes/test_minmax*.py tests/unit/indexes/test_affix.py`` runs their tests in
seconds; ``tests/soundness`` compares them with random rows, and ``tests/spark/test_monotone.py`` and
``tests/spark/test_geobox_arithmetic.py`` with Spark.

Most of these tests compare lists with one entry per file, True for a kept file. A wrong True is a file that is read
unnecessarily; a wrong False is a lost row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from geoskip.bounds.interval import ByteStrings, Interval, bounds_of
from geoskip.bounds.sort_keys import IncomparableError, SortKeys
from geoskip.bounds.transfer import Transfer, transfer_of
from geoskip.clauses import Files
from geoskip.predicates import Call, Cast, Column, Literal, Predicate
from geoskip.types import sql_type


@dataclass(frozen=True)
class Derivation:
    """The derivation of an expression's intervals from stored bounds.

    Attributes
    ----------
    names : tuple of str
        The indexes that provide the bounds, without duplicates.
    node : Predicate or None
        The expression; None for the indexed expression itself.
    transfer : Transfer or None
        The function of the operands; None for a leaf.
    operands : tuple of Derivation
        One for each of the transfer function's operands.
    is_constant, is_partial, is_total, takes_null, asks_engine : bool
        The same as in :class:`geoskip.bounds.transfer.Transfer`, for the whole expression.
    """

    names: tuple[str, ...]
    node: Predicate | None = None
    transfer: Transfer | None = field(default=None, compare=False)
    operands: tuple[Derivation, ...] = field(default=(), compare=False)
    is_constant: bool = field(default=False, compare=False)
    is_partial: bool = field(default=False, compare=False)
    is_total: bool = field(default=True, compare=False)
    takes_null: bool = field(default=False, compare=False)
    asks_engine: bool = field(default=False, compare=False)

    @property
    def is_leaf(self) -> bool:
        """True for the indexed expression itself."""
        return self.transfer is None

    @property
    def is_strict(self) -> bool:
        """True if the expression is NULL exactly where its operand is, except in unknown units."""
        return not (self.is_partial or self.takes_null)

    def end_text(self, end: str) -> str:
        """Return the text of a bound, ``"min"`` or ``"max"``: ``CAST(min(temp) AS double)``, ``max((a - b))``."""
        if len(self.names) > 1:
            return f"{end}({self.node})"
        if self.transfer is None:
            name = self.names[0]
            return f"{end}{name[name.index('(') :]}" if "(" in name else f"{end}({name})"
        operands = [operand.end_text(end) for operand in self.operands]
        text = "" if self.node is None else str(_with_holes(self.node, self.transfer.operands))
        for number, operand in enumerate(operands):
            text = text.replace(f"\0{number}\0", operand)
        return text


def index_leaf(name: str) -> Derivation:
    """Return the leaf for the indexed expression of an index."""
    return Derivation((name,))


def _with_holes(node: Predicate, operands: tuple[Predicate, ...]) -> Predicate:
    """Replace operands by numbered placeholders that cannot be column names."""
    if node in operands:
        return Column(f"\0{operands.index(node)}\0")
    if isinstance(node, Call):
        return replace(node, args=tuple(_with_holes(arg, operands) for arg in node.args))
    return replace(node, child=_with_holes(node.child, operands)) if isinstance(node, Cast) else node


def derive(node: Predicate, leaf: Callable[[Predicate], str | None]) -> Derivation | None:
    """Derive the intervals of an expression from those of indexed expressions.

    Parameters
    ----------
    node : Predicate
        The expression.
    leaf : Callable
        The name of the index over an expression, or None.

    Returns
    -------
    Derivation or None
        None if a function has no transfer function, or an operand has no index.
    """
    name = leaf(node)
    if name is not None:
        return index_leaf(name)
    if isinstance(node, Literal | Column):
        return None
    transfer = transfer_of(node)
    if transfer is None:
        return None
    operands: list[Derivation] = []
    for number, operand in enumerate(transfer.operands):
        same = transfer.operands.index(operand)
        derived = operands[same] if same < number else derive(operand, leaf)
        if derived is None:
            return None
        operands.append(derived)
    return Derivation(
        tuple(dict.fromkeys(name for operand in operands for name in operand.names)),
        node,
        transfer,
        tuple(operands),
        is_constant=transfer.is_constant or any(operand.is_constant for operand in operands),
        is_partial=transfer.is_partial or any(operand.is_partial for operand in operands),
        is_total=transfer.is_total and all(operand.is_total for operand in operands),
        takes_null=transfer.takes_null or any(operand.takes_null for operand in operands),
        asks_engine=transfer.asks_engine or any(operand.asks_engine for operand in operands),
    )


def interval_of(files: Files, derived: Derivation) -> Interval | ByteStrings | None:
    """Return the intervals of an expression; None without stored bounds.

    They are cached with the files, except those that depend on a literal of a query, since their number is unlimited.
    Raises IncomparableError if a transfer function does not support its operands.
    """
    if derived.transfer is None:
        name = derived.names[0]
        return files.cached((name, "bounds"), lambda: bounds_of(files, name))
    if derived.is_constant:
        return _apply_transfer(files, derived, derived.transfer)
    transfer = derived.transfer
    return files.cached(_key(derived, "bounds"), lambda: _apply_transfer(files, derived, transfer))


def _apply_transfer(files: Files, derived: Derivation, transfer: Transfer) -> Interval | None:
    intervals: list[Interval | ByteStrings] = []
    for number, operand in enumerate(derived.operands):
        same = derived.operands.index(operand)
        interval = intervals[same] if same < number else interval_of(files, operand)
        if interval is None:
            return None
        if isinstance(interval, Interval) is transfer.of_texts:
            raise IncomparableError(f"{derived.node} has no bounds")
        intervals.append(interval)
    return transfer.take(*intervals)


def keys_of(files: Files, derived: Derivation, interval: Interval) -> SortKeys:
    """Return the order-preserving keys of an expression's intervals."""
    if derived.is_constant:
        return interval.keys()
    return files.cached(_key(derived, "keys"), interval.keys)


def _key(derived: Derivation, kind: str) -> tuple[object, ...]:
    return (*derived.names, kind) if derived.is_leaf else (*derived.names, kind, derived.node)


def uncast(node: Predicate) -> Predicate:
    """Strip casts that keep every number, or round it to a double as summaries do."""
    while isinstance(node, Cast) and keeps_numbers(node):
        node = node.child
    return node


def rounds(node: Predicate) -> bool:
    """True if one of the outer casts of an expression may round its number to a double.

    >>> from geoskip.predicates import Column
    >>> [rounds(Cast(Column("n", kind), "double", kind)) for kind in ("int", "bigint", "decimal(5,2)")]
    [False, True, True]
    """
    while isinstance(node, Cast) and keeps_numbers(node):
        if node.type == "double" and sql_type(node.source).kind in ("bigint", "decimal"):
            return True
        node = node.child
    return False


def keeps_numbers(cast: Cast) -> bool:
    """True for a cast that keeps every number, or rounds it to the nearest double.

    >>> from geoskip.predicates import Column
    >>> d = Column("d", "decimal(10,2)")
    >>> [keeps_numbers(Cast(d, kind, d.type)) for kind in ("decimal(12,4)", "decimal(12,5)", "double", "float")]
    [True, False, True, False]
    """
    source, target = sql_type(cast.source), sql_type(cast.type)
    return source.is_numeric if target.kind == "double" else target.holds(source)
