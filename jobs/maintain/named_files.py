"""Every file that a table's metadata name: those of all snapshots, of all branches and tags, and the metadata's own."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pyiceberg.table import Table

# Two names of one store.
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "": "file"}


def bare(path: str) -> str:
    """A path without scheme and authority, as two writers of one table may write them differently."""
    parts = urlsplit(path)
    return path.split("://", 1)[-1][len(parts.netloc) :] if "://" in path else path.removeprefix("file:")


def store(path: str) -> tuple[str, str]:
    """Scheme and authority."""
    parts = urlsplit(path) if "://" in path or path.startswith("file:") else urlsplit("")
    return _SAME_SCHEME.get(parts.scheme, parts.scheme), parts.netloc


def named_files(table: Table) -> Iterator[str]:
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
