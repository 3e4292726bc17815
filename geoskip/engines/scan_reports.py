"""Reports of datasets and frames that other engines read: ``geoskip.report(dataset)``."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from geoskip.errors import InvalidSpecificationError
from geoskip.report import Report, Scan

_latest: dict[int, tuple[weakref.ref[Any], Callable[[], Scan | None]]] = {}


def remember(scanned: object, latest: Callable[[], Scan | None]) -> None:
    """Remember how to obtain the report of an object, for the lifetime of the object."""
    key = id(scanned)
    _latest[key] = (weakref.ref(scanned, lambda gone: _forget(key, gone)), latest)


def _forget(key: int, gone: weakref.ref[Any]) -> None:
    if key in _latest and _latest[key][0] is gone:
        del _latest[key]


def report_of(scanned: object) -> Report:
    """Report what a dataset of pyarrow or a lazy frame of polars reads, if geoskip made it.

    Of a lazy frame that chooses its files when it is collected, it is the report of the last time. Raises
    InvalidSpecificationError for another object.
    """
    known, latest = _latest.get(id(scanned), (None, lambda: None))
    if known is None or known() is not scanned:
        raise InvalidSpecificationError(
            f"a {type(scanned).__name__} that geoskip did not make has no report: give what geoskip.pyarrow_dataset() "
            "or geoskip.scan_polars() returned, not what was made of it"
        )
    scan = latest()
    if scan is None:
        return Report((), ("nothing was collected of this frame yet: its files are chosen then",))
    return Report((scan,))
