"""Table metadata: rewrites manifests, and sets the properties that limit former metadata files."""

from __future__ import annotations

import logging
import random
import time

from jobs.base.errors import FrazilError
from jobs.maintenance.plan.iceberg_procedures import LostToOthersError
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import LOST, StepResult
from jobs.maintenance.plan.table_context import TableContext
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head

log = logging.getLogger(__name__)

_ATTEMPTS = 5

# Longest pause between two attempts at the manifests, seconds: a stream that commits often has committed by then.
_LONGEST_PAUSE = 4.0


def rewrite_manifests(context: TableContext, step: Step, longest_pause: float = _LONGEST_PAUSE) -> StepResult:
    """Rewrite the manifests by partition, separately for each partition spec.

    A stream merges its manifests itself. If its commit comes first, Iceberg has rewritten outdated ones, and tries
    again on the new ones. If it loses each time that is reported, and is no failure: the next run finds it due again.

    Args:
        longest_pause: Longest pause between two attempts, seconds.

    Raises:
        FrazilError: The rewrite failed.
    """
    table = context.load()
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
                answer = context.procedures().call("rewrite_manifests", use_caching=False, spec_id=left[0])
                rewritten += int(answer.get("rewritten_manifests_count") or 0)
                added += int(answer.get("added_manifests_count") or 0)
                left.pop(0)
            break
        except LostToOthersError as problem:
            lost = problem
            log.info("%s; attempt %d of %d", problem.message, attempt, _ATTEMPTS)
            if attempt < _ATTEMPTS:
                time.sleep(random.uniform(0, min(longest_pause, 0.5 * 2**attempt)))
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
        detail=detail,
        done=bool(rewritten),
    )


def set_metadata_properties(context: TableContext, step: Step) -> StepResult:
    """Set the properties by which each commit removes the oldest metadata file.

    Raises:
        FrazilError: Others committed to the table during every attempt.
    """
    properties = {key: str(value) for key, value in step.detail.items()}

    def attempt() -> None:
        with conflicts_as_moved_head(), context.load().transaction() as change:
            change.set_properties(properties)

    def given_up(said: str) -> FrazilError:
        fix = f"frazil maintain {context.name}, once fewer others write to it"
        return FrazilError(f"the table's properties could not be set: {said}", fix=fix)

    compare_and_swap(context.name, attempt, given_up)
    before = step.files_before
    return StepResult(step, before, before, detail=dict(step.detail))
