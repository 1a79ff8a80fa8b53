"""Block decoder of primitive formats: all values of a block at once; it gives what the reference decoder gives.

Numbers are read as one array of bytes once each value is known to have their width; texts are the values' own bytes
once Arrow has found them to be UTF-8. Other values are left to the reference, so failures are always its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.interface.decoder import DECODE_VALUE, Decoded, Failure
from jobs.records.formats.interface.problems import (
    INVALID_UTF8,
    WRONG_LENGTH,
    WRONG_TYPE,
    ValueProblem,
)
from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.declared import Primitive, StructType

COLUMN_TYPES: Mapping[str, str] = {
    "string": "string",
    "bytes": "binary",
    "boolean": "boolean",
    "short": "int",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
}
"""The type of the one column, by the name of the format."""


def schema_problem(kind: str, declared: StructType) -> str | None:
    """Return the problem of the columns that a stream declares for values of a primitive format; None if none."""
    needed = COLUMN_TYPES[kind]
    match declared.fields:
        case (only,) if isinstance(only.type, Primitive) and str(only.type) == needed:
            return None
        case (only,):
            return f"values as {kind} are one column of the type {needed}, not {only.type}"
        case _:
            return f"values as {kind} are one column, such as 'value {needed}', not {len(declared.fields)}"


class PrimitiveReferenceDecoder:
    """Decodes values of a primitive format, one by one.

    Args:
        kind: Name of the format, a key of `READERS`.
        declared: The one column.
    """

    def __init__(self, kind: str, declared: StructType) -> None:
        self._read: Callable[[bytes], Any] = READERS[kind]
        self._schema: pa.Schema = arrow_schema(declared)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        read: list[Any] = []
        positions: list[int] = []
        tombstones: list[int] = []
        failures: list[Failure] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                tombstones.append(row)
                continue
            try:
                read.append(self._read(value))
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, None))
            else:
                positions.append(row)
        column = pa.array(read, self._schema.field(0).type)
        rows = pa.RecordBatch.from_arrays([column], schema=self._schema)
        return Decoded(rows, np.array(positions, np.int64), failures, np.array(tombstones, np.int64), {})


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        found = f"0x{value[error.start]:02x} at byte {error.start} ({error.reason})"
        raise ValueProblem(INVALID_UTF8, f"needs UTF-8, found {found}") from None


def _boolean(value: bytes) -> bool:
    _check_length(value, 1)
    if value[0] > 1:
        raise ValueProblem(WRONG_TYPE, f"needs the byte 0x00 or 0x01, found 0x{value[0]:02x}")
    return value[0] == 1


def _number(form: str) -> Callable[[bytes], Any]:
    width = struct.calcsize(form)

    def read(value: bytes) -> Any:
        _check_length(value, width)
        return struct.unpack(form, value)[0]

    return read


def _check_length(value: bytes, width: int) -> None:
    if len(value) != width:
        needed = "1 byte" if width == 1 else f"{width} bytes"
        raise ValueProblem(WRONG_LENGTH, f"needs {needed}, found {len(value)}")


READERS: Mapping[str, Callable[[bytes], Any]] = {
    "string": _text,
    "bytes": bytes,
    "boolean": _boolean,
    "short": _number(">h"),
    "int": _number(">i"),
    "long": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
}
"""Readers of values by format; they raise `ValueProblem` for a value that is none of the format."""


_NUMBERS = {"boolean": "u1", "short": ">i2", "int": ">i4", "long": ">i8", "float": ">f4", "double": ">f8"}


class PrimitiveBlockDecoder:
    """Decodes values of a primitive format, whole blocks at a time.

    Args:
        kind: Name of the format.
        declared: The one column.
    """

    def __init__(self, kind: str, declared: StructType) -> None:
        self._kind: str = kind
        self._reference: PrimitiveReferenceDecoder = PrimitiveReferenceDecoder(kind, declared)
        self._schema: pa.Schema = arrow_schema(declared)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        good = self._good(values)
        if good is None:
            return self._reference.decode(values)
        positions = np.flatnonzero(good)
        kept = values if len(positions) == len(values) else values.take(pa.array(positions))
        rows = pa.RecordBatch.from_arrays([self._column(kept)], schema=self._schema)
        others = np.flatnonzero(~good)
        if not len(others):
            return Decoded(rows, positions, [], others, {})
        left = self._reference.decode(values.take(pa.array(others)))
        failures = [failure.at(int(others[failure.row])) for failure in left.failures]
        return Decoded(rows, positions, failures, others[left.tombstones], {})

    def _good(self, values: pa.BinaryArray) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the values that are read here; None if some text is no UTF-8."""
        filled = np.asarray(values.is_valid())
        if self._kind == "bytes":
            return filled
        if self._kind == "string":
            try:
                pc.cast(values, pa.string())
            except pa.ArrowInvalid:
                return None
            return filled
        number = np.dtype(_NUMBERS[self._kind])
        lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
        good = lengths == number.itemsize
        if self._kind == "boolean" and good.any():
            good[good] = _numbers(values.filter(pa.array(good)), number) <= 1
        return good

    def _column(self, values: pa.BinaryArray) -> pa.Array:
        if self._kind in ("bytes", "string"):
            return pc.cast(values, self._schema.field(0).type)
        numbers = _numbers(values, np.dtype(_NUMBERS[self._kind]))
        return pa.array(numbers.astype(numbers.dtype.newbyteorder("="))).cast(self._schema.field(0).type)


def _numbers(values: pa.BinaryArray, number: np.dtype) -> npt.NDArray[Any]:
    """Return the numbers of values that all have their width."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    whole = b"" if data is None else data
    return np.frombuffer(whole, number, len(values), int(starts[0])) if len(values) else np.zeros(0, number)
