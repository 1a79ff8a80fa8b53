"""Files under a table's location that nothing names: found here, and deleted by Iceberg, which looks a second time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from pyiceberg.table import Table

from jobs import steps
from jobs.errors import FrazilError
from jobs.maintain.holding import streams_at
from jobs.maintain.java import said
from jobs.maintain.listing import list_files
from jobs.maintain.named_files import bare, named_files
from jobs.maintain.orphan_rules import (
    FLOOR,
    Found,
    OrphansRefusedError,
    foreign,
    other_locations,
    refuse_neighbours,
    refuse_too_many,
    refuse_two_names,
    refuse_unknown_place,
)
from jobs.maintain.pending_notes import PendingNote, files_of, pending_notes
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult
from jobs.maintain.work import Work, refuse_without_gc
from jobs.state.paths import stream_folder
from jobs.supervise.heartbeat import read_heartbeat
from jobs.write.locations import state_in_the_way, state_under


def remove_orphans(work: Work, step: Step) -> StepResult:
    """Delete what nothing names, after it was looked at whole and every reason against it was asked for.

    Where there is nothing to delete, no Spark is started.

    Raises:
        OrphansRefusedError: Something may need what lies there.
        FrazilError: The location, the catalog or a pending record cannot be read, or the procedure failed.
    """
    began = time.monotonic()
    older_than = work.now() - max(work.policy.orphans.older_than, FLOOR)
    # Before the table: what is committed in between, and whose record is gone by then, is named by the table.
    notes = pending_notes(work.settings)
    table = work.load()
    refuse_without_gc(table, work.name)
    if state_under(table.location(), work.settings.state):
        problem = state_in_the_way(work.settings.state, f"table {work.name}")
        raise OrphansRefusedError(f"{problem.message}. Nothing was deleted.", fix=problem.fix)
    refuse_old_work(work, table, notes, older_than)
    found = look(work, table, files_of(notes), older_than)
    detail: dict[str, str | int | float] = {
        "older_than": older_than.isoformat(timespec="seconds"),
        "listed_files": found.listed,
        "orphan_files": len(found.orphans),
        "orphan_bytes": found.bytes,
    }
    if not found.orphans:
        seconds = time.monotonic() - began
        return StepResult(step, found.listed, found.listed, seconds=seconds, detail=detail, done=False)
    refuse_too_many(work.name, found, work.policy.orphans)
    refuse_neighbours(work.name, table, other_locations(work.catalog, work.name))
    steps.step("maintain_before_removal")
    gone = work.procedures().remove_files([(file.path, file.changed) for file in found.orphans], older_than)
    sizes = {bare(file.path): file.size for file in found.orphans}
    detail["deleted_files"] = len(gone)
    return StepResult(
        step,
        found.listed,
        found.listed - len(gone),
        sum(sizes.get(bare(path), 0) for path in gone),
        time.monotonic() - began,
        detail,
    )


def look(work: Work, table: Table, pending: set[str], older_than: datetime) -> Found:
    """List the location, and tell what nothing names: neither a snapshot, nor a pending record.

    Raises:
        OrphansRefusedError: Something else lies there, the same file has two names, or none of those named is
            there.
        FrazilError: It cannot be listed, or a manifest is gone.
    """
    try:
        # Before the listing: what is committed from now on is young.
        names = {bare(path): path for path in (*named_files(table), *pending)}
        files = list(list_files(table))
    except Exception as problem:
        raise FrazilError(
            f"table {work.name}: what lies at {table.location()} cannot be told: {said(work.settings, problem)}",
            fix=f"see to that place, then frazil maintain {work.name} --only orphans",
        ) from None
    refuse_two_names(work.name, table.location(), names.values())
    if what := foreign(files):
        raise OrphansRefusedError(
            f"table {work.name}: {what} lies within its location {table.location()}, where the removal of orphan files "
            "would take it away. Nothing was deleted.",
            fix="move it elsewhere, or set orphans.enabled: false for the table",
        )
    old = tuple(f for f in files if f.changed < older_than and not f.hidden and bare(f.path) not in names)
    found = Found(len(files), sum(bare(file.path) in names for file in files), old)
    refuse_unknown_place(work.name, table.location(), names, found)
    return found


def refuse_old_work(work: Work, table: Table, notes: Sequence[PendingNote], older_than: datetime) -> None:
    """See that nothing on the table was begun so long ago that its files would count as forgotten.

    Raises:
        OrphansRefusedError: Something was.
    """
    uuid = str(table.metadata.table_uuid)
    for note in notes:
        if note.concerns(work.name, uuid) and note.written < older_than:
            raise OrphansRefusedError(
                f"table {work.name}: the pending record {note.place} of stream {note.stream} is of "
                f"{note.written:%Y-%m-%d}, and its batch is not finished. Nothing was deleted.",
                fix=f"{note.command}, which finishes it",
            )
    for spec in streams_at(work.specs, work.name):
        beat = read_heartbeat(stream_folder(work.settings, spec.stream).store)
        since = beat.work.busy_since if beat and beat.process_lives() is not False and not beat.final else None
        if since is not None and since < older_than.timestamp():
            raise OrphansRefusedError(
                f"table {work.name}: stream {spec.stream} has been at one batch since before {older_than:%Y-%m-%d}. "
                "Nothing was deleted.",
                fix=f"frazil status {spec.stream}",
            )
