"""Compaction: the data files, or the delete files, of some partitions are rewritten in one run of Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from jobs.errors import FrazilError
from jobs.maintain.compaction_batches import StepShare, group_bytes, max_commits, step_shares
from jobs.maintain.iceberg_procedures import RewriteResult
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
from jobs.spark.jvm_calls import jvm_error_text

_GROUPS_AT_ONCE = 2
_ROUNDS = 3
_SWITCHES = ("rewrite-all", "remove-dangling-deletes")
_NOT_OPTIONS = ("strategy", "sort_order", "max_file_size_bytes")


def compact(context: TableContext, steps: Sequence[Step]) -> list[StepResult]:
    """Rewrite the data files of some partitions; one that fails does not hold the others up.

    Each group of files is committed by itself or with a few others, so what was done stays done.

    Args:
        steps: A batch, see `batches`.

    Raises:
        FrazilError: None of them could be done.
    """
    began = time.monotonic()
    strategy = str(steps[0].detail.get("strategy", "binpack"))
    if strategy != "binpack":
        _refuse_unknown_columns(context)
    procedures = context.procedures()
    groups: list[RewriteResult] = []
    left = list(steps)
    spent, problem = 0, None
    # A stream that commits every second may win each of Iceberg's own attempts; what was written for them is lost.
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
            # What an earlier round committed stays, and is told.
            problem = jvm_error_text(context.settings, failed)
            break
        left = [share.step for share in step_shares(steps, groups, 0.0, context.spec_id) if not share.groups]
        if not left:
            break
    shares = step_shares(steps, groups, time.monotonic() - began, context.spec_id)
    return [_of_partition(context, share, problem) for share in shares]


def _options(steps: Sequence[Step], cores: int) -> dict[str, object]:
    """What Iceberg is told for a batch: what the plan says, and bounds for what is lost when something fails."""
    detail = steps[0].detail
    options: dict[str, object] = {
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": max_commits(steps),
        "max-file-group-size-bytes": group_bytes(steps),
        "max-concurrent-file-group-rewrites": min(_GROUPS_AT_ONCE, cores),
        # What is small is done first, so a commit does not wait for the largest.
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
        error = f"{where}: {failed:,} data files could not be rewritten; Spark's log says why. They are as they were."
    elif not rewritten and problem:
        error = f"{where}: nothing was rewritten, and another attempt failed: {problem}"
    elif not rewritten and context.mixed_specs:
        # A step before it on a partition of an earlier spec may have taken its files along.
        detail["taken_along"] = 1
    elif not rewritten and "delete_file_threshold" not in step.detail:
        # Deletes may all be of files that are gone; then there is nothing to rewrite, and dropping them is the cure.
        error = f"{where}: nothing was rewritten: others changed its files meanwhile. The next run sees what is left."
    if share.beside:
        detail["bytes_of_earlier_specs"] = share.beside
    return _result(share, detail, error)


def _result(
    share: StepShare, detail: Mapping[str, str | int | float] | None = None, error: str | None = None
) -> StepResult:
    rewritten, added = share.rewritten, sum(each.added for each in share.groups)
    # What a stream has brought since the plan was made is rewritten as well.
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
    """Bring the delete files of some partitions together, without what they say of files that are gone.

    Raises:
        FrazilError: It could not be done.
    """
    began = time.monotonic()
    partitions = [step.partition for step in steps if step.partition]
    groups = context.procedures().rewrite_position_deletes(partitions, {"rewrite-all": "true"})
    return [_result(share) for share in step_shares(steps, groups, time.monotonic() - began)]
