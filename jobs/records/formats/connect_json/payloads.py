"""Connect JSON values: the envelope of a schema and a payload, and the decoders of payloads by their schema."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.types import DecimalType

from jobs.base.system.typed_json import typed_decoder
from jobs.records.formats.conform import (
    Options,
    Writer,
    by_rows,
    writer_of,
)
from jobs.records.formats.connect_json.schema import connect_types
from jobs.records.formats.connect_types import AS_SENT, MOST_DIGITS
from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    Decoded,
    Failure,
    MakeDecoder,
    ValueDecoder,
)
from jobs.records.formats.interface.decoder_spec import SURVEY, DecoderSpec, RowsSchema
from jobs.records.formats.interface.problems import (
    BAD_ENVELOPE,
    BAD_SCHEMA,
    EMPTY_VALUE,
    INVALID_UTF8,
    OUT_OF_RANGE,
    TOO_DEEP,
    ValueProblem,
)
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.json.format import JSON
from jobs.records.formats.json.keys import check_depth
from jobs.records.formats.json.reference import problem_of
from jobs.records.formats.json.writer_decoder import JsonWriterDecoder
from jobs.records.formats.rescued_fields import conformed_rows
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.declared import StructType
from jobs.records.schema.needs import Need
from jobs.records.schema.tokens import SchemaTextError

NO_SCHEMA = b"null"
"""The schema of a payload that has none."""

_NEEDED = "needs an object with the members schema and payload, and no other"


class Envelope(NamedTuple):
    """An envelope in its parts.

    Attributes:
        schema: The schema's JSON, as it was written.
        payload: The payload's JSON, as it was written.
    """

    schema: bytes
    payload: bytes


class Frame(NamedTuple):
    """The text around an envelope's payload; with any JSON value in between it is an envelope of the same schema."""

    schema: bytes
    before: bytes
    behind: bytes


class _Members(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_members = typed_decoder(_Members).decode


def read_envelope(record: bytes) -> Envelope:
    """Take an envelope apart. If a member comes twice, its last value counts.

    Raises:
        ValueProblem: The record is something else (bad_envelope), or empty_value, invalid_utf8, malformed_json or
            too_deep.
    """
    if not record.strip(b" \t\r\n"):
        raise ValueProblem(EMPTY_VALUE, f"{_NEEDED}, found nothing")
    try:
        record.decode()
        members = _members(record)
    except UnicodeDecodeError as error:
        message = f"needs UTF-8, found 0x{record[error.start]:02x} at byte {error.start} ({error.reason})"
        raise ValueProblem(INVALID_UTF8, message) from None
    except RecursionError:
        check_depth(record)
        raise ValueProblem(TOO_DEEP, "needs JSON that is nested less deep") from None
    except msgspec.ValidationError as error:
        raise ValueProblem(BAD_ENVELOPE, f"{_NEEDED}, found {_found(str(error))}") from None
    except msgspec.DecodeError as error:
        raise problem_of(str(error), StructType(())) from None
    return Envelope(bytes(members.schema).strip(), bytes(members.payload).strip())


def _found(text: str) -> str:
    if "unknown field" in text:
        return "another one"
    if "missing required field" in text:
        return "neither or one of them"
    return problem_of(text, StructType(())).message.rpartition(", found ")[2]


def frame_of(record: bytes, envelope: Envelope) -> Frame | None:
    """Return the frame of an envelope, proven to be one; None if this cannot be proven.

    The proof: two other payloads are put in turn in the place of its own, and each time the result must be an envelope
        of this schema with that payload. So the place holds the payload's value, and any other JSON value may stand
        there.
    """
    for at in dict.fromkeys((record.rfind(envelope.payload), record.find(envelope.payload))):
        frame = Frame(envelope.schema, record[:at], record[at + len(envelope.payload) :])
        if all(_holds(frame, payload) for payload in (b"0", b"1")):
            return frame
    return None


def _holds(frame: Frame, payload: bytes) -> bool:
    try:
        return read_envelope(frame.before + payload + frame.behind) == (frame.schema, payload)
    except ValueProblem:
        return False


SCHEMA_CONTENT = "schema.content"
REPLACE_NULL = "replace.null.with.default"
_OF_SCHEMAS = (SCHEMA_CONTENT, REPLACE_NULL, AS_SENT)

NO_ROWS: npt.NDArray[np.int64] = np.zeros(0, np.int64)


class Payloads:
    """Decode payloads.

    Args:
        spec: Spec with the stream's columns and the format's options.
        block: Whether blocks are decoded at once.

    Attributes:
        schema: The schema of the rows.
    """

    def __init__(self, spec: DecoderSpec, *, block: bool) -> None:
        unknown = spec.options.get("unknown_fields", "ignore")
        self._survey: bool = bool(spec.options.get(SURVEY))
        self._options: Options = tuple(sorted((name, of) for name, of in spec.options.items() if name != SURVEY))
        self._given: Options = (
            ("defaults", bool(spec.options.get(REPLACE_NULL, False))),
            (AS_SENT, spec.options.get(AS_SENT, ())),
            # Fields that a schema does not name have no type, and are counted.
            ("unknown_fields", "ignore" if unknown == "keep" else unknown),
        )
        self._make: Any = _block_decoder if block else _reference_decoder
        self._rows: RowsSchema = spec.schema
        self.schema: pa.Schema = rows_arrow_schema(conformed_rows(spec))
        others = {name: value for name, value in self._options if name not in _OF_SCHEMAS}
        self._plain: DecoderSpec = DecoderSpec(JSON.name, spec.schema, others)
        self._make_plain: MakeDecoder = JSON.block if block else JSON.reference

    @cached_property
    def _schemaless(self) -> ValueDecoder | str:
        """Return the decoder of payloads without a schema, or the problem of a table whose columns no JSON fills."""
        try:
            return self._make_plain(self._plain)
        except SchemaTextError as problem:
            return problem.message

    def writer(self, schema: bytes) -> Writer | str | None:
        """Return the decoder of payloads of a schema; None for NO_SCHEMA, and the reason as a text for a bad schema."""
        if schema == NO_SCHEMA:
            return None
        return writer_of(self._make, WriterSchema(schema.decode()), self._given, self._options, self._rows)

    def decode(
        self, schema: bytes, payloads: pa.BinaryArray, rows: npt.NDArray[np.int64]
    ) -> tuple[Decoded, list[Failure]]:
        """Decode payloads of one schema.

        Args:
            schema: The schema's JSON; NO_SCHEMA to decode payloads as plain JSON.
            payloads: One JSON value each, or bytes that may be one.
            rows: The row in the block of each payload.

        Returns:
            The decoded payloads by the block's rows, with failures for those that the stream's columns do not hold; and
            the failures of payloads that are no JSON or do not match the schema.
        """
        writer = self.writer(schema)
        decoder = self._schemaless if writer is None else writer
        if isinstance(decoder, str):
            message = "needs a schema, found none, and plain JSON does not have these columns"
            if writer is not None:
                message = f"needs a schema that can be read, found one that cannot: {decoder}"
            failures = [Failure(row, DECODE_VALUE, BAD_SCHEMA, message, None) for row in rows.tolist()]
            return Decoded(pa.RecordBatch.from_pylist([], schema=self.schema), NO_ROWS, [], NO_ROWS, {}), failures
        decoded = decoder.decoder.decode(payloads) if isinstance(decoder, Writer) else decoder.decode(payloads)
        failures = [failure.at(int(rows[failure.row])) for failure in decoded.failures]
        good = Decoded(decoded.rows, decoded.positions, [], decoded.tombstones, decoded.unknown_fields, decoded.needs)
        if not isinstance(decoder, Writer):
            # Plain JSON has the column of rescued data behind all others.
            return by_rows(replace(good, rows=good.rows.select(self.schema.names)), rows), failures
        if self._survey and (told := decoder.conform.surveyed(good, _unsized)) is not None:
            return by_rows(told, rows), failures
        made = decoder.conform.apply(good)
        # Connect's decimals have no precision, so only a value can show that a column's is too small.
        beyond = any(failure.error_class == OUT_OF_RANGE for failure in made.failures)
        needs = tuple(need for need in made.needs if beyond or not _unsized(need))
        return by_rows(replace(made, needs=needs), rows), failures


def _unsized(need: Need) -> bool:
    return isinstance(need.type, DecimalType) and need.type.precision == MOST_DIGITS and need.change == "widen"


def _reference_decoder(schema: WriterSchema, options: Any) -> JsonWriterDecoder:
    return _decoder(schema, options, block=False)


def _block_decoder(schema: WriterSchema, options: Any) -> JsonWriterDecoder:
    return _decoder(schema, options, block=True)


def _decoder(schema: WriterSchema, options: Any, *, block: bool) -> JsonWriterDecoder:
    types = connect_types(schema.text, defaults=options["defaults"], as_sent=options[AS_SENT])
    return JsonWriterDecoder(types, block=block, unknown_fields=options["unknown_fields"])
