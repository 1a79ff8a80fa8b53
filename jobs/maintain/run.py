"""The maintenance of one table: measure ▸ plan ▸ lock ▸ execute ▸ measure. A healthy table costs no Spark start."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs import steps
from jobs.errors import FrazilError
from jobs.maintain.batching import batches
from jobs.maintain.compact import compact, manifests, metadata, position_deletes
from jobs.maintain.expire import expire, room
from jobs.maintain.facts import PartitionFacts, TableFacts
from jobs.maintain.history import read_maintained, table_store
from jobs.maintain.java import said
from jobs.maintain.lock import TableBusyError, TableLock, table_lock
from jobs.maintain.measure import measure
from jobs.maintain.noting import note
from jobs.maintain.orphans import remove_orphans
from jobs.maintain.plan import ACTIONS, Plan, Step, plan
from jobs.maintain.plan_expire import may_be_due
from jobs.maintain.plan_parts import Moment
from jobs.maintain.plan_table import birth
from jobs.maintain.results import OnProgress, Progress, StepResult, TableResult, no_progress
from jobs.maintain.work import Work, utc_now
from jobs.redaction import redacted
from jobs.spark.end import jvm_is_gone
from jobs.spec.maintenance import MaintainedTable
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LOCAL = re.compile(r"local\[(\d+)]")


def maintain_table(
    catalog: Catalog,
    settings: Settings,
    table: MaintainedTable,
    *,
    spark: Callable[[], SparkSession],
    specs: Sequence[StreamSpec] = (),
    dry_run: bool = False,
    only: Collection[str] | None = None,
    on_progress: OnProgress = no_progress,
    now: Callable[[], datetime] = utc_now,
) -> TableResult:
    """Do what the table's plan says.

    Args:
        table: With its policy.
        spark: Gives a session; called when a step first needs one.
        specs: All streams of the deployment; of those that write to the table the ledger is filled first.
        dry_run: Only plan: no lock, no Spark, nothing is changed.
        only: Only these actions.
        on_progress: Told of each step as it begins and ends.

    Returns:
        What was done, with the problems of single steps: they undo nothing, and steps that need nothing of them go on.

    Raises:
        FrazilError: There is no such table, the catalog does not answer, the policy contradicts itself.
    """
    work = Work(catalog, settings, specs, table.name, table.require(), spark, now)
    maintenance = TableMaintenance(work, only=only, on_progress=on_progress)
    if not dry_run:
        maintenance.carry_out()
    return maintenance.result()


class TableMaintenance:
    """The maintenance of a table as it goes on: planned when this is made, then carried out, some actions at a time.

    Args:
        work: On the table.
        only: Only these actions; None for all.
        on_progress: Told of each step as it begins and ends.

    Raises:
        FrazilError: There is no such table, or the catalog does not answer.
    """

    def __init__(
        self, work: Work, *, only: Collection[str] | None = None, on_progress: OnProgress = no_progress
    ) -> None:
        began = time.monotonic()
        self._work: Work = work
        self._only: Collection[str] | None = only
        self._on_progress: OnProgress = on_progress
        loaded = work.load()
        work.uuid = str(loaded.metadata.table_uuid)
        self._planned_at: str = loaded.metadata_location
        self._facts, self._plan = _planned(work, loaded, only)
        self._execution: _Execution | None = None
        self._skipped: str | None = None
        self._seconds: float = time.monotonic() - began

    def carry_out(self, actions: Collection[str] = ACTIONS) -> None:
        """Do the plan's steps of these actions, under the table's lock.

        The plan is made anew by the first call if the table has changed since.

        Args:
            actions: In the plan's order: those of a later call come after those of an earlier one.

        Raises:
            FrazilError: The catalog does not answer.
        """
        left = self._execution.left(actions) if self._execution else self._plan.steps
        if not left or self._skipped:
            return
        began = time.monotonic()
        try:
            with table_lock(self._work.settings, self._work.name, self._work.uuid) as lock:
                steps.step("maintain_after_lock")
                if self._execution is None:
                    self._execution = self._begun()
                self._execution.carry_out(actions, lock)
                steps.step("maintain_before_release")
        except TableBusyError as busy:
            if self._execution is None:
                self._skipped = busy.message
            else:
                self._execution.give_up(actions, f"Not tried: {busy.message}")
        finally:
            self._seconds += time.monotonic() - began

    def _begun(self) -> _Execution:
        work, again = self._work, self._work.load()
        if again.metadata_location != self._planned_at:
            # Somebody may just have done what is planned.
            self._facts, self._plan = _planned(work, again, self._only)
        work.spec_id, work.mixed_specs = self._facts.spec_id, self._facts.mixed_specs
        work.born = birth(self._facts, read_maintained(table_store(work.settings, work.uuid)))
        return _Execution(work, self._plan, self._facts.spec_id, self._on_progress)

    def result(self) -> TableResult:
        """What was done so far; the table is measured again if there was anything to do."""
        began = time.monotonic()
        done = tuple(self._execution.results) if self._execution else ()
        after = _after(self._work, self._facts) if done else None
        seconds = self._seconds + time.monotonic() - began
        return TableResult(self._work.name, self._plan, done, self._facts, after, self._skipped, seconds)


def _planned(work: Work, table: Table, only: Collection[str] | None) -> tuple[TableFacts, Plan]:
    now = work.now()
    facts = measure(table, work.policy, now)
    store = table_store(work.settings, work.uuid)
    local = _LOCAL.fullmatch(work.settings.spark.master)
    maintained, cores = read_maintained(store), int(local[1]) if local else 1
    at = Moment(facts, maintained, now, cores)
    asked = (only is None or "expire" in only) and may_be_due(at, work.policy.expire)
    found = room(work, table, now) if asked else None
    planned = plan(facts, work.policy, maintained, now, cores=cores, room=found)
    if only is not None:
        planned = replace(
            planned,
            steps=tuple(step for step in planned.steps if step.action in only),
            skips=tuple(skip for skip in planned.skips if skip.action in only),
        )
    return facts, planned


def _after(work: Work, before: TableFacts) -> TableFacts | None:
    try:
        deep = True if before.partitions is not None else None
        return measure(work.load(), work.policy, work.now(), deep=deep)
    except Exception as problem:
        # What was done is told all the same.
        log.warning("table %s could not be measured again: %s", work.name, _sentence(work, problem))
        return None


def _sentence(work: Work, problem: Exception) -> str:
    return str(problem) if isinstance(problem, FrazilError) else said(work.settings, problem)


@dataclass(slots=True)
class _Execution:
    """The steps of a plan, one after another.

    Attributes:
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
            return f"Not tried: {_sentence(self.work, problem)}"
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
