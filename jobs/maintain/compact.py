"""Rewriting files: data files and delete files by partition, manifests by spec, and the table's own properties."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence

from jobs.commit.compare_and_swap import compare_and_swap, conflicts_told
from jobs.errors import FrazilError
from jobs.maintain.batching import Share, commits_of, group_bytes, shared
from jobs.maintain.java import said
from jobs.maintain.plan import Step
from jobs.maintain.procedures import LostToOthersError, Rewritten
from jobs.maintain.results import StepResult
from jobs.maintain.work import Work

log = logging.getLogger(__name__)

_GROUPS_AT_ONCE = 2
_ROUNDS = 3
_ATTEMPTS = 5
# Between two attempts at the manifests, in seconds: a stream that commits often has then done so.
_LONGEST_PAUSE = 4.0
# In a result: who came first each time, so that the step is left to the next run.
LOST = "lost"
_SWITCHES = ("rewrite-all", "remove-dangling-deletes")
_NOT_OPTIONS = ("strategy", "sort_order", "max_file_size_bytes")


def compact(work: Work, steps: Sequence[Step]) -> list[StepResult]:
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
        _refuse_unknown_columns(work)
    procedures = work.procedures()
    groups: list[Rewritten] = []
    left = list(steps)
    spent, problem = 0, None
    # A stream that commits every second may win each of Iceberg's own attempts; what was written for them is lost.
    for attempt in range(_ROUNDS):
        spent += sum(step.bytes for step in left)
        if attempt and spent > work.policy.budget:
            break
        options = _options(left, procedures.cores)
        partitions = [step.partition for step in left if step.partition]
        try:
            groups += procedures.rewrite_data_files(partitions, strategy, work.policy.compact.sort_by, options)
        except Exception as failed:
            if not groups:
                raise
            # What an earlier round committed stays, and is told.
            problem = said(work.settings, failed)
            break
        left = [share.step for share in shared(steps, groups, 0.0, work.spec_id) if not share.groups]
        if not left:
            break
    shares = shared(steps, groups, time.monotonic() - began, work.spec_id)
    return [_of_partition(work, share, problem) for share in shares]


def _options(steps: Sequence[Step], cores: int) -> dict[str, object]:
    """What Iceberg is told for a batch: what the plan says, and bounds for what is lost when something fails."""
    detail = steps[0].detail
    options: dict[str, object] = {
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": commits_of(steps),
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


def _refuse_unknown_columns(work: Work) -> None:
    known = set(work.load().schema().column_names)
    unknown = [each.column for each in work.policy.compact.sort_by if each.column not in known]
    if unknown:
        raise FrazilError(
            f"table {work.name} has no column {', '.join(unknown)}, by which compact.sort_by lays it out.",
            fix=f"correct maintenance.compact.sort_by of {work.name}",
        )


def _of_partition(work: Work, share: Share, problem: str | None) -> StepResult:
    step, groups = share.step, share.groups
    rewritten, added = sum(each.rewritten for each in groups), sum(each.added for each in groups)
    failed = sum(each.failed for each in groups)
    where = f"table {work.name}, {step.scope or 'all of it'}"
    detail: dict[str, str | int | float] = {"rewritten_files": rewritten, "added_files": added, "failed_files": failed}
    error = None
    if failed:
        error = f"{where}: {failed:,} data files could not be rewritten; Spark's log says why. They are as they were."
    elif not rewritten and problem:
        error = f"{where}: nothing was rewritten, and another attempt failed: {problem}"
    elif not rewritten and work.mixed_specs:
        # A step before it on a partition of an earlier spec may have taken its files along.
        detail["taken_along"] = 1
    elif not rewritten and "delete_file_threshold" not in step.detail:
        # Deletes may all be of files that are gone; then there is nothing to rewrite, and dropping them is the cure.
        error = f"{where}: nothing was rewritten: others changed its files meanwhile. The next run sees what is left."
    if share.beside:
        detail["bytes_of_earlier_specs"] = share.beside
    # What a stream has brought since the plan was made is rewritten as well.
    before = max(step.files_before, rewritten)
    return StepResult(
        step,
        files_before=before,
        files_after=before - rewritten + added,
        bytes=sum(each.bytes for each in groups) + share.beside,
        seconds=share.seconds,
        detail=detail,
        error=error,
        done=bool(rewritten),
    )


def position_deletes(work: Work, steps: Sequence[Step]) -> list[StepResult]:
    """Bring the delete files of some partitions together, without what they say of files that are gone.

    Raises:
        FrazilError: It could not be done.
    """
    began = time.monotonic()
    partitions = [step.partition for step in steps if step.partition]
    groups = work.procedures().rewrite_position_deletes(partitions, {"rewrite-all": "true"})
    results: list[StepResult] = []
    for share in shared(steps, groups, time.monotonic() - began):
        rewritten, added = sum(each.rewritten for each in share.groups), sum(each.added for each in share.groups)
        before = max(share.step.files_before, rewritten)
        results.append(
            StepResult(
                share.step,
                before,
                before - rewritten + added,
                sum(each.bytes for each in share.groups) + share.beside,
                share.seconds,
                {"rewritten_files": rewritten, "added_files": added},
                done=bool(rewritten),
            )
        )
    return results


def manifests(work: Work, step: Step) -> StepResult:
    """Write the manifests anew, by partition; those of each partition spec apart.

    A stream merges its manifests itself, and where its commit comes first Iceberg has rewritten what is gone. It is
    tried again on what is there then. Where it loses each time that is said, and is no failure: the next run finds it
    due again.

    Raises:
        FrazilError: It could not be done.
    """
    began = time.monotonic()
    table = work.load()
    head = table.current_snapshot()
    listed = head.manifests(table.io) if head else []
    rewritten = added = 0
    lost: LostToOthersError | None = None
    attempts = 0
    left = sorted({manifest.partition_spec_id for manifest in listed})
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            while left:
                attempts += 1
                answer = work.procedures().call("rewrite_manifests", use_caching=False, spec_id=left[0])
                rewritten += int(answer.get("rewritten_manifests_count") or 0)
                added += int(answer.get("added_manifests_count") or 0)
                left.pop(0)
            break
        except LostToOthersError as problem:
            lost = problem
            log.info("%s; attempt %d of %d", problem.message, attempt, _ATTEMPTS)
            if attempt < _ATTEMPTS:
                time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.5 * 2**attempt)))
    detail: dict[str, str | int | float] = {"rewritten_manifests": rewritten, "added_manifests": added}
    if attempts > len({manifest.partition_spec_id for manifest in listed}):
        detail["attempts"] = attempts
    if left and lost is not None:
        detail[LOST] = f"{_ATTEMPTS} times others committed first, the last time: {lost.message}"
    return StepResult(
        step,
        len(listed),
        len(listed) - rewritten + added,
        sum(manifest.manifest_length for manifest in listed),
        time.monotonic() - began,
        detail,
        done=bool(rewritten),
    )


def metadata(work: Work, step: Step) -> StepResult:
    """Set the properties by which each commit removes the oldest metadata file.

    Raises:
        FrazilError: Others committed to the table each time.
    """
    began = time.monotonic()
    properties = {key: str(value) for key, value in step.detail.items()}

    def attempt() -> None:
        with conflicts_told(), work.load().transaction() as change:
            change.set_properties(properties)

    def given_up(said: str) -> FrazilError:
        fix = f"frazil maintain {work.name}, once fewer others write to it"
        return FrazilError(f"the table's properties could not be set: {said}", fix=fix)

    compare_and_swap(work.name, attempt, given_up)
    before = step.files_before
    return StepResult(step, before, before, seconds=time.monotonic() - began, detail=dict(step.detail))
