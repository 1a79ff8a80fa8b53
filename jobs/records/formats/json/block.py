"""Block decoder of JSON: many records at a time; it gives what the reference decoder gives.

Records of one stream mostly look alike: the same keys in the same order with the same punctuation. What they look like
is learnt (jobs.records.formats.json.block_nodes), and all records of a block are read along that plan at once, each
byte compared (jobs.records.formats.json.block_walk). This is the proof: a record is taken only if it is, from its first
byte to its last, an object with the plan's keys in the plan's order and punctuation, whose texts have no escape, whose
numbers have JSON's grammar and whose values the leaf conversions (jobs.records.formats.columns.primitive_columns)
accept. That record means the same to any JSON parser. All others, be they bad or only different, are decoded by the
reference, so failures are always its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from jobs.records.formats.interface.decoder import MOST_UNKNOWN_PATHS, Decoded, ValueDecoder
from jobs.records.formats.json.block_learn import RecordPlan
from jobs.records.formats.json.block_nodes import (
    Place,
    Refused,
    UndeclaredKind,
    plannable,
)
from jobs.records.formats.json.block_text import BlockText, Indices, Mask
from jobs.records.formats.json.block_walk import Walk
from jobs.records.formats.json.new_fields import (
    NewFieldTypes,
    list_of,
    object_of,
    value_type,
)
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.declared import DeclaredType, ListType, StructType
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule
from jobs.records.schema.needs import Need


@dataclass(slots=True)
class Undeclared:
    """The values without a declared column, in the records of a block that look as planned.

    Attributes:
        rows: These records.
        seen: Records that have a value of a kind at a place.
    """

    rows: list[Indices] = field(default_factory=list)
    seen: dict[tuple[Place, UndeclaredKind], list[Indices]] = field(default_factory=dict)

    def needs(self, declared: StructType, rules: NewFieldTypes) -> tuple[list[Need], Indices]:
        """Return the values' needs, each with its first record, and the records that these needs cover.

        Records that have to be looked at are not covered: they may be refused, and then need nothing.
        """
        found = [(place, value_type(kind, rules), rows) for (place, kind), rows in self.seen.items()]
        doubtful = _together([rows for _, kind, each in found if kind is None for rows in each])
        needs: list[Need] = []
        for place, kind, each in found:
            rows = np.setdiff1d(_together(each), doubtful) if len(doubtful) else _together(each)
            if kind is not None and len(rows):
                needs.append(_need(declared, place, kind, rules, int(rows.min())))
        return needs, np.setdiff1d(_together(self.rows), doubtful)


def _together(rows: list[Indices]) -> Indices:
    return np.concatenate([*rows, np.zeros(0, np.int64)])


def _need(declared: DeclaredType, place: Place, kind: IcebergType, rules: NewFieldTypes, row: int) -> Need:
    """The column of the first key that is not declared; what lies below it is part of its type."""
    path: list[str] = []
    for at, key in enumerate(place):
        match declared:
            case StructType(fields):
                path.append(str(key))
                found = next((each.type for each in fields if each.name == key), None)
                if found is None:
                    for step in reversed(place[at + 1 :]):
                        kind = list_of(kind) if step is None else object_of(step, kind, rules)
                    return Need("add", tuple(path), kind, row)
                declared = found
            case ListType(element):
                path.append("element")
                declared = element
            case _:
                break
    raise ValueError(f"every key of {place} is declared")


SMALLEST_BLOCK = 256
"""Records; the reference is faster for fewer."""

_LARGEST_BLOCK = 1 << 30
_LESSONS = 4
_SAMPLES = 3
_FEW = 64
_MISSES = 4
_SHORTEST_REST, _LONGEST_REST = 16, 512
_OPEN, _CLOSE, _BACKSLASH, _SPACE = b"{}\\ "


class JsonBlockDecoder:
    """Decodes JSON objects by a declared schema as `JsonReferenceDecoder` does, whole blocks at a time.

    Args:
        declared: The record.
        unknown_fields: What to do with keys that are not declared.
        smallest: Smallest number of records that are read as one block.
        reference: Decoder of the records that do not look as planned; by default a reference decoder of its own.
        names: How keys are matched with declared fields.

    Attributes:
        undeclared: Undeclared values seen in the last block; None if the reference decoded it.
    """

    def __init__(
        self,
        declared: StructType,
        *,
        unknown_fields: Literal["ignore", "fail"] = "ignore",
        smallest: int = SMALLEST_BLOCK,
        reference: ValueDecoder | None = None,
        names: NameRule = EXACT_NAMES,
    ) -> None:
        self._reference: ValueDecoder = reference or JsonReferenceDecoder(
            declared, unknown_fields=unknown_fields, names=names
        )
        self._schema: pa.Schema = arrow_schema(declared)
        # A refused value of a required column may be null until its row is dropped.
        self._relaxed: pa.Schema = pa.schema([one.with_nullable(True) for one in self._schema])
        self._plan: RecordPlan = RecordPlan(declared, unknown=unknown_fields == "ignore", names=names)
        self._plannable: bool = plannable(declared)
        self._smallest: int = smallest
        self._room: bytearray | None = None
        self._misses: int = 0
        self._rest: int = 0
        self._next_rest: int = _SHORTEST_REST
        self.undeclared: Undeclared | None = None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        self.undeclared = None
        if not self._plannable or len(values) < max(self._smallest, 1) or values.nbytes > _LARGEST_BLOCK:
            return self._reference.decode(values)
        if self._rest:
            self._rest -= 1
            return self._reference.decode(values)
        text = BlockText(values, self._room)
        self._room = text.room
        block = _Block(self._plan, text, values, self._relaxed)
        block.read(self._smallest)
        self._pause(len(block.left), len(values))
        return self._whole(block, values)

    def _pause(self, left: int, records: int) -> None:
        """Leave a stream whose records do not look alike to the reference, for longer after each failed attempt."""
        if left * 2 <= records:
            self._misses, self._next_rest = 0, _SHORTEST_REST
            return
        self._misses += 1
        if self._misses >= _MISSES:
            self._rest = self._next_rest
            self._next_rest = min(2 * self._next_rest, _LONGEST_REST)

    def _whole(self, block: _Block, values: pa.BinaryArray) -> Decoded:
        self.undeclared = block.undeclared
        if not len(block.left) and len(block.parts) == 1:
            rows, positions = block.parts[0]
            return Decoded(self._required(rows), positions, [], block.tombstones, block.unknown)
        odd = self._reference.decode(values.take(pa.array(block.left)))
        unknown = dict(block.unknown)
        for path, count in odd.unknown_fields.items():
            unknown[path] = unknown.get(path, 0) + count
        if len(unknown) > MOST_UNKNOWN_PATHS:
            self.undeclared = None
            return self._reference.decode(values)
        failures = [failure.at(int(block.left[failure.row])) for failure in odd.failures]
        parts = [*block.parts, (odd.rows, block.left[odd.positions])]
        block.learn_later(odd.positions)
        filled = [part for part in parts if len(part[1])] or parts[-1:]
        rows, positions = filled[0]
        if len(filled) > 1:
            positions = np.concatenate([one for _, one in filled])
            order = np.argsort(positions)
            positions = positions[order]
            rows = pa.concat_batches([self._required(one) for one, _ in filled]).take(pa.array(order))
        return Decoded(self._required(rows), positions, failures, block.tombstones, unknown)

    def _required(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(rows.columns, schema=self._schema)


class _Block:
    """One block while it is decoded.

    Attributes:
        parts: Rows, and the records that they come from, ascending.
        left: Records that are left to the reference.
    """

    def __init__(self, plan: RecordPlan, text: BlockText, values: pa.BinaryArray, schema: pa.Schema) -> None:
        self._plan: RecordPlan = plan
        self._schema: pa.Schema = schema
        self._text: BlockText = text
        self.parts: list[tuple[pa.RecordBatch, Indices]] = []
        self.unknown: dict[str, int] = {}
        self.undeclared: Undeclared = Undeclared()
        null = np.asarray(values.is_null()) if values.null_count else np.zeros(len(values), np.bool_)
        self.tombstones: Indices = np.flatnonzero(null)
        fit = _objects(text) & ~null
        fit[_doubtful(text)] = False
        self._fit: Mask = fit
        self.left: Indices = np.flatnonzero(~(fit | null))

    def read(self, smallest: int) -> None:
        """Read the records that look as planned, and learn from the others."""
        rows = np.flatnonzero(self._fit)
        self._plan.age()
        for lesson in range(_LESSONS):
            if not lesson and self._plan.root.members:
                rows = self._walk(rows)
            if len(rows) < max(smallest, len(self._fit) // _FEW) or not self._learn(rows):
                break
            rows = self._walk(rows)
        self.left = np.sort(np.concatenate([self.left, rows]))

    def _learn(self, rows: Indices) -> bool:
        picked = rows[np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLES)).astype(np.int64)]
        return sum(self._plan.learn(self._record(int(row))) for row in picked) > 0

    def learn_later(self, good: Indices) -> None:
        """Learns from a few of the records that the reference found good, by their indices in `left`."""
        fit = [row for row in self.left[good[: 8 * _SAMPLES]].tolist() if self._fit[row]]
        for row in fit[:_SAMPLES]:
            self._plan.learn(self._record(row))

    def _record(self, row: int) -> bytes:
        return self._text.bytes[self._text.starts[row] : self._text.ends[row]].tobytes()

    def _walk(self, rows: Indices) -> Indices:
        """Reads records; returns those that are not as planned."""
        if not len(rows):
            return rows
        walk = Walk(self._text, rows, self._plan.comma)
        node = walk.record(self._plan.root)
        if not walk.good.any():
            return rows
        refused: Refused = set()
        batch = pa.RecordBatch.from_arrays(node.fields(refused), schema=self._schema)
        walk.good[list(refused)] = False
        if not walk.good.all():
            batch = batch.filter(pa.array(walk.good))
        if batch.num_rows:
            self.parts.append((batch, rows[walk.good]))
        self.undeclared.rows.append(rows[walk.good])
        for seen, owners in walk.seen.items():
            where = np.concatenate(owners)
            if len(good := where[walk.good[where]]):
                self.undeclared.seen.setdefault(seen, []).append(rows[good])
        for path, met in walk.met.items():
            once = np.zeros(len(rows), np.bool_)
            once[np.concatenate(met)] = True
            if count := int((once & walk.good).sum()):
                self.unknown[path] = self.unknown.get(path, 0) + count
        return rows[~walk.good]


def _objects(text: BlockText) -> Mask:
    """Return a mask of the records that begin and end as an object does."""
    filled = text.ends - text.starts >= 2
    last = np.where(filled, text.ends - 1, text.nowhere)
    return filled & (text.bytes[text.starts] == _OPEN) & (text.bytes[last] == _CLOSE)


def _doubtful(text: BlockText) -> Indices:
    """Return the records with an escape, a control character (white space among them) or bytes that are not UTF-8."""
    whole = text.text
    found: list[Indices] = []
    if not len(whole):
        return np.zeros(0, np.int64)
    if text.has(_BACKSLASH):
        found.append(text.records_of(np.flatnonzero(whole == _BACKSLASH)))
    if whole.min() < _SPACE:
        found.append(text.records_of(np.flatnonzero(whole < _SPACE)))
    if whole.max() >= 0x80:
        records = pa.BinaryArray.from_buffers(
            pa.binary(),
            len(text.starts),
            [None, pa.py_buffer(np.append(text.starts, text.nowhere).astype(np.int32)), text.buffer],
        )
        try:
            pc.cast(records, pa.string())
        except pa.ArrowInvalid:
            wrong = [row for row, one in enumerate(records) if not _is_utf8(one.as_py())]
            found.append(np.array(wrong, np.int64))
            # A text without its end is read on into the next record, before its own is struck off.
            text.blank(wrong)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
