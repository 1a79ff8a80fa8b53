"""Changelog files: the data files of a changelog, the ages of their changes, and the offsets they reach."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyarrow.compute makes its functions when it is imported.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import conversions
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask, Table

from jobs.base.errors import FrazilError
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition

# A function by type, whose signature no type checker sees.
_from_bytes: Any = conversions.from_bytes


class ChangesKeptError(FrazilError):
    """Changes of a changelog do not expire, because a mirror may still need them.

    Safe: All changes stay.
    Next: the command that the message names; then `frazil maintain TABLE`
    """


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A data file of the changelog, and the greatest possible sequence number of its rows' commit."""

    file: DataFile
    sequence: int


def landed_files(table: Table, read: dict[str, list[LandedFile]]) -> list[LandedFile]:
    """All data files of the head.

    Args:
        read: Content of manifests by path; it is filled.

    Raises:
        ChangesKeptError: The files have deletes to apply.
    """
    head = table.metadata.current_snapshot()
    found: list[LandedFile] = []
    for manifest in head.manifests(table.io) if head else ():
        if manifest.content != ManifestContent.DATA:
            if manifest.has_added_files() or manifest.has_existing_files():
                raise ChangesKeptError(
                    "Somebody has deleted changes by delete files, so metadata does not show which exist.",
                    fix="apply the deletes in Spark: CALL system.rewrite_data_files(table => …, options => "
                    "map('delete-file-threshold', '1'))",
                )
            continue
        path = manifest.manifest_path
        if path not in read:
            read[path] = [
                LandedFile(each.data_file, each.sequence_number or manifest.sequence_number)
                for each in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            ]
        found += read[path]
    return found


def times_of(table: Table, file: DataFile, timestamp: str) -> tuple[int, int] | None:
    """Least and greatest Kafka time of a file's changes, in µs since 1970; None without bounds."""
    found = _bounds(table, file, timestamp)
    return None if found is None else (int(found[0]), int(found[1]))


def least_offset(table: Table, file: DataFile, offset: str) -> int | None:
    """Least offset of a file's changes, in any partition; None without bounds."""
    found = _bounds(table, file, offset)
    return None if found is None else int(found[0])


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes of a file.

    Attributes:
        ends: Offset behind the greatest one, by partition; empty if a change has none.
        beyond: Least time of a change that a mirror may lack or a dead letter may precede, in µs since 1970; None:
            none.
        at: Coordinates of such a change, in words; empty if unknown.
    """

    ends: Positions
    beyond: int | None
    at: str = ""


def changes_of(
    table: Table, file: DataFile, columns: tuple[str, str, str, str], times: tuple[int, int], limits: Positions
) -> FileChanges:
    """Read the coordinates of a file's changes.

    Args:
        columns: Kafka's topic, partition, offset and time columns.
        times: Times of the file, see `times_of`.
        limits: First offset of changes beyond, by partition; in a partition without one, all are.
    """
    least = least_offset(table, file, columns[2])
    if least is not None and least >= max(limits.values(), default=0):
        # All changes are beyond, whichever partition they are in.
        return FileChanges({}, times[0], f"offsets from {least:,} on")
    ends: dict[TopicPartition, int] = {}
    known, beyond, where = True, None, ""
    for rows in _places(table, file, columns):
        known &= not any(rows[name].null_count for name in columns[:3])
        for at, part in _by_partition(rows, columns):
            offsets, instants = part[columns[2]], part[columns[3]]
            ends[at] = max(_most(offsets) + 1, ends.get(at, 0))
            mask = pc.greater_equal(offsets, limits.get(at, 0))
            late = instants.filter(mask)
            if len(late):
                # A change without a time may be as old as the oldest.
                first = times[0] if late.null_count else _micros(pc.min(late))
                if beyond is None or first < beyond:
                    beyond, where = first, f"{at}, offsets from {pc.min(offsets.filter(mask)).as_py():,} on"
    return FileChanges(ends if known else {}, beyond, where)


def ends_through(table: Table, file: DataFile, columns: tuple[str, str, str, str], through: int) -> Positions:
    """Offset behind the greatest one of a file's changes up to a time, by partition.

    Args:
        columns: As for `changes_of`.
        through: The time, in µs since 1970.
    """
    ends: dict[TopicPartition, int] = {}
    for rows in _places(table, file, columns):
        instants = rows[columns[3]].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        for at, part in _by_partition(rows.filter(pc.less_equal(instants, through)), columns):
            ends[at] = max(_most(part[columns[2]]) + 1, ends.get(at, 0))
    return ends


def _places(table: Table, file: DataFile, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns), AlwaysTrue())
    for batch in scan.to_record_batches([FileScanTask(file)]):
        yield pa.Table.from_batches([batch])


def _by_partition(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """Rows of each partition, without those that lack partition or offset."""
    topic, partition, offset = columns[:3]
    for name in (topic, partition, offset):
        rows = rows.filter(pc.is_valid(rows[name]))
    for row in rows.group_by([topic, partition]).aggregate([]).to_pylist():
        mine = pc.and_(pc.equal(rows[topic], row[topic]), pc.equal(rows[partition], row[partition]))
        yield TopicPartition(row[topic], row[partition]), rows.filter(mine)


def _bounds(table: Table, file: DataFile, name: str) -> tuple[Any, Any] | None:
    field = table.schema().find_field(name)
    lower, upper = (file.lower_bounds or {}).get(field.field_id), (file.upper_bounds or {}).get(field.field_id)
    if not lower or not upper:
        return None
    return _from_bytes(field.field_type, lower), _from_bytes(field.field_type, upper)


def _most(offsets: pa.ChunkedArray) -> int:
    return pc.max(offsets).as_py()


def _micros(instant: pa.Scalar) -> int:
    return instant.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
