"""Evaluate a query's conditions for single values with Spark's own evaluator.

During a decision the rule keeps the conditions (``jvm/Evaluation.java``). A node of the predicate is matched to the
Catalyst expression that translates to it. The indexed expression in it is replaced by values, and Spark evaluates the
rest in the driver, without a job and with its own semantics: collations, time zones, Java's regular expressions. An
array of values is sent to the JVM once and then referenced by name.

A Python function in the expression is called by geoskip, once for each value, with Spark's rules of conversion
(soundness rule 6): a result of another type than declared is unknown, and so is one for which it raises.
"""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.evaluation import Declined
from geoskip.evaluation.values import (
    ANY,
    IS_FALSE,
    IS_NULL,
    IS_TRUE,
    CandidateValues,
    Outcomes,
    ZoneTransitions,
    direct_outcomes,
    negation,
)
from geoskip.predicates import (
    Call,
    Cast,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Predicate,
    children,
    normalise,
    walk,
)
from geoskip.registry import current
from geoskip.rewrite import fold_constants
from geoskip.spark.rule.python_udfs import call_udf
from geoskip.spark.rule.translate import Translator, type_name
from geoskip.types import sql_type

Json = Mapping[str, Any]
_MOST_BYTES = 64 << 20
"""Maximum number of bytes of values that are sent to the JVM for one condition."""
_BY_WIRE = 1 << 16
_MOST_OTHERS = 100
_VALUE = 8
"""The outcome of an expression that is not a condition: a value that is not NULL."""


@dataclass(frozen=True)
class _QueryVertex:
    """A node of the conditions: its path, its JSON and its predicate."""

    path: str
    node: Json
    predicate: Predicate
    others: list[str] = field(default_factory=list, compare=False)
    """The paths of further nodes with the same predicate; the JVM checks that their expressions are equal."""


def _is_unsettled(node: Predicate) -> bool:
    """True for ``x IN (1.0, ..., NULL)``: for NaN it is NULL or FALSE, depending on code generation."""
    if not isinstance(node, In) or not sql_type(node.child.type).is_floating:
        return False
    return any(value.value is None for value in node.values)


def _depends_on_form(node: Predicate, over: Predicate) -> bool:
    """True if Spark may cast the same decimal in two ways, with different results.

    Spark has two internal forms of decimals with up to 18 digits, and casts to int and double convert them differently
    (999999999.999999999 becomes 999999999 or 1000000000); up to 15 digits both agree. Stored values have one form,
    computed ones may have either. Casts of more than 28 digits to timestamp differ with and without code generation.
    """
    computed = not isinstance(over, Column) and _digits(over) > 15
    return any(
        isinstance(vertex, Cast)
        and sql_type(vertex.type).kind != "decimal"
        and ((computed and _digits(vertex.child) > 15) or (vertex.type == "timestamp" and _digits(vertex.child) > 28))
        for vertex in walk(node)
    )


def _digits(node: Predicate) -> int:
    kind = sql_type(node.type)
    return kind.precision if kind.kind == "decimal" else 0


_clocks: dict[str, ZoneTransitions | None] = {}

Answers = dict[tuple[int, Predicate, Predicate], "Outcomes | None"]


class SparkEvaluator:
    """Evaluates expressions in the conditions of one request, until ``deadline`` (``time.monotonic``).

    ``java`` is ``geoskip.Geoskip``; implements :class:`geoskip.evaluation.Evaluator`. The constructor does no work. A
    request has one evaluator for each vector of partition values (``slots``); they share their ``answers``.
    """

    def __init__(
        self,
        java: Any,
        request: Json,
        *,
        slots: Sequence[Json | None],
        names: Callable[[str], str],
        deadline: float,
        answers: Answers,
    ) -> None:
        self.java = java
        self.request = request
        self.slots = slots
        self.names = names
        self.deadline = deadline
        self.answers = answers
        self._by_path: dict[str, _QueryVertex] = {}
        self._by_predicate: dict[Predicate, _QueryVertex] = {}
        self._sent: set[str] = set()

    def outcomes(self, node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes | None:
        """Evaluate a condition if it, its negation or its operand is part of the query; else None."""
        key = (values.token, over, node)
        if key not in self.answers:
            self.answers[key] = self._answer(node, over, values)
        return self.answers[key]

    def _answer(self, node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes | None:
        place = self._vertex_of(node)
        if place is not None:
            found = self._outcomes(place, over, values)
            return np.where(found == _VALUE, np.uint8(ANY), found)
        opposite = self._vertex_of(normalise(Not(node)))
        if opposite is not None:
            found = self._outcomes(opposite, over, values)
            return negation(np.where(found == _VALUE, np.uint8(ANY), found))
        match node:
            case IsNull(child) if (place := self._vertex_of(child)) is not None:
                found = self._outcomes(place, over, values)
                test = np.where(found == IS_NULL, np.uint8(IS_TRUE), np.uint8(IS_FALSE))
                return np.where(found == ANY, np.uint8(ANY), test)
            case Comparison() | In() | Like():
                return self._of_part(node, over, values)
        return None

    def values(self, node: Predicate, over: Predicate, values: CandidateValues) -> pa.Array | None:
        """Evaluate an expression that is part of the query; NULL also if it throws."""
        place = self._vertex_of(node)
        if place is None:
            return None
        found, thrown = self._values(place, over, values)
        return pc.if_else(pa.array(thrown), pa.scalar(None, found.type), found) if thrown.any() else found

    def clocks(self, zone: str) -> ZoneTransitions | None:
        """The transitions of a time zone from the JVM, which are cached; None if it has none."""
        if zone not in _clocks:
            text = self.java.clocks(zone)
            _clocks[zone] = None if text is None else ZoneTransitions.of(text)
        return _clocks[zone]

    def _of_part(self, node: Predicate, over: Predicate, values: CandidateValues) -> Outcomes | None:
        """The outcomes of a condition with a left side that is part of the query; None if it is not."""
        part = children(node)[0]
        place = self._vertex_of(part)
        if place is None or part == over:
            return None
        found, thrown = self._values(place, over, values)
        decided = direct_outcomes(node, part, CandidateValues(found))
        return None if decided is None else np.where(thrown, np.uint8(ANY), decided)

    # --- nodes of the conditions --------------------------------------------------------------------------------------

    def _vertex_of(self, node: Predicate) -> _QueryVertex | None:
        if not self._by_path:
            self._find()
        return self._by_predicate.get(node)

    def _find(self) -> None:
        translator = _RecordingTranslator(slots=self.slots, names=self.names)
        for number, condition in enumerate(self.request["conditions"]):
            translator.predicate(condition)
            for path, node in _walk(str(number), condition):
                made = translator.made.get(id(node))
                if made is not None:
                    predicate = normalise(fold_constants(made))
                    place = _QueryVertex(path, node, predicate)
                    self._by_path[path] = place
                    first = self._by_predicate.setdefault(predicate, place)
                    if first is not place:
                        first.others.append(path)

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def _outcomes(self, place: _QueryVertex, over: Predicate, values: CandidateValues) -> Outcomes:
        if any(map(_is_unsettled, walk(place.predicate))):
            return np.full(len(values), ANY, dtype=np.uint8)
        bindings, thrown = self._bindings(place, over, values)
        answer = self._evaluate(place, bindings, want_values=False)
        found = np.frombuffer(answer, dtype=np.uint8)
        return np.where(thrown, np.uint8(ANY), found)

    def _values(self, place: _QueryVertex, over: Predicate, values: CandidateValues) -> tuple[pa.Array, Any]:
        """The values, and a mask of those for which the evaluation threw."""
        if place.predicate == over:
            return values.array, np.zeros(len(values), dtype=bool)
        if "python" in place.node:
            return self._call(place, over, values)
        bindings, thrown = self._bindings(place, over, values)
        name, _, data = self._evaluate(place, bindings, want_values=True).partition(b"\n")
        found, failed = decode_block(data, type_name(name.decode("utf-8")))
        return found, failed | thrown

    def _bindings(
        self, place: _QueryVertex, over: Predicate, values: CandidateValues
    ) -> tuple[dict[str, tuple[CandidateValues, str]], Any]:
        """The values to insert at paths below a node, and a mask of rows for which a function threw."""
        if _depends_on_form(place.predicate, over):
            raise Declined("what casts make of decimals of so many digits depends on how Spark computes them")
        bindings: dict[str, tuple[CandidateValues, str]] = {}
        thrown = np.zeros(len(values), dtype=bool)
        name = f"v{values.token}"
        waiting = [place]
        while waiting:
            part = waiting.pop()
            if part.predicate == over:
                _, paths = bindings.get(name, (values, ""))
                bindings[name] = (values, f"{paths} {part.path}")
            elif "python" in part.node:
                found, failed = self._call(part, over, values)
                thrown |= failed
                made = CandidateValues(found)
                bindings[f"v{made.token}"] = (made, f" {part.path}")
            else:
                below = (f"{part.path}.{number}" for number in range(len(part.node.get("children", ()))))
                waiting.extend(self._by_path[path] for path in below if path in self._by_path)
        if not bindings:
            raise Declined("the indexed expression does not stand in it")
        return bindings, thrown

    def _call(self, place: _QueryVertex, over: Predicate, values: CandidateValues) -> tuple[pa.Array, Any]:
        """A Python function's values, and a mask of those that raised or are not of the declared type."""
        arguments: list[pa.Array | Literal] = []
        kinds: list[str] = []
        thrown = np.zeros(len(values), dtype=bool)
        for number, child in enumerate(place.node["children"]):
            below = self._by_path[f"{place.path}.{number}"]
            if isinstance(below.predicate, Literal):
                arguments.append(below.predicate)
            else:
                found, failed = self._values(below, over, values)
                arguments.append(found)
                thrown |= failed
            kinds.append(type_name(child["type"]))
        settings = self.request.get("settings", {})
        pure = current().constant_itself(place.predicate) if isinstance(place.predicate, Call) else None
        found, failed = call_udf(place.node, arguments, kinds, settings, thrown, self.deadline, pure)
        return found, failed | thrown

    def _evaluate(
        self, place: _QueryVertex, bindings: Mapping[str, tuple[CandidateValues, str]], *, want_values: bool
    ) -> bytes:
        if len(place.others) > _MOST_OTHERS:
            raise Declined(f"it stands in the query {len(place.others) + 1} times")
        paths = " ".join([place.path, *place.others])
        lines = "\n".join(f"{name}{paths}" for name, (_, paths) in bindings.items())
        for _ in range(len(bindings) + 1):  # each block may be missing once
            left = int(1000 * (self.deadline - time.monotonic()))
            if left <= 0:
                raise Declined("the planning budget was spent")
            answer = bytes(self.java.evaluate(self.request["number"], paths, lines, want_values, left))
            letter, rest = answer[:1], answer[1:]
            if letter in (b"o", b"v"):
                return rest
            if letter == b"d":
                raise Declined(rest.decode("utf-8", "replace"))
            self._send(rest.decode("utf-8"), bindings)
        raise Declined("the JVM has no room for the values")

    def _send(self, name: str, bindings: Mapping[str, tuple[CandidateValues, str]]) -> None:
        values, _ = bindings[name]
        if values.array.nbytes > _MOST_BYTES:
            size = f"{values.array.nbytes / 2**20:,.0f} MiB"
            raise Declined(f"its {len(values):,} values have {size}, more than are evaluated while a query is planned")
        data = block(values.array)
        if len(data) <= _BY_WIRE:
            self.java.values(name, data)
            return
        with tempfile.NamedTemporaryFile(prefix="geoskip-") as file:  # Py4J takes 50 ms a megabyte
            file.write(data)
            file.flush()
            self.java.valuesOf(name, file.name)


class _RecordingTranslator(Translator):
    """A translator that records the predicate of each node."""

    def __init__(self, *, slots: Sequence[Json | None], names: Callable[[str], str]) -> None:
        super().__init__(slots=slots, names=names)
        self.made: dict[int, Predicate] = {}

    def predicate(self, node: Json) -> Predicate:
        found = self.made[id(node)] = super().predicate(node)
        return found


def _walk(path: str, node: Json) -> Iterator[tuple[str, Json]]:
    waiting = [(path, node)]
    while waiting:
        at, part = waiting.pop()
        yield at, part
        waiting.extend((f"{at}.{number}", child) for number, child in enumerate(part.get("children", ())))


def block(array: pa.Array) -> bytes:
    """Encode physical values as a block of bytes for the JVM."""
    valid = np.asarray(array.is_valid()).astype(np.uint8)
    return b"".join([struct.pack("<i", len(array)), valid.tobytes(), _payload(array)])


def _payload(array: pa.Array) -> bytes:
    kind = array.type
    if pa.types.is_integer(kind):
        return np.asarray(array.fill_null(0)).astype("<i8").tobytes()
    if pa.types.is_floating(kind):
        return np.asarray(array.fill_null(0.0)).astype("<f8").tobytes()
    if pa.types.is_decimal(kind):
        plain = pa.concat_arrays([array.fill_null(0)])  # at offset zero
        return bytes(memoryview(plain.buffers()[1])[: 16 * len(plain)])
    filled = pa.concat_arrays([array.fill_null(b"").cast(pa.large_binary())])
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int64, count=len(filled) + 1)
    data = filled.buffers()[2]
    text = b"" if data is None else bytes(memoryview(data)[offsets[0] : offsets[-1]])
    return b"".join([(offsets - offsets[0]).astype("<i4").tobytes(), text])


def decode_block(data: bytes, kind: str) -> tuple[pa.Array, Any]:
    """The physical values of a block of Spark's type ``kind``, and a mask of those that threw."""
    (count,) = struct.unpack_from("<i", data)
    status = np.frombuffer(data, dtype=np.uint8, count=count, offset=4)
    payload = memoryview(data)[4 + count :]
    mask = status != 1
    of = sql_type(kind)
    if of.kind == "decimal":
        if not of.is_decimal:
            raise Declined(f"values of {kind} are not taken")
        buffers = [_bits(~mask), pa.py_buffer(bytes(payload))]
        return pa.Array.from_buffers(of.arrow, count, buffers), status == 2
    if of.is_text or of.kind in ("string collate", "binary"):
        offsets, text = payload[: 4 * (count + 1)], payload[4 * (count + 1) :]
        buffers = [_bits(~mask), pa.py_buffer(bytes(offsets)), pa.py_buffer(bytes(text))]
        return pa.Array.from_buffers(pa.binary(), count, buffers), status == 2
    plain = np.frombuffer(payload, dtype="<f8" if of.is_floating else "<i8", count=count)
    return pa.array(plain, mask=mask), status == 2


def _bits(valid: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
