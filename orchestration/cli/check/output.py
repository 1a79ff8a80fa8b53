"""A check as people and programs read it: a line for each expectation, what it does not accept, and the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from jobs.contract.check_result import TableCheck
from jobs.contract.outcome import ExpectationOutcome, Sample
from orchestration.cli.terminal import print_columns
from orchestration.formatting import percentage, thousands

_COLUMNS = ("expectation", "severity", "result", "rows", "not accepted", "share", "observed")
_TEXT = {"expectation", "severity", "result", "observed"}


def check_facts(stream: str, checks: Sequence[TableCheck]) -> dict[str, Any]:
    """A check as JSON."""
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
    """What was looked at, a line per expectation, and of those that failed the rows."""
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
            said = f"  {len(check.nothing_new)} expectations are about rows, and stand as they were: no row is new."
            console.print(said, markup=False)
        elif check.not_recorded and check.outcomes:
            console.print(f"? The next check looks at the same rows: {check.not_recorded}.", markup=False)
        if check.not_kept:
            console.print(f"? The history does not have this check: {check.not_kept}.", markup=False, style="yellow")
    verdict, style = _verdict(checks)
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
    """A row of a check in a line: what it has, and which record it is of."""
    place = ", ".join(f"{name} {value}" for name, value in sample.coordinates.items())
    return f"{sample.value} at {place}" if place else sample.value


def _verdict(checks: Sequence[TableCheck]) -> tuple[str, str]:
    outcomes = [each for check in checks for each in check.outcomes]
    if not outcomes:
        return "Nothing was looked at.", ""
    failed = [each for check in checks for each in check.failed]
    if not failed:
        return f"All {len(outcomes)} expectations are met.", "green"
    critical = sum(each.severity == "critical" for each in failed)
    style = "red" if critical else "yellow"
    return f"{len(failed)} of {len(outcomes)} expectations are not met, {critical} of them critical.", style
