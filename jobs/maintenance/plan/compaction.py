"""Compaction: one run of Spark rewrites data files, or delete files, of some partitions (a batch of steps)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobs.base.errors import FrazilError
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.maintenance.measure.health_facts import PartitionFacts
from jobs.maintenance.plan.iceberg_procedures import RewriteResult
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.plan.table_context import TableContext

if TYPE_CHECKING:
    from jobs.maintenance.plan.iceberg_procedures import RewriteResult

# Most partitions in one run of Spark; each is a condition of its filter.
_PARTITIONS_AT_ONCE = 50
# Largest group of files, which bounds the loss of a failure.
_GROUP_BYTES = 2 * 1024**3
# Each is a commit that may collide with a stream. Small groups share one; a full group gets its own.
_COMMITS = 10
_GROUPS_PER_COMMIT = 5
# Types that Java and Python print alike, so that a group of files is found by them; floats differ.
_ALIKE = (int, str, Decimal, UUID, type(None))

_GROUPS_AT_ONCE = 2
_ROUNDS = 3
_SWITCHES = ("rewrite-all", "remove-dangling-deletes")
_NOT_OPTIONS = ("strategy", "sort_order", "max_file_size_bytes")


def batches(steps: Sequence[Step], current_spec: int | None, most_bytes: int | None = None) -> list[list[Step]]:
    """Batches of steps, in the given order; one run of Spark does the steps of a batch side by side.

    Args:
        current_spec: Current partition spec; Iceberg does not tell apart the partitions of older ones.
        most_bytes: Most bytes that a batch of several steps rewrites; None for no limit.
    """
    found: list[list[Step]] = []
    for step in steps:
        last = found[-1] if found else []
        few = most_bytes is None or sum(each.bytes for each in last) + step.bytes <= most_bytes
        if last and few and len(last) < _PARTITIONS_AT_ONCE and _together(last[0], step, current_spec):
            last.append(step)
        else:
            found.append([step])
    return found


def group_bytes(steps: Sequence[Step]) -> int:
    """Largest size of a group of files in a batch of compactions."""
    return max(_GROUP_BYTES, 2 * int(steps[0].detail["target_file_size_bytes"]))


def max_commits(steps: Sequence[Step]) -> int:
    """Most commits of a batch of compactions; each adds a manifest."""
    group = group_bytes(steps)
    groups = sum(max(1, math.ceil(step.bytes / group)) for step in steps)
    full = sum(step.bytes // group for step in steps)
    return min(_COMMITS, max(full, math.ceil(groups / _GROUPS_PER_COMMIT)))


def _together(one: Step, other: Step, current_spec: int | None) -> bool:
    if one.action != other.action or one.action not in ("compact", "position_deletes"):
        return False
    if any(step.partition is None or step.partition.spec_id != current_spec for step in (one, other)):
        return False
    if not all(isinstance(value, _ALIKE) for step in (one, other) for value in _values(step.partition)):
        return False
    return "max_files_to_rewrite" not in one.detail and _same(one) == _same(other)


def _same(step: Step) -> dict[str, str | int | float]:
    return {key: value for key, value in step.detail.items() if key != "max_file_size_bytes"}


@dataclass(frozen=True, slots=True)
class StepShare:
    """Share of a step in a batch of compactions, which one run of Spark did.

    Attributes:
        seconds: Time, shared by bytes.
        beside: Bytes of files under earlier partition specs that Iceberg rewrote along, as they may hold rows of the
            batch; reported with the first step.
    """

    step: Step
    groups: Sequence[RewriteResult]
    seconds: float
    beside: int = 0

    @property
    def rewritten(self) -> int:
        """Number of rewritten files."""
        return sum(group.rewritten for group in self.groups)


def step_shares(
    steps: Sequence[Step], groups: Sequence[RewriteResult], seconds: float, current_spec: int | None = None
) -> list[StepShare]:
    """Assign each group of files in a batch of compactions to its step.

    Args:
        steps: A batch, see `batches`.
        groups: Results of its groups of files.
        seconds: Time of the whole batch.
        current_spec: The table's partition spec; None: all that a single step rewrote is its own.
    """
    if len(steps) == 1:
        own = _own(steps[0], groups, current_spec)
        beside = sum(group.bytes for group in groups) - sum(group.bytes for group in own)
        return [StepShare(steps[0], own, seconds, beside)]
    by_key: dict[tuple[str, ...], list[RewriteResult]] = {}
    for group in groups:
        by_key.setdefault(_key(group.key), []).append(group)
    own = [by_key.pop(_key(_values(step.partition)), []) for step in steps]
    beside = sum(group.bytes for foreign in by_key.values() for group in foreign)
    sizes = [1 + sum(each.bytes for each in found) for found in own]
    return [
        StepShare(step, found, seconds * size / sum(sizes), 0 if index else beside)
        for index, (step, found, size) in enumerate(zip(steps, own, sizes, strict=True))
    ]


def _own(step: Step, groups: Sequence[RewriteResult], current_spec: int | None) -> Sequence[RewriteResult]:
    """Groups of a step's own partition, without those of other partition specs that Iceberg rewrote along.

    All files of earlier specs are one group without a key.
    """
    partition = step.partition
    if current_spec is None or partition is None or not partition.values:
        return groups
    if partition.spec_id != current_spec:
        own = [group for group in groups if all(value is None for value in group.key)]
    elif all(isinstance(value, _ALIKE) for value in _values(partition)):
        own = [group for group in groups if _key(group.key) == _key(_values(partition))]
    else:
        return groups
    return own or [group for group in groups if any(value is not None for value in group.key)]


def _values(partition: PartitionFacts | None) -> tuple[Any, ...]:
    return tuple(value.value for value in partition.values) if partition else ()


def _key(values: tuple[Any, ...]) -> tuple[str, ...]:
    """A key as text: UUIDs and decimals from Java are other objects here."""
    return tuple("null" if value is None else str(value) for value in values)


def compact(context: TableContext, steps: Sequence[Step]) -> list[StepResult]:
    """Rewrite the data files of some partitions; a failed one does not stop the others.

    Each group of files is committed by itself or with a few others, so finished work stays.

    Args:
        steps: A batch, see `batches`.

    Raises:
        FrazilError: None of them could be rewritten.
    """
    began = time.monotonic()
    strategy = str(steps[0].detail.get("strategy", "binpack"))
    if strategy != "binpack":
        _refuse_unknown_columns(context)
    procedures = context.procedures()
    groups: list[RewriteResult] = []
    left = list(steps)
    spent, problem = 0, None
    # A stream that commits every second may win against each of Iceberg's own attempts, and their files are lost.
    for attempt in range(_ROUNDS):
        spent += sum(step.bytes for step in left)
        if attempt and spent > context.policy.budget:
            break
        options = _options(left, procedures.cores)
        partitions = [step.partition for step in left if step.partition]
        try:
            groups += procedures.rewrite_data_files(partitions, strategy, context.policy.compact.sort_by, options)
        except Exception as failed:
            if not groups:
                raise
            # Commits of an earlier round stay, and are reported.
            problem = jvm_error_text(context.settings, failed)
            break
        left = [share.step for share in step_shares(steps, groups, 0.0, context.spec_id) if not share.groups]
        if not left:
            break
    shares = step_shares(steps, groups, time.monotonic() - began, context.spec_id)
    return [_of_partition(context, share, problem) for share in shares]


def _options(steps: Sequence[Step], cores: int) -> dict[str, object]:
    """Options of Iceberg for a batch: those of the plan, and bounds for the loss of a failure."""
    detail = steps[0].detail
    options: dict[str, object] = {
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": max_commits(steps),
        "max-file-group-size-bytes": group_bytes(steps),
        "max-concurrent-file-group-rewrites": min(_GROUPS_AT_ONCE, cores),
        # Small groups come first, so that a commit does not wait for the largest.
        "rewrite-job-order": "bytes-asc",
    }
    options |= {key.replace("_", "-"): value for key, value in detail.items() if key not in _NOT_OPTIONS}
    # A plan's details are numbers and texts; Iceberg takes any word but `true` for false.
    options |= {key: "true" for key in _SWITCHES if options.get(key)}
    if "max_file_size_bytes" in detail:
        options["max-file-size-bytes"] = max(int(step.detail["max_file_size_bytes"]) for step in steps)
    return options


def _refuse_unknown_columns(context: TableContext) -> None:
    known = set(context.load().schema().column_names)
    unknown = [each.column for each in context.policy.compact.sort_by if each.column not in known]
    if unknown:
        raise FrazilError(
            f"table {context.name} has no column {', '.join(unknown)}, by which compact.sort_by lays it out.",
            fix=f"correct maintenance.compact.sort_by of {context.name}",
        )


def _of_partition(context: TableContext, share: StepShare, problem: str | None) -> StepResult:
    step, rewritten = share.step, share.rewritten
    failed = sum(each.failed for each in share.groups)
    where = f"table {context.name}, {step.scope or 'all of it'}"
    detail: dict[str, str | int | float] = {"failed_files": failed}
    error = None
    if failed:
        error = (
            f"{where}: {failed:,} data files could not be rewritten; Spark's log has the reason. They are unchanged."
        )
    elif not rewritten and problem:
        error = f"{where}: nothing was rewritten, and another attempt failed: {problem}"
    elif not rewritten and context.mixed_specs:
        # A previous step on a partition of an earlier spec may have rewritten its files along.
        detail["taken_along"] = 1
    elif not rewritten and "delete_file_threshold" not in step.detail:
        # All deletes may be about removed files; then nothing is rewritten, and dropping the delete files is enough.
        error = f"{where}: nothing was rewritten: others changed its files meanwhile. The next run sees what is left."
    if share.beside:
        detail["bytes_of_earlier_specs"] = share.beside
    return _result(share, detail, error)


def _result(
    share: StepShare, detail: Mapping[str, str | int | float] | None = None, error: str | None = None
) -> StepResult:
    rewritten, added = share.rewritten, sum(each.added for each in share.groups)
    # Files that a stream has added since the plan are rewritten as well.
    before = max(share.step.files_before, rewritten)
    return StepResult(
        share.step,
        files_before=before,
        files_after=before - rewritten + added,
        bytes=sum(each.bytes for each in share.groups) + share.beside,
        seconds=share.seconds,
        detail={"rewritten_files": rewritten, "added_files": added, **(detail or {})},
        error=error,
        done=bool(rewritten),
    )


def rewrite_position_deletes(context: TableContext, steps: Sequence[Step]) -> list[StepResult]:
    """Merge the delete files of some partitions, without deletes of removed files.

    Raises:
        FrazilError: The rewrite failed.
    """
    began = time.monotonic()
    partitions = [step.partition for step in steps if step.partition]
    groups = context.procedures().rewrite_position_deletes(partitions, {"rewrite-all": "true"})
    return [_result(share) for share in step_shares(steps, groups, time.monotonic() - began)]
