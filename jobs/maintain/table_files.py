"""Table files: those that lie under a table's location, and those that its metadata refer to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

# Two names of one store.
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "": "file"}


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file.

    Attributes:
        path: In the style of the table's location.
        within: Relative to the location.
        size: Bytes.
        changed: When it was last written.
    """

    path: str
    within: str
    size: int
    changed: datetime

    @property
    def hidden(self) -> bool:
        """Whether a part of its name begins as those that Iceberg passes over; a partition may be called so."""
        *folders, name = self.within.split("/")
        return name.startswith(("_", ".")) or any(
            folder.startswith(".") or (folder.startswith("_") and "=" not in folder) for folder in folders
        )


def list_files(table: Table) -> Iterator[ListedFile]:
    """Yield every file under the location.

    Raises:
        OSError: It cannot be listed.
        ValueError: PyArrow knows no such store.
    """
    import pyarrow.fs as stores

    location = table.location().rstrip("/")
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    io: Any = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)
    folder = path.rstrip("/")
    selector = stores.FileSelector(folder, recursive=True, allow_not_found=True)
    for found in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
        if found.type != stores.FileType.File:
            continue
        within = found.path[len(folder) :].lstrip("/")
        yield ListedFile(f"{location}/{within}", within, found.size or 0, found.mtime)


def without_store(path: str) -> str:
    """The path of a table's file without scheme and authority, which two writers of a table may write differently."""
    parts = urlsplit(path)
    return path.split("://", 1)[-1][len(parts.netloc) :] if "://" in path else path.removeprefix("file:")


def store_of(path: str) -> tuple[str, str]:
    """Scheme and authority of a table's file."""
    parts = urlsplit(path) if "://" in path or path.startswith("file:") else urlsplit("")
    return _SAME_SCHEME.get(parts.scheme, parts.scheme), parts.netloc


def referenced_files(table: Table) -> Iterator[str]:
    """Yield full paths as they are written, some of them more than once.

    Also what a snapshot that is left removed: only Iceberg itself decides that nobody needs it.

    Raises:
        FileNotFoundError: A manifest is gone, so nobody knows what it names.
    """
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (statistics.statistics_path for statistics in metadata.statistics)
    yield from (statistics.statistics_path for statistics in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                yield entry.data_file.file_path
