"""Rebase of a branch as a step of maintenance: its forecast for a plan, and the step itself, which needs no Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.plan_metadata import RemakeForecast, remake_pays
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.snapshot_holds import fill_ledger_or_hold, streams_writing_to
from jobs.quality.publishing.remake import StillNeeded, remake, remaking
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_checkpoints import valid_fill_checkpoints
from jobs.tables.ledger.ledger_table import find_ledger


def gated_branches(context: TableContext, table: Table, facts: TableFacts) -> dict[str, RemakeForecast | None]:
    """Branches of write-audit-publish streams; with a forecast if a rebase pays."""
    specs = streams_writing_to(context.specs, context.name)
    gated = {spec.publish.branch for spec in specs if spec.publish is not None and spec.table.name == context.name}
    pays = {each.name for each in facts.branches if remake_pays(each, context.policy.remake)}
    return {name: _forecast(context, table, name) if name in pays else None for name in gated}


def _forecast(context: TableContext, table: Table, branch: str) -> RemakeForecast:
    now = context.now()
    specs = streams_writing_to(context.specs, context.name)
    try:
        # The ledger is filled first, so it needs no stamp.
        found = remaking(table, specs, branch, needed=lambda snapshot, stamp: False, now=now)
    except FrazilError as problem:
        return RemakeForecast(refused=f"{problem.message} {problem.fix or ''}".strip())
    except Exception as problem:
        return RemakeForecast(refused=f"It cannot be rebased: {jvm_error_text(context.settings, problem)}")
    return RemakeForecast(len(found.operation.snapshots), found.waiting)


def remake_branch(context: TableContext, step: Step) -> StepResult:
    """Rebase a branch onto main's head.

    Raises:
        FrazilError: Main would lack something of the branch, or others committed during every attempt.
    """
    branch = str(step.detail["branch"])
    unfilled = fill_ledger_or_hold(context)
    specs = streams_writing_to(context.specs, context.name)
    needed = still_needed(context, context.load(), context.now())
    done = remake(context.catalog, context.name, specs, branch, needed=needed, now=context.now)
    detail: dict[str, str | int | float] = {
        "branch": branch,
        "issued_again": done.snapshots,
        "waiting": done.waiting,
        "waiting_rows": done.rows,
        "snapshot_id": str(done.snapshot_id),
    }
    if unfilled:
        detail["ledger"] = unfilled
    head = context.load().metadata.snapshot_by_id(done.snapshot_id)
    files = head.summary.additional_properties.get("total-data-files") if head and head.summary else None
    return StepResult(step, step.files_before, int(files or step.files_after), detail=detail)


def still_needed(context: TableContext, table: Table, now: datetime) -> StillNeeded:
    """Stamps that are needed although main has their rows.

    They are: stamps that the ledger lacks; stamps by which a starting driver counts the failures of its window; and
    stamps about late rows, for as long as snapshots exist.
    """
    ledger = find_ledger(context.catalog, context.settings)
    uuid = str(table.metadata.table_uuid)
    needs: dict[str, Callable[[Snapshot, Stamp], bool]] = {}
    for spec in streams_writing_to(context.specs, context.name):
        known = (valid_fill_checkpoints(ledger.metadata, spec.stream) if ledger else None) or {}
        filled = known[uuid].sequence if uuid in known else -1
        limit = spec.errors.stop_above
        window = now - limit.window.of if limit is not None and limit.window is not None else now
        needs[spec.stream] = _need_of(filled, window.timestamp() * 1000, now - context.policy.expire.keep)
    return lambda snapshot, stamp: stamp.stream in needs and needs[stamp.stream](snapshot, stamp)


def _need_of(filled: int, window_ms: float, late_since: datetime) -> Callable[[Snapshot, Stamp], bool]:
    late_ms = late_since.timestamp() * 1000

    def need(snapshot: Snapshot, stamp: Stamp) -> bool:
        if stamp.kind == "claim":
            return False
        late = stamp.event_time is not None and bool(stamp.event_time.batch.periods)
        unrecorded = (snapshot.sequence_number or 0) > filled
        return unrecorded or snapshot.timestamp_ms >= window_ms or (late and snapshot.timestamp_ms >= late_ms)

    return need
