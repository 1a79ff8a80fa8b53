"""Tables made of numbers, and what carrying out a plan would make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.measure.health_facts import PartitionFacts, PartitionValue, TableFacts
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.plan.compaction import batches, max_commits
from jobs.maintenance.plan.plan import (
    Plan,
    Skip,
    Step,
    files_written,
)
from jobs.maintenance.plan.plan_expiry import may_be_due
from jobs.maintenance.plan.plan_metadata import DELETE_AFTER_COMMIT, PREVIOUS_VERSIONS
from jobs.maintenance.plan.planner import plan
from jobs.maintenance.plan.snapshot_retention import ExpiryCutoff, expiry_cutoff
from tests.unit.maintenance.snapshot_metadata import NAME
from tests.unit.maintenance.snapshot_metadata import table as metadata_of

MB = 1024**2
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
OURS = {"frazil.stamp.payments": "{}", DELETE_AFTER_COMMIT: "true", PREVIOUS_VERSIONS: "20"}
# Orphans were looked for just now, so that a plan can be empty.
LOOKED = MaintenanceHistory().done("orphans", NOW)


def policy(**keys: Any) -> Policy:
    return Policy.model_validate(keys)


def partition(name: str, *megabytes: float, ago: timedelta | None = None, **more: Any) -> PartitionFacts:
    """A partition with files of so many megabytes; cold unless its newest file came so long ago."""
    values = (PartitionValue("day", "at", "timestamptz", "day", 0, name),) if name else ()
    sizes = tuple(sorted(round(each * MB) for each in megabytes))
    newest_at = None if ago is None else NOW - ago
    return replace(PartitionFacts(0, values, name, sizes, 1000 * len(sizes), newest_at=newest_at), **more)


def table(*partitions: PartitionFacts, **more: Any) -> TableFacts:
    """A table of frazil's own, of format version 2, with one snapshot."""
    sums: dict[str, Any] = {
        name: sum(getattr(each, name) for each in partitions)
        for name in ("bytes", "records", "delete_files", "position_deletes", "equality_deletes")
    }
    given: dict[str, Any] = {
        "name": "orders.payments",
        "uuid": "u",
        "format_version": 2,
        "spec_id": 0,
        "measured_at": NOW,
        "snapshot_id": 1,
        "sequence": 5,
        "partitions": partitions,
        "properties": OURS,
        "streams": ("payments",),
        "data_files": sum(each.files for each in partitions),
        "manifests": 1,
        "manifest_bytes": 9_000,
    }
    return with_snapshots(TableFacts(**given | sums | more), more.get("snapshot_times", (NOW - HOUR,)))


def with_snapshots(facts: TableFacts, times: Sequence[datetime]) -> TableFacts:
    ordered = tuple(sorted(times))
    return replace(facts, snapshot_times=ordered, snapshots=len(ordered))


def cutoff_of(facts: TableFacts, given: Policy, now: datetime = NOW) -> ExpiryCutoff | None:
    """What expiry takes of a table with these snapshots, of which nobody needs any."""
    if not may_be_due(facts, given.expire, now):
        return None
    return expiry_cutoff(metadata_of([NOW - at for at in facts.snapshot_times]), given.expire, (), now, NAME)


def made(facts: TableFacts, history: MaintenanceHistory = LOOKED, now: datetime = NOW, **keys: Any) -> Plan:
    given = policy(**keys)
    return plan(facts, given, history, now, cutoff=cutoff_of(facts, given, now))


def steps_of(found: Plan, action: str) -> list[Step]:
    return [step for step in found.steps if step.action == action]


def skips_of(found: Plan, action: str) -> list[Skip]:
    return [skip for skip in found.skips if skip.action == action]


def carried_out(
    found: Plan, facts: TableFacts, history: MaintenanceHistory, now: datetime
) -> tuple[TableFacts, MaintenanceHistory]:
    """The table after the plan, as the procedures behave."""
    compactions = [step for step in found.steps if step.action == "compact"]
    commits = sum(max_commits(batch) for batch in batches(compactions, facts.spec_id))
    commits += sum(step.action == "position_deletes" for step in found.steps)
    # Each commit of a compaction brings a manifest, and what it took files out of is written anew one by one.
    facts = replace(facts, manifests=facts.manifests + commits, manifest_bytes=facts.manifest_bytes + 7_000 * commits)
    for step in found.steps:
        if step.action == "compact":
            facts = _compacted(facts, step, now)
        elif step.action == "position_deletes":
            facts = _without_small_deletes(facts, step)
        elif step.action == "manifests":
            facts = replace(facts, manifests=step.files_after)
        elif step.action == "expire":
            facts = with_snapshots(facts, facts.snapshot_times[int(step.detail["go"]) :])
        elif step.action == "metadata":
            facts = replace(facts, properties={**facts.properties, **{k: str(v) for k, v in step.detail.items()}})
        after = facts.snapshots if step.action == "expire" else step.files_after
        history = history.done(
            step.action,
            now,
            spec_id=step.partition.spec_id if step.partition else None,
            scope=step.scope,
            sort_order=str(step.detail.get("sort_order", "")),
            files_after=after,
        )
    return facts, history


def _compacted(facts: TableFacts, step: Step, now: datetime) -> TableFacts:
    before, detail = step.partition, step.detail
    assert before is not None
    limit, target = int(detail["min_file_size_bytes"]), int(detail["target_file_size_bytes"])
    assert limit <= target < int(detail["max_file_size_bytes"])
    assert all(size < int(detail["max_file_size_bytes"]) for size in before.sizes)
    applies = "delete_file_threshold" in detail or "rewrite_all" in detail
    chosen = before.sizes if applies else before.smaller(limit)
    # Iceberg takes any of them: the smallest here.
    chosen = chosen[: int(detail.get("max_files_to_rewrite", len(chosen)))]
    assert sum(chosen) + before.delete_bytes * applies <= step.bytes
    number = files_written(sum(chosen), target, limit)
    sizes = (*before.sizes[len(chosen) :], *(sum(chosen) // number for _ in range(number)))
    after = replace(before, sizes=tuple(sorted(sizes)), newest_at=now)
    if applies:
        after = replace(after, delete_files=0, delete_bytes=0, position_deletes=0, equality_deletes=0)
    return _replaced(facts, before, after)


def _without_small_deletes(facts: TableFacts, step: Step) -> TableFacts:
    before = step.partition
    assert before is not None
    # A step of the same run may have rewritten the partition before.
    present = next(each for each in facts.partitions or () if each.name == before.name)
    return _replaced(facts, present, replace(present, delete_files=min(present.delete_files, 1)))


def _replaced(facts: TableFacts, before: PartitionFacts, after: PartitionFacts) -> TableFacts:
    partitions = tuple(after if each == before else each for each in facts.partitions or ())
    return replace(
        facts,
        partitions=partitions,
        data_files=sum(each.files for each in partitions),
        delete_files=sum(each.delete_files for each in partitions),
    )


def every(step: timedelta, count: int, *, oldest: timedelta | None = None) -> TableFacts:
    times = [NOW - n * step for n in range(count)]
    return with_snapshots(table(partition("d", 120)), times + ([NOW - oldest] if oldest else []))
