"""What an index is: what it stores a file, how that is collected and merged, and which clauses it answers.

A new index is a frozen dataclass with four methods and a ``kind`` (DESIGN section 6)::

    @index
    @dataclass(frozen=True)
    class Years(Index):
        column: str
        kind: ClassVar[str] = "years"

        def metadata_type(self, *columns):
            return pa.struct({"years": pa.list_(pa.int32())})

        def collect(self, values):
            return {"years": sorted(set(pc.year(values).drop_null().to_pylist()))}

        def merge(self, summaries):
            return {"years": sorted({y for s in summaries for y in s["years"]})}

        def clause(self, node): ...

The framework walks the tree; an index sees *one vertex* and says None where it knows nothing (Hyperspace's sketches
work so). A vertex is what a row must make TRUE: for ``NOT e`` and ``e IS NULL`` the index is asked about those.

*Contract of clause*: the returned clause represents the vertex. A file whose summary is missing (null) is kept by the
framework's reading of null as unknown, whatever the clause says of the others.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError, MappingError
from geoskip.predicates import Predicate
from geoskip.registry.fingerprint import Unidentifiable, digest, names_in, qualified_name

__all__ = ["Index", "SourceColumn", "as_registered", "definition", "index", "index_from_json", "index_kinds", "is_own"]

I = TypeVar("I", bound="type[Index]")  # noqa: E741
Summary = Mapping[str, Any]


@dataclass(frozen=True)
class SourceColumn:
    """One indexed expression as the dataset has it: its SQL text, Spark's name of its type, its Arrow type."""

    text: str
    type: str
    arrow: pa.DataType


class Index(ABC):
    """The base of index specifications; subclasses are frozen dataclasses.

    The indexed expressions are the ``str`` fields named ``column``, ``expr`` or ``exprs``; override
    :meth:`expressions` for other names. The other fields are parameters, kept in the specification's JSON.
    """

    kind: ClassVar[str]
    bound: tuple[Predicate, ...] = ()
    """The analysed expressions, once the framework has bound the index to a dataset."""

    def expressions(self) -> tuple[str, ...]:
        """The indexed expressions: SQL texts over the dataset's columns."""
        for name in ("column", "expr"):
            if hasattr(self, name):
                return (getattr(self, name),)
        return tuple(getattr(self, "exprs", ()))

    @abstractmethod
    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """The Arrow type stored a file; raises UnsupportedColumnError where a summary would be unsound."""

    @abstractmethod
    def collect(self, *values: pa.Array) -> Summary | None:
        """The summary of one file, or of a part of one: one Arrow array an expression, of equal length.

        None means that nothing sound can be said: the file is kept.
        """

    @abstractmethod
    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """The summary of a file from those of its parts."""

    @abstractmethod
    def clause(self, node: Predicate) -> Clause | None:
        """A clause that represents one vertex, or None."""

    def prepare(self, *sample: pa.Array) -> Index:
        """The index with what it chooses once for the whole dataset; the default chooses nothing.

        ``sample`` holds the values of some rows of some files, one array an expression. It is asked before the first
        build; what it chose is part of the specification's JSON but not of its text, and files that are refreshed or
        added later are summarised by the same choice.
        """
        return self

    def chooses(self) -> bool:
        """Is it still to choose, so that a build has to read some files first? Where it overrides :meth:`prepare`."""
        return type(self).prepare is not Index.prepare

    def from_statistics(self, kind: str, low: Any, high: Any, nulls: int, rows: int) -> Summary | None:
        """Return the summary of a row group from its Parquet statistics; None where they do not suffice (default).

        Parameters
        ----------
        kind
            Spark's name of the column's type.
        low, high
            The least and the greatest value in physical form (:mod:`geoskip.predicates`); None where not recorded.
            Those of floats leave NaN out.
        nulls, rows
            Counts of the row group.
        """
        return None

    def for_files(self, summaries: Sequence[Summary], sizes: Sequence[int]) -> Sequence[Summary]:
        """Return what is stored of whole files, given their merged summaries and sizes in bytes.

        For indexes whose choice depends on the size of the file; the default stores the summaries themselves.
        """
        return summaries

    def build_note(self, summaries: pa.ChunkedArray) -> str:
        """Return a remark on the stored summaries for the build report; the default has none."""
        return ""

    @property
    def version(self) -> int | None:
        """The version of what its summaries say, raised when they say other things: those of before are not used.

        None where a digest of the methods that make them stands for it.
        """
        return None

    def unavailable(self) -> str | None:
        """Why it cannot answer here although its metadata are there, for the report; the default can."""
        return None

    def reads(self, node: Predicate) -> bool:
        """Is this expression the indexed one?"""
        return len(self.bound) == 1 and node == self.bound[0]

    def bind(self, expressions: Sequence[Predicate]) -> Index:
        """The same index, knowing its expressions as predicates."""
        bound = copy.copy(self)
        object.__setattr__(bound, "bound", tuple(expressions))
        return bound

    def to_json(self) -> dict[str, Any]:
        """The specification as JSON: its kind and fields."""
        return {"kind": self.kind, **_fields(self)}

    def describe(self) -> str:
        """What it keeps of a file, in words: the first paragraph of its class's docstring.

        >>> from geoskip.indexes.minmax import MinMax
        >>> MinMax("temp").describe()
        'The least and the greatest value, and how many are NULL or NaN.'
        """
        words = " ".join((type(self).__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")
        return "" if words.startswith(f"{type(self).__name__}(") else words  # which dataclasses write for want of one

    def __str__(self) -> str:
        if "_text" not in self.__dict__:  # asked for at every vertex
            object.__setattr__(self, "_text", self._named())
        text: str = self.__dict__["_text"]
        return text

    def _named(self) -> str:
        defaults = {f.name: f.default for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        texts = self.expressions()
        shown = list(texts)  # each is shown once: an option may have the text of an expression
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


_kinds: dict[str, type[Index]] = {}


def index(kind: I) -> I:
    """Register an index type, so that metadata naming it can be read; a decorator."""
    name = getattr(kind, "kind", None)
    if not (isinstance(kind, type) and issubclass(kind, Index) and isinstance(name, str)):
        raise MappingError(f"@index decorates a subclass of geoskip.Index with a `kind` string, got {kind!r}")
    if not dataclasses.is_dataclass(kind):
        raise MappingError(f"{kind.__name__} must be a frozen dataclass: put @index above @dataclass(frozen=True)")
    _kinds[name] = kind
    return kind


def index_kinds() -> Mapping[str, type[Index]]:
    """The registered index types by kind."""
    return dict(_kinds)


def index_from_json(spec: Mapping[str, Any]) -> Index:
    """The index that :meth:`Index.to_json` described; raises InvalidSpecificationError for an unknown kind."""
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind not in _kinds:
        raise InvalidSpecificationError(
            f"no index type of kind {kind!r} is known here, only {sorted(_kinds)}; import the module that defines it"
        )
    build: Callable[..., Index] = _kinds[kind]
    try:
        return build(**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
    except TypeError as error:
        raise InvalidSpecificationError(f"index {kind!r} of another version: {error}") from None


def as_registered(spec: Index) -> Index:
    """The same specification by its class as that was defined last: a cell of a notebook may be run again, edited."""
    kind, latest = type(spec), _kinds.get(spec.kind)
    if latest is None or latest is kind or qualified_name(latest) != qualified_name(kind):
        return spec
    return index_from_json(spec.to_json())


def definition(spec: Index) -> str | None:
    """Identify how an index's summaries are made: by its version, or for a user's own type by a digest.

    That is of ``collect``, ``merge`` and ``prepare``, with what these reach of their class and beyond it. Clauses are
    not part of it: one that is added or corrected holds for the summaries that are there. None for geoskip's own types
    in their first version, for a type that is not known here, and where no digest can be had.
    """
    if spec.version is not None:
        return f"version:{spec.version}"
    found = _kinds.get(spec.kind)
    if found is None or is_own(found):
        return None
    if found not in _definitions:
        with contextlib.suppress(Unidentifiable):
            _definitions[found] = digest(_makers(found))
    return _definitions.get(found)


_definitions: weakref.WeakKeyDictionary[type[Index], str] = weakref.WeakKeyDictionary()


def _makers(kind: type[Index]) -> dict[str, Any]:
    """What makes the summaries of a class, by name: three methods, and what they name of the class in turn."""
    found: dict[str, Any] = {}
    waiting = ["collect", "merge", "prepare"]
    while waiting:
        name = waiting.pop()
        value = next((vars(c)[name] for c in kind.__mro__ if name in vars(c) and not is_own(c)), None)
        if value is None or name in found:
            continue
        plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        found[name] = plain.fget if isinstance(plain, property) else plain
        waiting += names_in(found[name])
    return dict(sorted(found.items()))


def is_own(kind: type) -> bool:
    """Whether a class comes with geoskip, so that it does not change while a driver runs."""
    return kind.__module__.partition(".")[0] in ("geoskip", "udf_mappings", "builtins", "abc")
