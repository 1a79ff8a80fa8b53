"""Snapshot expiry: decides what has to stay, then Iceberg's procedure deletes the files of the others."""

from __future__ import annotations

from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base import failpoints as steps
from jobs.base.errors import FrazilError
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.plan.snapshot_retention import ExpiryCutoff, SnapshotHold, expiry_cutoff
from jobs.maintenance.plan.table_context import TableContext, refuse_without_gc
from jobs.maintenance.run.snapshot_holds import (
    fill_ledger_or_hold,
    holds,
    streams_of,
    written_branches,
)
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.branch import branches, line_property, seen_on
from jobs.tables.commit.history.lineage import line_at_head
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from jobs.tables.commit.stamp.table_properties import MIRROR_PART

_DELETED = "deleted_"


def expected_cutoff(context: TableContext, table: Table, now: datetime) -> ExpiryCutoff | str:
    """Cutoff of an expiry of a table now, by the rules of the expiry itself; or the reason of a refusal.

    Nothing is written: the ledger counts as filled from the streams' files, which an expiry does first.
    """
    try:
        refuse_unless_stamps_are_kept(table.metadata, context.name)
        held = holds(context, table, now, to_be_filled=True)
        written = written_branches(context, table.metadata)
        return expiry_cutoff(table.metadata, context.policy.expire, held, now, context.name, written)
    except FrazilError as problem:
        return problem.message
    except Exception as problem:
        return jvm_error_text(context.settings, problem)


def expire(context: TableContext, step: Step) -> StepResult:
    """Expire what the policy lets go and nobody needs; without any, Spark is not started.

    It uses Iceberg's Spark procedure, which deletes what no remaining snapshot can reach. PyIceberg's expiry leaves the
    files, and Java's default has deleted files that snapshots beside main still had. Schemas and partition specs stay,
    as a pending record may name them.

    Raises:
        FrazilError: Something would be lost with the snapshots, or the procedure failed.
    """
    table = context.load()
    refuse_without_gc(table, context.name)
    refuse_unless_stamps_are_kept(table.metadata, context.name)
    unfilled = fill_ledger_or_hold(context)
    table = context.load()
    now = context.now()
    held = holds(context, table, now)
    # Ages count from the time of the plan, so that as many go as the plan says.
    planned = step.detail.get("planned_at")
    at = datetime.fromisoformat(str(planned)) if planned else now
    written = written_branches(context, table.metadata)
    found = expiry_cutoff(table.metadata, context.policy.expire, held, at, context.name, written)
    before = len(table.metadata.snapshots)
    detail: dict[str, str | int | float] = {"older_than": found.older_than.isoformat(timespec="milliseconds")}
    if unfilled:
        detail["ledger"] = unfilled
    if found.holds:
        detail["held_by"] = "; ".join(f"{hold.what}: {hold.why}" for hold in found.holds)
    if warning := _too_many(found.staying, context.policy.expire.max_snapshots, found.holds):
        detail["warning"] = warning
    if not found.going:
        return StepResult(step, before, before, detail=detail, done=False)
    _keep_the_line(context)
    steps.step("maintain_before_expiry")
    answer = context.procedures().call(
        "expire_snapshots", older_than=found.older_than, retain_last=found.retain_last, stream_results=True
    )
    after = len(context.load().metadata.snapshots)
    deleted = {key: int(value or 0) for key, value in answer.items() if key.startswith(_DELETED)}
    detail |= {key: value for key, value in deleted.items() if value}
    detail["deleted_files"] = sum(deleted.values())
    return StepResult(step, before, after, detail=detail)


def _keep_the_line(context: TableContext) -> None:
    """Record that each branch's head descends from the last stamped commit, while the snapshots that prove it exist."""

    def attempt() -> None:
        table = context.load()
        metadata = table.metadata
        heads = {branch: line_at_head(seen_on(metadata, branch)) for branch in branches(metadata)}
        lines = {line_property(branch): line.text() for branch, line in heads.items() if line}
        if lines:
            with conflicts_as_moved_head(), table.transaction() as change:
                change.set_properties(lines)

    def given_up(said: str) -> FrazilError:
        return FrazilError(f"{said}; so no snapshot expires.", fix=f"frazil maintain {context.name}")

    compare_and_swap(context.name, attempt, given_up)


def _too_many(staying: int, most: int, kept_by: tuple[SnapshotHold, ...]) -> str:
    if staying <= most or not kept_by:
        return ""
    return f"{staying:,} snapshots stay, of which the policy keeps {most:,} at most, for {kept_by[0].what}"


class StampsNotKeptError(FrazilError):
    """Snapshots do not expire, because a stream's stamps would be lost with them.

    Safe: No snapshot expired.
    Next: the command that the message names; then `frazil maintain TABLE`
    """


def refuse_unless_stamps_are_kept(metadata: TableMetadata, table: str) -> None:
    """Raise unless the table's properties have everything that snapshots record about streams.

    A stream without stamped snapshots uses the property, so that has to be its newest stamp. A difference between the
    two shows a rollback of the table, and expiry would remove that evidence.

    Raises:
        StampsNotKeptError: The properties lack something.
    """
    try:
        for stream in streams_of(metadata):
            past = history(as_written(metadata, stream), stream)
            text = whole_property(metadata.properties, property_key(stream))
            kept = Stamp.from_json(text).sequence if text else -1
            if past.stamped_ancestor and past.stamped_ancestor.sequence > kept:
                raise StampsNotKeptError(
                    f"table {table}: its property {property_key(stream)} is not the newest stamp of stream {stream} "
                    f"(sequence number {kept}, and {past.stamped_ancestor.sequence} in a snapshot), so no snapshot "
                    "expires: somebody has changed the table's properties.",
                    fix=f"let the stream commit once more, which sets it: {_commit(stream)}",
                )
            if past.rolled_back:
                raise StampsNotKeptError(
                    f"table {table} was rolled back to before the last commit of stream {stream}, which nobody has "
                    "answered; its snapshots show what was removed, so none expires.",
                    fix=_answer(stream),
                )
    except (ValueError, KeyError, TypeError) as problem:
        raise StampsNotKeptError(
            f"table {table}: a stamp of a stream cannot be read, so no snapshot expires: {problem}.",
            fix="maintain the table with the version of frazil that writes to it",
        ) from None


def _answer(stream: str) -> str:
    base, _, part = stream.partition("~")
    if stream.startswith(f"{base}{MIRROR_PART}"):
        return f"frazil mirror rebuild {base} --table {stream.removeprefix(base + MIRROR_PART)}"
    if part:
        return f"frazil letters {base} --after-rollback WHY"
    return f"frazil accept {base} --rollback keep, or --rollback reland"


def _commit(stream: str) -> str:
    base, _, _ = stream.partition("~")
    return f"frazil {'mirror run' if MIRROR_PART in stream else 'run'} {base}"
