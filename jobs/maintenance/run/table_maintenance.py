"""Maintenance of one table: measure ▸ plan ▸ lock ▸ execute ▸ measure. A healthy table costs no Spark start."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base import failpoints as steps
from jobs.base.errors import FrazilError
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.config.redaction import redacted
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.measure.health_facts import PartitionFacts, TableFacts
from jobs.maintenance.measure.health_measurement import measure_health
from jobs.maintenance.measure.maintenance_history import (
    MaintenanceHistory,
    read_history,
    table_store,
    write_history,
)
from jobs.maintenance.plan.compaction import batches, compact, rewrite_position_deletes
from jobs.maintenance.plan.plan import (
    ACTIONS,
    Action,
    Plan,
    Step,
)
from jobs.maintenance.plan.plan_expiry import may_be_due, table_created_at
from jobs.maintenance.plan.planner import plan
from jobs.maintenance.plan.results import (
    LOST,
    OnProgress,
    StepProgress,
    StepResult,
    TableResult,
    no_progress,
)
from jobs.maintenance.plan.table_context import TableContext, utc_now
from jobs.maintenance.run.branch_remake import gated_branches, remake_branch
from jobs.maintenance.run.changes_expiry import changes_forecast, expire_changes
from jobs.maintenance.run.orphan_removal import remove_orphans
from jobs.maintenance.run.snapshot_expiry import expected_cutoff, expire
from jobs.maintenance.run.table_lock import TableBusyError, TableLock, table_lock
from jobs.maintenance.run.table_metadata import rewrite_manifests, set_metadata_properties
from jobs.tables.commit.protocol.named_tables import all_with_named_tables
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

Procedure = Callable[[TableContext, Sequence[Step]], list[StepResult]]

_MERGE_SECONDS = 300.0
# Some ten seconds of Spark on a core. A merge waits this long for the partitions being rewritten, not for others.
_TURN_BYTES = 256 * 1024**2
_PAUSE_SECONDS = 0.5
_LOCAL = re.compile(r"local\[(\d+)]")


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
    """Execution of a plan's steps, one after another.

    Attributes:
        plan: The plan.
        on_progress: Called when a step begins and ends.
        procedures: Functions that carry out a batch of steps, by action.
        results: Results of the steps that were tried or given up.
        stopped: Reason why nothing more is tried.
    """

    context: TableContext
    plan: Plan
    on_progress: OnProgress
    procedures: Mapping[Action, Procedure] = field(default_factory=lambda: PROCEDURES)
    results: list[StepResult] = field(default_factory=list)
    stopped: str | None = None

    def left(self, actions: Collection[str]) -> list[Step]:
        """Steps of these actions that have not been tried."""
        tried = {id(result.step) for result in self.results}
        return [step for step in self.plan.steps if step.action in actions and id(step) not in tried]

    def carry_out(self, actions: Collection[str], lock: TableLock, turn_bytes: int | None = None) -> None:
        """Try the remaining steps of these actions.

        Args:
            turn_bytes: Only the first batch, which rewrites about as much; None: all.
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
            # Steps that were not tried are not recorded: they would count as failures, which delay further attempts.
            found += [StepResult(step, error=refused[id(step)], done=False) for step in batch if id(step) in refused]
            for result in found:
                self._ended(result)

    def give_up(self, actions: Collection[str], why: str) -> None:
        """Give up the remaining steps of these actions."""
        for step in self.left(actions):
            self._ended(StepResult(step, error=why, done=False))

    def _ended(self, result: StepResult) -> None:
        self.results.append(result)
        self.on_progress(self._progress(result.step, result))

    def _progress(self, step: Step, result: StepResult | None) -> StepProgress:
        number = 1 + next(index for index, each in enumerate(self.plan.steps) if each is step)
        return StepProgress(self.context.name, step, number, len(self.plan.steps), result)

    def _why_not(self, step: Step) -> str | None:
        """Reason why a step is not tried; None if it is."""
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
            # As text: a log's formatter would show secrets that the exception itself may quote.
            trace = redacted(self.context.settings, traceback.format_exc())
            log.warning("table %s: %s failed: %s", self.context.name, batch[0].action, trace)
            error = (
                f"table {self.context.name}: {batch[0].action} failed: {jvm_error_text(self.context.settings, problem)}"
            )
        if self.context.jvm_is_gone() and not gone:
            # py4j only reports that nobody answers. This step may have ended the JVM; the next one gets another.
            error = str(_jvm_ended(self.context.name, batch[0].action))
        self.stopped = self._stop(lock)
        seconds = time.monotonic() - began
        return [StepResult(step, seconds=seconds / len(batch), error=error, done=False) for step in batch]

    def _stop(self, lock: TableLock) -> str | None:
        """Reason why nothing more can be done after a failure; None if the table can still be worked on."""
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
    """Text about a problem in the execution of a plan, without secrets that it may quote."""
    return str(problem) if isinstance(problem, FrazilError) else jvm_error_text(context.settings, problem)


def record_results(context: TableContext, found: Sequence[StepResult]) -> None:
    """Record the attempts; a record that cannot be written costs a repeated step."""
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
        # It is neither done nor a failure that delays further attempts.
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
    """Carry out the table's plan.

    Args:
        spark: Returns a session; called when a step first needs one.
        specs: All streams of the deployment; the ledger is filled first for those that write to the table.
        dry_run: Whether only to plan: no lock, no Spark, no changes.
        on_progress: Called when a step begins and ends.

    Returns:
        The result, with the problems of single steps: they undo nothing, and independent steps go on.

    Raises:
        FrazilError: The table does not exist, the catalog does not answer, or the policy contradicts itself.
    """
    specs = all_with_named_tables(specs, catalog)
    context = TableContext(catalog, settings, specs, table.name, table.require(), spark, now)
    maintenance = TableMaintenance(context, only=only, on_progress=on_progress)
    if not dry_run:
        maintenance.carry_out()
    return maintenance.result()


class TableMaintenance:
    """Maintenance of a table in stages: it is planned at creation, then carried out, some actions at a time.

    On a mirror, the lock is released between partitions, so that merges come in between.

    Args:
        only: Only these actions; None for all.
        on_progress: Called when a step begins and ends.
        procedures: Functions that carry out a batch of steps, by action.
        measure: Measures the facts.

    Raises:
        FrazilError: The table does not exist, or the catalog does not answer.
    """

    def __init__(
        self,
        context: TableContext,
        *,
        only: Collection[str] | None = None,
        on_progress: OnProgress = no_progress,
        procedures: Mapping[Action, Procedure] = PROCEDURES,
        measure: Callable[..., TableFacts] = measure_health,
    ) -> None:
        began = time.monotonic()
        self._context: TableContext = context
        self._only: Collection[str] | None = only
        self._on_progress: OnProgress = on_progress
        self._procedures: Mapping[Action, Procedure] = procedures
        self._measure: Callable[..., TableFacts] = measure
        loaded = context.load()
        context.uuid = str(loaded.metadata.table_uuid)
        self._planned_at: str = loaded.metadata_location
        self._facts, self._plan = self._planned(loaded)
        self._execution: Execution | None = None
        self._skipped: str | None = None
        self._seconds: float = time.monotonic() - began

    def carry_out(self, actions: Collection[str] = ACTIONS) -> None:
        """Carry out the plan's steps of these actions, under the table's lock.

        The first call makes the plan again if the table has changed since.

        Args:
            actions: Actions in the plan's order: those of a later call come after those of an earlier one.

        Raises:
            FrazilError: The catalog does not answer.
        """
        left = self._execution.left(actions) if self._execution else self._plan.steps
        if not left or self._skipped:
            return
        began = time.monotonic()
        try:
            while self._turn(actions):
                # A waiting merge polls more often than that.
                time.sleep(_PAUSE_SECONDS)
        except TableBusyError as busy:
            if self._execution is None:
                self._skipped = busy.message
            else:
                self._execution.give_up(actions, f"Not tried: {busy.message}")
        finally:
            self._seconds += time.monotonic() - began

    def _turn(self, actions: Collection[str]) -> bool:
        """Carry out steps under the lock: all, or some partitions of a mirror; returns whether more are left."""
        context = self._context
        with table_lock(context.settings, context.name, context.uuid, self._patience) as lock:
            steps.step("maintain_after_lock")
            if self._execution is None:
                self._execution = self._begun()
            self._execution.carry_out(actions, lock, _TURN_BYTES if self._takes_turns else None)
            steps.step("maintain_before_release")
        return bool(self._execution.left(actions))

    @property
    def _takes_turns(self) -> bool:
        """Whether merges come between its steps: while a step rewrites files, a merge must not touch them."""
        return MIRROR_PROPERTY in self._facts.properties

    @property
    def _patience(self) -> float:
        """Seconds to wait for a running merge, as there is one again and again."""
        return _MERGE_SECONDS if self._takes_turns else 0.0

    def _begun(self) -> Execution:
        context, again = self._context, self._context.load()
        if again.metadata_location != self._planned_at:
            # Somebody may just have done what is planned.
            self._facts, self._plan = self._planned(again)
        context.spec_id, context.mixed_specs = self._facts.spec_id, self._facts.mixed_specs
        context.created_at = table_created_at(self._facts, read_history(table_store(context.settings, context.uuid)))
        return Execution(context, self._plan, self._on_progress, self._procedures)

    def result(self) -> TableResult:
        """Results so far; the table is measured again if there was anything to do."""
        began = time.monotonic()
        done = tuple(self._execution.results) if self._execution else ()
        after = self._after() if done else None
        seconds = self._seconds + time.monotonic() - began
        return TableResult(self._context.name, self._plan, done, self._facts, after, self._skipped, seconds)

    def _planned(self, table: Table) -> tuple[TableFacts, Plan]:
        context, only, now = self._context, self._only, self._context.now()
        facts = self._measure(table, context.policy, now)
        store = table_store(context.settings, context.uuid)
        local = _LOCAL.fullmatch(context.settings.spark.master)
        history, cores = read_history(store), int(local[1]) if local else 1
        asked = (only is None or "expire" in only) and may_be_due(facts, context.policy.expire, now)
        found = expected_cutoff(context, table, now) if asked else None
        gated = gated_branches(context, table, facts)
        changes = changes_forecast(context, table, now) if only is None or "changes" in only else None
        planned = plan(facts, context.policy, history, now, cores=cores, cutoff=found, gated=gated, changes=changes)
        if only is not None:
            planned = replace(
                planned,
                steps=tuple(step for step in planned.steps if step.action in only),
                skips=tuple(skip for skip in planned.skips if skip.action in only),
            )
        return facts, planned

    def _after(self) -> TableFacts | None:
        context = self._context
        try:
            deep = True if self._facts.partitions is not None else None
            return self._measure(context.load(), context.policy, context.now(), deep=deep)
        except Exception as problem:
            # The results are reported nevertheless.
            log.warning("table %s could not be measured again: %s", context.name, problem_text(context, problem))
            return None
