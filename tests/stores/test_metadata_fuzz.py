"""Damaged and hostile metadata: whatever lies in the folder, a query is answered, and no row is lost to damage.

*Damage* is what disks and networks do: bytes change and the checksums do not. It is noticed, or changes no decision
for the worse. *Malice* changes checksums too, where there are no keys. It may lie about what a file holds, as any
metadata can, and it may do no more: no code runs, no error but MetadataError, no memory without bounds.

``GEOSKIP_FUZZ=100000 GEOSKIP_SEED=7`` runs more cases from another seed.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from geoskip import BloomFilter, GapList, GeoBox, Hybrid, MetricDist, MinMax, Prefix, Suffix, ValueList
from geoskip.errors import MetadataError
from geoskip.indexes.base import Index, SourceColumn
from geoskip.metadata import FileRow, Header, IndexEntry, build_table
from geoskip.planner import decide
from geoskip.predicates import And, Column, Comparison, In, Like, Literal, Not, Or, Predicate, StartsWith
from geoskip.stores import ParquetStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from geoskip.stores.log_files import checksum

CASES = int(os.environ.get("GEOSKIP_FUZZ", "360"))
SEED = int(os.environ.get("GEOSKIP_SEED", "1"))
KEYS = Encryption(KeyRing({"base": bytes(32), "own": bytes(16)}), "base", indexes={MinMax("n"): "own"})

N, X, Y, S = (Column("n", "bigint"), Column("x", "double"), Column("y", "double"), Column("s", "string"))
INDEXES: tuple[tuple[Index, tuple[Column, ...]], ...] = (
    (MinMax("n"), (N,)),
    (GapList("n"), (N,)),
    (BloomFilter("n"), (N,)),
    (ValueList("s"), (S,)),
    (Hybrid("s"), (S,)),
    (Prefix("s"), (S,)),
    (Suffix("s"), (S,)),
    (GeoBox("x", "y"), (X, Y)),
    (MetricDist("x", "y", metric="euclidean", origins=((0.0, 0.0),)), (X, Y)),
)
DATA = {
    f"{number}.parquet": {
        "n": pa.array([number * 10 + i for i in range(4)], pa.int64()),
        "x": pa.array([number + i / 10 for i in range(4)], pa.float64()),
        "y": pa.array([-number + i / 10 for i in range(4)], pa.float64()),
        "s": pa.array([f"word{number}{i}" for i in range(4)], pa.string()),
    }
    for number in range(6)
}


def literal(value: Any, kind: str) -> Literal:
    return Literal(value, kind)


PREDICATES: tuple[tuple[Predicate, Callable[[int, int], bool]], ...] = (
    (Comparison("=", N, literal(21, "bigint")), lambda f, i: f * 10 + i == 21),
    (
        And((Comparison(">", N, literal(33, "bigint")), Comparison("<", N, literal(50, "bigint")))),
        lambda f, i: 33 < f * 10 + i < 50,
    ),
    (Not(Comparison("<", N, literal(50, "bigint"))), lambda f, i: f * 10 + i >= 50),
    (In(S, (literal("word11", "string"), literal("word42", "string"))), lambda f, i: (f, i) in ((1, 1), (4, 2))),
    (StartsWith(S, "word3"), lambda f, i: f == 3),
    (Like(S, "%23", "\\"), lambda f, i: (f, i) == (2, 3)),
    (
        Or((Comparison("=", S, literal("word50", "string")), Comparison(">", X, literal(5.25, "double")))),
        lambda f, i: f == 5 and i != 1,
    ),
)
"""What is asked, and which row (file, number in it) matches it."""


def entries() -> tuple[IndexEntry, ...]:
    found = []
    for index, columns in INDEXES:
        sources = [SourceColumn(c.name, c.type or "", DATA["0.parquet"][c.name].type) for c in columns]
        pairs = tuple((c.name, c.type or "") for c in columns)
        found.append(IndexEntry(index.bind(list(columns)), pairs, index.metadata_type(*sources), {"zone": "UTC"}))
    return tuple(found)


def table(names: list[str]) -> pa.Table:
    rows = []
    for name in names:
        found = {}
        for index, columns in INDEXES:
            summary = index.collect(*(DATA[name][c.name] for c in columns))
            found[str(index)] = index.for_files([summary], [10_000])[0]
        rows.append(FileRow(name, 5, 6, "e", 4, found))
    return build_table(entries(), rows)


def made(path: Path, encryption: Encryption | None) -> Path:
    """Metadata of two parts, a snapshot before the latest, and an operation."""
    store = ParquetStore(path, encryption=encryption)
    store.record(
        1, {"verb": "create", "state": "done", "parameters": {"indexes": ["minmax(n)"]}}, identity=store.begin()
    )
    header = Header("file:/data", {"class": "x", "options": {}, "schema": "{}", "settings": {}}, entries())
    names = list(DATA)
    header = store.commit(header, table(names[:4]), expected=None)
    store.amend(header, pa.array([False] * 4), table(names[4:]), expected=1)
    return path


@pytest.fixture(scope="module", params=[None, KEYS], ids=["in clear", "protected"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Encryption | None]:
    return made(tmp_path_factory.mktemp("sound") / "_geoskip", request.param), request.param


Kept = list[tuple[int, dict[str, bool]]]


def asked(path: Path, encryption: Encryption | None, numbers: Sequence[int] = range(7)) -> Kept | None:
    """Of some predicates which files they keep, by all that a query asks; None where the metadata cannot be used."""
    store = ParquetStore(path, encryption=encryption)
    try:
        latest = store.latest()
        if latest is None:
            return None
        snapshot = store.load(latest)
        names = snapshot.files.column("path").to_pylist()
        snapshot.files.paths_text()
    except MetadataError:
        return None
    kept = []
    for number in numbers:
        decision = decide(snapshot, PREDICATES[number][0])
        assert len(decision.keep) == snapshot.header.files
        kept.append((number, dict(zip(names, decision.keep.tolist(), strict=True))))
    return kept


def asked_for_people(path: Path, encryption: Encryption | None) -> None:
    """What verbs and ``describe`` ask."""
    store = ParquetStore(path, encryption=encryption)
    for ask in (store.describe, store.snapshots, lambda: [store.operation(number) for number in store.operations()]):
        try:
            ask()
        except MetadataError:
            continue


def lost(kept: Kept | None) -> list[str]:
    """The files that a predicate matches and a decision skips."""
    return [
        f"{PREDICATES[number][0]} in {file}.parquet"
        for number, files in kept or ()
        for file in range(6)
        if any(PREDICATES[number][1](file, i) for i in range(4)) and not files.get(f"{file}.parquet", True)
    ]


def test_what_is_sound_skips_and_loses_nothing(sound: tuple[Path, Encryption | None]) -> None:
    kept = asked(*sound)
    assert kept is not None
    assert lost(kept) == []
    assert [sum(files.values()) for _, files in kept] == [1, 1, 1, 2, 1, 1, 1]


# --- damage -----------------------------------------------------------------------------------------------------------


def flipped(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def grown(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, 40))


def shifted(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randrange(1, 20)]


def blanked(data: bytearray, rng: random.Random) -> None:
    at, count = rng.randrange(len(data)), rng.randrange(1, 600)
    data[at : at + count] = bytes(len(data[at : at + count]))


def repeated(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    some = data[at : at + 200]
    data[at : at + 2 * len(some)] = some + some


DAMAGE = (flipped, flipped, flipped, cut, grown, shifted, blanked, repeated)


@pytest.mark.slow
def test_damage_loses_no_row(sound: tuple[Path, Encryption | None], tmp_path: Path) -> None:
    path, encryption = sound
    place = tmp_path / "m"
    shutil.copytree(path, place)
    files = sorted(file for file in place.rglob("*") if file.is_file())
    rng = random.Random(SEED)
    noticed = 0
    cases = CASES // 2 if encryption is None else CASES // 6
    for case in range(cases):
        file = files[case % len(files)]
        whole = file.read_bytes()
        data = bytearray(whole)
        rng.choice(DAMAGE)(data, rng)
        file.write_bytes(data)
        kept = asked(place, encryption, [case // len(files) % 7])
        assert lost(kept) == [], f"case {case} of seed {SEED}: {file.name}"
        if case % 10 == 0:
            asked_for_people(place, encryption)
        noticed += kept is None
        file.write_bytes(whole)
    assert noticed > cases // 2
    assert asked(place, encryption) == asked(path, encryption)


@pytest.mark.parametrize("gone", ["_identity.json", "_log", "_parts", "_operations"])
def test_what_is_gone_loses_no_row(sound: tuple[Path, Encryption | None], tmp_path: Path, gone: str) -> None:
    path, encryption = sound
    shutil.copytree(path, tmp_path / "m")
    victim = tmp_path / "m" / gone
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    assert (asked(tmp_path / "m", encryption) is None) == (gone != "_operations")
    asked_for_people(tmp_path / "m", encryption)


# --- malice -----------------------------------------------------------------------------------------------------------

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**62, 2**63, 10**40, -(10**40), 1.5, float("nan"), float("inf"), "", "x", "\x00",
    "\ud800", "../../etc/passwd", "/dev/zero", "_parts/_" + "0" * 32 + ".parquet", "a" * 100_000, "(" * 5000, "(a+)+$",
    [], {}, [[]], [None], {"": None}, {"node": "column", "name": []}, {"sealed": "x"}, {"int": "9" * 5000},
    {"decimal": "1e999999999"}, {"wkb": "0107000000ffffffff"}, {"wkb": "01030000000100000000000040"}, {"bytes": "zz"},
    {"array": [{"array": []}] * 50}, {"__reduce__": ["os.system", ["true"]]}, {"py/object": "os.system"},
)  # fmt: skip


def deep(levels: int) -> Any:
    found: Any = {"node": "column", "name": "n"}
    for _ in range(levels):
        found = {"node": "not", "child": found}
    return found


def spots(data: Any) -> list[tuple[Any, Any]]:
    """Every place in some JSON, as its holder and its key there."""
    found, waiting = [], [data]
    while waiting:
        holder = waiting.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            found.append((holder, key))
            if value and isinstance(value, dict | list):
                waiting.append(value)
    return found


def mutated(text: str, rng: random.Random) -> Any:
    """What JSON says, with something hostile in it."""
    found = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        places = spots(found)
        holder, key = rng.choice(places)
        what = rng.randrange(10)
        if what == 0 and isinstance(holder, dict):
            del holder[key]
        elif what == 1:
            other, place = rng.choice(places)
            holder[key] = copy.deepcopy(other[place]) if place in other or isinstance(other, list) else None
        elif what == 2 and isinstance(holder, dict):
            holder[rng.choice(("x", "node", "removed", "leaves", "name"))] = copy.deepcopy(rng.choice(HOSTILE))
        elif what == 3:
            holder[key] = deep(rng.choice((3, 150, 250)))
        elif what == 4 and isinstance(holder[key], int):
            holder[key] += rng.choice((-1, 1, 1 << 20, -(1 << 40)))
        elif what == 5 and isinstance(holder[key], list):
            holder[key] = holder[key] * 3
        else:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
    return found


def latest_entry(place: Path) -> Path:
    return max(place.glob("_log/*/*.json"))


@pytest.mark.slow
def test_hostile_json_is_read_or_refused(tmp_path: Path) -> None:
    place = made(tmp_path / "_geoskip", None)
    entry = latest_entry(place)
    data = json.loads(entry.read_text())["header"]
    texts = {where: json.dumps(data[where] if where else data) for where in ("", "indexes", "parts")}
    rng = random.Random(SEED)
    read = 0
    for case in range(CASES // 3):
        where = ("", "indexes", "parts")[case % 3]
        found = mutated(texts[where], rng)
        header = {**data, where: found} if where else found
        entry.write_text(json.dumps({"crc": checksum(header), "header": header}))
        try:
            read += asked(place, None, [case % 7]) is not None
            if case % 10 == 0:
                asked_for_people(place, None)
        except BaseException as error:
            raise AssertionError(f"case {case} of seed {SEED}: {_difference(data, header)}") from error
    assert CASES // 30 < read < CASES // 3


def _difference(one: Any, other: Any) -> str:
    lines = [json.dumps(tree, indent=1).splitlines() for tree in (one, other)]
    return "\n".join(line[:200] for line in lines[1] if line not in set(lines[0]))[:2000]
