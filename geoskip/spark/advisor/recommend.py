"""Recommended indexes for some queries, within a budget of bytes.

1. Candidates are the indexes that could support a condition (:mod:`geoskip.advisor.index_candidates`). Spark analyses
   the text of each as for a build; a candidate is dropped if its expression then differs from that of the query.
2. All candidates summarise one random sample of files, in one job (:mod:`geoskip.spark.advisor.file_sample`), and
   their metadata bytes are measured.
3. Every part of every condition is decided with each candidate by the real planner; from these masks the saving of any
   set of indexes is computed (:mod:`geoskip.advisor.coverage`).
4. A set is selected within the budget (:mod:`geoskip.advisor.selection`), in addition to the existing indexes. An
   index is selected only if it saves more bytes in one run of the queries than it stores.
5. The files and bytes read with the chosen set are estimated as by :func:`geoskip.what_if`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from geoskip.advisor.advice import Advice, AdvisedIndex, AdvisedLayout, SuperfluousIndex
from geoskip.advisor.coverage import Coverage, bundles_of, undominated_indexes
from geoskip.advisor.estimates import check_seed, check_share
from geoskip.advisor.query_estimates import WhatIf
from geoskip.advisor.selection import select
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.metadata import Snapshot, bytes_of
from geoskip.report import count_of, size_of
from geoskip.sources.build_verbs import BuildReport
from geoskip.spark.advisor.advised_layout import advised_layout
from geoskip.spark.advisor.file_sample import FileSample, choose_files, require_dataset
from geoskip.spark.advisor.judged_candidates import JudgedCandidates, candidates_for, judge, sample_of
from geoskip.spark.advisor.what_if import AskedQuery, asked_queries, estimate
from geoskip.spark.dataset.handle import Dataset
from geoskip.spark.dataset.rewrite_choice import codec_of
from geoskip.spark.dataset.rewrite_files import rewritable_table
from geoskip.spark.dataset.source import SparkData

Query = str | DataFrame
_SHARE = 0.05
_LEAST_FILES, _MOST_FILES = 64, 512
"""Default limits of the number of sampled files: fewer give random results, more take long with all candidates."""
_FOOTERS = 4
"""Number of sampled files of which the footers show whether a rewrite would refuse them."""
_CONFIDENCE = 0.9


def recommend(
    dataset: Dataset,
    queries: Sequence[Query] | None = None,
    budget: int | str = "10 MiB",
    layouts: bool = True,
    *,
    sample: float | None = None,
    seed: int = 0,
) -> Advice:
    """Recommend indexes and a layout that save the most bytes for some queries; nothing is built.

    Parameters
    ----------
    dataset
        The handle, from :func:`geoskip.dataset`. Its metadata are read and not changed. Savings are counted on top of
        its existing indexes, so that a recommendation is never worse than the present state.
    queries
        SQL texts or DataFrames; None for those recorded by the session (``spark.geoskip.workload``). They are planned
        and not run.
    budget
        Maximum total size of the new indexes: bytes, or a text such as ``"10 MiB"``.
    layouts
        Also evaluate layouts over the expressions in the queries' filters.
    sample
        The share of files to read, above 0 and up to 1; by default 5 %, from 64 to 512 files.
    seed
        Seed of the sample.

    Returns
    -------
    Advice
        The indexes with their savings and costs, and Python code that builds them; :meth:`Advice.apply` builds them.

    Raises
    ------
    InvalidSpecificationError
        If there are no queries, if all queries read other data, if no index could support their conditions, or if the
        dataset has no index yet and none that pays fits into the budget.
    DatasetNotFoundError
        If the dataset has no files.

    Notes
    -----
    Savings are those of the sampled files. If no index saves more together with others than alone (savings are
    submodular), as for conditions joined by AND, the selected set saves at least 1/2 (1 - 1/e) = 0.316 of the optimum
    within the budget; in tests against all sets of small cases it was 0.9 or more. Indexes that save only together, as
    for the sides of an OR, are selected in pairs, with the same bound. :mod:`geoskip.advisor.selection` has the
    conditions of the proof. A set that saves less than it stores is not selected, whatever the budget.
    """
    limit = _budget(budget)
    check_share(_SHARE if sample is None else sample, _CONFIDENCE)
    check_seed(seed)
    if not isinstance(layouts, bool):
        raise InvalidSpecificationError(f"layouts= takes True or False, got {layouts!r}")
    source = require_dataset(dataset)._source
    state = source.current_state()
    count = len(state.files)
    usual = min(1.0, max(_LEAST_FILES, min(_MOST_FILES, _SHARE * count)) / max(1, count))
    share = usual if sample is None else sample
    files = choose_files(state, share, seed)
    asked, untouched = asked_queries(dataset, state, queries)
    candidates = candidates_for(dataset, state, asked)
    sampled = sample_of(dataset, candidates.entries, files)
    judged = judge(sampled.snapshot, state, sampled.metadata_bytes(), asked, candidates.together)
    names, notes = _selection(judged, limit), []
    if not names and (too_small := _unaffordable(judged, limit)):
        if not judged.coverage.base:
            raise InvalidSpecificationError(too_small)
        notes.append(too_small)
    advised = _advised_indexes(judged, {entry.name: entry.index for entry in candidates.entries}, names, asked)
    what_if = _what_if(source.name, _restrict_indexes(sampled, names), asked, judged, untouched)
    layout = None
    if layouts:
        try:
            rewritable_table(SparkData(source, state))
            codec_of(source, files[:_FOOTERS])  # raises for encrypted files and GeoParquet
            layout = advised_layout(
                sampled, asked, what_if, lambda trial: _selection(trial, limit), share=share, seed=seed
            )
        except GeoskipError as error:
            notes.append(f"layouts were not tried: {error}")
    kept = layout.existing if layout is not None else ()
    superfluous = tuple(each for each in _superfluous(judged, sampled, names, asked) if each.name not in kept)
    return Advice(
        dataset=source.name,
        handle=_handle(dataset),
        indexes=advised,
        estimate=what_if,
        layout=layout,
        superfluous=superfluous,
        unserved=candidates.unserved,
        budget=limit,
        candidates=len(sampled.proposed),
        notes=tuple(notes),
        queries={query.number: query.text for query in asked},
        build=lambda: _build_within(dataset, advised, judged, limit),
        rewrite=lambda: _rewritten(dataset, layout),
    )


def _build_within(
    dataset: Dataset, advised: Sequence[AdvisedIndex], judged: JudgedCandidates, budget: int
) -> BuildReport:
    """Build the advised indexes; if they exceed the budget, select among them again, by their true sizes.

    A warning names the indexes that are taken out of use.
    """
    report = dataset.create_index(*(each.index for each in advised))
    sizes = {str(each.index): report.metadata_bytes.get(str(each.index), 0) for each in advised}
    if sum(sizes.values()) <= budget:
        return report
    costs = {name: sizes.get(name, budget + 1) for name in judged.costs}
    dropped = sorted(sizes.keys() - _selection(replace(judged, costs=costs), budget))
    dataset.delete_index(*dropped)
    warnings.warn(
        f"the advised indexes store {size_of(sum(sizes.values()))}, more than estimated and than the budget of "
        f"{size_of(budget)}; taken out of use: {', '.join(dropped)}; restore_index() takes them back, and "
        "vacuum_index() removes them",
        stacklevel=4,
    )
    return replace(
        report,
        indexes=tuple(name for name in report.indexes if name not in dropped),
        readers={name: reader for name, reader in report.readers.items() if name not in dropped},
        metadata_bytes={name: size for name, size in report.metadata_bytes.items() if name not in dropped},
    )


def _rewritten(dataset: Dataset, advised: AdvisedLayout | None) -> Any:
    """Build the indexes of the advised layout, and rewrite the data in it; returns the report."""
    if advised is None:
        return None
    if advised.indexes:
        dataset.create_index(*advised.indexes)
    return dataset.rewrite(layout=advised.layout, files=advised.estimate.files_after)


def _budget(given: object) -> int:
    """A budget in bytes; raises InvalidSpecificationError for other values."""
    found = bytes_of(given)
    if found is None:
        raise InvalidSpecificationError(f"budget= takes bytes, as a number or a text such as '10 MiB', got {given!r}")
    return found


def _selection(judged: JudgedCandidates, budget: int) -> frozenset[str]:
    """The candidates to build."""
    left, bundles = _undominated(judged)
    return select(left, partial(_saved_bytes, judged), budget, bundles=bundles, least_per_cost=1.0).items


def _unaffordable(judged: JudgedCandidates, budget: int) -> str | None:
    """Message that names the cheapest indexes that pay, which the budget excludes; None if none pays."""
    left, bundles = _undominated(judged)
    groups = [frozenset([name]) for name in left] + [frozenset(bundle) for bundle in bundles]
    costs = {group: sum(left[name] for name in group) for group in groups}
    paying = [group for group in groups if _saved_bytes(judged, group) > costs[group]]
    if not paying:
        return None
    cheapest = min(paying, key=costs.__getitem__)
    return (
        f"budget= of {size_of(budget)} is too small for any index that pays: the cheapest, "
        f"{' with '.join(sorted(cheapest))}, would store about {size_of(round(costs[cheapest]))}"
    )


def _undominated(judged: JudgedCandidates) -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """Costs of the candidates that are not dominated, and the sets that save only together."""
    left = {name: float(judged.costs[name]) for name in undominated_indexes(judged.coverage, judged.costs)}
    return left, bundles_of(judged.coverage, left)


def _saved_bytes(judged: JudgedCandidates, names: frozenset[str]) -> float:
    return judged.coverage.saving(names) * judged.bytes


def _advised_indexes(
    judged: JudgedCandidates, candidates: Mapping[str, Index], names: frozenset[str], asked: Sequence[AskedQuery]
) -> tuple[AdvisedIndex, ...]:
    """The chosen indexes with their savings and costs, those with the largest savings first."""
    every = judged.savings(names)
    found = []
    for name in names:
        alone, without = judged.savings([name]), judged.savings(names - {name})
        files, size = (round(all_of - others) for all_of, others in zip(every, without, strict=True))
        found.append(
            AdvisedIndex(
                candidates[name].bind(()),
                files=max(files, round(alone[0])),
                bytes=max(size, round(alone[1])),
                adds_files=files,
                adds_bytes=size,
                metadata_bytes=judged.costs[name],
                queries=tuple(asked[place].number for place in judged.coverage.queries_of(name)),
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.metadata_bytes, str(each.index))))


def _superfluous(
    judged: JudgedCandidates, sampled: FileSample, names: frozenset[str], asked: Sequence[AskedQuery]
) -> tuple[SuperfluousIndex, ...]:
    """Existing indexes that the queries do not need, the largest first.

    An index that skips files is superfluous if the advised indexes skip the same sampled files. Whether it skips any
    file at all is decided with the summaries of all files, which exist.
    """
    if sampled.existing is None:
        return ()
    stored = {
        name: sum(c.bytes for part in sampled.existing.header.parts for c in part.columns.values() if c.name == name)
        for name in judged.coverage.base
    }
    alone = replace(judged.coverage, base=frozenset())
    everywhere = judge(sampled.existing, sampled.state, {}, asked, ()).coverage
    every = replace(everywhere, base=frozenset())
    left, existing, found = names | judged.coverage.base, frozenset(everywhere.base), []

    def is_needed(of: Coverage, name: str, others: frozenset[str]) -> bool:
        return of.saving(others - {name}) != of.saving(others)

    for name in sorted(stored, key=lambda name: (-stored[name], name)):
        unseen = not is_needed(alone, name, existing) and is_needed(every, name, existing)
        if not is_needed(alone, name, left) and not unseen:
            left, existing = left - {name}, existing - {name}
            found.append(SuperfluousIndex(name, stored[name]))
    return tuple(found)


def _restrict_indexes(sampled: FileSample, names: frozenset[str]) -> FileSample:
    """The sample with only the existing and the chosen indexes."""
    proposed = {entry.name for entry in sampled.proposed}
    entries = tuple(e for e in sampled.snapshot.header.entries if e.name not in proposed or e.name in names)
    snapshot = Snapshot(replace(sampled.snapshot.header, entries=entries), sampled.snapshot.files)
    chosen = tuple(entry for entry in sampled.proposed if entry.name in names)
    return replace(sampled, snapshot=snapshot, proposed=chosen)


def _what_if(
    name: str, sampled: FileSample, asked: Sequence[AskedQuery], judged: JudgedCandidates, untouched: tuple[str, ...]
) -> WhatIf:
    """An estimate of the files and bytes that the queries would read with the chosen indexes."""
    chosen = [entry.name for entry in sampled.proposed]
    state = sampled.state
    return WhatIf(
        dataset=name,
        indexes=tuple(chosen),
        layout=None,
        queries=tuple(estimate(query, sampled, _CONFIDENCE) for query in asked),
        files=len(state.files),
        bytes=sum(file.size for file in state.files),
        files_after=len(state.files),
        sampled=f"{len(sampled.files):,} of {count_of(len(state.files), 'file')}",
        confidence=_CONFIDENCE,
        metadata_bytes={each: judged.costs[each] for each in chosen},
        build_seconds=sampled.build_seconds(),
        sample_seconds=sampled.timing.seconds,
        untouched=untouched,
    )


def _handle(dataset: Dataset) -> str:
    """Python code that creates this handle, given the names ``spark``, ``store`` and ``encryption``."""
    source = dataset._source
    options: dict[str, Any] = {} if source.table is not None else {"format": source.format, **source.options}
    if options.get("format") == "parquet":
        del options["format"]
    if source.metadata is not None:
        options["metadata"] = source.metadata
    where = f"table={source.table!r}" if source.table is not None else repr(source.path)
    given = [f"{name}={value!r}" for name, value in options.items()]
    given += ["store=store"] * (source.given is not None) + ["encryption=encryption"] * (source.encryption is not None)
    return f"geoskip.dataset({', '.join(['spark', where, *given])})"
