"""Stages of keys and headers: columns of rows that do not come from the value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.interface.decoder import (
    DECODE_HEADER,
    DECODE_KEY,
    KEY_PATH,
    Decoded,
    Failure,
    ValueDecoder,
)
from jobs.records.formats.interface.decoder_spec import TableSchema
from jobs.records.formats.interface.problems import (
    BAD_SCHEMA,
    INVALID_UTF8,
    MISSING_FIELD,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    UNKNOWN_SCHEMA,
)
from jobs.records.formats.record_columns import (
    HeaderColumn,
    KeyColumns,
    SchemaIdPlace,
    header_values,
)
from jobs.records.formats.registry_wire import KEY_HEADER, KEY_SCHEMA_ID
from jobs.records.schema.arrow_schema import arrow_type, rows_arrow_type
from jobs.records.schema.declared import Primitive
from jobs.records.transforms.change_events.changelog import KEY, OLD_KEY
from jobs.streaming.pipeline.block import Block, Indices


class _HeadedDecoder(Protocol):
    def decode(self, values: pa.BinaryArray, schema_ids: pa.BinaryArray | None = None) -> Decoded: ...


def headed_decode(
    decoder: ValueDecoder, records: pa.RecordBatch, header: str, column: str, named: SchemaIdPlace
) -> Callable[[pa.BinaryArray], Decoded]:
    """Decode records whose headers may name their writer schemas.

    Args:
        decoder: Decoder of a format whose records name their schemas; it also takes schema ids, if a header may have
            them.
        records: Records that all have a row.
        header: Name of the header.
        column: Values of the header, if they were fetched; otherwise the records' headers are searched.
        named: Place of the schema ids.
    """
    if named == "prefix":
        return decoder.decode
    ids: pa.Array | None = None
    if column in records.schema.names:
        ids = records.column(column)
    elif "headers" in records.schema.names:
        values, there = last_of(records.column("headers"), header)
        found = [(value or b"") if has else None for value, has in zip(values, there.tolist(), strict=True)]
        ids = pa.array(found, pa.binary())
    if ids is not None and named == "header":
        # A missing header counts like an empty one.
        ids = pc.fill_null(ids, b"")
    return partial(cast("_HeadedDecoder", decoder).decode, schema_ids=ids)


def with_subject(failure: Failure, block: Block, part: Literal["value", "key"]) -> Failure:
    """A failure about a missing or invalid writer schema, with the subject of the record's topic.

    Args:
        failure: Failure by the block's rows.
        block: Input of the stage.
        part: Part of the record with the schema.
    """
    if failure.error_class not in (UNKNOWN_SCHEMA, BAD_SCHEMA) or "topic" not in block.records.schema.names:
        return failure
    topic = block.records.column("topic")[int(block.positions[failure.row])].as_py()
    return failure.saying(f"{failure.message} (the subject of its topic is {topic}-{part})")


def last_of(headers: pa.Array, name: str) -> tuple[list[bytes | None], np.ndarray]:
    """Value of each record's last header of a name, null without one; and which records have one."""
    count = len(headers)
    offsets = headers.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    names, values = headers.values.field("key"), headers.values.field("value")
    hits = np.flatnonzero(_equal(names, name))
    # A match belongs to the record whose headers begin last before it; a later match replaces an earlier one.
    last = np.full(count, -1, np.int64)
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    last[np.searchsorted(offsets, hits, side="right") - 1] = hits
    there = last >= 0
    found = values.take(pa.array(last, mask=~there))
    return found.to_pylist(), there


def _equal(names: pa.Array, name: str) -> np.ndarray:
    return pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False)


_WIDENED = {OUT_OF_RANGE: ("needs int,", "needs float,", "needs decimal("), PRECISION_LOSS: ("needs float,",)}
"""Beginnings of messages, by error class, about values that a wider Iceberg type holds."""


class ReadHeaders:
    """Refuses records whose headers could not be read, if the stream has columns of headers."""

    name: str = DECODE_HEADER

    def apply(self, block: Block) -> Block:
        """The block without these records; records without a value pass, as they become no rows."""
        lacking = block.rows.column("headers").is_null().to_numpy(zero_copy_only=False)
        refused = lacking & block.rows.column("value").is_valid().to_numpy(zero_copy_only=False)
        message = "needs names of headers in UTF-8, found others"
        failures = [Failure(row, self.name, INVALID_UTF8, message, None) for row in np.flatnonzero(refused).tolist()]
        return _without(block, failures) if failures else block

    def probe(self, block: Block) -> Block:
        """No records."""
        return block.part(0, 0)


class DecodeKey:
    """Decodes the key of each record that has a row.

    Args:
        columns: Columns of the key.
        decoder: Decoder of the keys.
        probe: A key that a decoder of this format accepts or refuses without failing itself.
        named: Place of a key's schema id; the decoder takes it from a header, if one may have it.
    """

    name: str = DECODE_KEY

    def __init__(
        self, columns: KeyColumns, decoder: ValueDecoder, probe: bytes, *, named: SchemaIdPlace = "prefix"
    ) -> None:
        self._named: SchemaIdPlace = named
        self._columns: KeyColumns = columns
        self._decoder: ValueDecoder = decoder
        self._probe: bytes = probe
        self._fields: list[pa.Field] = [
            pa.field(each.name, rows_arrow_type(each.field_type), nullable=not each.required) for each in columns.fields
        ]
        # A null key has no columns. If one is required, or the struct of all, the record is refused.
        self._required: str | None = next((each.name for each in columns.fields if each.required), None)
        self._undeclared: bool = isinstance(columns.decoder.schema, TableSchema)

    def apply(self, block: Block) -> Block:
        """The block with the key's columns appended; they are null for records without a key."""
        wanted = [each for each in ("key", "headers", KEY_SCHEMA_ID) if each in block.records.schema.names]
        records = block.records.select(wanted if self._named != "prefix" else ["key"])
        records = records if block.is_whole else records.take(pa.array(block.positions))
        decode = headed_decode(self._decoder, records, KEY_HEADER, KEY_SCHEMA_ID, self._named)
        decoded = decode(records.column("key"))
        failures = [
            with_subject(
                Failure(each.row, self.name, each.error_class, self._said(each), self._place(each.field)), block, "key"
            )
            for each in decoded.failures
        ]
        if self._required is not None:
            message = "needs a key, found null"
            failures += [
                Failure(row, self.name, NULL_IN_REQUIRED, message, f"$.{self._required}")
                for row in decoded.tombstones.tolist()
            ]
        # Index of each row's key among the decoded ones; -1 for a null key.
        at = np.full(block.rows.num_rows, -1, np.int64)
        at[decoded.positions] = np.arange(len(decoded.positions))
        unknown = {KEY_PATH + path.removeprefix("$"): count for path, count in decoded.unknown_fields.items()}
        # Needs of keys are ignored: their columns are declared.
        rows = _beside(block.rows, self._fields, self._arrays(decoded.rows, at))
        with_columns = block.with_rows(rows, unknown_fields=unknown)
        return _without(with_columns, sorted(failures, key=lambda each: each.row)) if failures else with_columns

    def _arrays(self, rows: pa.RecordBatch, at: Indices) -> list[pa.Array]:
        there = at >= 0
        columns: list[pa.Array] = list(rows.columns)
        if self._columns.into is not None:
            columns = [pa.StructArray.from_arrays(columns, fields=list(self._fields[0].type))]
        if there.all():
            return columns
        indices = pa.array(at, mask=~there)
        return [column.take(indices) for column in columns]

    def _said(self, failure: Failure) -> str:
        """Message about a refused key, with the next step if its column has a narrower type: keys widen no column."""
        if not self._undeclared or not failure.message.startswith(_WIDENED.get(failure.error_class, ())):
            return failure.message
        column = self._place(failure.field).removeprefix("$.")
        beside = f" and {OLD_KEY}{column.removeprefix(KEY)}" if self._columns.into == KEY else ""
        way = f"widen {column}{beside} by ALTER TABLE, start the stream again, then replay this dead letter"
        # A message without the value has no ", found "; its first part is kept.
        needed, found, rest = failure.message.partition(", found ")
        return f"{needed} as the table's keys are, which no record widens ({way}){found}{rest}"

    def _place(self, field: str | None) -> str:
        """Path in the row for a failure's path in the key."""
        if self._columns.into is not None:
            return f"$.{self._columns.into}{(field or '$').removeprefix('$')}"
        return field or f"$.{self._fields[0].name}"

    def probe(self, block: Block) -> Block:
        """A record with the probe for its key."""
        key = pa.array([self._probe], pa.binary())
        return Block.of(pa.RecordBatch.from_arrays([key], ["key"]), block.destination)


class DecodeHeaders:
    """Decodes headers of each record that has a row; the last of several with one name counts.

    Args:
        columns: Columns of the headers.
    """

    name: str = DECODE_HEADER

    def __init__(self, columns: Sequence[HeaderColumn]) -> None:
        self._columns: tuple[HeaderColumn, ...] = tuple(columns)

    def apply(self, block: Block) -> Block:
        """The block with a column for each header appended; null for records without it."""
        headers = _of_rows(block, "headers")
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        refused: dict[int, Failure] = {}
        for each in self._columns:
            declared, place = each.column.type, f"$.{each.name}"
            if not isinstance(declared, Primitive):
                raise TypeError(f"a header is one value, not {declared}")
            values, there = last_of(headers, each.header)
            array, bad = header_values(declared, values, as_bytes=each.as_bytes)
            fields.append(pa.field(each.name, arrow_type(declared), nullable=not each.column.required))
            arrays.append(array)
            for one in bad:
                refused.setdefault(one.index, Failure(one.index, self.name, one.error_class, one.message, place))
            if each.column.required:
                for row in (row for row, value in enumerate(values) if value is None):
                    why = (NULL_IN_REQUIRED, "null") if there[row] else (MISSING_FIELD, "no such header")
                    message = f"needs {declared}, found {why[1]}"
                    refused.setdefault(row, Failure(row, self.name, why[0], message, place))
        with_columns = block.with_rows(_beside(block.rows, fields, arrays))
        return _without(with_columns, [refused[row] for row in sorted(refused)]) if refused else with_columns

    def probe(self, block: Block) -> Block:
        """No records: if the stage works for none it works for all."""
        return block.part(0, 0)


def _of_rows(block: Block, column: str) -> pa.Array:
    """A column of the records that have a row."""
    found = block.records.column(column)
    return found if block.is_whole else found.take(pa.array(block.positions))


def _beside(rows: pa.RecordBatch, fields: Sequence[pa.Field], arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, *arrays], schema=pa.schema([*rows.schema, *fields]))


def _without(block: Block, failures: Sequence[Failure]) -> Block:
    """The block without the failed rows, which are ascending."""
    kept = np.setdiff1d(np.arange(block.rows.num_rows), [failure.row for failure in failures])
    return block.with_rows(block.rows.take(pa.array(kept, pa.int64())), kept, failures=failures)
