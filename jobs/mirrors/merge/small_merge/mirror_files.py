"""Data files and position-delete files of a mirror's snapshot, and which delete file applies to which data file.

PyIceberg compares each data file with each delete file of its partition by an expression. With a hundred of both that
takes longer than the rest of a small merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import DoubleType

from jobs.tables.write.manifest_doubles import positions_of_type
from jobs.tables.write.partitioning import partition_key
from jobs.tables.write.position_deletes import PATH_ID

_MOST_FILES = 20_000


class NotSmallError(Exception):
    """A merge is left to Spark; nothing has changed. The text is the reason, for the log."""


@dataclass(frozen=True, slots=True)
class MirrorFile:
    """A file of a snapshot.

    Attributes:
        file: The file.
        sequence: Data sequence number of the file: deletes apply to data files that are not younger.
    """

    file: DataFile
    sequence: int

    @property
    def partition(self) -> tuple[object, ...]:
        """Identity of its partition."""
        return self.file.spec_id, *partition_key(self.file.partition)


@dataclass(frozen=True, slots=True)
class MirrorFiles:
    """The files of a snapshot.

    Attributes:
        data: Data files.
        deletes: Position-delete files.
    """

    data: tuple[MirrorFile, ...]
    deletes: tuple[MirrorFile, ...]

    @staticmethod
    def of(table: Table, snapshot_id: int) -> MirrorFiles:
        """Read the manifests of a snapshot.

        Raises:
            NotSmallError: The snapshot has equality deletes, files other than Parquet, files of a former partitioning,
                partition values that PyIceberg does not read exactly, or very many files.
        """
        snapshot, spec = table.metadata.snapshot_by_id(snapshot_id), table.metadata.default_spec_id
        if positions_of_type(DoubleType, table.spec(), table.schema()):
            raise NotSmallError("partitions are of a double")
        data, deletes = list[MirrorFile](), list[MirrorFile]()
        manifests = snapshot.manifests(table.io) if snapshot else []
        if sum((each.added_files_count or 0) + (each.existing_files_count or 0) for each in manifests) > _MOST_FILES:
            raise NotSmallError(f"there are more than {_MOST_FILES:,} files")
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                if file.content == DataFileContent.EQUALITY_DELETES:
                    raise NotSmallError("rows are deleted by their values (equality deletes)")
                if file.file_format is not FileFormat.PARQUET:
                    raise NotSmallError(f"files are of {file.file_format.name}")
                if file.spec_id != spec:
                    raise NotSmallError("files are of former partitions")
                found = MirrorFile(file, entry.sequence_number or 0)
                (data if file.content == DataFileContent.DATA else deletes).append(found)
        return MirrorFiles(tuple(data), tuple(deletes))

    def deletes_of(self, data: Sequence[MirrorFile]) -> list[MirrorFile]:
        """Return the position-delete files that may apply to one of the data files."""
        by_partition: dict[tuple[object, ...], list[MirrorFile]] = {}
        for each in data:
            by_partition.setdefault(each.partition, []).append(each)
        return [each for each in self.deletes if _may_apply(each, by_partition.get(each.partition, ()))]


def _may_apply(deletes: MirrorFile, data: Iterable[MirrorFile]) -> bool:
    lower, upper = ((each or {}).get(PATH_ID) for each in (deletes.file.lower_bounds, deletes.file.upper_bounds))
    for each in data:
        path = each.file.file_path.encode()
        # A bound may be truncated; a truncated upper bound is still not below the real one.
        inside = (lower is None or lower <= path) and (upper is None or path <= upper)
        if inside and each.sequence <= deletes.sequence:
            return True
    return False
