"""Plan execution: the steps one after another, which is tried, what it came to, what is recorded, when to stop."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from jobs import steps
from jobs.errors import FrazilError
from jobs.maintain.branch_remake import remake_branch
from jobs.maintain.changes_expiry import expire_changes
from jobs.maintain.compaction import compact, rewrite_position_deletes
from jobs.maintain.compaction_batches import batches
from jobs.maintain.health_facts import PartitionFacts
from jobs.maintain.maintenance_history import MaintenanceHistory, read_history, table_store, write_history
from jobs.maintain.orphan_removal import remove_orphans
from jobs.maintain.plan import Action, Plan, Step
from jobs.maintain.results import LOST, OnProgress, StepProgress, StepResult
from jobs.maintain.snapshot_expiry import expire
from jobs.maintain.table_context import TableContext
from jobs.maintain.table_lock import TableLock
from jobs.maintain.table_metadata import rewrite_manifests, set_metadata_properties
from jobs.redaction import redacted
from jobs.spark.jvm_calls import jvm_error_text

log = logging.getLogger(__name__)

Procedure = Callable[[TableContext, Sequence[Step]], list[StepResult]]


def _timed(carry_out: Callable[[TableContext, Step], StepResult]) -> Procedure:
    def procedure(context: TableContext, batch: Sequence[Step]) -> list[StepResult]:
        (step,) = batch
        began = time.monotonic()
        result = carry_out(context, step)
        return [replace(result, seconds=time.monotonic() - began)]

    return procedure


PROCEDURES: Mapping[Action, Procedure] = {
    "compact": compact,
    "position_deletes": rewrite_position_deletes,
    "manifests": _timed(rewrite_manifests),
    "remake": _timed(remake_branch),
    "changes": _timed(expire_changes),
    "expire": _timed(expire),
    "orphans": _timed(remove_orphans),
    "metadata": _timed(set_metadata_properties),
}


@dataclass(slots=True)
class Execution:
    """The steps of a plan, one after another.

    Attributes:
        plan: What is to be done.
        on_progress: Told of each step as it begins and ends.
        procedures: What carries out a batch of steps, by their action.
        results: Of the steps that were tried, or given up.
        stopped: Why nothing more is tried.
    """

    context: TableContext
    plan: Plan
    on_progress: OnProgress
    procedures: Mapping[Action, Procedure] = field(default_factory=lambda: PROCEDURES)
    results: list[StepResult] = field(default_factory=list)
    stopped: str | None = None

    def left(self, actions: Collection[str]) -> list[Step]:
        """The steps of these actions that have not been tried."""
        tried = {id(result.step) for result in self.results}
        return [step for step in self.plan.steps if step.action in actions and id(step) not in tried]

    def carry_out(self, actions: Collection[str], lock: TableLock, turn_bytes: int | None = None) -> None:
        """Try what is left of these actions.

        Args:
            turn_bytes: Only the first batch of it, which rewrites about so much; None: all.
        """
        found = batches(self.left(actions), self.context.spec_id, turn_bytes)
        for batch in found if turn_bytes is None else found[:1]:
            for step in batch:
                self.on_progress(self._progress(step, None))
            refused = {id(step): why for step in batch if (why := self._why_not(step))}
            tried = [step for step in batch if id(step) not in refused]
            found = self._done(tried, lock) if tried else []
            if found:
                steps.step("maintain_after_action")
                record_results(self.context, found)
            # What was not tried is not recorded: it would count as a failure, after some of which it waits.
            found += [StepResult(step, error=refused[id(step)], done=False) for step in batch if id(step) in refused]
            for result in found:
                self._ended(result)

    def give_up(self, actions: Collection[str], why: str) -> None:
        """Try none of what is left of these actions."""
        for step in self.left(actions):
            self._ended(StepResult(step, error=why, done=False))

    def _ended(self, result: StepResult) -> None:
        self.results.append(result)
        self.on_progress(self._progress(result.step, result))

    def _progress(self, step: Step, result: StepResult | None) -> StepProgress:
        number = 1 + next(index for index, each in enumerate(self.plan.steps) if each is step)
        return StepProgress(self.context.name, step, number, len(self.plan.steps), result)

    def _why_not(self, step: Step) -> str | None:
        """Why a step is not tried; None if it is."""
        where = f"table {self.context.name}"
        if self.stopped is not None:
            return self.stopped
        if step.action == "orphans" and self._failed("expire", None):
            return f"{where}: orphans are not looked for, since the expiry before it failed."
        if step.action == "position_deletes" and step.partition and self._failed("compact", step.partition):
            return f"{where}, {step.scope}: its delete files are as they were, since its compaction failed."
        return None

    def _failed(self, action: str, partition: PartitionFacts | None) -> bool:
        return any(
            result.error
            for result in self.results
            if result.step.action == action and (partition is None or result.step.partition is partition)
        )

    def _done(self, batch: Sequence[Step], lock: TableLock) -> list[StepResult]:
        began, gone = time.monotonic(), self.context.jvm_is_gone()
        try:
            lock.verify()
            steps.step("maintain_before_action")
            return self.procedures[batch[0].action](self.context, batch)
        except FrazilError as problem:
            error = str(problem)
        except Exception as problem:
            # As text: with the exception itself, a log's formatter would show the secrets that it may quote.
            trace = redacted(self.context.settings, traceback.format_exc())
            log.warning("table %s: %s failed: %s", self.context.name, batch[0].action, trace)
            error = (
                f"table {self.context.name}: {batch[0].action} failed: {jvm_error_text(self.context.settings, problem)}"
            )
        if self.context.jvm_is_gone() and not gone:
            # py4j only says that nobody answers. It may have been this step's doing; the next one is given another.
            error = str(_jvm_ended(self.context.name, batch[0].action))
        self.stopped = self._stop(lock)
        seconds = time.monotonic() - began
        return [StepResult(step, seconds=seconds / len(batch), error=error, done=False) for step in batch]

    def _stop(self, lock: TableLock) -> str | None:
        """Why nothing more can be done after a failure; None if the table can still be worked on."""
        try:
            lock.verify()
            self.context.load()
        except Exception as problem:
            return f"Not tried: {problem_text(self.context, problem)}"
        return None


def _jvm_ended(table: str, action: str) -> FrazilError:
    return FrazilError(
        f"table {table}: {action} failed, since Spark's JVM ended meanwhile: killed, or out of memory.",
        fix=f"perhaps raise spark.driver_memory in frazil.yaml, then frazil maintain {table}, which carries on",
    )


def problem_text(context: TableContext, problem: Exception) -> str:
    """A problem in the execution of a plan as it is told: without a secret that it may quote."""
    return str(problem) if isinstance(problem, FrazilError) else jvm_error_text(context.settings, problem)


def record_results(context: TableContext, found: Sequence[StepResult]) -> None:
    """Write down what the execution tried; a note that cannot be written costs a step that is done again."""
    store = table_store(context.settings, context.uuid)
    now = context.now()
    history = read_history(store).seen(now)
    if history.created_at is None and context.created_at is not None:
        history = replace(history, created_at=context.created_at)
    for result in found:
        history = _with(history, result, now)
    try:
        write_history(store, history)
    except OSError as problem:
        log.warning("what was done to table %s could not be noted: %s", context.name, problem)


def _with(history: MaintenanceHistory, result: StepResult, now: datetime) -> MaintenanceHistory:
    step = result.step
    if LOST in result.detail and not result.done:
        # Neither done nor a failure after which it would wait.
        return history
    spec_id = step.partition.spec_id if step.partition else None
    if result.error:
        return history.failed(step.action, now, result.error, spec_id=spec_id, scope=step.scope)
    return history.done(
        step.action,
        now,
        spec_id=spec_id,
        scope=step.scope,
        sort_order=str(step.detail.get("sort_order", "")),
        files_before=result.files_before,
        files_after=result.files_after,
        size=result.bytes,
        seconds=result.seconds,
    )
