"""Rewriting a dataset in a layout: new files in a new folder, and a switch of tables to it.

*Atomicity for Spark's readers.* A reader lists a folder once, by many requests, and opens the files later. So replacing
files within a folder is never safe: readers that have listed the old files fail when these are removed, and readers
that list during the replacement may find some files of both states, or of neither. Hence old files are not changed:

* a dataset given by its path is rewritten to a *new folder*, which appears by one rename when it is complete (object
  stores have no rename: there, wait for the call to return). Readers use the old folder until they are given the new
  one.
* a table is rewritten to a new folder beside its own and then *switched* to it (``ALTER TABLE ... SET LOCATION``, an
  atomic change in the catalog). A reader gets the old files or the new ones. Partitions are switched one by one; since
  a partition has the same rows in both folders, a reader may use any mixture of them.

The old files are kept until ``Dataset.remove_replaced()``, so that readers that have listed them can finish.

*A crash* before the switch leaves the dataset unchanged, and a folder that the next rewrite removes
(:mod:`geoskip.spark.dataset.rewrite_folders`). A crash during the switch leaves a table with some partitions in the old
and some in the new folder, with the same rows as before.

*Concurrent writers.* The files are listed before and after the rewrite and once more after the switch. If they differ,
the switch is undone and ConflictError is raised; the dataset is in the old folder again. A writer that began before the
switch and commits after the last listing adds its file to the old folder; ``remove_replaced()`` detects it, and removes
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from geoskip.errors import ConflictError, GeoskipError, InvalidSpecificationError
from geoskip.layout.layout_report import OTHERS, RECORDED_SIZE, WRITES, layout_name, mean_size, with_writes, writes_in
from geoskip.layout.specification import Layout
from geoskip.lifecycle.log import check_readable
from geoskip.metadata import Snapshot
from geoskip.report import count_of
from geoskip.sources.build_verbs import BuildReport
from geoskip.sources.column_names import backquote
from geoskip.sources.listed_files import FileListing, is_glob, relative_path
from geoskip.spark.analysis import check_types
from geoskip.spark.build.arrange import arrange
from geoskip.spark.build.layout_columns import LayoutColumns
from geoskip.spark.build.listing import has_sink_log, listing, qualify
from geoskip.spark.build.spark_jobs import explain_errors, show_progress
from geoskip.spark.build.spark_reader import restricted_to
from geoskip.spark.dataset.create_refresh import create
from geoskip.spark.dataset.dataset_layout import current_snapshot, layout_in, record_layout
from geoskip.spark.dataset.overwrite import finish_overwrites
from geoskip.spark.dataset.rewrite_choice import (
    Chosen,
    check_is_rewritable,
    choose_files,
    codec_of,
    column_names,
    columns_of_files,
    files_where,
)
from geoskip.spark.dataset.rewrite_folders import (
    SWITCHED,
    NewFolder,
    begin,
    check_room,
    copy_files,
    exclusive,
    remove_abandoned,
    rename_folder,
)
from geoskip.spark.dataset.source import RESTRICTING, DatasetSource, SparkData
from geoskip.spark.dataset.table_location import TableLocation
from geoskip.spark.filesystem import folder_at

_RESTRICTING = (*RESTRICTING, "recursivefilelookup")


@dataclass(frozen=True)
class RewriteReport:
    """Result of a rewrite; ``print(report)`` shows it.

    Attributes
    ----------
    path : str
        The current folder of the dataset: a new one, or the old one if nothing was rewritten.
    layout : str
        The layout.
    files_before, files_after : int
        The numbers of files of the dataset before and after.
    rewritten, kept : int
        The numbers of old files that were rewritten, and that were copied unchanged.
    rows : int
        The number of rewritten rows.
    chosen : int, optional
        The number of files in the partitions selected by ``where``; None without it.
    replaced : str
        The folder with the old files; empty if nothing was rewritten.
    is_switched : bool
        True for a table, which now reads the new folder; False if readers must use ``path`` instead.
    seconds : float
        The total duration.
    build : BuildReport, optional
        The report on the indexes in the new folder; None without indexes.
    """

    path: str
    layout: str
    files_before: int
    files_after: int
    rewritten: int
    kept: int
    rows: int = 0
    replaced: str = ""
    is_switched: bool = False
    seconds: float = 0.0
    build: BuildReport | None = None
    chosen: int | None = None

    def __str__(self) -> str:
        if not self.rewritten and not self.replaced:
            files = f"{count_of(self.files_before, 'file')} in order ({self.layout})"
            if self.chosen is not None:
                files = f"where= chooses {self.chosen:,} of {files}" if self.chosen else "where= chooses no file"
            return f"{self.path}: nothing to rewrite, {files}"
        stay = f", {count_of(self.kept, 'file')} unchanged" if self.kept else ""
        became = f"{count_of(self.rewritten, 'file')} became {self.files_after - self.kept:,}"
        lines = [
            f"rewrote {count_of(self.rows, 'row')} by {self.layout} in {self.seconds:.1f} s: {became}{stay}",
            f"  the table reads {self.path} now" if self.is_switched else f"  the new dataset is {self.path}",
            f"  the old files are in {self.replaced}, until remove_replaced() or you delete them",
        ]
        lines += [f"  {line}" for line in str(self.build).splitlines()] if self.build is not None else []
        return "\n".join(lines)

    __repr__ = __str__


def rewrite(
    source: DatasetSource,
    layout: Layout | None,
    where: str | None,
    *,
    files: int | None,
    file_size: int | None,
    to: str | None,
) -> RewriteReport:
    """Rewrite a dataset: see :meth:`geoskip.spark.dataset.handle.Dataset.rewrite`.

    Parameters
    ----------
    source
        The dataset.
    layout, where, to
        As for the method.
    files, file_size
        The number of files, or the bytes of one. Default: the recorded size.
    """
    started = time.perf_counter()
    data = SparkData(source)
    check_types(data.state.frame, "rewrite()", "write its rows with Spark itself, in the order of some columns")
    table = rewritable_table(data, to)
    finish_overwrites(source.spark, data.root)
    snapshot = current_snapshot(data)
    if snapshot is not None:
        check_readable(snapshot.header)
    wanted = _layout_of(source, snapshot, layout)
    LayoutColumns.of(data.state.frame, wanted)  # raises for expressions that do not fit
    among = files_where(data.state, where)
    chosen = choose_files(data, snapshot, wanted, among, files=files, file_size=file_size)
    if not chosen.rewritten and to is None:
        _record(data, snapshot, wanted, chosen)
        count, seconds = len(data.state.files), time.perf_counter() - started
        asked = None if among is None else len(among)
        return RewriteReport(data.root, str(wanted), count, count, 0, count, seconds=seconds, chosen=asked)
    return _Rewrite(data, snapshot, wanted, chosen, table, to, started).run()


def rewritable_table(data: SparkData, to: str | None = None) -> TableLocation | None:
    """The table to switch, or None for a path; raises an error for datasets that cannot be rewritten."""
    source, paths = data.source, data.source.paths
    if paths is not None and (len(paths) != 1 or is_glob(paths[0]) or list(data.state.relation.roots) != [data.root]):
        raise InvalidSpecificationError(
            f"rewrite() needs a handle of one folder or table, not of {source.name}: its files are rewritten together"
        )
    check_is_rewritable(data.source, data.state.relation)
    if restricting := [name for name in source.options if name.lower() in _RESTRICTING]:
        raise InvalidSpecificationError(
            f"the handle of {source.name} has {restricting[0]}=, so it does not see all files, and rewrite() would "
            "leave out the others; make a handle without it"
        )
    if source.metadata is not None or source.given is not None:
        raise InvalidSpecificationError(
            f"the metadata of {source.name} are in {data.store.location}, and those of the new folder would be in that "
            "folder: rewrite with a handle without metadata= and store=, and create the indexes for the new folder"
        )
    if has_sink_log(data.root):
        raise InvalidSpecificationError(
            f"a stream writes to {source.name}, and would not follow to a new folder: "
            "geoskip.write(dataset.to_df(), path, layout=...) writes a copy of its rows"
        )
    if unnameable := data.state.files.unnameable():
        raise InvalidSpecificationError(
            f"{unnameable[0]!r} has a line feed in its path; rename it to rewrite the files"
        )
    if to is not None and source.table is not None:
        raise InvalidSpecificationError(
            f"rewrite(to=) is for datasets given by a path; {source.name} is switched to a folder beside its own"
        )
    return TableLocation.of(source) if source.table is not None else None


def _layout_of(source: DatasetSource, snapshot: Snapshot | None, given: Layout | None) -> Layout:
    if given is not None:
        if not isinstance(given, Layout):
            raise InvalidSpecificationError(f"rewrite(layout=) takes a layout such as ZOrder('a', 'b'), got {given!r}")
        return given
    recorded = layout_in(snapshot)
    if not recorded:
        raise InvalidSpecificationError(
            f"no layout of {source.name} is recorded, so name one: rewrite(ZOrder('lng', 'lat'))"
        )
    return Layout.from_json(recorded)


def _record(data: SparkData, snapshot: Snapshot | None, layout: Layout, chosen: Chosen) -> None:
    """Record the layout of files that were in order already."""
    recorded = layout_in(snapshot)
    if chosen.is_whole and layout_name(recorded) != str(layout):
        size = chosen.file_size or mean_size([file.size for file in chosen.kept])
        record_layout(data, {**layout.to_json(), WRITES: writes_in(recorded, str(layout)), RECORDED_SIZE: size})


class _Rewrite:
    """One rewrite, step by step; if a step fails, the dataset is unchanged."""

    def __init__(
        self,
        data: SparkData,
        snapshot: Snapshot | None,
        layout: Layout,
        chosen: Chosen,
        table: TableLocation | None,
        to: str | None,
        started: float,
    ) -> None:
        self.data, self.snapshot, self.layout, self.chosen, self.started = data, snapshot, layout, chosen, started
        self.spark, self.state, self.table = data.source.spark, data.state, table
        self.to = None if to is None else qualify(self.spark, to)
        self.folder = NewFolder.beside(data.root, self.to)
        self.before = self._old_files()
        self.ids: list[str] = []
        self.rows = 0
        self.is_done = False

    def run(self) -> RewriteReport:
        """Create the new folder, index it, and switch a table to it."""
        used = [self.data.root, *self.state.files.folders]
        with ExitStack() as undo:
            undo.enter_context(explain_errors(f"{self.data.source.name} could not be rewritten, and is as it was"))
            if self.table is not None:
                undo.enter_context(exclusive(self.data.root))
            for root in dict.fromkeys([self.data.root, self.to or self.data.root]):
                remove_abandoned(root, used)
            self._check_folder()
            undo.callback(self._discard, self.folder.outer)
            read = {file.uri for file in self.state.files}
            begin(self.folder, self.data.root, list(self.before), self.data.source.table, read)
            self._write()
            self._copy()
            self._check_schema()
            self._check_unchanged("while its files were rewritten")
            rename_folder(self.spark, self.folder.staging, self.folder.final)
            undo.callback(self._discard_unused)
            self._discard(self.folder.outer)
            build = self._index()
            if self.table is not None:
                self._switch(self.table)
            self.is_done = True
        files_after = len(self._list_files([self.folder.final]))
        return RewriteReport(
            self.folder.final, str(self.layout), len(self.state.files), files_after, len(self.chosen.rewritten),
            len(self.chosen.kept), self.rows, self.data.root, self.table is not None,
            time.perf_counter() - self.started, build,
        )  # fmt: skip

    def _check_folder(self) -> None:
        parent, _, name = self.folder.final.rpartition("/")
        if folder_at(self.folder.final).exists(""):
            raise InvalidSpecificationError(f"{self.folder.final} exists; rewrite(to=) takes a folder that does not")
        if "=" in name:
            raise InvalidSpecificationError(
                f"{self.folder.final} would be named as a partition is, so readers of {parent} would find its rows "
                "beside the old ones: rewrite the dataset of all partitions with where=, or name a folder elsewhere "
                "with to="
            )
        if f"{self.folder.final}/".startswith(f"{self.data.root.rstrip('/')}/"):
            raise InvalidSpecificationError(
                f"{self.folder.final} is inside of {self.data.root}, where readers would find its files beside the "
                "old ones; name a folder outside"
            )
        check_room(self.folder.staging, sum(file.size for file in (*self.chosen.rewritten, *self.chosen.kept)))

    def _old_files(self) -> FileListing:
        """List all files in the dataset's folders, independent of its reader's listing."""
        roots = [self.data.root] if self.table is None else self.table.folders(self.data.root)
        found = self._list_files(roots)
        known = {(file.uri, file.size, file.mtime) for file in found}
        if any((file.uri, file.size, file.mtime) not in known for file in self.state.files):
            raise ConflictError(f"files of {self.data.source.name} changed as they were listed; rewrite again")
        return found

    def _list_files(self, roots: Sequence[str]) -> FileListing:
        kept = [name for name in self.state.frame.columns if name not in self.state.relation.partitions]
        schema = self.state.frame.select(*map(backquote, kept)).schema
        reader = self.spark.read.format("parquet").schema(schema).option("recursiveFileLookup", "true")
        return listing(self.spark, reader.load(list(roots)))

    def _write(self) -> None:
        """Write the rows of the chosen files to the new folder, and count the rows there."""
        if not self.chosen.rewritten:
            return
        frame = restricted_to(self.state, self.chosen.rewritten)
        partitions = self.state.relation.partitions
        self._check_columns()
        codec = codec_of(self.data.source, self.chosen.rewritten)  # raises for encrypted files
        with show_progress(self.spark, f"arranging rows by {self.layout}"):
            expected = frame.count()
            arranged = arrange(
                frame, self.layout, files=self.chosen.files, file_size=self.chosen.file_size,
                partitions=partitions, codec=codec,
            )  # fmt: skip
        with show_progress(self.spark, f"writing {count_of(arranged.files, 'file')}", arranged.files):
            writer = arranged.frame.write.option("compression", codec).partitionBy(*partitions).mode("append")
            writer.parquet(self.folder.staging)
            self.rows = self._new_frame().count()
        if self.rows != expected:
            raise ConflictError(
                f"{self.rows:,} rows were written of {expected:,} that {self.data.source.name} had: its files changed "
                "meanwhile; nothing was replaced, rewrite again"
            )
        self.ids = with_writes({}, [file.uri for file in self._list_files([self.folder.staging])])[WRITES]

    def _check_columns(self) -> None:
        """Raise an error if files have columns that this handle, with columns from one file, does not read."""
        if self.state.relation.options.get("mergeSchema", "").lower() == "true":
            return
        roots = [self.data.root] if self.table is None else self.table.folders(self.data.root)
        try:
            reader = self.spark.read.option("mergeSchema", "true").option("recursiveFileLookup", "true")
            merged = reader.parquet(*roots)
            found = column_names(merged.schema)
        except (PySparkException, Py4JJavaError):  # columns of different types, which the handle reads as one type
            found = columns_of_files(self.data.source, self.chosen.rewritten)
        known = column_names(self.state.frame.schema).union(self.state.relation.partitions)
        fold = str if self.state.relation.is_case_sensitive else str.lower
        unread = sorted({*map(fold, found)} - {*map(fold, known)})
        if unread:
            raise InvalidSpecificationError(
                f"some files of {self.data.source.name} have {', '.join(unread)}, which this handle does not read, so "
                "it would be lost: give mergeSchema=True to dataset(), or add the column to the table"
            )

    def _new_frame(self) -> DataFrame:
        """The rows in the new folder, read with the columns of this handle."""
        reader = self.spark.read.format("parquet").schema(self.state.frame.schema)
        return reader.option("basePath", self.folder.staging).load(self.folder.staging)

    def _copy(self) -> None:
        """Copy the kept files to the new folder."""
        table, root = self.table, self.data.root
        place = table.relative(root) if table is not None else lambda file: relative_path(file.uri, root)
        copies = [(file.uri, f"{self.folder.staging}/{place(file)}") for file in self.chosen.kept]
        copy_files(self.spark, copies)

    def _check_schema(self) -> None:
        """Raise an error if a reader of the new folder would infer columns of other types."""
        if self.table is not None:
            return
        source = DatasetSource(self.spark, self.folder.staging, options=self.data.source.options)
        then, now = ({field.name: field.dataType.simpleString() for field in frame.schema.fields}
                     for frame in (self.state.frame, source.load(self.spark)))  # fmt: skip
        if then != now:
            changed = next(name for name in {**then, **now} if then.get(name) != now.get(name))
            raise GeoskipError(
                f"{changed} of {self.data.source.name} is {then.get(changed)}, and would be {now.get(changed)} in the "
                "new folder: give schema= to dataset(), and to the readers of the new folder; nothing was changed"
            )

    def _check_unchanged(self, when: str) -> None:
        """Raise ConflictError if files were added, removed or changed since the rewrite began."""
        now = self._old_files()
        if now.text == self.before.text:
            return
        changed = sorted({*now.text.split("\n")} ^ {*self.before.text.split("\n")})
        name = changed[0].rpartition("/")[2] if changed else "a file"
        raise ConflictError(
            f"{self.data.source.name} changed {when} ({count_of(len(changed), 'change')}, one of {name}): nothing was "
            "replaced and nothing is lost; rewrite again when no other writer is at work"
        )

    def _index(self) -> BuildReport | None:
        """Create the same indexes in the new folder, and record the layout."""
        if self.snapshot is not None:
            encryption = self.data.store.encryption_of(self.snapshot.header.number)
        else:
            encryption = self.data.source.encryption
            if encryption is not None and encryption.key is None:  # it only reads
                encryption = None
        options = dict(self.data.source.options)
        target = DatasetSource(self.spark, self.folder.final, options=options, encryption=encryption)
        recorded = layout_in(self.snapshot)
        kept = {} if self.chosen.is_whole else recorded
        writes = sorted({*writes_in(recorded, str(self.layout)), *self.ids})
        if layout_name(kept) in ("", str(self.layout)):
            size = kept.get(RECORDED_SIZE) or self.chosen.file_size
            size = size or mean_size([file.size for file in self._list_files([self.folder.final])])
            layout = {**kept, **self.layout.to_json(), WRITES: writes, RECORDED_SIZE: size}
        else:
            layout = {**kept, OTHERS: {**(kept.get(OTHERS) or {}), str(self.layout): writes}}
        if self.snapshot is not None and (entries := self.snapshot.header.entries):
            return create(target, [entry.index for entry in entries], layout)
        record_layout(SparkData(target), layout)
        return None

    def _switch(self, table: TableLocation) -> None:
        """Switch the table to the new folder; switch it back if files were added meanwhile."""
        table.check_current(self.data.root)
        self._check_unchanged("before it was switched")
        written = self._list_files([self.folder.final]).text
        folder_at(self.folder.final).create(SWITCHED, b"")
        try:
            table.switch(self.folder.final)
            self._check_unchanged("as it was switched")
        except Exception as error:
            table.restore()
            if self._list_files([self.folder.final]).text != written:
                raise ConflictError(
                    f"{self.data.source.name} reads {self.data.root} again ({error}), but a writer has added files to "
                    f"{self.folder.final} meanwhile, which stays: append their rows to the table, then remove it"
                ) from error
            folder_at(self.folder.final).delete(SWITCHED)
            raise

    def _discard(self, folder: str) -> None:
        with suppress(Exception):
            folder_at(folder).delete("")

    def _discard_unused(self) -> None:
        """Remove the new folder after an error, unless a table may have been switched to it."""
        if not self.is_done and not folder_at(self.folder.final).exists(SWITCHED):
            self._discard(self.folder.final)
