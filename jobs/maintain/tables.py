"""Maintaining many tables, one after the other: what the command and Dagster's job share."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from jobs.errors import FrazilError, first_line
from jobs.maintain.existing_tables import ExistingTables, all_maintained
from jobs.maintain.history import read_maintained, table_store
from jobs.maintain.plan import ACTIONS
from jobs.maintain.results import OnProgress, TableResult, no_progress
from jobs.maintain.run import maintain_table
from jobs.maintain.score import Score, score
from jobs.redaction import redacted
from jobs.spec.maintenance import MaintainedTable, maintained_table
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a table.

    Attributes:
        result: None if it did not come to a plan.
        health: How it is afterwards; None with the result.
        problem: Why it did not come to a plan, or with a result not to the plan's end.
        trace: The stack trace of a problem that nobody foresaw.
    """

    table: MaintainedTable
    result: TableResult | None
    health: Score | None = None
    problem: FrazilError | None = None
    trace: str = ""

    @property
    def score_after(self) -> int | None:
        """The score after the work; None if there was none."""
        done = self.result is not None and self.result.after is not None
        return self.health.total if self.health is not None and done else None

    @property
    def problems(self) -> list[FrazilError]:
        """Everything that went wrong, as sentences with what to do next."""
        # Steps that one run of Spark was to do together fail together, and one sentence is enough.
        errors = dict.fromkeys(step.error for step in self.result.done if step.error) if self.result else {}
        steps = [_told(self.table.name, error) for error in errors]
        return steps if self.problem is None else [self.problem, *steps]


def actions_of(named: Sequence[str]) -> frozenset[str] | None:
    """The actions that were asked for; None for all.

    Raises:
        FrazilError: One of them is none.
    """
    for name in named:
        if name not in ACTIONS:
            close = difflib.get_close_matches(name, ACTIONS, n=1)
            raise FrazilError(
                f"'{name}' is no action; there are {', '.join(ACTIONS)}.",
                fix=f"did you mean {close[0]}?" if close else "name one of these, or none for all",
            )
    return frozenset(named) or None


def chosen_tables(
    settings: Settings, specs: Sequence[StreamSpec], catalog: Catalog, named: Sequence[str]
) -> list[MaintainedTable]:
    """The tables that are meant, in the order of the streams, or in that of their names' mention.

    Those that streams have yet to make are not among them. What the settings name in vain is, so that it is told as
    each table's problem is.

    Args:
        named: Tables, or streams' ids for their tables and dead letters; none for all that streams and settings name.

    Raises:
        FrazilError: A name is neither.
    """
    existing = ExistingTables(catalog, settings)
    every = list(all_maintained(settings, specs, existing))
    if not named:
        return every
    chosen: dict[str, MaintainedTable] = {}
    for name in named:
        found = [table for table in every if name in (table.name, table.stream)]
        if not found and name in existing:
            found = [maintained_table(settings, specs, name)]
        if not found:
            raise _unknown(name, settings, specs, [table.name for table in every if table.name in existing])
        chosen |= {table.name: table for table in found}
    return list(chosen.values())


def _unknown(name: str, settings: Settings, specs: Sequence[StreamSpec], tables: Sequence[str]) -> FrazilError:
    for spec in specs:
        if name in (spec.stream, *spec.target_names):
            return FrazilError(
                f"stream {spec.stream}: table {name if '.' in name else spec.table.name} does not exist yet.",
                fix=f"frazil run {spec.stream}",
            )
    known = [*tables, *(spec.stream for spec in specs)]
    # The part after the dot is what people mistype.
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return FrazilError(
        f"'{name}' is neither a table of catalog {settings.catalog.name} nor a stream.",
        fix=f"did you mean {close[0]}?" if close else "frazil maintain --plan, which lists them",
    )


def maintained(
    catalog: Catalog,
    settings: Settings,
    specs: Sequence[StreamSpec],
    tables: Sequence[MaintainedTable],
    *,
    spark: Callable[[], SparkSession],
    dry_run: bool,
    only: frozenset[str] | None,
    on_progress: OnProgress = no_progress,
) -> Iterator[Outcome]:
    """Maintain the tables one by one, each told as soon as it is done; one that fails hides no other.

    Args:
        specs: All of the deployment: the ledger is filled from their stamps before anything expires.
        spark: Called when a table first needs it, and again by others: it gives the same session.
        dry_run: Only plan.
        only: These actions; None for all.
        on_progress: Called as each step of a table begins and ends.
    """
    for table in tables:
        maintain = partial(maintain_table, catalog, settings, table, spark=spark, specs=specs)
        result = problem = None
        try:
            result = maintain(dry_run=dry_run, only=only, on_progress=on_progress)
        except Exception as raised:
            problem = raised
        yield outcome_of(settings, table, result, problem)


def outcome_of(
    settings: Settings, table: MaintainedTable, result: TableResult | None, problem: Exception | None
) -> Outcome:
    """What became of a table.

    Args:
        result: What was done; None if it did not come to a plan.
        problem: What ended its maintenance early; None if nothing did.
    """
    told, trace = None, ""
    if problem is not None:
        told = as_told(settings, table, problem)
        if not isinstance(problem, FrazilError):
            trace = redacted(settings, "".join(traceback.format_exception(problem)))
    if result is None:
        return Outcome(table, None, problem=told, trace=trace)
    facts = result.after or result.before
    done = read_maintained(table_store(settings, facts.uuid))
    return Outcome(table, result, score(facts, table.policy, done), told, trace)


def as_told(settings: Settings, table: MaintainedTable, problem: Exception) -> FrazilError:
    """A table's problem for a person to read: without secrets, and with the next command."""
    if isinstance(problem, FrazilError):
        return problem
    return _told(table.name, f"{type(problem).__name__}: {redacted(settings, first_line(problem))}")


def _told(table: str, error: str) -> FrazilError:
    """An error as it was told, with its own next command if it has one."""
    message, _, fix = error.partition("\n  Next: ")
    message = message if table in message else f"table {table}: {message}"
    return FrazilError(message, fix=fix or f"frazil maintain {table} --plan")
