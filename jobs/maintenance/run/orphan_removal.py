"""Orphan removal: frazil finds files that nothing references, and Iceberg checks them again and deletes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from jobs.base import failpoints as steps
from jobs.base.errors import FrazilError
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.services.maintenance_policy import Orphans
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.plan.table_context import TableContext, refuse_without_gc
from jobs.maintenance.run.pending_files import PendingFiles, pending_paths, read_pending_files
from jobs.maintenance.run.snapshot_holds import streams_writing_to
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.tables.write.locations import state_in_the_way

# Schemes of the same store.
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "": "file"}

FLOOR = timedelta(days=3)
# A share of few files proves nothing: a crash or two leave as many in a small table.
_FEW = 20
_PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
_METADATA = re.compile(r"(.+)/metadata/[^/]+\.metadata\.json(\.gz)?")
# Spark's checkpoints number the files of these folders; Flink's number the folders.
_CHECKPOINT = re.compile(r"(?:(.+)/)?(?:(?:offsets|commits)/\d+|sources/\d+/\d+|(?:state/.+)\.(?:delta|snapshot))")
_FLINK = re.compile(r"(?:(.+)/)?chk-\d+/.+")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file under a table's location.

    Attributes:
        path: Path in the style of the table's location.
        within: Path relative to the location.
        size: Bytes.
        changed: Modification time.
    """

    path: str
    within: str
    size: int
    changed: datetime

    @property
    def hidden(self) -> bool:
        """Whether a part of its path begins like those that Iceberg ignores; a partition may have such a name."""
        *folders, name = self.within.split("/")
        return name.startswith(("_", ".")) or any(
            folder.startswith(".") or (folder.startswith("_") and "=" not in folder) for folder in folders
        )


def list_files(table: Table) -> Iterator[ListedFile]:
    """Yield every file under the location.

    Raises:
        OSError: The location cannot be listed.
        ValueError: PyArrow does not know the store.
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
    """Path of a table's file without scheme and authority, which two writers of a table may write differently."""
    parts = urlsplit(path)
    return path.split("://", 1)[-1][len(parts.netloc) :] if "://" in path else path.removeprefix("file:")


def store_of(path: str) -> tuple[str, str]:
    """Scheme and authority of a table's file."""
    parts = urlsplit(path) if "://" in path or path.startswith("file:") else urlsplit("")
    return _SAME_SCHEME.get(parts.scheme, parts.scheme), parts.netloc


def referenced_files(table: Table) -> Iterator[str]:
    """Yield full paths as written in the metadata, some of them more than once.

    It includes files that a remaining snapshot removed: only Iceberg itself decides that nobody needs them.

    Raises:
        FileNotFoundError: A manifest is missing, so its files are unknown.
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


class OrphansRefusedError(FrazilError):
    """Orphan files are not removed, because something may need them, or they are too many.

    Safe: Nothing was deleted.
    Next: look at the files; then correct the location or raise the limit as the message shows
    """


@dataclass(frozen=True, slots=True)
class OrphanScan:
    """Files under a table's location.

    Attributes:
        listed: All files.
        named: Files that the metadata reference.
        orphans: Files that nothing references and that are old enough.
    """

    listed: int
    named: int
    orphans: tuple[ListedFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the orphans."""
        return sum(file.size for file in self.orphans)


def foreign_content(files: Iterable[ListedFile]) -> str | None:
    """A table or a checkpoint among the files of a table; None if there is none."""
    for file in files:
        if other := _METADATA.fullmatch(file.within):
            return f"another table ({other[1]})"
        if checkpoint := _CHECKPOINT.fullmatch(file.within) or _FLINK.fullmatch(file.within):
            return f"a checkpoint ({checkpoint[1] or file.within})"
    return None


def refuse_two_names(name: str, location: str, names: Iterable[str]) -> None:
    """Raise unless files in the location are referenced in its own style: otherwise they would look like orphans.

    Raises:
        OrphansRefusedError: A file is not.
    """
    own, folder = _folder(location)
    for path in names:
        if store_of(path) != own and without_store(path).startswith(folder):
            raise OrphansRefusedError(
                f"table {name}: its metadata name {path}, and its location is {location}: with two styles of one place "
                "a file that is needed would pass for an orphan. Nothing was deleted.",
                fix="write one style of `warehouse` and of table locations everywhere, and let the old files expire",
            )


def refuse_unknown_place(name: str, location: str, names: Iterable[str], found: OrphanScan) -> None:
    """Raise unless referenced files are among those listed: otherwise every one of them would look like an orphan.

    A table may keep all its files elsewhere, by `write.data.path`; then none is at its location.

    Args:
        names: Referenced files, see `without_store`.

    Raises:
        OrphansRefusedError: None of them is listed.
    """
    _, folder = _folder(location)
    if found.named or not (found.orphans or any(path.startswith(folder) for path in names)):
        return
    raise OrphansRefusedError(
        f"table {name}: of the {found.listed:,} files that are listed at {location}, its metadata name not one, so the "
        "store calls them by other names, or keeps them elsewhere. Nothing was deleted.",
        fix=f"see what lies there; set orphans.enabled: false for {name} if the store lists files under other paths",
    )


def refuse_too_many(name: str, found: OrphanScan, policy: Orphans) -> None:
    """Raise if there are more orphans than a crash or a broken job leaves.

    Raises:
        OrphansRefusedError: There are.
    """
    count, share = len(found.orphans), len(found.orphans) / found.listed
    what = None
    if count > policy.max_files:
        what = f"more than orphans.max_files ({policy.max_files:,})"
    elif count > _FEW and share > policy.max_share:
        what = f"more than orphans.max_share ({policy.max_share:.0%})"
    if what is None:
        return
    some = ", ".join(file.within for file in found.orphans[:3])
    raise OrphansRefusedError(
        f"table {name}: {count:,} of {found.listed:,} files ({share:.0%}) would be deleted, {what}. Nothing was "
        f"deleted. Some of them: {some}.",
        fix="see whether they are garbage; if so, raise the limit for this table once",
    )


def other_locations(catalog: Catalog, name: str) -> dict[str, str]:
    """Every location of other tables in the catalog, with the table's name.

    Raises:
        OrphansRefusedError: A table cannot be loaded, so its location is unknown.
    """
    found: dict[str, str] = {}
    for identifier in _tables(catalog, ()):
        other = ".".join(identifier)
        if other == name:
            continue
        try:
            table = catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            continue
        except Exception as problem:
            raise OrphansRefusedError(
                f"table {other} cannot be loaded ({type(problem).__name__}), so it is unknown whether it lies within "
                f"{name}. Nothing was deleted.",
                fix=f"restore or drop {other}",
            ) from None
        found[table.location()] = other
        found |= {table.properties[key]: other for key in _PATH_PROPERTIES if key in table.properties}
    return found


def _tables(catalog: Catalog, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for inner in catalog.list_namespaces(namespace) if namespace else catalog.list_namespaces():
        if len(inner) <= len(namespace):
            continue
        yield from catalog.list_tables(inner)
        yield from _tables(catalog, inner)


def refuse_neighbours(name: str, table: Table, others: dict[str, str]) -> None:
    """Raise if another table is in this one's location, or this one in another's.

    Raises:
        OrphansRefusedError: One is.
    """
    own = _folder(table.location())
    for location, other in others.items():
        theirs = _folder(location)
        if own[0] != theirs[0] or not (own[1].startswith(theirs[1]) or theirs[1].startswith(own[1])):
            continue
        inner, outer = (name, other) if own[1].startswith(theirs[1]) else (other, name)
        raise OrphansRefusedError(
            f"table {name}: {inner} lies within {outer} ({location}), so files of one would pass for orphans of the "
            "other. Nothing was deleted.",
            fix=f"move one of the two elsewhere, or set orphans.enabled: false for {name}",
        )


def _folder(location: str) -> tuple[tuple[str, str], str]:
    return store_of(location), f"{without_store(location).rstrip('/')}/"


def remove_orphans(context: TableContext, step: Step) -> StepResult:
    """Delete orphan files, after listing the location completely and checking every reason against it.

    If there is nothing to delete, Spark is not started.

    Raises:
        OrphansRefusedError: Something may need a file.
        FrazilError: The location, the catalog or a pending record cannot be read, or the procedure failed.
    """
    older_than = context.now() - max(context.policy.orphans.older_than, FLOOR)
    # Read before the table: a commit in between removes its record, and then the table references its files.
    records = read_pending_files(context.settings)
    table = context.load()
    refuse_without_gc(table, context.name)
    if problem := state_in_the_way(table.location(), context.settings, f"table {context.name}"):
        raise OrphansRefusedError(f"{problem.message}. Nothing was deleted.", fix=problem.fix)
    refuse_old_work(context, table, records, older_than)
    found = scan_location(context, table, pending_paths(records), older_than)
    detail: dict[str, str | int | float] = {
        "older_than": older_than.isoformat(timespec="seconds"),
        "listed_files": found.listed,
        "orphan_files": len(found.orphans),
        "orphan_bytes": found.bytes,
    }
    if not found.orphans:
        return StepResult(step, found.listed, found.listed, detail=detail, done=False)
    refuse_too_many(context.name, found, context.policy.orphans)
    refuse_neighbours(context.name, table, other_locations(context.catalog, context.name))
    steps.step("maintain_before_removal")
    gone = context.procedures().remove_files([(file.path, file.changed) for file in found.orphans], older_than)
    sizes = {without_store(file.path): file.size for file in found.orphans}
    detail["deleted_files"] = len(gone)
    return StepResult(
        step,
        found.listed,
        found.listed - len(gone),
        sum(sizes.get(without_store(path), 0) for path in gone),
        detail=detail,
    )


def scan_location(context: TableContext, table: Table, pending: set[str], older_than: datetime) -> OrphanScan:
    """List the location, and find files that neither a snapshot nor a pending record references.

    Raises:
        OrphansRefusedError: Something else is there, a file has two names, or none of the referenced ones is there.
        FrazilError: It cannot be listed, or a manifest is missing.
    """
    try:
        # Read before the listing: later commits are young.
        names = {without_store(path): path for path in (*referenced_files(table), *pending)}
        files = list(list_files(table))
    except Exception as problem:
        raise FrazilError(
            f"table {context.name}: what lies at {table.location()} cannot be listed: "
            f"{jvm_error_text(context.settings, problem)}",
            fix=f"see to that place, then frazil maintain {context.name} --only orphans",
        ) from None
    refuse_two_names(context.name, table.location(), names.values())
    if what := foreign_content(files):
        raise OrphansRefusedError(
            f"table {context.name}: {what} lies within its location {table.location()}, where the removal of orphan "
            "files would delete it. Nothing was deleted.",
            fix="move it elsewhere, or set orphans.enabled: false for the table",
        )
    old = tuple(f for f in files if f.changed < older_than and not f.hidden and without_store(f.path) not in names)
    found = OrphanScan(len(files), sum(without_store(file.path) in names for file in files), old)
    refuse_unknown_place(context.name, table.location(), names, found)
    return found


def refuse_old_work(context: TableContext, table: Table, records: Sequence[PendingFiles], older_than: datetime) -> None:
    """Raise if work on the table began so long ago that its files would look forgotten.

    Raises:
        OrphansRefusedError: Such work exists.
    """
    uuid = str(table.metadata.table_uuid)
    for pending in records:
        if pending.concerns(context.name, uuid) and pending.written < older_than:
            raise OrphansRefusedError(
                f"table {context.name}: the pending record {pending.place} of stream {pending.stream} is of "
                f"{pending.written:%Y-%m-%d}, and its batch is not finished. Nothing was deleted.",
                fix=f"{pending.command}, which finishes it",
            )
    for spec in streams_writing_to(context.specs, context.name):
        beat = read_heartbeat(stream_folder(context.settings, spec.stream).store)
        since = beat.work.busy_since if beat and beat.process_lives() is not False and not beat.final else None
        if since is not None and since < older_than.timestamp():
            raise OrphansRefusedError(
                f"table {context.name}: stream {spec.stream} has been at one batch since before {older_than:%Y-%m-%d}. "
                "Nothing was deleted.",
                fix=f"frazil status {spec.stream}",
            )
