"""Orphan removal: files that nothing refers to are found here and deleted by Iceberg, which looks a second time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyiceberg.table import Table

from jobs import steps
from jobs.errors import FrazilError
from jobs.maintain.orphan_rules import (
    FLOOR,
    OrphanScan,
    OrphansRefusedError,
    foreign_content,
    other_locations,
    refuse_neighbours,
    refuse_too_many,
    refuse_two_names,
    refuse_unknown_place,
)
from jobs.maintain.pending_files import PendingFiles, pending_paths, read_pending_files
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult
from jobs.maintain.snapshot_holds import streams_writing_to
from jobs.maintain.table_context import TableContext, refuse_without_gc
from jobs.maintain.table_files import list_files, referenced_files, without_store
from jobs.spark.jvm_calls import jvm_error_text
from jobs.state.stream_folder import stream_folder
from jobs.supervise.heartbeat import read_heartbeat
from jobs.write.locations import state_in_the_way


def remove_orphans(context: TableContext, step: Step) -> StepResult:
    """Delete what nothing names, after it was looked at whole and every reason against it was asked for.

    Where there is nothing to delete, no Spark is started.

    Raises:
        OrphansRefusedError: Something may need what lies there.
        FrazilError: The location, the catalog or a pending record cannot be read, or the procedure failed.
    """
    older_than = context.now() - max(context.policy.orphans.older_than, FLOOR)
    # Before the table: what is committed in between, and whose record is gone by then, is named by the table.
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
    """List the location, and tell what nothing names: neither a snapshot, nor a pending record.

    Raises:
        OrphansRefusedError: Something else lies there, the same file has two names, or none of those named is
            there.
        FrazilError: It cannot be listed, or a manifest is gone.
    """
    try:
        # Before the listing: what is committed from now on is young.
        names = {without_store(path): path for path in (*referenced_files(table), *pending)}
        files = list(list_files(table))
    except Exception as problem:
        raise FrazilError(
            f"table {context.name}: what lies at {table.location()} cannot be told: "
            f"{jvm_error_text(context.settings, problem)}",
            fix=f"see to that place, then frazil maintain {context.name} --only orphans",
        ) from None
    refuse_two_names(context.name, table.location(), names.values())
    if what := foreign_content(files):
        raise OrphansRefusedError(
            f"table {context.name}: {what} lies within its location {table.location()}, where the removal of orphan "
            "files would take it away. Nothing was deleted.",
            fix="move it elsewhere, or set orphans.enabled: false for the table",
        )
    old = tuple(f for f in files if f.changed < older_than and not f.hidden and without_store(f.path) not in names)
    found = OrphanScan(len(files), sum(without_store(file.path) in names for file in files), old)
    refuse_unknown_place(context.name, table.location(), names, found)
    return found


def refuse_old_work(context: TableContext, table: Table, records: Sequence[PendingFiles], older_than: datetime) -> None:
    """See that nothing on the table was begun so long ago that its files would count as forgotten.

    Raises:
        OrphansRefusedError: Something was.
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
