"""Snapshot producers on top of PyIceberg's: they commit on exactly the table that was read.

Relied upon, and pinned by `tests/unit/tables/commit/test_pyiceberg_commit.py`: `_MergeAppendFiles(operation,
transaction, io, snapshot_properties=)` with `append_data_file`, `_commit() -> (updates, requirements)`, `snapshot_id`
and `_clean_all_uncommitted()`, which merges manifests of what `fetch_manifest_entry` gives and hands all of them to
`_process_manifests`; `_OverwriteFiles` is made the same way and has `delete_data_file` and `delete_by_predicate` as
well; a summary counts `_added_data_files` by their content; `ManifestWriterV2` writes what `content()` says; producers
read `Transaction.table_metadata` and change nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation as Operations
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.types import DoubleType, FloatType

from jobs.tables.commit.schema.operations import Append, ReplaceFiles, RowDelta
from jobs.tables.write.manifest_doubles import exact_entries, positions_of_type, widen_zeros


def producer_of(
    operation: Append | ReplaceFiles | RowDelta, table: Table, summary: Mapping[str, str]
) -> ExactMergeAppend | _OverwriteFiles:
    transaction, properties = UnchangedTransaction(table), dict(summary)
    match operation:
        case Append(files=added):
            producer = ExactMergeAppend(Operations.APPEND, transaction, table.io, snapshot_properties=properties)
        case RowDelta(files=added, deletes=deletes, replaced=replaced):
            # Like Iceberg's own producers: readers of appends alone do not stop at it.
            kind = Operations.APPEND if not deletes else Operations.OVERWRITE if added else Operations.DELETE
            producer = ExactRowDelta(kind, transaction, table.io, snapshot_properties=properties)
            producer.deletes, producer.replaced = deletes, replaced
        case ReplaceFiles(removed, added):
            producer = _OverwriteFiles(Operations.OVERWRITE, transaction, table.io, snapshot_properties=properties)
            specs = table.metadata.specs()
            for file in removed:
                producer.delete_data_file(file)
                if specs[file.spec_id].is_unpartitioned():
                    # PyIceberg looks for manifests by the files' partitions, and finds none in an unpartitioned table.
                    producer.delete_by_predicate(AlwaysTrue())
    for file in added:
        producer.append_data_file(file)
    return producer


class UnchangedTransaction(Transaction):
    """A transaction without staged changes: its metadata is the table's.

    PyIceberg deep-copies the metadata at each access, fifteen times a commit. That is a quarter of a first commit's
    time, and most of it with 300 snapshots.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata


class ExactMergeAppend(_MergeAppendFiles):
    """An append whose merged manifests have the partition values that their files have, doubles and zeros included."""

    def fetch_manifest_entry(self, manifest: ManifestFile, discard_deleted: bool = True) -> list[ManifestEntry]:
        entries = super().fetch_manifest_entry(manifest, discard_deleted=False)
        spec, schema = self.spec(manifest.partition_spec_id), self._transaction.table_metadata.schema()
        exact_entries(self._io, manifest, entries, spec, schema)
        return [entry for entry in entries if not discard_deleted or entry.status != ManifestEntryStatus.DELETED]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        merged = super()._process_manifests(manifests)
        schema = self._transaction.table_metadata.schema()
        for manifest in merged:
            if manifest.added_snapshot_id == self.snapshot_id:
                spec = self.spec(manifest.partition_spec_id)
                widen_zeros(
                    manifest, positions_of_type(DoubleType, spec, schema) + positions_of_type(FloatType, spec, schema)
                )
        return merged


class ExactRowDelta(ExactMergeAppend):
    """Data files, with one manifest of all position delete files beside theirs.

    Attributes:
        deletes: New position delete files, of the table's current partition spec.
        replaced: Position delete files that are removed.
    """

    deletes: Sequence[DataFile] = ()
    replaced: Sequence[DataFile] = ()

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        if self.deletes:
            spec_id = self._transaction.table_metadata.default_spec_id
            deletes = (each for each in manifests if each.content == ManifestContent.DELETES)
            mine = [each for each in deletes if each.partition_spec_id == spec_id]
            manifests = [self._deletes_manifest(mine), *(each for each in manifests if each not in mine)]
        return super()._process_manifests(manifests)

    def _deletes_manifest(self, former: Sequence[ManifestFile]) -> ManifestFile:
        """Manifest of the delete files; PyIceberg writes and merges manifests of data files only."""
        metadata = self._transaction.table_metadata
        gone = {file.file_path for file in self.replaced}
        writer = _DeletesManifestWriter(
            metadata.spec(), metadata.schema(), self.new_manifest_output(), self.snapshot_id, self._compression
        )
        with writer:
            for file in self.deletes:
                writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
            for entry in (entry for each in former for entry in self.fetch_manifest_entry(each)):
                if entry.data_file.file_path in gone:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        added, gone = self._added_data_files, self._deleted_data_files
        self._added_data_files, self._deleted_data_files = [*added, *self.deletes], {*gone, *self.replaced}
        try:
            return super()._summary(dict(snapshot_properties or {}))
        finally:
            self._added_data_files, self._deleted_data_files = added, gone


class _DeletesManifestWriter(ManifestWriterV2):
    """Writer of manifests of position delete files; PyIceberg's writer is for data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
