"""Memo of manifests that were read: a file never changes, and each attempt at a commit would read all of them again."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from jobs.write.manifest_doubles import exact_entries


class ManifestMemo:
    """Reads manifests, each once for as long as this is kept.

    While a stream commits, whoever remakes its branch begins again and again. Of a branch with thousands of manifests
    only the first attempt may take long, or each would find that the branch has moved.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, int], list[ManifestEntry]] = {}

    def entries(self, io: FileIO, manifest: ManifestFile, spec: PartitionSpec, schema: Schema) -> list[ManifestEntry]:
        """All entries of a manifest, those of deleted files included, with exact bounds.

        Args:
            io: Reads it.
            manifest: As the snapshot lists it.
            spec: By which its files are partitioned.
            schema: The table's.

        Raises:
            FileNotFoundError: It is gone.
        """
        key = manifest.manifest_path, schema.schema_id
        if key not in self._read:
            found = manifest.fetch_manifest_entry(io, discard_deleted=False)
            exact_entries(io, manifest, found, spec, schema)
            self._read[key] = found
        return self._read[key]
