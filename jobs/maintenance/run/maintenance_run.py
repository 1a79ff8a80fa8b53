"""Maintenance run over many tables, one by one, with the outcome of each: for the command and Dagster's job."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError, first_line
from jobs.clients.state_store.table_health import TableHealth, write_health
from jobs.config.redaction import redacted
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.measure.health_score import Score, score
from jobs.maintenance.measure.maintenance_history import read_history, table_store
from jobs.maintenance.plan.results import OnProgress, TableResult, no_progress
from jobs.maintenance.run.table_maintenance import maintain_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class MaintenanceOutcome:
    """Outcome of a table in a maintenance run.

    Attributes:
        result: Result; None if no plan was made.
        health: Health afterwards; None without a result.
        problem: Reason why no plan was made, or, with a result, why it was not finished.
        trace: Stack trace of an unexpected problem.
    """

    table: MaintainedTable
    result: TableResult | None
    health: Score | None = None
    problem: FrazilError | None = None
    trace: str = ""

    @property
    def score_after(self) -> int | None:
        """The score afterwards; None without a result."""
        done = self.result is not None and self.result.after is not None
        return self.health.total if self.health is not None and done else None

    @property
    def problems(self) -> list[FrazilError]:
        """All errors as sentences with the next command."""
        # Steps in one run of Spark fail together, and one sentence is enough.
        errors = dict.fromkeys(step.error for step in self.result.done if step.error) if self.result else {}
        steps = [_with_next_command(self.table.name, error) for error in errors]
        return steps if self.problem is None else [self.problem, *steps]


def maintain_tables(
    catalog: Catalog,
    settings: Settings,
    specs: Sequence[StreamSpec],
    tables: Sequence[MaintainedTable],
    *,
    spark: Callable[[], SparkSession],
    dry_run: bool,
    only: frozenset[str] | None,
    on_progress: OnProgress = no_progress,
) -> Iterator[MaintenanceOutcome]:
    """Maintain the tables one by one, and report each when it is done; a failure hides no other table.

    Args:
        specs: All streams of the deployment: the ledger is filled from their stamps before anything expires.
        spark: Called when a table first needs it, and again by others; returns the same session.
        on_progress: Called when a step of a table begins and ends.
    """
    for table in tables:
        result = problem = None
        try:
            result = maintain_table(
                catalog,
                settings,
                table,
                spark=spark,
                specs=specs,
                dry_run=dry_run,
                only=only,
                on_progress=on_progress,
            )
        except Exception as raised:
            problem = raised
        yield maintenance_outcome(settings, table, result, problem)


def maintenance_outcome(
    settings: Settings, table: MaintainedTable, result: TableResult | None, problem: Exception | None
) -> MaintenanceOutcome:
    """Outcome of a table in a maintenance run.

    Args:
        result: Result; None if no plan was made.
        problem: Error that ended its maintenance early; None without one.
    """
    told, trace = None, ""
    if problem is not None:
        told = table_problem(settings, table, problem)
        if not isinstance(problem, FrazilError):
            trace = redacted(settings, "".join(traceback.format_exception(problem)))
    if result is None:
        return MaintenanceOutcome(table, None, problem=told, trace=trace)
    facts = result.after or result.before
    store = table_store(settings, facts.uuid)
    scored = score(facts, table.policy, read_history(store))
    # For drivers of streams that land less often while the table is red; on an error they go on as before.
    with contextlib.suppress(OSError):
        write_health(store, TableHealth(scored.total, facts.measured_at.timestamp()))
    return MaintenanceOutcome(table, result, scored, told, trace)


def table_problem(settings: Settings, table: MaintainedTable, problem: Exception) -> FrazilError:
    """A table's problem in a maintenance run, for a person: without secrets, and with the next command."""
    if isinstance(problem, FrazilError):
        return problem
    return _with_next_command(table.name, f"{type(problem).__name__}: {redacted(settings, first_line(problem))}")


def _with_next_command(table: str, error: str) -> FrazilError:
    """A reported error, with its own next command if it has one."""
    message, _, fix = error.partition("\n  Next: ")
    message = message if table in message else f"table {table}: {message}"
    return FrazilError(message, fix=fix or f"frazil maintain {table} --plan")
