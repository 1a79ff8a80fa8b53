"""Block decoder of Connect's JSON: payloads of many records at a time; it gives what the reference decoder gives.

Records of one writer schema mostly have the same frame, all bytes but the payload's: these are compared as a whole, and
the payloads are cut out and decoded by the block decoder of JSON. The proof: a frame is an envelope of its schema with
any one JSON value as payload (`frame_of`), and a payload is only taken if the decoder of JSON has found it to be
exactly one value; so what ends early and goes on with another member is none. All other records, and those whose
payload is not what the schema says, go to the reference one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.connect_json.payloads import SCHEMA_CONTENT, Frame, Payloads, frame_of
from jobs.formats.connect_json.reference import ConnectJsonReferenceDecoder
from jobs.formats.decoder import OTHER_UNKNOWN_PATHS, Decoded
from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.problems import ValueProblem
from jobs.formats.writer_groups import by_rows, merged

SMALLEST_BLOCK = 64
"""Records; the reference takes fewer."""

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
        spec: With the stream's columns and the format's options.
        smallest: Of how many records a block must be to be read as one.
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
        # Which of too many paths are counted by name depends on which records are looked at first.
        return self._reference.decode(values) if OTHER_UNKNOWN_PATHS in whole.unknown_fields else whole

    def _learn(self, value: bytes) -> Frame | None:
        """The frame of a record, if it is new."""
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
        """Decodes the records that have a frame."""
        around = len(frame.before) + len(frame.behind)
        framed = pc.and_(
            pc.starts_with(work.values, pattern=frame.before), pc.ends_with(work.values, pattern=frame.behind)
        )
        longer = pc.greater(pc.binary_length(work.values), around)
        alike = work.left & np.asarray(pc.fill_null(pc.and_(framed, longer), False))
        if not alike.any():
            return
        # The frames that are met are the last to be forgotten.
        self._frames.pop(frame, None)
        self._frames[frame] = None
        kept = work.values if alike.all() else work.values.filter(pa.array(alike))
        self._decode(work, frame.schema, pc.binary_slice(kept, len(frame.before), -len(frame.behind)), alike)

    def _take_plain(self, work: _Work, schema: bytes) -> None:
        """Decodes the records that are no envelopes, as they have no member `payload`, however it is written."""
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
        left: The records that have not been taken.
        parts: Those that were decoded.
        odd: Rows for the reference.
    """

    values: pa.BinaryArray
    left: Mask
    parts: list[Decoded] = field(default_factory=list)
    odd: list[Indices] = field(default_factory=list)
