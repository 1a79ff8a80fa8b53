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
from jobs.maintain.history import read_maintained, table_folder
from jobs.maintain.java import said
from jobs.maintain.lock import TableBusyError, TableLock, table_lock
from jobs.maintain.measure import measure
from jobs.maintain.noting import note
from jobs.maintain.orphans import remove_orphans
from jobs.maintain.plan import Plan, Step, plan
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
    began = time.monotonic()
    work = Work(catalog, settings, specs, table.name, table.require(), spark, now)
    loaded = work.load()
    work.uuid = str(loaded.metadata.table_uuid)
    facts, planned = _planned(work, loaded, only)
    if dry_run or not planned.steps:
        return TableResult(table.name, planned, (), facts, seconds=time.monotonic() - began)
    try:
        with table_lock(settings, table.name, work.uuid) as lock:
            steps.step("maintain_after_lock")
            again = work.load()
            if again.metadata_location != loaded.metadata_location:
                # Somebody may just have done what is planned.
                facts, planned = _planned(work, again, only)
            work.spec_id, work.mixed_specs = facts.spec_id, facts.mixed_specs
            work.born = birth(facts, read_maintained(table_folder(settings.state, work.uuid)))
            done = _Execution(work, lock, planned, facts.spec_id, on_progress).all()
            after = _after(work, facts) if done else None
            steps.step("maintain_before_release")
    except TableBusyError as busy:
        seconds = time.monotonic() - began
        return TableResult(table.name, planned, (), facts, skipped=busy.message, seconds=seconds)
    return TableResult(table.name, planned, tuple(done), facts, after, seconds=time.monotonic() - began)


def _planned(work: Work, table: Table, only: Collection[str] | None) -> tuple[TableFacts, Plan]:
    now = work.now()
    facts = measure(table, work.policy, now)
    folder = table_folder(work.settings.state, work.uuid)
    local = _LOCAL.fullmatch(work.settings.spark.master)
    maintained, cores = read_maintained(folder), int(local[1]) if local else 1
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
    lock: TableLock
    plan: Plan
    spec_id: int
    on_progress: OnProgress
    results: list[StepResult] = field(default_factory=list)
    stopped: str | None = None

    def all(self) -> list[StepResult]:
        """What became of them."""
        for batch in batches(self.plan.steps, self.spec_id):
            self._tell(batch)
            refused = {id(step): why for step in batch if (why := self._why_not(step))}
            tried = [step for step in batch if id(step) not in refused]
            found = self._done(tried) if tried else []
            if found:
                steps.step("maintain_after_action")
                note(self.work, found)
            # What was not tried is not noted: it would count as a failure, after some of which it waits.
            found += [StepResult(step, error=refused[id(step)], done=False) for step in batch if id(step) in refused]
            for result in found:
                self.results.append(result)
                self.on_progress(self._progress(result.step, result))
        return self.results

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

    def _done(self, batch: Sequence[Step]) -> list[StepResult]:
        began, gone = time.monotonic(), jvm_is_gone()
        try:
            self.lock.verify()
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
        self.stopped = self._stop()
        seconds = time.monotonic() - began
        return [StepResult(step, seconds=seconds / len(batch), error=error, done=False) for step in batch]

    def _stop(self) -> str | None:
        """Why nothing more can be done after a failure; None if the table can still be worked on."""
        try:
            self.lock.verify()
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
