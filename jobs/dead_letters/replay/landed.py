"""Records that have landed in a table already, found by the coordinates of its rows; and duplicates.

A discarded row stays on the branch, and main never gets it. So the record of its dead letter has landed again only if
main has a row of it, or the branch has one that is yet to be published.
"""

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
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.records.formats.interface.problems import DISCARDED
from jobs.tables.commit.history.branch import TableOnBranch
from jobs.tables.commit.history.discards import Discards, is_discarded
from jobs.tables.commit.history.publications import published_through
from jobs.tables.dead_letter_table.row_json import DISCARDED_ROW
from jobs.tables.dead_letter_table.selection import any_of
from jobs.tables.write.data_file_rows import equality_deletes_named

LETTER_COLUMNS = ("topic", "partition", "offset", "timestamp")


def already_landed(
    table: Table,
    records: pa.RecordBatch,
    *,
    columns: tuple[str, str, str, str],
    by_time: bool = True,
    only: BooleanExpression | None = None,
) -> np.ndarray:
    """Mask of records with a row in the table.

    Args:
        records: Records with topic, partition, offset and timestamp.
        columns: Names of these columns in the table.
        by_time: Whether a row also needs the record's timestamp, as a recreated topic gives the same offsets to other
            records.
        only: Filter on the table's rows; None for all.
    """
    if not records.num_rows or table.current_snapshot() is None:
        return np.zeros(records.num_rows, dtype=bool)
    wanted = near(records, columns)
    wanted = wanted if only is None else And(wanted, only)
    with equality_deletes_named(".".join(table.name())):
        rows = table.scan(row_filter=wanted, selected_fields=columns).to_arrow_batch_reader()
    return landed_among(rows, records, columns=columns, by_time=by_time)


def landed_among(
    rows: Iterable[pa.RecordBatch],
    records: pa.RecordBatch,
    *,
    columns: tuple[str, str, str, str],
    by_time: bool = True,
) -> np.ndarray:
    """Mask of records with one of these rows.

    Args:
        rows: Rows with the named columns.
        records: As for `already_landed`, like the other arguments.
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
    """For each record, the index of the first equal one; its own if it is the first."""
    if not records.num_rows:
        return np.zeros(0, np.int64)
    codes = _keys(records, {}, LETTER_COLUMNS, by_time).dictionary_encode().indices.to_numpy()
    _, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
    return firsts[group]


def record_keys(rows: pa.RecordBatch | pa.Table, topics: dict[str, int], names: tuple[str, str, str, str]) -> pa.Array:
    """A key of 24 bytes per record or row, equal if topic, partition, offset and instant are equal.

    Args:
        topics: Number of each topic; a missing topic gets the next one.
        names: Names of the four columns.
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
    """Row filter around some records: one range per partition, which the files' statistics can answer."""
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


def are_discarded(letters: pa.RecordBatch) -> np.ndarray:
    """Mask of dead letters of discarded rows."""
    return _equal(letters, "error_class", DISCARDED)


def are_rows(letters: pa.RecordBatch) -> np.ndarray:
    """Mask of dead letters whose value is a row as JSON."""
    return _equal(letters, "stage", DISCARDED_ROW)


def _equal(letters: pa.RecordBatch, column: str, value: str) -> np.ndarray:
    return np.array([each == value for each in letters.column(column).to_pylist()], dtype=bool)


def stand_in_table(
    sink: Table, letters: pa.RecordBatch, stream: str, *, columns: tuple[str, str, str, str]
) -> np.ndarray:
    """Mask of dead letters whose record has a row in the table, apart from a discarded one.

    Args:
        sink: The stream's table, seen from the branch that the stream writes.
        letters: Dead letters of any reason.
        columns: Names of topic, partition, offset and timestamp in the table.
    """
    discarded = are_discarded(letters)
    if not discarded.any():
        return already_landed(sink, letters, columns=columns)
    found = np.zeros(letters.num_rows, dtype=bool)
    found[~discarded] = already_landed(sink, letters.filter(pa.array(~discarded)), columns=columns)
    found[discarded] = _landed_again(sink, letters.filter(pa.array(discarded)), stream, columns=columns)
    return found


def _landed_again(
    sink: Table, letters: pa.RecordBatch, stream: str, *, columns: tuple[str, str, str, str]
) -> np.ndarray:
    """Mask of dead letters of discarded rows whose record has another row, in main or unpublished."""
    if not letters.num_rows or not isinstance(sink, TableOnBranch):
        return already_landed(sink, letters, columns=columns)
    main = Table(sink.name(), sink.whole, sink.metadata_location, sink.io, sink.catalog, sink.config)
    found = already_landed(main, letters, columns=columns)
    ahead = _paths_ahead(sink, stream)
    if not ahead:
        return found
    wanted = near(letters, columns)
    tasks = [each for each in sink.scan(row_filter=wanted).plan_files() if each.file.file_path in ahead]
    schema: Schema = sink.schema().select(*columns)
    rows = ArrowScan(sink.metadata, sink.io, schema, wanted).to_record_batches(tasks)
    return found | landed_among(rows, letters, columns=columns)


def _paths_ahead(sink: TableOnBranch, stream: str) -> frozenset[str]:
    """Unpublished data files of the branch that are not about to be discarded."""
    head = sink.metadata.current_snapshot()
    after = published_through(sink.whole, stream, sink.branch) or 0
    discards = Discards.of(sink.whole.properties, stream).on(sink.branch)
    paths: set[str] = set()
    for manifest in head.manifests(sink.io) if head else ():
        if manifest.content != ManifestContent.DATA or manifest.sequence_number <= after:
            continue
        entries = manifest.fetch_manifest_entry(sink.io, discard_deleted=True)
        numbered = ((each.sequence_number or 0, each.data_file.file_path) for each in entries)
        paths.update(path for number, path in numbered if number > after and not is_discarded(discards, number))
    return frozenset(paths)
