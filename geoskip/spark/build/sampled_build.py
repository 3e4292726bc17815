"""A build of which some files were read before the others, for what an index chooses from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark import RDD, SparkContext, StorageLevel

from geoskip.lifecycle.refresh import means_the_same
from geoskip.metadata import IndexEntry
from geoskip.spark.build.arrow_reader import FileResult, RowSummaries, put_together
from geoskip.spark.build.spark_reader import plain_uri
from geoskip.spark.build.spill import SpilledRows, stripped, summarised
from geoskip.spark.dataset.listing import ListedFile

__all__ = ["SampledBuild"]


@dataclass
class SampledBuild:
    """What is known of the files that were read first.

    Values that were put aside (:mod:`geoskip.spark.build.spill`) stay with Spark's workers, on their disks, or in the
    driver that read them, until :meth:`finish` or :meth:`close`.
    """

    entries: Sequence[IndexEntry] = ()
    """All that these files were read for, those included that have chosen by now."""
    files: Mapping[str, ListedFile] = field(default_factory=dict)
    etags: Mapping[str, str | None] = field(default_factory=dict)
    results: Mapping[str, FileResult] = field(default_factory=dict)
    here: list[SpilledRows] = field(default_factory=list)
    """What was put aside in the driver: of the files that it read, and of those without rows."""
    _aside: list[RDD[Any]] = field(default_factory=list)

    def serves(self, entries: Sequence[IndexEntry]) -> bool:
        """Are the files summarised for all of these indexes, as they are meant now?"""
        known = {entry.name: entry for entry in self.entries}
        return all(entry.name in known and means_the_same(known[entry.name], entry) for entry in entries)

    @property
    def waits(self) -> bool:
        """Is something aside that the next job should summarise?"""
        return bool(self._aside)

    def first(self, job: RDD[Any]) -> list[list[Any]]:
        """Run the job that reads files; what it puts aside stays where it is."""
        job.persist(StorageLevel.DISK_ONLY)
        try:
            found: list[list[Any]] = job.map(stripped).collect()
        except BaseException:
            job.unpersist()
            raise
        self._aside.append(job)
        return found

    def then(self, job: RDD[Any]) -> list[list[Any]]:
        """Run a job that reads other files, and have summarised with it what was put aside."""
        work = summarised({entry.name: entry.index for entry in self.entries})
        jobs = [job, *(values.mapPartitions(work) for values in self._aside)]
        found: list[list[Any]] = job.context.union(jobs).collect()
        self._forget()
        return found

    def finish(self, context: SparkContext, pieces: Sequence[SpilledRows]) -> None:
        """Complete the results by the summaries of what was put aside: by these pieces, else by a job for them."""
        if self._aside:
            pieces = [piece for some in self.then(context.emptyRDD()) for piece in some]
        indexes = {entry.name: entry.index for entry in self.entries}
        parts: dict[tuple[str, str], list[RowSummaries]] = {}
        for piece in (*pieces, *(piece.made(indexes[piece.index]) for piece in self.here)):
            parts.setdefault((piece.path, piece.index), []).append(RowSummaries(piece.rows, (piece.summary,)))
        for uri, result in self.results.items():
            for name, index in indexes.items():
                if found := parts.get((plain_uri(uri), name)):
                    alone = FileResult(uri, size=self.files[uri].size)
                    put_together(alone, [(name, index)], found, result.readers[name])
                    result.summaries[name] = alone.summaries[name]
                    result.failures.update(alone.failures)
        self.here = []

    def close(self) -> None:
        """Let the workers forget what is still aside; then its files are as if they had not been read."""
        if self._aside or self.here:
            self.files = {}
        self._forget()
        self.here = []

    def _forget(self) -> None:
        for values in self._aside:
            values.unpersist()
        self._aside = []
