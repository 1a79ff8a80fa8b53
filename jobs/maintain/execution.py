"""The steps of a table's plan, carried out one after another: which is tried, what it came to, and when to stop."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jobs import steps
from jobs.errors import FrazilError
from jobs.maintain.batching import batches
from jobs.maintain.compact import compact, manifests, metadata, position_deletes
from jobs.maintain.expire import expire
from jobs.maintain.facts import PartitionFacts
from jobs.maintain.java import said
from jobs.maintain.lock import TableLock
from jobs.maintain.noting import note
from jobs.maintain.orphans import remove_orphans
from jobs.maintain.plan import Plan, Step
from jobs.maintain.results import OnProgress, Progress, StepResult
from jobs.maintain.work import Work
from jobs.redaction import redacted
from jobs.spark.end import jvm_is_gone

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Execution:
    """The steps of a plan, one after another.

    Attributes:
        work: On the table.
        plan: What is to be done.
        spec_id: The table's partition spec as the plan was made.
        on_progress: Told of each step as it begins and ends.
        results: Of the steps that were tried, or given up.
        stopped: Why nothing more is tried.
    """

    work: Work
    plan: Plan
    spec_id: int
    on_progress: OnProgress
    results: list[StepResult] = field(default_factory=list)
    stopped: str | None = None

    def left(self, actions: Collection[str]) -> list[Step]:
        """The steps of these actions that have not been tried."""
        tried = {id(result.step) for result in self.results}
        return [step for step in self.plan.steps if step.action in actions and id(step) not in tried]

    def carry_out(self, actions: Collection[str], lock: TableLock) -> None:
        """Try what is left of these actions."""
        for batch in batches(self.left(actions), self.spec_id):
            self._tell(batch)
            refused = {id(step): why for step in batch if (why := self._why_not(step))}
            tried = [step for step in batch if id(step) not in refused]
            found = self._done(tried, lock) if tried else []
            if found:
                steps.step("maintain_after_action")
                note(self.work, found)
            # What was not tried is not noted: it would count as a failure, after some of which it waits.
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

    def _tell(self, batch: Sequence[Step]) -> None:
        for step in batch:
            self.on_progress(self._progress(step, None))

    def _progress(self, step: Step, result: StepResult | None) -> Progress:
        number = 1 + next(index for index, each in enumerate(self.plan.steps) if each is step)
        state = "ended" if result else "begins"
        return Progress(self.work.name, step, number, len(self.plan.steps), state, result)

    def _why_not(self, step: Step) -> str | None:
        """Why a step is not tried; None if it is."""
        where = f"table {self.work.name}"
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
        began, gone = time.monotonic(), jvm_is_gone()
        try:
            lock.verify()
            steps.step("maintain_before_action")
            return self._carry_out(batch)
        except FrazilError as problem:
            error = str(problem)
        except Exception as problem:
            # As text: with the exception itself, a log's formatter would show the secrets that it may quote.
            trace = redacted(self.work.settings, traceback.format_exc())
            log.warning("table %s: %s failed: %s", self.work.name, batch[0].action, trace)
            error = f"table {self.work.name}: {batch[0].action} failed: {said(self.work.settings, problem)}"
        if jvm_is_gone() and not gone:
            # py4j only says that nobody answers. It may have been this step's doing; the next one is given another.
            error = str(_jvm_ended(self.work.name, batch[0].action))
        self.stopped = self._stop(lock)
        seconds = time.monotonic() - began
        return [StepResult(step, seconds=seconds / len(batch), error=error, done=False) for step in batch]

    def _stop(self, lock: TableLock) -> str | None:
        """Why nothing more can be done after a failure; None if the table can still be worked on."""
        try:
            lock.verify()
            self.work.load()
        except Exception as problem:
            return f"Not tried: {as_sentence(self.work, problem)}"
        return None

    def _carry_out(self, batch: Sequence[Step]) -> list[StepResult]:
        step = batch[0]
        match step.action:
            case "compact":
                return compact(self.work, batch)
            case "position_deletes":
                return position_deletes(self.work, batch)
            case "manifests":
                return [manifests(self.work, step)]
            case "expire":
                return [expire(self.work, step)]
            case "orphans":
                return [remove_orphans(self.work, step)]
            case "metadata":
                return [metadata(self.work, step)]


def _jvm_ended(table: str, action: str) -> FrazilError:
    return FrazilError(
        f"table {table}: {action} failed, since Spark's JVM ended meanwhile: killed, or out of memory.",
        fix=f"perhaps raise spark.driver_memory in frazil.yaml, then frazil maintain {table}, which carries on",
    )


def as_sentence(work: Work, problem: Exception) -> str:
    """A problem as it is told: without a secret that it may quote."""
    return str(problem) if isinstance(problem, FrazilError) else said(work.settings, problem)
