"""Command `frazil check`: checks new rows in a stream's tables against the contract in its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, quick_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.quality.contracts.check import Check
from jobs.quality.contracts.check_result import CheckedRows, TableCheck
from jobs.quality.contracts.check_rows import EngineName
from jobs.quality.contracts.outcome import ExpectationOutcome, Sample
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.snapshot_selection import named_table
from orchestration.cli.common.sql_session import sql_session
from orchestration.cli.common.terminal import (
    current_user,
    print_columns,
    print_json,
    progress_bar,
)
from orchestration.cli.tables.check_history import LAST, in_order, show_history
from orchestration.formatting import percentage, thousands
from resources.deployment import Deployment

_COLUMNS = ("expectation", "severity", "result", "rows", "not accepted", "share", "observed")
_TEXT = {"expectation", "severity", "result", "observed"}


def check_facts(stream: str, checks: Sequence[TableCheck]) -> dict[str, Any]:
    """Checks of a stream's tables as JSON."""
    return {"stream": stream, "tables": [_table_facts(each) for each in checks]}


def _table_facts(check: TableCheck) -> dict[str, Any]:
    found = check.found
    return {
        "table": check.table,
        "role": "sink" if check.role == "rows" else "dead_letters",
        "scope": check.asked.scope,
        "where": check.asked.where,
        "extent": check.extent,
        "engine": check.engine,
        "rows": check.rows,
        "at": check.at.isoformat(timespec="milliseconds"),
        "seconds": round(check.seconds, 3),
        "recorded": check.recorded,
        "not_recorded": check.not_recorded or None,
        "not_kept": check.not_kept or None,
        "nothing_new": list(check.nothing_new),
        "increment": found
        and {
            "found_by": found.found,
            "since_snapshot": found.begin,
            "head_snapshot": found.head.snapshot_id if found.head else None,
            "snapshots": list(found.snapshots),
            "first_at": found.first_at and found.first_at.isoformat(timespec="milliseconds"),
            "last_at": found.last_at and found.last_at.isoformat(timespec="milliseconds"),
            "ranges": [
                {"topic": source.topic, "partition": source.partition, "start": start, "end": end}
                for source, spans in sorted(found.ranges.items())
                for start, end in spans
            ],
        },
        "expectations": [_outcome_facts(each, check.sql) for each in check.outcomes],
    }


def _outcome_facts(outcome: ExpectationOutcome, sql: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "type": outcome.type,
        "arguments": dict(outcome.arguments),
        "severity": outcome.severity,
        "passed": outcome.passed,
        "problem": outcome.problem,
        "rows": outcome.elements,
        "unexpected": outcome.unexpected,
        "share": outcome.share,
        "observed": outcome.observed,
        "samples": [{"coordinates": dict(each.coordinates), "value": each.value} for each in outcome.samples],
        "filter": outcome.filter,
        "sql": sql.get(outcome.name),
        "meta": dict(outcome.meta),
    }


def print_checks(checks: Sequence[TableCheck]) -> None:
    """Print the extent of each check, a line per expectation, and rows of the failed ones."""
    console = Console(highlight=False, soft_wrap=True)
    for check in checks:
        by = f" {check.rows:,} rows, by {check.engine}." if check.engine else ""
        console.print(f"{check.extent}{by}", markup=False, style="bold")
        if check.outcomes:
            print_columns(_COLUMNS, [_cells(each) for each in check.outcomes], text=_TEXT)
        for outcome in check.failed:
            style = "red" if outcome.severity == "critical" else "yellow"
            for number, line in enumerate(_lines(outcome, check.sql)):
                console.print(line, markup=False, style="" if number else style)
        if check.nothing_new:
            said = f"  {len(check.nothing_new)} expectations are about rows, and keep their results: no row is new."
            console.print(said, markup=False)
        elif check.not_recorded and check.outcomes:
            console.print(f"? The next check looks at the same rows: {check.not_recorded}.", markup=False)
        if check.not_kept:
            console.print(f"? The history does not have this check: {check.not_kept}.", markup=False, style="yellow")
    verdict, style = _verdict_of_checks(checks)
    console.print(verdict, markup=False, style=style)


def _cells(outcome: ExpectationOutcome) -> tuple[str, ...]:
    result = "passed" if outcome.passed else "not evaluated" if outcome.problem else "failed"
    counted = thousands(outcome.elements), thousands(outcome.unexpected)
    return (outcome.name, outcome.severity, result, *counted, percentage(outcome.share), outcome.observed or "–")


def _lines(outcome: ExpectationOutcome, sql: Mapping[str, str]) -> Iterator[str]:
    said = outcome.problem or f"{outcome.type}{_arguments(outcome)}"
    yield f"! {outcome.name}: {said}"
    yield from (f"    {sample_text(each)}" for each in outcome.samples)
    if outcome.name in sql:
        yield f"    {sql[outcome.name]}"


def _arguments(outcome: ExpectationOutcome) -> str:
    named = ", ".join(f"{name}: {value}" for name, value in outcome.arguments.items())
    return f" ({named})" if named else ""


def sample_text(sample: Sample) -> str:
    """Line about a failed row: its value and its record."""
    place = ", ".join(f"{name} {value}" for name, value in sample.coordinates.items())
    return f"{sample.value} at {place}" if place else sample.value


def _verdict_of_checks(checks: Sequence[TableCheck]) -> tuple[str, str]:
    outcomes = [each for check in checks for each in check.outcomes]
    if not outcomes:
        return "Nothing was looked at.", ""
    failed = [each for check in checks for each in check.failed]
    if not failed:
        return f"All {len(outcomes)} expectations are met.", "green"
    critical = sum(each.severity == "critical" for each in failed)
    style = "red" if critical else "yellow"
    return f"{len(failed)} of {len(outcomes)} expectations are not met, {critical} of them critical.", style


@click.command()
@stream_argument()
@click.option("--all", "whole", is_flag=True, help="Look at the whole table, and not at what is new alone.")
@click.option(
    "--where", metavar="FILTER", help="Look at these rows, by Iceberg's row filter, such as \"day = '2026-01-01'\"."
)
@click.option(
    "--only", "--expectation", "only", multiple=True, metavar="NAME", help="Only this expectation; may be repeated."
)
@click.option("--dead-letters", is_flag=True, help="Check the dead letters only, not the table.")
@click.option("--table", metavar="TABLE", help="Check this table only: rows, dead_letters, or a table's name.")
@click.option(
    "--engine",
    type=click.Choice(["pandas", "spark"]),
    help="Engine that evaluates the rows.  [default: pandas, Spark for many rows]",
)
@click.option("--dry-run", is_flag=True, help="Leave it to the next check to look at the same rows again.")
@click.option("--history", is_flag=True, help="Check nothing: show what came of the checks before.")
@click.option("--last", type=click.IntRange(1), metavar="N", help=f"With --history: so many checks.  [default: {LAST}]")
@json_option()
@click.pass_obj
def check(
    deployment: Deployment,
    stream: str,
    whole: bool,
    where: str | None,
    only: tuple[str, ...],
    dead_letters: bool,
    table: str | None,
    engine: EngineName | None,
    dry_run: bool,
    history: bool,
    last: int | None,
    as_json: bool,
) -> None:
    """Check what STREAM has landed since the last check against the contract in its file.

    Each expectation shows the number of rows that fail, some of them, and the SQL that shows all. Rows count as checked
    if the whole contract was evaluated on all new rows. Status 1 if a critical expectation failed, or one could not be
    evaluated. --history shows the share of failed rows over time, of all checks.
    """
    if dead_letters and table is not None:
        raise FrazilError(
            "--dead-letters is a table, and --table another.", fix=f"frazil check {stream} --dead-letters"
        )
    spec = deployment.stream(stream)
    asked_for = spec.dead_letter_table if dead_letters else named_table(spec, table) if table is not None else None
    if history:
        if whole or where is not None or engine is not None or dry_run:
            raise FrazilError(
                "--history shows checks that were made, and goes without --all, --where, --engine and --dry-run.",
                fix=f"frazil check {stream} --history",
            )
        show_history(deployment, stream, only, table=asked_for, last=last or LAST, as_json=as_json)
        return
    if last is not None:
        raise FrazilError("--last goes with --history.", fix=f"frazil check {stream} --history --last {last}")
    if whole and where is not None:
        raise FrazilError("--all looks at all rows, --where at some.", fix=f"frazil check {stream} --all")
    settings = deployment.settings()
    if spec.contract is None:
        raise FrazilError(
            f"stream {stream} has no contract: nothing is expected of its rows.",
            fix=f"write contract: into streams/{stream}.yaml, such as "
            "contract: {expectations: [{expect_column_values_to_not_be_null: {column: id}}]}",
        )
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(f"stream {stream}: {problem.message}", fix=f"frazil run {stream}") from None
    with (
        sql_session(settings, "check") as session,
        catalog,
        translate_errors(settings, stream),
        progress_bar("{task.fields[now]}") as progress,
    ):
        task = progress.add_task(f"check {stream}", total=None, now="")
        asked = Check(
            spec=spec,
            settings=settings,
            catalog=catalog,
            spark=session.get,
            rows=CheckedRows.of(whole, where),
            only=only,
            engine=engine,
            record=not dry_run,
            by=current_user(),
            on_progress=lambda said: progress.update(task, now=said),
        )
        targets = [
            target for target in in_order(spec) if asked.expectations(target) and asked_for in (None, target.name)
        ]
        asked.refuse_unknown()
        results = [asked.run(target) for target in targets]
    if not results:
        raise FrazilError(f"the contract of stream {stream} expects nothing of that.", fix=f"frazil check {stream}")
    if as_json:
        print_json(check_facts(stream, results))
    else:
        print_checks(results)
    if any(result.critical or result.unevaluated for result in results):
        raise SystemExit(1)
