"""Listings of folders, and of tables from the current files in their logs."""

from __future__ import annotations

from importlib import import_module

from geoskip.engines.folder_listing import FolderListing, list_folder, table_format
from geoskip.errors import InvalidSpecificationError

_LISTINGS = {"Delta": "delta_listing", "Iceberg": "iceberg_listing"}
"""The modules that list tables, by format."""


def list_files(root: str, below: str = "") -> FolderListing:
    """List the files of a folder or below a folder; for a table those of its latest version.

    Raises InvalidSpecificationError for Hudi tables, and for other tables that cannot be read.
    """
    kind = table_format(root)
    if kind is None:
        return list_folder(root, below)
    if kind in _LISTINGS:
        found: FolderListing = import_module(f"geoskip.engines.{_LISTINGS[kind]}").list_table(root, below)
        return found
    raise InvalidSpecificationError(
        f"{root} is a table of {kind}, whose files are those that its timeline names: without Spark geoskip does not "
        "read these; ask through Spark"
    )


def refuse_unlike(found: FolderListing, caller: str) -> FolderListing:
    """Return a listing; raise InvalidSpecificationError if the files have other rows than the table."""
    if found.unlike:
        way = "by geoskip.scan_polars() or " if found.columns is not None else ""
        raise InvalidSpecificationError(
            f"{caller} reads Parquet files, and {found.root} is a table of {table_format(found.root)} with "
            f"{found.unlike}, of which these are not the rows or columns; read it {way}through Spark, or rewrite its "
            "files so that they are"
        )
    return found


def refuse_inside(path: str, root: str, below: str) -> None:
    """Raise InvalidSpecificationError for a path inside a table."""
    if below and not below.endswith(".metadata.json") and (kind := table_format(root)) is not None:
        raise InvalidSpecificationError(
            f"{path} is inside of the {kind} table {root}, whose log says which of its files are of now; give the "
            "table, and a condition on its partitions"
        )
