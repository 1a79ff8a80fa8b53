"""Schema ids of records: what a header says of the writer schema of a value or key, and whose subject messages name.

A header counts before the first bytes of a value: bytes that look like an id by accident are then never taken for one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.decoder import Decoded, Failure, ValueDecoder
from jobs.formats.problems import BAD_SCHEMA, UNKNOWN_SCHEMA
from jobs.formats.record_columns import SchemaIdPlace
from jobs.pipeline.block import Block


class _HeadedDecoder(Protocol):
    def decode(self, values: pa.BinaryArray, schema_ids: pa.BinaryArray | None = None) -> Decoded: ...


def headed_decode(
    decoder: ValueDecoder, records: pa.RecordBatch, header: str, column: str, named: SchemaIdPlace
) -> Callable[[pa.BinaryArray], Decoded]:
    """The decoding of records whose headers may name their writer schemas.

    Args:
        decoder: Of a format whose records name their schemas; it takes their ids as well, if a header may have them.
        records: Of which all have a row.
        header: The name of the header.
        column: Of the records, what the header says, if it has been fetched; else their headers are looked through.
        named: Where the schemas are named.
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
        # A header that is not there is as good as one that says nothing.
        ids = pc.fill_null(ids, b"")
    return partial(cast("_HeadedDecoder", decoder).decode, schema_ids=ids)


def with_subject(failure: Failure, block: Block, part: Literal["value", "key"]) -> Failure:
    """The failure of a record whose writer schema is not there, or is none, with the subject that its topic has.

    Args:
        failure: By the block's rows.
        block: As the stage got it.
        part: Of the record, whose schema it is.
    """
    if failure.error_class not in (UNKNOWN_SCHEMA, BAD_SCHEMA) or "topic" not in block.records.schema.names:
        return failure
    topic = block.records.column("topic")[int(block.positions[failure.row])].as_py()
    return failure.saying(f"{failure.message} (the subject of its topic is {topic}-{part})")


def last_of(headers: pa.Array, name: str) -> tuple[list[bytes | None], np.ndarray]:
    """The value of each record's last header of a name, null without one; and which records have one."""
    count = len(headers)
    offsets = headers.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    names, values = headers.values.field("key"), headers.values.field("value")
    hits = np.flatnonzero(_equal(names, name))
    # A hit belongs to the record whose headers begin last before it; a later one takes the place of an earlier one.
    last = np.full(count, -1, np.int64)
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    last[np.searchsorted(offsets, hits, side="right") - 1] = hits
    there = last >= 0
    found = values.take(pa.array(last, mask=~there))
    return found.to_pylist(), there


def _equal(names: pa.Array, name: str) -> np.ndarray:
    return pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False)
