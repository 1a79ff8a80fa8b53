"""Announced data files of the Iceberg sink as descriptors that a commit of frazil takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

_MEASURES = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
)


def misfit_of(file: Mapping[str, Any], metadata: TableMetadata) -> str | None:
    """Why a file cannot be committed to the table as it is now, as the end of a sentence; None if it can."""
    if file.get("content") not in (None, int(DataFileContent.DATA)):
        return "is no data file"
    specs, spec_id = metadata.specs(), _spec_id(file, metadata)
    if spec_id not in specs:
        return f"was written for partition spec {spec_id}, which the table does not have"
    if spec_id != metadata.default_spec_id:
        return f"was written for partition spec {spec_id}; the table's is {metadata.default_spec_id} now"
    if len(file["partition"]) != len(specs[spec_id].fields):
        return "has other partition values than the table's partition spec"
    return None


def data_file_of(file: Mapping[str, Any], metadata: TableMetadata) -> DataFile:
    """The descriptor of an announced file that fits the table, see `misfit_of`.

    Args:
        file: Fields by Iceberg's names; partition values in the order of the spec.
    """
    measures: Any = {name: file.get(name) for name in _MEASURES}
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file["file_path"],
        file_format=FileFormat(file["file_format"]),
        partition=Record(*file["partition"].values()),
        record_count=file["record_count"],
        file_size_in_bytes=file["file_size_in_bytes"],
        **measures,
    )
    data_file.spec_id = _spec_id(file, metadata)
    return data_file


def _spec_id(file: Mapping[str, Any], metadata: TableMetadata) -> int:
    # Early releases of the sink leave it out. If the table has had several specs, the file fits none.
    spec_id = file.get("spec_id")
    if spec_id is None:
        return metadata.default_spec_id if len(metadata.specs()) == 1 else -1
    return spec_id


def live_paths(table: Table, paths: Collection[str], after_sequence: int) -> set[str]:
    """Select the paths that are data files of the table's head.

    Args:
        table: As the branch has it.
        paths: Paths of candidate files. Only snapshots later than `after_sequence` can have added them.
        after_sequence: Sequence number; only manifests written since are read.
    """
    head = table.metadata.current_snapshot()
    if head is None or not paths:
        return set()
    wanted = set(paths)
    return {path for path in _paths_since(table, after_sequence) if path in wanted}


def _paths_since(table: Table, after_sequence: int) -> Iterator[str]:
    head = table.metadata.current_snapshot()
    for manifest in head.manifests(table.io) if head else ():
        if manifest.content == ManifestContent.DATA and (manifest.sequence_number or 0) >= after_sequence:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
