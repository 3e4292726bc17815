"""Index types: summaries of each file, and the clauses that skip files by them.

A new index type is a frozen dataclass with a ``kind`` and four methods, and a clause over its summaries. This one
stores the remainders of whole numbers; equal numbers have equal remainders, so skipping is sound:

>>> from dataclasses import dataclass
>>> from typing import ClassVar
>>> import pyarrow as pa
>>> from geoskip import Index, index
>>> from geoskip.clauses import Clause, keep_mask
>>> from geoskip.errors import UnsupportedColumnError
>>> from geoskip.predicates import Column, Comparison, In, Literal, Not
>>> __name__ = "remainders"  # the module that defines the class; import it wherever the metadata are used
>>> @dataclass(frozen=True)
... class HasRemainder(Clause):
...     index: str
...     wanted: frozenset
...
...     def keep(self, files):  # an entry a file: True keeps, False skips, None (nothing is known) keeps
...         stored = files.summary(self.index, "remainders").to_pylist()
...         return pa.array([None if some is None else not self.wanted.isdisjoint(some) for some in stored])
...
...     def columns(self):  # the metadata that it reads
...         return ((self.index, "remainders"),)
>>> @index
... @dataclass(frozen=True)
... class Remainders(Index):
...     expr: str
...     divisor: int = 64
...     kind: ClassVar[str] = "remainders"
...
...     def metadata_type(self, *columns):
...         if columns[0].type not in ("int", "bigint"):
...             raise UnsupportedColumnError(f"{self} needs whole numbers, got {columns[0].type}; use ValueList")
...         return pa.struct({"remainders": pa.list_(pa.int64())})
...
...     def collect(self, *values):  # of a file, or of a part of one
...         return {"remainders": sorted({number % self.divisor for number in values[0].drop_null().to_pylist()})}
...
...     def merge(self, summaries):
...         return {"remainders": sorted({number for part in summaries for number in part["remainders"]})}
...
...     def clause(self, node):
...         match node:
...             case Comparison("=", x, Literal(value)) if self.reads(x):
...                 return HasRemainder(str(self), frozenset({value % self.divisor}))
...             case In(x, values) if self.reads(x):
...                 return HasRemainder(str(self), frozenset(number.value % self.divisor for number in values))

A build calls ``collect`` and ``merge``; a query calls ``clause`` for each vertex and evaluates the merged clause:

>>> from geoskip.planner import clause_for
>>> from geoskip.metadata import FileMetadata
>>> x = Column("id", "bigint")
>>> ids = Remainders("id", divisor=10).bind([x])
>>> stored = [ids.collect(pa.array(file)) for file in ([11, 21], [12, None])]
>>> files = FileMetadata.of(pa.table({str(ids): [*stored, None]}))  # the third file has no summary
>>> for node in (In(x, (Literal(1), Literal(None))), Comparison("<=>", x, Literal(2)), Not(In(x, (Literal(2),)))):
...     print(str(node).ljust(15), keep_mask(clause_for(node, [ids]), files).tolist())
id IN (1, NULL) [True, False, True]
id <=> 2        [False, True, True]
NOT id IN (2)   [True, True, True]

:class:`geoskip.indexes.base.Index` documents the form of the vertices and the optional methods: parameters chosen once
for a dataset, Parquet statistics instead of data, summaries that depend on the size of a file, and ``statistics``, the
summaries as figures in the table of :func:`geoskip.statistics` for users and other engines. By default these are JSON;
here the smallest remainder would be misread as a minimum:

>>> [(each.expression, each.type, each.details.to_pylist()[1]) for each in ids.statistics(files.column(str(ids)))]
[('id', 'bigint', '{"remainders": [2]}')]

:func:`geoskip.check_index` searches for rows that an index type loses (the extra ``check``):

>>> from geoskip import check_index
>>> check_index(ids, seconds=0.2).ok
True
"""
