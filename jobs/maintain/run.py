"""The maintenance of one table: measure ▸ plan ▸ lock ▸ execute ▸ measure. A healthy table costs no Spark start."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs import steps
from jobs.maintain.execution import Execution, as_sentence
from jobs.maintain.expire import room
from jobs.maintain.facts import TableFacts
from jobs.maintain.history import read_maintained, table_store
from jobs.maintain.lock import TableBusyError, table_lock
from jobs.maintain.measure import measure
from jobs.maintain.plan import ACTIONS, Plan, plan
from jobs.maintain.plan_expire import may_be_due
from jobs.maintain.plan_parts import Moment
from jobs.maintain.plan_table import birth
from jobs.maintain.results import OnProgress, TableResult, no_progress
from jobs.maintain.work import Work, utc_now
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

    def _begun(self) -> Execution:
        work, again = self._work, self._work.load()
        if again.metadata_location != self._planned_at:
            # Somebody may just have done what is planned.
            self._facts, self._plan = _planned(work, again, self._only)
        work.spec_id, work.mixed_specs = self._facts.spec_id, self._facts.mixed_specs
        work.born = birth(self._facts, read_maintained(table_store(work.settings, work.uuid)))
        return Execution(work, self._plan, self._facts.spec_id, self._on_progress)

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
        log.warning("table %s could not be measured again: %s", work.name, as_sentence(work, problem))
        return None
