"""Reports of datasets and frames that other engines read: ``geoskip.report(dataset)``."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from geoskip.errors import InvalidSpecificationError
from geoskip.report import Report, Scan

_latest: dict[int, Callable[[], Scan | None]] = {}
"""How to obtain the report of an object, by its identity, for the lifetime of the object."""


def remember(scanned: object, latest: Callable[[], Scan | None]) -> None:
    """Remember how to obtain the report of an object."""
    _latest[id(scanned)] = latest
    weakref.finalize(scanned, _latest.pop, id(scanned), None)


def report_of(scanned: object) -> Report:
    """Report what a dataset of pyarrow or a lazy frame of polars reads, if geoskip made it.

    Of a lazy frame that chooses its files when it is collected, it is the report of the last time. Raises
    InvalidSpecificationError for another object.
    """
    latest = _latest.get(id(scanned))
    if latest is None:
        raise InvalidSpecificationError(
            f"a {type(scanned).__name__} that geoskip did not make has no report: give what geoskip.pyarrow_dataset() "
            "or geoskip.scan_polars() returned, not what was made of it"
        )
    scan = latest()
    if scan is None:
        return Report((), ("nothing was collected of this frame yet: its files are chosen then",))
    return Report((scan,))
