"""Writer decoder of JSON: records of one writer schema with declared types, objects or single values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    Decoded,
    Failure,
    UnknownField,
    ValueDecoder,
)
from jobs.records.formats.interface.problems import (
    EMPTY_VALUE,
    INVALID_UTF8,
    TOO_DEEP,
    ValueProblem,
)
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.defaults import Defaults
from jobs.records.formats.json.keys import check_depth
from jobs.records.formats.json.reference import JsonReferenceDecoder, problem_of
from jobs.records.formats.json.unknown_fields import unknown_fields
from jobs.records.schema.declared import StructType
from jobs.records.schema.iceberg_schema import JsonText, iceberg_schema

VALUE_COLUMN = "value"
"""The one column of records that are no objects."""

_value = msgspec.json.Decoder(msgspec.Raw).decode
_BEFORE, _BEHIND = b'{"value":', b"}"


@dataclass(frozen=True, slots=True)
class JsonWriterTypes:
    """The types of records of a writer schema.

    Attributes:
        declared: The fields; only VALUE_COLUMN if records are single values.
        single: Whether records are single values.
        defaults: Defaults that replace null and missing keys; None if nothing does.
        rewrite: Brings a record to the form of the fields, such as a value of one of several types; raises
            `ValueProblem`. None if records have that form already.
    """

    declared: StructType
    single: bool = False
    defaults: Defaults | None = None
    rewrite: Callable[[bytes], bytes] | None = None


class JsonWriterDecoder:
    """Decode JSON of one writer schema.

    Args:
        types: The records' types.
        block: Whether blocks are decoded at once; record by record gives the same result.
        unknown_fields: What to do with keys that the writer schema does not name.

    Attributes:
        schema: The fields of the records.
    """

    def __init__(
        self, types: JsonWriterTypes, *, block: bool, unknown_fields: Literal["ignore", "fail"] = "ignore"
    ) -> None:
        self._types: JsonWriterTypes = types
        # A null that a default replaces must come through.
        declared = types.declared if types.defaults is None else types.defaults.optional(types.declared)
        make = JsonBlockDecoder if block else JsonReferenceDecoder
        self._decoder: ValueDecoder = make(declared, unknown_fields=unknown_fields)
        self.schema: Schema = iceberg_schema(types.declared, JsonText)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises."""
        if self._types.single:
            return self._prepared(values, self._wrapped)
        if self._types.rewrite is not None:
            return self._prepared(values, self._types.rewrite)
        return self._filled(self._decoder.decode(values))

    def unknown_fields(self, values: pa.BinaryArray, paths: Iterable[str]) -> dict[str, UnknownField]:
        """Return the keys that the writer schema does not name, by their paths, each with its first record found."""
        if self._types.single:
            return {}
        if self._types.rewrite is not None:
            values = pa.array([self._rewritten(value) for value in values.to_pylist()], pa.binary())
        return unknown_fields(self._types.declared, values, range(len(values)), paths)

    def _rewritten(self, value: bytes) -> bytes | None:
        assert self._types.rewrite is not None
        try:
            return self._types.rewrite(value)
        except ValueProblem:
            return None

    def _filled(self, decoded: Decoded) -> Decoded:
        if self._types.defaults is None:
            return decoded
        rows = self._types.defaults.fill(decoded.rows, self._types.declared)
        return Decoded(rows, decoded.positions, decoded.failures, decoded.tombstones, decoded.unknown_fields)

    def _prepared(self, values: pa.BinaryArray, prepare: Callable[[bytes], bytes]) -> Decoded:
        """Decode values that are rewritten to the form of the fields first."""
        prepared: list[bytes] = []
        at: list[int] = []
        failures: list[Failure] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                prepared.append(prepare(value))
                at.append(row)
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field))
        made = self._filled(self._decoder.decode(pa.array(prepared, pa.binary())))
        rows = np.array(at, np.int64)
        failures += [failure.at(at[failure.row]) for failure in made.failures]
        failures.sort(key=lambda failure: failure.row)
        return Decoded(made.rows, rows[made.positions], failures, made.tombstones, made.unknown_fields)

    def _wrapped(self, value: bytes) -> bytes:
        """Return a single value as the only member of an object, once it is known to be one value."""
        if not value.strip(b" \t\r\n"):
            raise ValueProblem(EMPTY_VALUE, "needs a JSON value, found nothing")
        try:
            value.decode()
            check_depth(value)
            _value(value)
        except UnicodeDecodeError as error:
            message = f"needs UTF-8, found 0x{value[error.start]:02x} at byte {error.start} ({error.reason})"
            raise ValueProblem(INVALID_UTF8, message) from None
        except RecursionError:
            raise ValueProblem(TOO_DEEP, "needs JSON that is nested less deep") from None
        except msgspec.DecodeError as error:
            raise problem_of(str(error), self._types.declared) from None
        return _BEFORE + (value if self._types.rewrite is None else self._types.rewrite(value)) + _BEHIND
