"""Connect JSON format: each value an envelope of a schema and a payload, as Connect's JsonConverter writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from jobs.records.formats.conform import Writer, by_rows, merged
from jobs.records.formats.connect_json.payloads import (
    REPLACE_NULL,
    SCHEMA_CONTENT,
    Envelope,
    Frame,
    Payloads,
    frame_of,
    read_envelope,
)
from jobs.records.formats.connect_json.schema import connect_types
from jobs.records.formats.connect_types import AS_SENT
from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    OTHER_UNKNOWN_PATHS,
    Decoded,
    Failure,
    Format,
    UnknownField,
)
from jobs.records.formats.interface.decoder_spec import DecoderSpec
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.json.format import unknown_json_fields
from jobs.records.schema.iceberg_schema import iceberg_schema


class Enveloped(NamedTuple):
    """Payloads of one schema, and their rows."""

    payloads: list[bytes]
    rows: list[int]


class ConnectJsonReferenceDecoder:
    """Decodes records in the envelope of Connect's JsonConverter.

    Args:
        spec: Spec with the stream's columns and the format's options.
    """

    def __init__(self, spec: DecoderSpec) -> None:
        content: str | None = spec.options.get(SCHEMA_CONTENT)
        self._content: bytes | None = None if content is None else content.encode()
        self._payloads: Payloads = Payloads(spec, block=False)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        groups: dict[bytes, Enveloped] = {}
        failures: list[Failure] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                schema, payload = self.envelope(value)
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field))
                continue
            group = groups.setdefault(schema, Enveloped([], []))
            group.payloads.append(payload)
            group.rows.append(row)
        parts: list[Decoded] = []
        for schema, group in groups.items():
            rows = np.array(group.rows, np.int64)
            part, refused = self._payloads.decode(schema, pa.array(group.payloads, pa.binary()), rows)
            parts.append(part)
            failures += refused
        tombstones = np.flatnonzero(np.asarray(values.is_null())).astype(np.int64)
        return merged(parts, failures, tombstones, self._payloads.schema)

    def envelope(self, value: bytes) -> Envelope:
        """Return the schema and the payload of a record.

        Raises:
            ValueProblem: The record is no envelope.
        """
        try:
            return read_envelope(value)
        except ValueProblem:
            if self._content is None:
                raise
        # The decoder of plain payloads reports their problems.
        return Envelope(self._content, value)


SMALLEST_BLOCK = 64
"""Records in a block that is worth reading at once; the reference decodes smaller ones."""

_MOST_FRAMES = 64
_LONGEST_FRAME = 1 << 20
_SAMPLES = 32
_FEW = 16
_PAYLOAD = b"payload"
_BACKSLASH = b"\\"

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class ConnectJsonBlockDecoder:
    """Decodes records in the envelope of Connect's JsonConverter as `ConnectJsonReferenceDecoder` does.

    Args:
        spec: Spec with the stream's columns and the format's options.
        smallest: Smallest number of records that are read as one block.
    """

    def __init__(self, spec: DecoderSpec, *, smallest: int = SMALLEST_BLOCK) -> None:
        content: str | None = spec.options.get(SCHEMA_CONTENT)
        self._content: bytes | None = None if content is None else content.encode()
        self._reference: ConnectJsonReferenceDecoder = ConnectJsonReferenceDecoder(spec)
        self._payloads: Payloads = Payloads(spec, block=True)
        self._smallest: int = smallest
        self._frames: dict[Frame, None] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        if len(values) < self._smallest:
            return self._reference.decode(values)
        null = np.asarray(values.is_null())
        work = _Work(values, ~null)
        for frame in [*self._frames]:
            self._take(work, frame)
        if self._content is not None:
            self._take_plain(work, self._content)
        for _ in range(_SAMPLES):
            left = np.flatnonzero(work.left)
            if len(left) * _FEW < len(values) or not len(left):
                break
            frame = self._learn(values[int(left[0])].as_py())
            if frame is None:
                work.odd.append(left[:1])
                work.left[left[0]] = False
            else:
                self._take(work, frame)
        parts = work.parts
        rest = np.sort(np.concatenate([np.flatnonzero(work.left), *work.odd]))
        if len(rest):
            parts.append(by_rows(self._reference.decode(values.take(pa.array(rest))), rest))
        whole = merged(parts, (), np.flatnonzero(null), self._payloads.schema)
        # The order in which records are looked at decides which of too many paths are counted by name.
        return self._reference.decode(values) if OTHER_UNKNOWN_PATHS in whole.unknown_fields else whole

    def _learn(self, value: bytes) -> Frame | None:
        """Return the frame of a record, if it is new."""
        try:
            frame = frame_of(value, self._reference.envelope(value))
        except ValueProblem:
            return None
        if frame is None or frame in self._frames or len(frame.before) + len(frame.behind) > _LONGEST_FRAME:
            return None
        if len(self._frames) >= _MOST_FRAMES:
            del self._frames[next(iter(self._frames))]
        self._frames[frame] = None
        return frame

    def _take(self, work: _Work, frame: Frame) -> None:
        """Decode the records that have a frame."""
        around = len(frame.before) + len(frame.behind)
        framed = pc.and_(
            pc.starts_with(work.values, pattern=frame.before), pc.ends_with(work.values, pattern=frame.behind)
        )
        longer = pc.greater(pc.binary_length(work.values), around)
        alike = work.left & np.asarray(pc.fill_null(pc.and_(framed, longer), False))
        if not alike.any():
            return
        # The frames used last are forgotten last.
        self._frames.pop(frame, None)
        self._frames[frame] = None
        kept = work.values if alike.all() else work.values.filter(pa.array(alike))
        self._decode(work, frame.schema, pc.binary_slice(kept, len(frame.before), -len(frame.behind)), alike)

    def _take_plain(self, work: _Work, schema: bytes) -> None:
        """Decode the records that are no envelopes: they have no member `payload`, in whatever spelling."""
        values = work.values
        named = pc.or_(pc.match_substring(values, _PAYLOAD), pc.match_substring(values, _BACKSLASH))
        plain = work.left & ~np.asarray(pc.fill_null(named, True))
        if plain.any():
            self._decode(work, schema, values.filter(pa.array(plain)), plain)

    def _decode(self, work: _Work, schema: bytes, payloads: pa.BinaryArray, taken: Mask) -> None:
        part, refused = self._payloads.decode(schema, payloads, np.flatnonzero(taken))
        work.parts.append(part)
        work.odd.append(np.array([failure.row for failure in refused], np.int64))
        work.left &= ~taken


@dataclass(slots=True)
class _Work:
    """One block while it is decoded.

    Attributes:
        left: Records that have not been taken.
        parts: Decoded parts of the block.
        odd: Rows for the reference.
    """

    values: pa.BinaryArray
    left: Mask
    parts: list[Decoded] = field(default_factory=list)
    odd: list[Indices] = field(default_factory=list)


def _unknown_fields(
    spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
) -> dict[str, UnknownField]:
    decoder, payloads = ConnectJsonReferenceDecoder(spec), Payloads(spec, block=False)
    wanted, found = set(paths), {}
    for row in rows:
        if not wanted:
            break
        value: bytes | None = values[row].as_py()
        try:
            schema, payload = decoder.envelope(value or b"")
        except ValueProblem:
            continue
        one = pa.array([payload], pa.binary())
        writer = payloads.writer(schema)
        if isinstance(writer, Writer):
            met = dict(writer.unknown_fields(one, wanted))
        else:
            met = unknown_json_fields(spec, one, [0], wanted) if writer is None else {}
        for path, unknown in met.items():
            if path in wanted:
                found[path] = unknown._replace(row=int(row))
                wanted.discard(path)
    return found


def _writer_rows(schema: WriterSchema, options: Mapping[str, Any]) -> Schema:
    defaults, as_sent = bool(options.get(REPLACE_NULL)), options.get(AS_SENT, ())
    return iceberg_schema(connect_types(schema.text, defaults=defaults, as_sent=as_sent).declared)


CONNECT_JSON = Format(
    "connect_json",
    ConnectJsonReferenceDecoder,
    ConnectJsonBlockDecoder,
    probe=b"",
    unknown_fields=_unknown_fields,
    # Masks would have to be applied within the payload, and also to the defaults of the schema.
    json_fields=False,
    writer_rows=_writer_rows,
)
