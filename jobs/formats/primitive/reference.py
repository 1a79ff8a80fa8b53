"""Reference decoder of primitive formats: what the bytes of a value mean, one record at a time.

A value is one text, some bytes, or one number of fixed width, most significant byte first, as Kafka's own serializers
write it; it becomes the one column that the stream declares.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.formats.decoder import DECODE_VALUE, Decoded, Failure
from jobs.formats.problems import INVALID_UTF8, WRONG_LENGTH, WRONG_TYPE, ValueProblem
from jobs.schema.arrow_schema import arrow_schema
from jobs.schema.declared import Primitive, StructType

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
"""The type that the one column has, by the name of the format."""


def schema_problem(kind: str, declared: StructType) -> str | None:
    """What is wrong with the columns that a stream declares for values of a primitive format; None if nothing."""
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
"""How a value of each format is read; raises `ValueProblem` for one that is none."""
