"""Functions whose values are the same with and without Spark, by implementation.

A call binds to an implementation, never to a bare name: to a class of Catalyst, by which indexes built through Spark
know it, or to a Python function of an installed library, by its identity.
"""

from __future__ import annotations

from geoskip.predicates import Call

CATALYST = "org.apache.spark.sql.catalyst.expressions."
_CLASSES = frozenset(
    CATALYST + name
    for name in (
        "Add",
        "Subtract",
        "Multiply",
        "Year",
        "Quarter",
        "Month",
        "DayOfMonth",
        "DateAdd",
        "DateSub",
        "Length",
    )
)


def is_agreed(call: Call) -> bool:
    """True for a function of which every reader computes what Spark does."""
    return call.implementation in _CLASSES
