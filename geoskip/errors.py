"""Errors of geoskip. None is raised at query time.

::

    GeoskipError
    ├── InvalidSpecificationError   (ValueError)    an invalid index, option or handle
    │   ├── UnknownColumnError      (KeyError)      a name or expression that the dataset does not have
    │   ├── UnsupportedColumnError  (TypeError)     a column type that an index cannot summarise soundly
    │   ├── NeedsSparkError                         an expression, a format or metadata that only Spark reads
    │   └── StatementError          (SyntaxError)   a statement of SQL that cannot be parsed; it points at the token
    ├── MappingError                (TypeError)     a UDF mapping with a wrong shape
    ├── DatasetNotFoundError        (FileNotFoundError)   nothing to index at this path or table
    ├── NotIndexedError             (LookupError)   an operation that needs metadata, if there are none
    ├── MetadataError               (ValueError)    metadata that cannot be read: damaged, or of a newer format
    │   ├── MissingKeyError         (PermissionError)     encrypted metadata without an available key
    │   └── NewerFormatError                        metadata that a later version of geoskip has written
    ├── StoreError                  (OSError)       metadata that cannot be written: no permission, no space
    ├── ConflictError               (RuntimeError)  another writer committed first
    ├── MissingPackageError         (ImportError)   an optional package that is not installed
    └── EnvironmentProblem          (RuntimeError)  a session that geoskip does not support

Each error also inherits from the matching builtin exception. Its message names the object, the expected value, the
actual value and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def misspelt(name: str, options: Iterable[str]) -> str | None:
    """Return the most similar option name for an unknown name; None if no name is similar.

    >>> misspelt("autoRefresh", ["metadata", "auto_refresh"]), misspelt("header", ["metadata"])
    ('auto_refresh', None)
    """
    plain = {option.replace("_", ""): option for option in options}
    near = get_close_matches(name.lower().replace("_", ""), plain, 1, 0.8)
    return plain[near[0]] if near else None


class GeoskipError(Exception):
    """The root of every error that geoskip raises."""


class InvalidSpecificationError(GeoskipError, ValueError):
    """An invalid index, option or handle."""


class UnknownColumnError(InvalidSpecificationError, KeyError):
    """A column or expression that the dataset does not have."""

    @classmethod
    def of(cls, name: str, columns: Iterable[str], where: str = "") -> UnknownColumnError:
        """Create the error for an unknown column name, with the most similar name and up to twenty columns.

        Parameters
        ----------
        name
            The name that was given.
        columns
            The names of all columns.
        where
            The position of the name in a text, as shown in the message.

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
    """An expression, a format or metadata that only Spark reads, in a call without Spark."""


class StatementError(InvalidSpecificationError, SyntaxError):
    """A statement on skipping indexes that cannot be parsed."""

    def __init__(self, message: str) -> None:
        SyntaxError.__init__(self, message)  # sets what tracebacks print


class MappingError(GeoskipError, TypeError):
    """A UDF mapping, declaration or index type with a wrong shape."""


class DatasetNotFoundError(GeoskipError, FileNotFoundError):
    """Nothing to index at this path or table."""


class NotIndexedError(GeoskipError, LookupError):
    """An operation that needs metadata, on a dataset without metadata."""


class MetadataError(GeoskipError, ValueError):
    """Metadata that cannot be read: damaged, removed or of a newer format."""


class MissingKeyError(MetadataError, PermissionError):
    """Encrypted metadata without an available key."""


class NewerFormatError(MetadataError):
    """Metadata that a later version of geoskip has written, in a format that this one does not read."""


class StoreError(GeoskipError, OSError):
    """Metadata that cannot be written: no permission, no space, or no response from the server."""


class ConflictError(GeoskipError, RuntimeError):
    """Another writer committed first, and the two cannot be reconciled."""


class MissingPackageError(GeoskipError, ImportError):
    """An optional package that a call needs and that is not installed."""


class EnvironmentProblem(GeoskipError, RuntimeError):
    """A session or a machine that geoskip does not support."""
