"""Wire formats of schema registries: the writer schema that each record of a block names, and where its value begins.

The formats are Confluent's, which others use, too. The byte 0x00 and a schema's number in four bytes, or the byte 0x01
and a GUID in sixteen, stand before the value; or the same bytes are in a header of the record, beside the bare value.
With Protobuf the indexes of the message in its file follow the id: their count and each as a zig-zag varint, or one
byte 0x00 for the first message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.interface.decoder import DECODE_VALUE, Failure
from jobs.records.formats.interface.problems import NO_SCHEMA_ID, ValueProblem
from jobs.records.formats.interface.writer_schema import SchemaId

VALUE_HEADER = "__value_schema_id"
KEY_HEADER = "__key_schema_id"
VALUE_SCHEMA_ID, KEY_SCHEMA_ID = "value_schema_id", "key_schema_id"
"""Columns of records that hold these headers."""

_NUMBER, _GUID = 5, 17
_WORD = 8
_MOST_INDEXES = 32
_LONGEST_INDEXES = 5 * (1 + _MOST_INDEXES)
_TO_THE_END = 2**31 - 1


class WrittenAs(NamedTuple):
    """A record's reference to its writer schema.

    Attributes:
        schema: The schema's id.
        message: With Protobuf, the indexes of the message, outermost first; otherwise none.
    """

    schema: SchemaId
    message: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Records of one writer schema, each without the reference to it.

    Attributes:
        written: The schema.
        rows: Indices in the block, ascending.
        values: The bytes of each record for the schema's decoder.
    """

    written: WrittenAs
    rows: npt.NDArray[np.int64]
    values: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class Grouped:
    """A block by writer schemas; `groups` and `failures` together have all rows that have a value."""

    groups: list[Group]
    failures: list[Failure]


USE_SCHEMA_ID = "use.schema.id"
"""The option of formats that gives the schema of all records, which then name none."""


def group_by_schema(
    values: pa.BinaryArray,
    in_headers: pa.BinaryArray | None = None,
    *,
    messages: bool,
    use_schema_id: int | None = None,
) -> Grouped:
    """Group records by the writer schema that they name.

    Args:
        values: Values of a block; null is a tombstone, which is in no group.
        in_headers: The header of each record, null if it has none; it counts before the value's first bytes.
        messages: Whether the indexes of a message follow the id, as with Protobuf.
        use_schema_id: The id of the schema of all records, if their values have no reference.
    """
    if use_schema_id is not None:
        rows = np.flatnonzero(np.asarray(values.is_valid()))
        written = WrittenAs(SchemaId(number=use_schema_id), (0,) if messages else ())
        return Grouped([Group(written, rows, values.drop_null())] if len(rows) else [], [])
    if in_headers is None or in_headers.null_count == len(in_headers):
        group = _all_alike(values, messages=messages)
        if group is not None:
            return Grouped([group], [])
    named = _Named(len(values))
    there = np.asarray(values.is_valid())
    if in_headers is not None and in_headers.null_count < len(in_headers):
        headed = there & np.asarray(in_headers.is_valid())
        _read_headers(in_headers, np.flatnonzero(headed), named)
        there &= ~headed
    _read_prefixes(values, np.flatnonzero(there), named)
    if messages:
        _read_messages(values, named)
    return Grouped(list(named.groups(values)), sorted(named.failures, key=lambda failure: failure.row))


def _all_alike(values: pa.BinaryArray, *, messages: bool) -> Group | None:
    """Return the one group of a block if each record begins with the same number, and means the first message."""
    length = _NUMBER + messages
    if not len(values) or values.null_count:
        return None
    data, starts, lengths = _bytes_of(values)
    begin = data[starts[0] : starts[0] + length].tobytes()
    if lengths.min() < _WORD or begin[0] or (messages and begin[-1]):
        return None
    # The first eight bytes of each record as one number; only the bytes before the value are compared.
    words = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))[starts]
    if ((words ^ words[0]) & np.uint64((1 << 8 * length) - 1)).any():
        return None
    written = WrittenAs(SchemaId(number=int.from_bytes(begin[1:_NUMBER], "big")), (0,) if messages else ())
    behind = pc.binary_slice(values, length, _TO_THE_END)  # pyright: ignore[reportAttributeAccessIssue]
    return Group(written, np.arange(len(values), dtype=np.int64), behind)


class _Named:
    """Each record's schema, as an index, and where its value begins."""

    def __init__(self, count: int) -> None:
        self.ids: list[WrittenAs] = []
        self.which: npt.NDArray[np.int64] = np.full(count, -1, np.int64)
        self.begins: npt.NDArray[np.int64] = np.zeros(count, np.int64)
        self.failures: list[Failure] = []
        self._known: dict[WrittenAs, int] = {}

    def number(self, written: WrittenAs) -> int:
        if written not in self._known:
            self._known[written] = len(self.ids)
            self.ids.append(written)
        return self._known[written]

    def refuse(self, row: int, message: str) -> None:
        self.which[row] = -1
        self.failures.append(Failure(row, DECODE_VALUE, NO_SCHEMA_ID, message, None))

    def groups(self, values: pa.BinaryArray) -> Iterator[Group]:
        whole = bool(len(values)) and bool((self.which == self.which[0]).all()) and self.which[0] >= 0
        for number, written in enumerate(self.ids):
            rows = np.arange(len(values), dtype=np.int64) if whole else np.flatnonzero(self.which == number)
            if len(rows) and (not whole or self.which[0] == number):
                kept = values if whole else values.take(pa.array(rows))
                yield Group(written, rows, _behind(kept, self.begins[rows]))


def _read_prefixes(values: pa.BinaryArray, rows: npt.NDArray[np.int64], named: _Named) -> None:
    data, starts, lengths = _bytes_of(values)
    long_enough = lengths[rows] >= _NUMBER
    for row in rows[~long_enough].tolist():
        found = "nothing" if not lengths[row] else f"{lengths[row]} bytes in all"
        named.refuse(row, f"needs the byte 0x00 and the id of a schema in four bytes, found {found}")
    rows = rows[long_enough]
    if not len(rows):
        return
    magic = data[starts[rows]]
    numbered = rows[magic == 0]
    if len(numbered):
        four = data[starts[numbered][:, None] + np.arange(1, _NUMBER)].copy().view(">u4")[:, 0]
        for number in np.unique(four).tolist():
            named.which[numbered[four == number]] = named.number(WrittenAs(SchemaId(number=number)))
        named.begins[numbered] = _NUMBER
    for row in rows[magic == 1].tolist():
        if lengths[row] < _GUID:
            named.refuse(row, f"needs the byte 0x01 and a GUID in sixteen bytes, found {lengths[row]} bytes in all")
            continue
        guid = data[starts[row] + 1 : starts[row] + _GUID].tobytes().hex()
        named.which[row] = named.number(WrittenAs(SchemaId(guid=guid)))
        named.begins[row] = _GUID
    for row in rows[magic > 1].tolist():
        first = int(data[starts[row]])
        named.refuse(row, f"needs the byte 0x00 or 0x01 before the id of a schema, found 0x{first:02x}")


def _read_headers(headers: pa.BinaryArray, rows: npt.NDArray[np.int64], named: _Named) -> None:
    known: dict[bytes, int | str] = {}
    for row in rows.tolist():
        header: bytes = headers[row].as_py()
        if header not in known:
            known[header] = _header_id(header, named)
        if isinstance(number := known[header], str):
            named.refuse(row, number)
        else:
            named.which[row] = number


def _header_id(header: bytes, named: _Named) -> int | str:
    if len(header) == _NUMBER and header[0] == 0:
        return named.number(WrittenAs(SchemaId(number=int.from_bytes(header[1:], "big"))))
    if len(header) == _GUID and header[0] == 1:
        return named.number(WrittenAs(SchemaId(guid=header[1:].hex())))
    if not header:
        return "needs a header with the id of its schema, found none, or an empty one"
    return f"needs 0x00 and four bytes, or 0x01 and sixteen, in the schema's header, found {len(header)} bytes"


def _read_messages(values: pa.BinaryArray, named: _Named) -> None:
    data, starts, lengths = _bytes_of(values)
    rows = np.flatnonzero(named.which >= 0)
    some = named.begins[rows] < lengths[rows]
    for row in rows[~some].tolist():
        named.refuse(row, "needs the indexes of a message behind the id of its schema, found nothing")
    rows = rows[some]
    first = data[starts[rows] + named.begins[rows]] == 0
    of_first = {number: named.number(each._replace(message=(0,))) for number, each in enumerate(list(named.ids))}
    renumbered = np.array([of_first.get(number, -1) for number in range(len(named.ids))], np.int64)
    common = rows[first]
    for row in rows[~first].tolist():
        begin = int(starts[row] + named.begins[row])
        end = min(int(starts[row] + lengths[row]), begin + _LONGEST_INDEXES)
        try:
            message, length = message_indexes(data[begin:end].tobytes())
        except ValueProblem as problem:
            named.refuse(row, problem.message)
            continue
        named.which[row] = named.number(named.ids[named.which[row]]._replace(message=message))
        named.begins[row] += length
    if len(common):
        named.which[common] = renumbered[named.which[common]]
        named.begins[common] += 1


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a Protobuf message in its file, outermost first, and their length in bytes.

    Raises:
        ValueProblem: There are no indexes, or more than a file can nest.
    """
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueProblem(NO_SCHEMA_ID, f"needs 1 to {_MOST_INDEXES} indexes of a message, found {count}")
    indexes: list[int] = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise ValueProblem(NO_SCHEMA_ID, f"needs the indexes of a message from 0 on, found {index}")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueProblem(NO_SCHEMA_ID, "needs the indexes of a message, found bytes that are no numbers")


def _behind(values: pa.BinaryArray, begins: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Return each value from a byte on."""
    if not len(values) or (begins == begins[0]).all():
        begin = int(begins[0]) if len(values) else 0
        return pc.binary_slice(values, begin, _TO_THE_END) if begin else values  # pyright: ignore[reportAttributeAccessIssue]
    sliced = [value.as_py()[begin:] for value, begin in zip(values, begins.tolist(), strict=True)]
    return pa.array(sliced, pa.binary())


def _bytes_of(values: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of all values, where each begins among them, and its length; nothing is copied."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return whole, ends[:-1], np.diff(ends)
