"""Measurement of partitions: the files of each, summed up from the manifests, and its key for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType

from jobs.maintenance.measure.health_facts import PartitionFacts, PartitionValue
from jobs.maintenance.measure.manifest_reader import LiveFile, live_files
from jobs.tables.write.partitioning import partition_key

_DATA, _POSITIONS = 0, 1

_READERS = 8


_NULL = "null"


class PartitionKeys:
    """Makes keys from the values in manifests.

    Args:
        metadata: Metadata of the table, with all of its specs and schemas.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        schemas = sorted(metadata.schemas, key=lambda schema: schema.schema_id != metadata.current_schema_id)
        # An older schema has the name of a dropped column.
        columns: dict[int, tuple[str, IcebergType]] = {}
        for schema in schemas:
            for field_id in schema.field_ids:
                if field_id not in columns:
                    columns[field_id] = (schema.find_column_name(field_id) or "", schema.find_type(field_id))
        self._present: frozenset[int] = frozenset(metadata.schema().field_ids)
        self._fields: dict[int, list[tuple[PartitionField, tuple[str, IcebergType] | None]]] = {
            spec_id: [(field, columns.get(field.source_id)) for field in spec.fields]
            for spec_id, spec in metadata.specs().items()
        }

    def values(self, spec_id: int, partition: tuple[Any, ...]) -> tuple[PartitionValue, ...]:
        """Key of a partition.

        Args:
            spec_id: Its partition spec.
            partition: Values in Iceberg's internal form, in the order of the spec's fields.
        """
        return tuple(
            PartitionValue(
                name=field.name,
                source=column[0] if column else "",
                source_type=str(column[1]) if column else "unknown",
                transform=str(field.transform),
                value=value,
                text=_text(field, column[1] if column else None, value),
                dropped=field.source_id not in self._present and str(field.transform) != "void",
            )
            for (field, column), value in zip(self._fields[spec_id], partition, strict=True)
        )


def partition_name(values: tuple[PartitionValue, ...]) -> str:
    """`created_at_day=2026-01-31/country=CH`, without fields that were dropped from the spec."""
    return "/".join(f"{value.name}={_escaped(value.text)}" for value in values if value.transform != "void")


def _text(field: PartitionField, source: IcebergType | None, value: Any) -> str:
    if value is None:
        return _NULL
    if source is None:
        return str(value)
    try:
        text = field.transform.to_human_string(source, value)
    except (OverflowError, ValueError, TypeError):
        # Python has no text for dates past the year 9999.
        text = str(value)
    # The text "null" is another partition than null.
    return f'"{text}"' if text == _NULL else text


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


@dataclass(slots=True)
class _Sum:
    sizes: list[int] = field(default_factory=list)
    records: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0
    newest_ms: int = -1

    def add(self, file: LiveFile, committed_ms: int) -> None:
        if file.content == _DATA:
            self.sizes.append(file.size)
            self.records += file.records
            self.newest_ms = max(self.newest_ms, committed_ms)
            return
        self.delete_files += 1
        self.delete_bytes += file.size
        if file.content == _POSITIONS:
            self.position_deletes += file.records
        else:
            self.equality_deletes += file.records


def measure_partitions(
    metadata: TableMetadata, io: FileIO, manifests: Sequence[ManifestFile]
) -> tuple[PartitionFacts, ...]:
    """Files of one snapshot's manifests by partition, those of older specs first.

    Raises:
        FileNotFoundError: A manifest is missing.
    """
    committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    sums: defaultdict[tuple[int, tuple[Any, ...]], _Sum] = defaultdict(_Sum)
    values: dict[tuple[int, tuple[Any, ...]], tuple[Any, ...]] = {}
    for manifest, files in zip(manifests, _read(io, manifests), strict=True):
        for file in files:
            key = (manifest.partition_spec_id, partition_key(file.partition))
            values.setdefault(key, file.partition)
            sums[key].add(file, committed.get(file.snapshot_id or -1, -1))
    keys = PartitionKeys(metadata)
    found = [_facts(keys, key[0], values[key], total) for key, total in sums.items()]
    return tuple(sorted(found, key=lambda each: (each.spec_id, each.name)))


def _read(io: FileIO, manifests: Sequence[ManifestFile]) -> Iterable[list[LiveFile]]:
    if len(manifests) < 2:
        return [live_files(io, manifest) for manifest in manifests]
    # In an object store each one is a round trip; concurrent requests share the wait.
    with ThreadPoolExecutor(min(_READERS, len(manifests)), "manifests") as pool:
        return list(pool.map(partial(live_files, io), manifests))


def _facts(keys: PartitionKeys, spec_id: int, partition: tuple[Any, ...], total: _Sum) -> PartitionFacts:
    values = keys.values(spec_id, partition)
    return PartitionFacts(
        spec_id=spec_id,
        values=values,
        name=partition_name(values),
        sizes=tuple(sorted(total.sizes)),
        records=total.records,
        delete_files=total.delete_files,
        delete_bytes=total.delete_bytes,
        position_deletes=total.position_deletes,
        equality_deletes=total.equality_deletes,
        newest_at=datetime.fromtimestamp(total.newest_ms / 1000, UTC) if total.newest_ms >= 0 else None,
    )
