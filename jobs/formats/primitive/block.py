"""Block decoder of primitive formats: all values of a block at once; it gives what the reference decoder gives.

Numbers are read as one array of bytes once each value is known to have their width; texts are the values' own bytes
once Arrow has found them to be UTF-8. Values that are not so are left to the reference, so failures are always its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.decoder import Decoded
from jobs.formats.primitive.reference import PrimitiveReferenceDecoder
from jobs.schema.arrow_schema import arrow_schema
from jobs.schema.declared import StructType

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
        """Which values are read here; None if that cannot be told for each."""
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
    """The numbers of values that all have their width."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    whole = b"" if data is None else data
    return np.frombuffer(whole, number, len(values), int(starts[0])) if len(values) else np.zeros(0, number)
