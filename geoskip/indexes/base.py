"""The base class of index types, and their registration by kind.

:mod:`geoskip.indexes` shows how to write one. Labelling walks the predicate tree and passes *one vertex* at a time to
the index, which returns a clause that represents it, or None if it does not support it (as Hyperspace's sketches do).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError, MappingError
from geoskip.indexes.file_statistics import FileStatistics, json_texts
from geoskip.predicates import Predicate
from geoskip.registry.fingerprint import Unidentifiable, digest, names_in, qualified_name

I = TypeVar("I", bound="type[Index]")  # noqa: E741
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class SourceColumn:
    """An indexed expression of a dataset: its SQL text, Spark's name of its type, and its Arrow type."""

    text: str
    type: str
    arrow: pa.DataType


class Index(ABC):
    """The base class of index specifications; subclasses are frozen dataclasses with a ``kind``.

    The indexed expressions are the ``str`` fields named ``column``, ``expr`` or ``exprs``; override
    :meth:`expressions` for other names. The other fields are parameters, kept in the specification's JSON.

    Subclasses implement :meth:`metadata_type`, :meth:`collect`, :meth:`merge` and :meth:`clause`. Optional are
    :meth:`prepare` (parameters chosen from a sample), :meth:`from_statistics` (builds from Parquet footers),
    :meth:`for_files` (summaries that depend on the size of the file), :meth:`statistics` (the content of the summaries
    as figures), :meth:`build_note`, :meth:`unavailable` and :attr:`version`.
    """

    kind: ClassVar[str]
    bound: tuple[Predicate, ...] = ()
    """The analysed expressions of an index that is bound to a dataset (:meth:`bind`)."""

    def expressions(self) -> tuple[str, ...]:
        """Return the indexed expressions: SQL texts over the dataset's columns."""
        for name in ("column", "expr"):
            if hasattr(self, name):
                return (getattr(self, name),)
        return tuple(getattr(self, "exprs", ()))

    @abstractmethod
    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """Return the Arrow struct type of a file's summary.

        Raises UnsupportedColumnError if a summary of such columns would be unsound.
        """

    @abstractmethod
    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the summary of a file, or of a part of it, from one Arrow array for each expression.

        Return None if there is no sound summary; the file is then kept.
        """

    @abstractmethod
    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Return the summary of a file, given those of its parts."""

    @abstractmethod
    def clause(self, node: Predicate) -> Clause | None:
        """Return a clause that represents a vertex, or None.

        The clause must keep every file with a row that makes the vertex TRUE. Files without a summary (null) are always
        kept, since their entry in the clause's result is null, which means keep.

        Labelling passes vertices in canonical form: comparisons and IN have no NULL literal, ``<=>`` does not compare
        with a literal, IN is not empty, a single literal is on the right, and NOT is only above a leaf that is not an
        order comparison. ``NOT (a AND b)``, ``x <=> 5`` and conditions in CASE are decomposed before. So the vertices
        are comparisons, IN, LIKE and its plain forms, IS NULL, calls of boolean functions, ``column = TRUE`` for a
        boolean column, NOT of these, and AND and OR of at least two vertices.
        """

    def prepare(self, *sample: pa.Array) -> Index:
        """Return the index with parameters chosen once for the whole dataset; the default chooses none.

        ``sample`` contains the values of some rows of some files, one array for each expression. The parameters are
        chosen before the first build. They are part of the specification's JSON, not of its text, and are also used for
        files that are refreshed or added later.
        """
        return self

    def chooses(self) -> bool:
        """True if a build must read a sample first; by default, if :meth:`prepare` is overridden."""
        return type(self).prepare is not Index.prepare

    def from_statistics(self, kind: str, low: Any, high: Any, nulls: int, rows: int) -> Summary | None:
        """Return the summary of a row group from its Parquet statistics; None (default) if impossible.

        Parameters
        ----------
        kind
            Spark's name of the column's type.
        low, high
            The minimum and maximum in physical form (:mod:`geoskip.predicates`); None if not recorded. For floats they
            exclude NaN.
        nulls, rows
            Counts of the row group.
        """
        return None

    def for_files(self, summaries: Sequence[Summary], sizes: Sequence[int]) -> Sequence[Summary]:
        """Return the summaries to store for files, given their merged summaries and sizes in bytes.

        For index types that depend on the size of the file; by default the merged summaries are stored.
        """
        return summaries

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the stored summaries of each file as statistics for :func:`geoskip.statistics`.

        ``summaries`` has the type of :meth:`metadata_type` and one entry for each file, null if there is no summary.
        Most index types return one element; a type that summarises several expressions separately returns one for each.
        By default the summaries are returned as JSON, since the meaning of the fields of a user's own type is not
        known.
        """
        return (FileStatistics(*self.subject(), details=json_texts(summaries, dict)),)

    def subject(self) -> tuple[str, str]:
        """Return the indexed expressions, and Spark's names of their types, each joined by commas."""
        return ", ".join(self.expressions()), ", ".join(bound.type or "unknown" for bound in self.bound)

    def build_note(self, summaries: pa.ChunkedArray) -> str:
        """Return a remark on the stored summaries for the build report; the default has none."""
        return ""

    @property
    def version(self) -> int | None:
        """The version of the summaries' meaning; summaries of another version are not used.

        None if the version is a digest of the methods that build them (:func:`definition`).
        """
        return None

    def unavailable(self) -> str | None:
        """Return the reason for the report if the index cannot be used in this process; None by default."""
        return None

    def reads(self, node: Predicate) -> bool:
        """True if an expression equals the indexed one."""
        return len(self.bound) == 1 and node == self.bound[0]

    def bind(self, expressions: Sequence[Predicate]) -> Index:
        """Return a copy of the index that is bound to its expressions as predicates."""
        bound = copy.copy(self)
        object.__setattr__(bound, "bound", tuple(expressions))
        return bound

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON: its kind and fields."""
        return {"kind": self.kind, **_fields(self)}

    def describe(self) -> str:
        """Return the first paragraph of the class's docstring: the content of a summary, in words.

        >>> from geoskip.indexes.minmax import MinMax
        >>> MinMax("temp").describe()
        'The least and the greatest value, and how many are NULL or NaN.'
        """
        text = " ".join((type(self).__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")
        return "" if text.startswith(f"{type(self).__name__}(") else text  # the docstring that dataclasses generate

    def __str__(self) -> str:
        if "_text" not in self.__dict__:  # used for every vertex
            object.__setattr__(self, "_text", self._spec_text())
        text: str = self.__dict__["_text"]
        return text

    def _spec_text(self) -> str:
        defaults = {f.name: f.default for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        texts = self.expressions()
        shown = list(texts)  # without duplicates: an option may equal an expression
        options = []
        for name, value in _fields(self).items():
            if value in shown:
                shown.remove(value)
            elif value != defaults[name] and value != texts:
                options.append(f"{name}={value}")
        return f"{self.kind}({', '.join([*texts, *options])})"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__str__ = Index.__str__  # type: ignore[method-assign]


def _fields(spec: Index) -> dict[str, Any]:
    return {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}  # type: ignore[arg-type]


def require_text(spec: Index, expression: object) -> None:
    """Raise InvalidSpecificationError unless an indexed expression is text that is not blank."""
    if not isinstance(expression, str) or not expression.strip():
        raise InvalidSpecificationError(f"{type(spec).__name__} needs a column name or SQL text, got {expression!r}")


_kinds: dict[str, type[Index]] = {}
_MODULES = {
    **{kind: kind for kind in ("minmax", "gaplist", "valuelist", "formatted", "hybrid")},
    "bloomfilter": "bloom",
    "prefix": "affix",
    "suffix": "affix",
    "geobox": "geobox.index",
    "metricdist": "metricdist.index",
}
"""Modules of geoskip's own index types by kind, imported at the first use of a kind."""


def _kind(name: object) -> type[Index] | None:
    """Return the registered index type of a kind."""
    if isinstance(name, str) and name not in _kinds and name in _MODULES:
        import_module(f"geoskip.indexes.{_MODULES[name]}")
    return _kinds.get(name) if isinstance(name, str) else None


def index(kind: I) -> I:
    """Register an index type, so that its metadata can be read; a decorator.

    Raises MappingError unless it is a dataclass derived from Index with a ``kind`` that geoskip does not use.
    """
    name = getattr(kind, "kind", None)
    if not (isinstance(kind, type) and issubclass(kind, Index) and isinstance(name, str)):
        raise MappingError(f"@index decorates a subclass of geoskip.Index with a `kind` string, got {kind!r}")
    if not dataclasses.is_dataclass(kind):
        raise MappingError(f"{kind.__name__} must be a frozen dataclass: put @index above @dataclass(frozen=True)")
    if not name or "(" in name:
        raise MappingError(
            f"{kind.__name__} needs a `kind` that names it, such as {kind.__name__.lower()!r}, got {name!r}"
        )
    taken = None if is_own(kind) else _kind(name)
    if taken is not None and is_own(taken):
        raise MappingError(f"{name!r} is the kind of geoskip's {taken.__name__}; give {kind.__name__} another one")
    _kinds[name] = kind
    return kind


def registered_kinds() -> int:
    """Count the registered index types; geoskip's own types are registered when they are imported."""
    return len(_kinds)


def index_kinds() -> Mapping[str, type[Index]]:
    """Return the registered index types by kind."""
    for kind in _MODULES:
        _kind(kind)
    return dict(_kinds)


def index_from_json(spec: Mapping[str, Any]) -> Index:
    """Return the index that :meth:`Index.to_json` described.

    Raises InvalidSpecificationError for an unknown kind or unknown options.
    """
    options = dict(spec)
    kind = options.pop("kind", None)
    build: Callable[..., Index] | None = _kind(kind)
    if build is None:
        raise InvalidSpecificationError(
            f"no index type of kind {kind!r} is known here, only {sorted(index_kinds())}; import the module that "
            "defines it"
        )
    try:
        return build(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
    except TypeError as error:
        raise InvalidSpecificationError(f"index {kind!r} of another version: {error}") from None


def as_registered(spec: Index) -> Index:
    """Return the specification as an instance of the last registered class of its kind.

    A notebook cell that defines a class may be edited and run again. Raises InvalidSpecificationError for a class that
    is not registered, since clauses of another class would be evaluated over its summaries.
    """
    kind, name = type(spec), getattr(spec, "kind", None)
    latest = _kind(name)
    if latest is kind:
        return spec
    if latest is None or qualified_name(latest) != qualified_name(kind):
        taken = f" (not {name!r}, which is the kind of {latest.__name__})" if latest else ""
        raise InvalidSpecificationError(
            f"{kind.__name__} is not a registered index type: put @geoskip.index above @dataclass(frozen=True), and "
            f"give it a `kind` of its own{taken}"
        )
    return index_from_json(spec.to_json())


def definition(spec: Index) -> str | None:
    """Identify the code that builds an index's summaries: its version, or for a user's own type a digest.

    The digest covers ``collect``, ``merge`` and ``prepare`` and the code that they call. Clauses are not part of it,
    since existing summaries remain valid for a new or corrected clause. None for geoskip's own types in their first
    version, for an unknown type, and if no digest can be computed.
    """
    if spec.version is not None:
        return f"version:{spec.version}"
    kind = _kind(spec.kind)
    if kind is None or is_own(kind):
        return None
    if kind not in _definitions:
        with contextlib.suppress(Unidentifiable):
            _definitions[kind] = digest(_summary_methods(kind))
    return _definitions.get(kind)


_definitions: weakref.WeakKeyDictionary[type[Index], str] = weakref.WeakKeyDictionary()


def _summary_methods(kind: type[Index]) -> dict[str, Any]:
    """Return the methods that build a class's summaries, and the attributes that they use, by name."""
    methods: dict[str, Any] = {}
    waiting = ["collect", "merge", "prepare"]
    while waiting:
        name = waiting.pop()
        value = next((vars(c)[name] for c in kind.__mro__ if name in vars(c) and not is_own(c)), None)
        if value is None or name in methods:
            continue
        plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        methods[name] = plain.fget if isinstance(plain, property) else plain
        waiting += names_in(methods[name])
    return dict(sorted(methods.items()))


def is_own(kind: type) -> bool:
    """True if a class is part of geoskip, so that it does not change while a driver runs."""
    return kind.__module__.partition(".")[0] in ("geoskip", "udf_mappings", "builtins", "abc")
