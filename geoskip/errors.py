"""The errors of geoskip, all raised before a query runs: at query time nothing raises.

::

    GeoskipError
    ├── InvalidSpecificationError   (ValueError)    an index, option or handle that makes no sense
    │   ├── UnknownColumnError      (KeyError)      a name or expression that the dataset does not have
    │   ├── UnsupportedColumnError  (TypeError)     a column type that an index cannot summarise soundly
    │   ├── NeedsSparkError                         an expression, a format or metadata that only Spark reads
    │   └── StatementError          (SyntaxError)   a statement of SQL that cannot be parsed; it points at the token
    ├── MappingError                (TypeError)     a UDF mapping with a wrong shape
    ├── DatasetNotFoundError        (FileNotFoundError)   nothing to index at this path or table
    ├── NotIndexedError             (LookupError)   a verb that needs metadata, where there is none
    ├── MetadataError               (ValueError)    metadata that cannot be read: damaged, or of a newer format
    │   └── MissingKeyError         (PermissionError)     protected metadata whose key is not to be had
    ├── StoreError                  (OSError)       metadata that cannot be written: no permission, no space
    ├── ConflictError               (RuntimeError)  another writer committed first
    ├── MissingPackageError         (ImportError)   an optional package that is not installed
    └── EnvironmentProblem          (RuntimeError)  a session that geoskip cannot work in

Each also inherits the builtin that one would catch (as httpx and Narwhals do), and its message names the thing,
the expected, the got and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def misspelt(name: str, options: Iterable[str]) -> str | None:
    """The option that was probably meant by a name that is none; None where the name is like none of them.

    >>> misspelt("autoRefresh", ["metadata", "auto_refresh"]), misspelt("header", ["metadata"])
    ('auto_refresh', None)
    """
    plain = {option.replace("_", ""): option for option in options}
    near = get_close_matches(name.lower().replace("_", ""), plain, 1, 0.8)
    return plain[near[0]] if near else None


class GeoskipError(Exception):
    """The root of every error that geoskip raises."""


class InvalidSpecificationError(GeoskipError, ValueError):
    """An index, an option or a handle that makes no sense."""


class UnknownColumnError(InvalidSpecificationError, KeyError):
    """A column or expression that the dataset does not have."""

    @classmethod
    def of(cls, name: str, columns: Iterable[str], where: str = "") -> UnknownColumnError:
        """Error for a name that no column has, with the nearest of these names, and twenty at most.

        Parameters
        ----------
        name
            The name that was given.
        columns
            The names of all columns.
        where
            The place of the name in a text, as the message has it.

        >>> str(UnknownColumnError.of("tmep", ["temp", "city"], " at line 1, column 9"))
        'the dataset has no column tmep at line 1, column 9; did you mean temp? Its columns are temp, city'
        """
        listed = list(columns)
        lowered = {column.lower(): column for column in listed}
        near = get_close_matches(name.lower(), lowered, 1)
        hint = f"did you mean {lowered[near[0]]}? Its columns are" if near else "its columns are"
        shown = ", ".join(listed[:20]) + (", ..." if len(listed) > 20 else "")
        return cls(f"the dataset has no column {name}{where}; {hint} {shown}")

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class UnsupportedColumnError(InvalidSpecificationError, TypeError):
    """A column type that an index cannot summarise soundly."""


class NeedsSparkError(InvalidSpecificationError):
    """An expression, a format or metadata that only Spark reads, given to what does without it."""


class StatementError(InvalidSpecificationError, SyntaxError):
    """A statement on skipping indexes that cannot be parsed."""

    def __init__(self, message: str) -> None:
        SyntaxError.__init__(self, message)  # sets what tracebacks print


class MappingError(GeoskipError, TypeError):
    """A UDF mapping, declaration or index type with a wrong shape."""


class DatasetNotFoundError(GeoskipError, FileNotFoundError):
    """Nothing to index at this path or table."""


class NotIndexedError(GeoskipError, LookupError):
    """A verb that needs metadata, on a dataset that has none."""


class MetadataError(GeoskipError, ValueError):
    """Metadata that cannot be read: damaged, vanished or of a newer format."""


class MissingKeyError(MetadataError, PermissionError):
    """Protected metadata whose key is not to be had."""


class StoreError(GeoskipError, OSError):
    """Metadata that cannot be written: no permission, no space, nobody there."""


class ConflictError(GeoskipError, RuntimeError):
    """Another writer committed first, and the two cannot be reconciled."""


class MissingPackageError(GeoskipError, ImportError):
    """An optional package that a call needs and that is not installed."""


class EnvironmentProblem(GeoskipError, RuntimeError):
    """A session or a machine that geoskip cannot work in."""
