"""Candidate indexes of a dataset, with their costs and the files of a sample that each skips."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from geoskip.advisor.coverage import Coverage, VertexMasks, masks_of
from geoskip.advisor.index_candidates import index_candidates
from geoskip.clauses import Mask
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.lifecycle.log import latest
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.predicates import Column, Opaque, Predicate, walk
from geoskip.rewrite import canonical
from geoskip.sources.column_names import quote_if_needed
from geoskip.sources.listed_files import ListedFile, absolute_uri, is_below
from geoskip.sources.progress import delayed_progress
from geoskip.spark.advisor.file_sample import FileSample, sample_files
from geoskip.spark.advisor.scan_conditions import ScanCondition
from geoskip.spark.advisor.what_if import AskedQuery, usable_indexes
from geoskip.spark.analysis import bind
from geoskip.spark.build.listing import SourceState
from geoskip.spark.dataset.handle import Dataset

_MOST_VECTORS = 16
"""Maximum number of vectors of partition values for which conditions are searched for candidates."""


@dataclass(frozen=True)
class Candidates:
    """Indexes that could support the queries and can be built.

    Attributes
    ----------
    entries
        The indexes, bound by Spark.
    together
        Groups of names of these and of existing indexes that support a comparison only together.
    unserved
        Queries without a candidate, each with the reason.
    """

    entries: tuple[IndexEntry, ...]
    together: tuple[tuple[str, ...], ...]
    unserved: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class JudgedCandidates:
    """Candidates with their sizes, and the masks by which they and existing indexes skip sampled files.

    Attributes
    ----------
    coverage
        Masks of the queries' conditions over the sampled files.
    costs
        Estimated metadata bytes of each candidate for all files.
    files, bytes
        Scale factors of files and of bytes from the sample to the dataset.
    """

    coverage: Coverage
    costs: Mapping[str, int]
    files: float
    bytes: float

    def savings(self, names: Iterable[str]) -> tuple[float, float]:
        """Files and bytes of the dataset that some candidates would save for the queries."""
        chosen, base, files = frozenset(names), self.coverage.base, 0.0
        for query, weight in enumerate(self.coverage.weights):
            before, after = (self.coverage.masks(query, some) for some in (base, base | chosen))
            files += weight * (_count(before) - _count(after))
        return files * self.files, self.coverage.saving(chosen) * self.bytes


def _count(masks: Iterable[Mask]) -> int:
    return sum(int(mask.sum()) for mask in masks)


def candidates_for(dataset: Dataset, state: SourceState, asked: Sequence[AskedQuery]) -> Candidates:
    """Return the indexes that could support some queries, can be built and do not exist yet.

    Raises InvalidSpecificationError if no index could support any query, with the reason for each.
    """
    scans = [[scan.predicates_over()[:_MOST_VECTORS] for scan in query.scans if scan.condition] for query in asked]
    conditions = [list(dict.fromkeys(itertools.chain.from_iterable(of_query))) for of_query in scans]
    found = index_candidates(dict.fromkeys(itertools.chain.from_iterable(conditions)))
    snapshot = latest(dataset.store)
    existing = {_canonical_key(entry.index) for entry in snapshot.header.entries} if snapshot is not None else set()
    distinct = {_canonical_key(index): index for index in found.indexes}
    entries = _bindable(dataset, state, [index for key, index in distinct.items() if key not in existing])
    served = {_canonical_key(entry.index) for entry in entries} | existing
    unserved = []
    for query, own in zip(asked, conditions, strict=True):
        indexes = index_candidates(own).indexes
        if served.isdisjoint(map(_canonical_key, indexes)):
            unserved.append((query.text, _why_unserved(query, own, indexes, state.relation.partitions)))
    if len(unserved) == len(asked):
        each = "; ".join(f"{query}: {why}" for query, why in unserved)
        raise InvalidSpecificationError(f"no index could serve these queries of {dataset._source.name}: {each}")
    names = {entry.name for entry in (*entries, *(snapshot.header.entries if snapshot is not None else ()))}
    together = tuple(group for group in found.together if names.issuperset(group))
    return Candidates(tuple(entries), together, tuple(unserved))


def _why_unserved(
    query: AskedQuery, conditions: Sequence[Predicate], unbuildable: Sequence[Index], partitions: Sequence[str]
) -> str:
    texts = [scan.condition for scan in query.scans if scan.condition]
    if not texts:
        return "it has no condition on the columns of this dataset"
    nodes = [node for condition in conditions for node in walk(condition)]
    columns = {node.name for node in nodes if isinstance(node, Column)}  # partition columns may be replaced by values
    if columns <= set(map(quote_if_needed, partitions)) and not any(isinstance(node, Opaque) for node in nodes):
        return "it has conditions on partition columns alone, for which Spark needs no index"
    if unbuildable:
        return f"{unbuildable[0]} would serve it, but cannot be built over this dataset"
    return f"no type of index serves {' or '.join(texts)[:200]}"


def _canonical_key(index: Index) -> tuple[object, ...]:
    """Key of a bound index that depends neither on spelling nor on parameters chosen by a build."""
    texts = index.expressions()
    options = [(name, value) for name, value in index.to_json().items() if value not in (*texts, texts)]
    return index.kind, index.bound, repr([(name, value) for name, value in options if name != "origins"])


def _bindable(dataset: Dataset, state: SourceState, indexes: Sequence[Index]) -> list[IndexEntry]:
    """Entries of the indexes that can be built, and that Spark binds to the proposed expressions."""
    if not indexes:
        return []
    try:
        entries = bind(state.frame, state.relation, indexes)
    except GeoskipError:
        if len(indexes) == 1:
            return []
        half = len(indexes) // 2
        return [*_bindable(dataset, state, indexes[:half]), *_bindable(dataset, state, indexes[half:])]
    return [entry for entry, index in zip(entries, indexes, strict=True) if entry.index.bound == index.bound]


def sample_of(dataset: Dataset, entries: Iterable[IndexEntry], files: Sequence[ListedFile]) -> FileSample:
    """Collect the candidates' summaries of some files, without candidates that fail for all files."""
    indexes = {entry.name: entry.index for entry in entries}
    while True:
        try:
            return sample_files(dataset, list(indexes.values()), files)
        except GeoskipError as error:
            failed = [name for name in indexes if str(error).startswith(f"{name} ")]
            if not failed:
                raise
            del indexes[failed[0]]


def judge(
    snapshot: Snapshot,
    state: SourceState,
    costs: Mapping[str, int],
    asked: Sequence[AskedQuery],
    together: Sequence[Sequence[str]],
) -> JudgedCandidates:
    """Decide every part of every condition with each index of a snapshot.

    Parameters
    ----------
    snapshot
        Summaries of a sample of files, or of the files of a simulated layout.
    state
        The dataset.
    costs
        Metadata bytes of each proposed index; other indexes of the snapshot are existing ones.
    asked
        The queries.
    together
        Groups of names of indexes that support a comparison only together.
    """
    sizes = np.asarray(snapshot.files.column("size"), dtype=np.int64)
    every = sum(file.size for file in state.files)
    masks = list[list[tuple[VertexMasks, Mask]]]()
    with delayed_progress("trying indexes", "queries", len(asked)) as advance:
        for query in asked:
            masks.append([part for scan in query.scans for part in _masks(scan, snapshot, state, together)])
            advance(len(masks))
    coverage = Coverage(
        masks,
        sizes,
        [float(query.count) for query in asked],
        frozenset(entry.name for entry in snapshot.header.entries) - costs.keys(),
    )
    return JudgedCandidates(coverage, costs, len(state.files) / max(1, len(sizes)), every / max(1, int(sizes.sum())))


def _masks(
    scan: ScanCondition, snapshot: Snapshot, state: SourceState, together: Sequence[Sequence[str]]
) -> Iterable[tuple[VertexMasks, Mask]]:
    """Masks of a scan's condition, computed once for all partitions with the same condition."""
    root = snapshot.header.root
    usable = usable_indexes(scan, snapshot, snapshot.header.entries, state, [])
    by_name = {str(index): index for index in usable}
    groups = [[by_name[name] for name in names] for names in together if by_name.keys() >= set(names)]
    paths = snapshot.files.column("path").to_pylist()
    in_scope = np.array([is_below(absolute_uri(path, root), scan.roots) for path in paths], dtype=bool)
    places = scan.places(snapshot)
    yield VertexMasks({}), in_scope & (places == -1)
    alike: dict[Predicate, list[int]] = {}
    for place, predicate in enumerate(scan.predicates_over(snapshot)):
        if (places == place).any():
            alike.setdefault(canonical(predicate), []).append(place)
    with scan.deciding_files(snapshot) as decide_part:
        for condition, same in alike.items():
            masks = masks_of(condition, partial(decide_part, same[0]), usable, groups)
            yield masks, in_scope & np.isin(places, same)
