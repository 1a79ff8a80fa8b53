"""Expiring snapshots: what has to stay is settled first, then Iceberg's procedure deletes the files of the others."""

from __future__ import annotations

import time
from datetime import datetime

from pyiceberg.table import Table

from jobs import steps
from jobs.commit.compare_and_swap import compare_and_swap, conflicts_told
from jobs.commit.lineage import LINE_PROPERTY, moved_up
from jobs.errors import FrazilError
from jobs.maintain.holding import fill_ledger, holds
from jobs.maintain.java import said
from jobs.maintain.keeping import Cut, Hold, cut, refuse_unless_stamps_are_kept
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult
from jobs.maintain.work import Work, refuse_without_gc

_DELETED = "deleted_"


def room(work: Work, table: Table, now: datetime) -> Cut | str:
    """What expiry would take of a table now, by the rules by which it is done; or why it would be refused.

    Nothing is written: the ledger counts as filled with what the streams' files name, which expiry does first.

    Args:
        work: On the table.
        table: As loaded.
        now: The instant of the plan.
    """
    try:
        refuse_unless_stamps_are_kept(table.metadata, work.name)
        held = holds(work.catalog, work.settings, work.specs, work.name, table, now, to_be_filled=True)
        return cut(table.metadata, work.policy.expire, held, now, work.name)
    except FrazilError as problem:
        return problem.message
    except Exception as problem:
        return said(work.settings, problem)


def expire(work: Work, step: Step) -> StepResult:
    """Expire what the policy lets go and nobody needs; no Spark where that is nothing.

    Through Iceberg's Spark procedure, which deletes what no snapshot that is left can reach: PyIceberg's leaves the
    files, and Java's default has deleted files that snapshots beside main still had. Schemas and partition specs stay:
    a pending record may name them.

    Raises:
        FrazilError: Something would be lost with the snapshots, or the procedure failed.
    """
    began = time.monotonic()
    table = work.load()
    refuse_without_gc(table, work.name)
    refuse_unless_stamps_are_kept(table.metadata, work.name)
    unfilled = fill_ledger(work.catalog, work.settings, work.specs, work.name)
    table = work.load()
    now = work.now()
    held = holds(work.catalog, work.settings, work.specs, work.name, table, now)
    # What is old is what was when it was planned, so that as many go as the plan says.
    planned = step.detail.get("planned_at")
    at = datetime.fromisoformat(str(planned)) if planned else now
    found = cut(table.metadata, work.policy.expire, held, at, work.name)
    before = len(table.metadata.snapshots)
    detail: dict[str, str | int | float] = {"older_than": found.older_than.isoformat(timespec="milliseconds")}
    if unfilled:
        detail["ledger"] = unfilled
    if found.holds:
        detail["held_by"] = "; ".join(f"{hold.what}: {hold.why}" for hold in found.holds)
    if warning := _too_many(found.staying, work.policy.expire.max_snapshots, found.holds):
        detail["warning"] = warning
    if not found.going:
        return StepResult(step, before, before, seconds=time.monotonic() - began, detail=detail, done=False)
    _keep_the_line(work)
    steps.step("maintain_before_expiry")
    answer = work.procedures().call(
        "expire_snapshots", older_than=found.older_than, retain_last=found.retain_last, stream_results=True
    )
    after = len(work.load().metadata.snapshots)
    deleted = {key: int(value or 0) for key, value in answer.items() if key.startswith(_DELETED)}
    detail |= {key: value for key, value in deleted.items() if value}
    detail["deleted_files"] = sum(deleted.values())
    return StepResult(step, before, after, seconds=time.monotonic() - began, detail=detail)


def _keep_the_line(work: Work) -> None:
    """Note that the head of main stands on the last stamped commit, while the snapshots that show it are there."""

    def attempt() -> None:
        table = work.load()
        if line := moved_up(table.metadata):
            with conflicts_told(), table.transaction() as change:
                change.set_properties({LINE_PROPERTY: line.text()})

    def given_up(said: str) -> FrazilError:
        return FrazilError(f"{said}; so no snapshot expires.", fix=f"frazil maintain {work.name}")

    compare_and_swap(work.name, attempt, given_up)


def _too_many(staying: int, most: int, kept_by: tuple[Hold, ...]) -> str:
    if staying <= most or not kept_by:
        return ""
    return f"{staying:,} snapshots stay, of which the policy keeps {most:,} at most, for {kept_by[0].what}"
