r"""Statements on skipping indexes in SQL: their grammar, without Spark.

::

    CREATE SKIPPING INDEX [IF NOT EXISTS] ON target (item, ...) [WITH (option, ...)]
    REFRESH SKIPPING INDEX ON target [INCREMENTAL | FULL | QUICK] [WITH (option, ...)]
    OPTIMIZE SKIPPING INDEX ON target [WITH (option, ...)]
    VACUUM SKIPPING INDEX ON target [RETAIN number unit] [WITH (option, ...)]
    DROP SKIPPING INDEX [IF EXISTS] [item, ...] ON target [WITH (option, ...)]
    RESTORE SKIPPING INDEX [item, ...] ON target [WITH (option, ...)]
    REPAIR SKIPPING INDEX ON target [WITH (option, ...)]
    { DESCRIBE | DESC } SKIPPING INDEX ON target [WITH (option, ...)]
    SHOW SKIPPING INDEXES [{ IN | FROM } database]
    EXPLAIN SKIPPING query

    target   a table (catalog.db.`table`), a path ('/data/weather'), or a path with a format (csv.`/data/log`)
    item     expression TYPE [(value, ..., parameter = value, ...)]   temp MINMAX, city PREFIX(length = 8)
             TYPE(expression, ..., value, ..., parameter = value, ...)   GEOBOX(lng, lat)
    value    a number, a string, TRUE, FALSE, NULL, a name, or a list of values in parentheses
    option   name [=] value

>>> str(parse("DROP SKIPPING INDEX temp MINMAX ON weather").which[0].text)
'minmax(temp)'

An index type is given by its kind, in upper or lower case and with optional underscores (``VALUE_LIST``). Its
parameters are the fields of its class, so that user-defined registered types need no further code. Expressions are
passed on as text and analysed by Spark. In ``TYPE(...)`` a single literal is the value of a parameter, and
``name = ...`` sets a parameter: to index an equality, put it in parentheses. The text of an index (``minmax(temp)``) is
also an item.

Keywords are recognised by their position and not reserved: a column may be called ``index``.
"""

from geoskip.statements.parser import STATEMENTS, is_statement, parse
from geoskip.statements.statement import (
    CreateStatement,
    DescribeStatement,
    DropStatement,
    ExplainStatement,
    OptimizeStatement,
    RefreshStatement,
    RepairStatement,
    RestoreStatement,
    ShowStatement,
    SkippingStatement,
    StatementTarget,
    TargetStatement,
    VacuumStatement,
)

__all__ = [
    "STATEMENTS",
    "CreateStatement",
    "DescribeStatement",
    "DropStatement",
    "ExplainStatement",
    "OptimizeStatement",
    "RefreshStatement",
    "RepairStatement",
    "RestoreStatement",
    "ShowStatement",
    "SkippingStatement",
    "StatementTarget",
    "TargetStatement",
    "VacuumStatement",
    "is_statement",
    "parse",
]
