"""Table maintenance, of one table: measure ▸ plan ▸ lock ▸ execute ▸ measure. A healthy one costs no Spark start."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs import steps
from jobs.commit.named_tables import all_with_named_tables
from jobs.maintain.branch_remake import gated_branches
from jobs.maintain.changes_expiry import changes_forecast
from jobs.maintain.health_facts import TableFacts
from jobs.maintain.health_measurement import measure_health
from jobs.maintain.maintenance_history import read_history, table_store
from jobs.maintain.mirror_property import MIRROR_PROPERTY
from jobs.maintain.plan import ACTIONS, Action, Plan
from jobs.maintain.plan_execution import PROCEDURES, Execution, Procedure, problem_text
from jobs.maintain.plan_expiry import may_be_due
from jobs.maintain.plan_orphans import table_created_at
from jobs.maintain.planner import plan
from jobs.maintain.results import OnProgress, TableResult, no_progress
from jobs.maintain.snapshot_expiry import expected_cutoff
from jobs.maintain.table_context import TableContext, utc_now
from jobs.maintain.table_lock import TableBusyError, table_lock
from jobs.spec.maintained_tables import MaintainedTable
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MERGE_SECONDS = 300.0
# Some ten seconds of Spark on a core: so long a merge waits for the partitions that are rewritten, and not for others.
_TURN_BYTES = 256 * 1024**2
_PAUSE_SECONDS = 0.5
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
    specs = all_with_named_tables(specs, catalog)
    context = TableContext(catalog, settings, specs, table.name, table.require(), spark, now)
    maintenance = TableMaintenance(context, only=only, on_progress=on_progress)
    if not dry_run:
        maintenance.carry_out()
    return maintenance.result()


class TableMaintenance:
    """The maintenance of a table as it goes on: planned when this is made, then carried out, some actions at a time.

    Of a mirror the lock is let go between partitions, so that merges come in between.

    Args:
        only: Only these actions; None for all.
        on_progress: Told of each step as it begins and ends.
        procedures: What carries out a batch of steps, by their action.
        measure: Reads the facts.

    Raises:
        FrazilError: There is no such table, or the catalog does not answer.
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
            while self._turn(actions):
                # Whoever waits to merge looks for the lock more often than that.
                time.sleep(_PAUSE_SECONDS)
        except TableBusyError as busy:
            if self._execution is None:
                self._skipped = busy.message
            else:
                self._execution.give_up(actions, f"Not tried: {busy.message}")
        finally:
            self._seconds += time.monotonic() - began

    def _turn(self, actions: Collection[str]) -> bool:
        """What is done without letting go of the lock: all, or of a mirror some partitions; whether more is left."""
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
        """Whether merges come between its steps: what they touch is none of a step's while it is rewritten."""
        return MIRROR_PROPERTY in self._facts.properties

    @property
    def _patience(self) -> float:
        """Seconds that a merge under way is waited for: there is one again and again."""
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
        """What was done so far; the table is measured again if there was anything to do."""
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
            # What was done is told all the same.
            log.warning("table %s could not be measured again: %s", context.name, problem_text(context, problem))
            return None
