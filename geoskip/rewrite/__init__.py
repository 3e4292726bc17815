"""Rewrite rules: every change of a predicate before indexes and mappings see it.

:func:`canonical` passes the whole tree through four exact steps. Then :mod:`geoskip.labelling` labels each vertex with
the clauses of indexes and mappings for

* the vertex itself;
* the first condition that :data:`EQUIVALENT` makes of it, which is TRUE and FALSE where the vertex is (where the vertex
  is NULL it may be anything, which is all that verdicts of TRUE and FALSE need);
* each condition that :data:`IMPLIED` makes of it, which is TRUE for every row for which the vertex is TRUE.

One module a rule; each states why it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from geoskip.predicates import Column, Like, Literal, Predicate, children, normalise
from geoskip.rewrite import cast_to_string, conditionals, declared_properties, like, structs, timestamp_to_date
from geoskip.rewrite.folding import fold_constants, gather_equalities
from geoskip.rewrite.sql_functions import Template, group

if TYPE_CHECKING:
    from geoskip.rules import Deadline

__all__ = ["DECLARED", "EQUIVALENT", "IMPLIED", "canonical", "equivalent"]

EQUIVALENT: tuple[Callable[[Predicate], Predicate | None], ...] = (
    conditionals.rewrite,  # if(a > 0, x, y) = 5         if(a > 0, x = 5, y = 5)
    cast_to_string.rewrite,  # CAST(n AS string) = '5'   n = 5
    structs.rewrite,  # struct(a, b) = struct(1, 2)      a <=> 1 AND b <=> 2
    like.rewrite,  # s LIKE 'a'                          s = 'a'
)
"""Rules in the order in which they are tried; the first that answers counts."""

DECLARED: tuple[Callable[[Predicate], Predicate | None], ...] = (
    declared_properties.invert,  # f(x) = 5     x IN (inverse(5))
    declared_properties.need_arguments,  # f(x) = 5     x IS NOT NULL
)
"""Rules from what users declared of functions (:func:`geoskip.declare`); they may call users' functions."""

IMPLIED: tuple[Callable[[Predicate, Sequence[Predicate]], Predicate | None], ...] = (
    timestamp_to_date.rewrite,  # ts >= TIMESTAMP '2024-04-01 12:00:00'     CAST(ts AS date) >= DATE '2024-04-01'
)
"""Rules that look for conditions on the indexed expressions; all that answer count, as do those of DECLARED."""


def canonical(
    predicate: Predicate,
    templates: Sequence[Template] = (),
    report: Callable[[str], None] = lambda text: None,
    watch: Deadline | None = None,
) -> Predicate:
    """Bring a predicate into the form that labelling expects.

    Parameters
    ----------
    predicate
        The condition of a query, as the engine gives it.
    templates
        Bodies of SQL functions; the members of an AND or OR that are one are grouped.
    report
        Receives a sentence for each constant that could not be evaluated.
    watch
        Limits the time of each function of constants.
    """
    folded = fold_constants(predicate, report=report, watch=watch)
    tree = gather_equalities(normalise(folded))
    return group(tree, templates) if templates else tree


def equivalent(node: Predicate) -> Predicate | None:
    """Return the condition of the first rule of :data:`EQUIVALENT` that answers, or None."""
    if not isinstance(node, Like) and all(isinstance(operand, Column | Literal) for operand in children(node)):
        return None  # the other rules take calls and casts apart
    return next((found for rule in EQUIVALENT if (found := rule(node)) is not None), None)
