"""Records that have landed in a table already, found by the coordinates that its rows carry; and duplicates."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them; of PyIceberg's
# expressions it sees pydantic's keywords only.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.table import Table

from jobs.deadletter.selection import any_of

LETTER_COLUMNS = ("topic", "partition", "offset", "timestamp")


def already_landed(
    table: Table,
    records: pa.RecordBatch,
    *,
    columns: tuple[str, str, str, str],
    by_time: bool = True,
    only: BooleanExpression | None = None,
) -> np.ndarray:
    """Which of the records have a row in the table: a mask over them.

    Args:
        records: With topic, partition, offset and timestamp.
        columns: What the table calls them.
        by_time: A row is a record's only if it has its timestamp as well. A topic that was deleted and created again
            gives the same offsets to other records.
        only: Of the table's rows; all without it.
    """
    if not records.num_rows or table.current_snapshot() is None:
        return np.zeros(records.num_rows, dtype=bool)
    wanted = near(records, columns)
    wanted = wanted if only is None else And(wanted, only)
    rows = table.scan(row_filter=wanted, selected_fields=columns).to_arrow_batch_reader()
    return landed_among(rows, records, columns=columns, by_time=by_time)


def landed_among(
    rows: Iterable[pa.RecordBatch],
    records: pa.RecordBatch,
    *,
    columns: tuple[str, str, str, str],
    by_time: bool = True,
) -> np.ndarray:
    """Which of the records have one of these rows: a mask over the records.

    Args:
        rows: With the columns that are named.
        records: As for `already_landed`, and the rest as there.
    """
    found = np.zeros(records.num_rows, dtype=bool)
    topics: dict[str, int] = {}
    sought = _keys(records, topics, LETTER_COLUMNS, by_time)
    for batch in rows:
        if batch.num_rows:
            known = pc.is_in(sought, value_set=_keys(batch, topics, columns, by_time))
            found |= known.to_numpy(zero_copy_only=False)
    return found


def first_of(records: pa.RecordBatch, *, by_time: bool = True) -> np.ndarray:
    """For each record, the index of the first one that is the same; its own if it is the first."""
    if not records.num_rows:
        return np.zeros(0, np.int64)
    codes = _keys(records, {}, LETTER_COLUMNS, by_time).dictionary_encode().indices.to_numpy()
    _, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
    return firsts[group]


def record_keys(rows: pa.RecordBatch | pa.Table, topics: dict[str, int], names: tuple[str, str, str, str]) -> pa.Array:
    """A key of 24 bytes per record or row, equal where topic, partition, offset and instant are.

    Args:
        topics: A number for each topic; a topic that is not in it gets the next one.
        names: The columns of the four.
    """
    topic, partition, offset, instant = (rows.column(name) for name in names)
    encoded = (topic.combine_chunks() if isinstance(topic, pa.ChunkedArray) else topic).cast(pa.string())
    encoded = encoded.dictionary_encode()
    numbers = np.array([topics.setdefault(name or "", len(topics)) for name in encoded.dictionary.to_pylist()] or [0])
    made = np.zeros(rows.num_rows, dtype=[("t", "<i4"), ("p", "<i4"), ("o", "<i8"), ("i", "<i8")])
    made["t"] = numbers[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    made["p"] = partition.fill_null(-1).to_numpy()
    made["o"] = offset.fill_null(-1).to_numpy()
    made["i"] = instant.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(-(2**63)).to_numpy()
    buffer = pa.py_buffer(made.tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(24), rows.num_rows, [None, buffer])


def _keys(
    rows: pa.RecordBatch, topics: dict[str, int], names: tuple[str, str, str, str], by_time: bool
) -> pa.FixedSizeBinaryArray:
    if by_time:
        return record_keys(rows, topics, names)
    index = rows.schema.get_field_index(names[3])
    return record_keys(
        rows.set_column(index, names[3], pa.nulls(rows.num_rows, pa.timestamp("us", "UTC"))), topics, names
    )


def near(records: pa.RecordBatch, columns: tuple[str, str, str, str]) -> BooleanExpression:
    """Selects the rows around some records: one range per partition, which the files' statistics can answer."""
    topic, partition, offset, _ = columns
    grouped = pa.Table.from_batches([records.select(["topic", "partition", "offset"])])
    ranges = grouped.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
    return any_of(
        And(
            EqualTo(topic, row["topic"]),
            EqualTo(partition, row["partition"]),
            GreaterThanOrEqual(offset, row["offset_min"]),
            LessThanOrEqual(offset, row["offset_max"]),
        )
        for row in ranges
        if row["topic"] is not None and row["partition"] is not None and row["offset_min"] is not None
    )
