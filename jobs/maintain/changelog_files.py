"""Changelog files: the data files of a changelog, how old the changes in one are, up to which offsets it reaches."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg import conversions
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask, Table

from jobs.commit.offsets import Positions, TopicPartition
from jobs.errors import FrazilError

# A function by type, whose signature no type checker sees.
_from_bytes: Any = conversions.from_bytes


class ChangesKeptError(FrazilError):
    """No change of a changelog may go yet."""


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A data file of the changelog, and the sequence number of the commit that its rows are no later than."""

    file: DataFile
    sequence: int


def landed_files(table: Table) -> list[LandedFile]:
    """All data files of the head.

    Raises:
        ChangesKeptError: There are deletes to be applied to them.
    """
    head = table.metadata.current_snapshot()
    found: list[LandedFile] = []
    for manifest in head.manifests(table.io) if head else ():
        if manifest.content != ManifestContent.DATA:
            if manifest.has_added_files() or manifest.has_existing_files():
                raise ChangesKeptError(
                    "Somebody has deleted changes by delete files, so which are there is not known by metadata.",
                    fix="apply the deletes in Spark: CALL system.rewrite_data_files(table => …, options => "
                    "map('delete-file-threshold', '1'))",
                )
            continue
        found += [
            LandedFile(each.data_file, each.sequence_number or manifest.sequence_number)
            for each in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ]
    return found


def all_before(table: Table, file: DataFile, timestamp: str, before: datetime) -> bool:
    """Whether all changes of a file came before an instant, by its bounds."""
    field = table.schema().find_field(timestamp)
    bound = (file.upper_bounds or {}).get(field.field_id)
    newest: Any = _from_bytes(field.field_type, bound) if bound else None
    return newest is not None and newest < int(before.timestamp()) * 1_000_000


def ends_of(table: Table, file: DataFile, coordinates: tuple[str, str, str]) -> Positions:
    """By partition, behind the greatest offset of a file; nothing of one with a row of which it is not known."""
    projected = table.schema().select(*coordinates)
    scan = ArrowScan(table.metadata, table.io, projected, AlwaysTrue())
    found: dict[TopicPartition, int] = {}
    topic, partition, offset = coordinates
    for batch in scan.to_record_batches([FileScanTask(file)]):
        rows = pa.Table.from_batches([batch])
        if any(rows[name].null_count for name in coordinates):
            return {}
        for row in rows.group_by([topic, partition]).aggregate([(offset, "max")]).to_pylist():
            at = TopicPartition(row[topic], row[partition])
            found[at] = max(row[f"{offset}_max"] + 1, found.get(at, 0))
    return found
