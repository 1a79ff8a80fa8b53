"""History of a stream's checks: the share of failed rows of each expectation over time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click
from rich.console import Console

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.documents.validation import suggestion
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.quality.contracts.check import contract_of
from jobs.quality.contracts.check_history import (
    CheckHistory,
    ExpectationHistory,
    KeptCheck,
    KeptResult,
    part_of,
    read_history,
    shares,
)
from orchestration.cli.common.terminal import print_columns, print_json
from orchestration.formatting import percentage, sparkline
from resources.deployment import Deployment

LAST = 30
"""Default number of checks shown for each expectation."""
_OVERVIEW = ("expectation", "severity", "checks", "failed", "share over time", "greatest", "last", "result")
_DETAIL = ("began", "rows of", "by", "rows", "not accepted", "share", "result", "observed")


def show_history(
    deployment: Deployment,
    stream: str,
    names: Collection[str],
    *,
    table: str | None,
    last: int,
    as_json: bool,
) -> None:
    """Print the history of a stream's checks: a line for each expectation, or for each check of a single expectation.

    Args:
        deployment: The deployment with the stream.
        stream: Id of the stream.
        names: Names of expectations; empty for all.
        table: Full name of a table; None for all tables of the stream.
        last: Number of newest checks for each expectation.
        as_json: Whether to print JSON.

    Raises:
        FrazilError: An expectation is unknown, or nothing was checked yet.
    """
    spec = deployment.stream(stream)
    targets = [target for target in in_order(spec) if table in (None, target.name)]
    parts = {part_of(target): target.name for target in targets}
    contract = {part_of(target): [each.name for each in contract_of(spec, target)] for target in targets}
    store = stream_folder(deployment.settings(), stream).store
    try:
        history = read_history(store, contract, names=names, last=last, masked=spec.errors.mask.paths)
    except OSError as problem:
        raise FrazilError(
            f"the checks of stream {stream} cannot be read: {problem.strerror or problem}",
            fix=f"look at {store.place('checks')}",
        ) from None
    known = {each.name for each in history.expectations}
    if unknown := sorted({*names} - known):
        every = [name for expected in contract.values() for name in expected]
        near = suggestion(unknown[0], every)
        said = f"; did you mean '{near}'?" if near else f": it has {', '.join(every) or 'none'}"
        raise FrazilError(
            f"the contract of stream {stream} has no expectation '{unknown[0]}', and no check had one{said}",
            fix=f"frazil check {stream} --history",
        )
    if as_json:
        print_json(history_facts(stream, history, parts))
        return
    if not any(each.results for each in history.expectations):
        raise FrazilError(f"no check of stream {stream} is kept.", fix=f"frazil check {stream}")
    _print(history, parts, single=len(names) == 1)
    for place in history.damaged:
        click.secho(f"? {place} cannot be read, and is left out.", fg="yellow", err=True)


def in_order(spec: StreamSpec) -> list[TargetSpec]:
    """Tables of a stream in the order of output: tables of rows, the main table first, then the dead letters."""
    return sorted(spec.targets, key=lambda target: target.role == "dead_letters")


def history_facts(stream: str, history: CheckHistory, parts: Mapping[str, str]) -> dict[str, Any]:
    """History as JSON.

    Args:
        stream: Id of the stream.
        history: The history.
        parts: Names of the stream's tables, by part.
    """
    return {
        "stream": stream,
        "expectations": [
            {
                "name": each.name,
                "role": "dead_letters" if each.part == "dead_letters" else "sink",
                "table": parts[each.part],
                "expected": each.expected,
                "results": [_result_facts(check, result) for check, result in each.results],
            }
            for each in history.expectations
        ],
        "damaged": list(history.damaged),
    }


def _result_facts(check: KeptCheck, result: KeptResult) -> dict[str, Any]:
    return {
        "at": check.at.isoformat(timespec="milliseconds"),
        "seconds": check.seconds,
        "by": check.by,
        "table": check.table,
        "branch": check.branch,
        "scope": check.scope,
        "since_snapshot": check.since,
        "head_snapshot": check.head,
        "snapshots": check.snapshots,
        "engine": check.engine,
        "rows_checked": check.rows,
        "type": result.type,
        "severity": result.severity,
        "passed": result.passed,
        "problem": result.problem,
        "rows": result.elements,
        "unexpected": result.unexpected,
        "share": result.share,
        "observed": result.observed,
    }


def _print(history: CheckHistory, parts: Collection[str], *, single: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for part in parts:
        mine = [each for each in history.expectations if each.part == part and each.results]
        if not mine:
            continue
        checks = sorted((check for each in mine for check, _ in each.results), key=lambda check: check.at)
        first, newest = checks[0], checks[-1]
        branch = "" if newest.branch == "main" else f", branch {newest.branch}"
        console.print(
            f"{newest.table}{branch}: checks from {first.at:%Y-%m-%d %H:%M} to {newest.at:%Y-%m-%d %H:%M} UTC.",
            markup=False,
            style="bold",
        )
        if single:
            for each in mine:
                _print_checks(console, each)
        else:
            text = {"expectation", "severity", "share over time", "result"}
            print_columns(_OVERVIEW, map(_overview, mine), text=text)
            console.print("▁ none, █ the greatest share of the line, ? not evaluated; oldest first.", style="dim")


def _overview(history: ExpectationHistory) -> Sequence[str | int | None]:
    told = list(shares(history))
    _, newest = history.results[-1]
    failed = sum(not result.passed for _, result in history.results)
    greatest = max((result.share for _, result in history.results if result.share is not None), default=None)
    name = history.name if history.expected else f"{history.name} (no longer expected)"
    return (
        name,
        newest.severity,
        len(told),
        failed,
        sparkline(told),
        percentage(greatest),
        percentage(newest.share),
        _verdict(newest),
    )


def _print_checks(console: Console, history: ExpectationHistory) -> None:
    _, newest = history.results[-1]
    gone = "" if history.expected else "; the contract has it no longer"
    console.print(f"{history.name}: {newest.type}, {newest.severity}{gone}", markup=False)
    rows = [
        (
            f"{check.at:%Y-%m-%d %H:%M:%S}",
            _extent(check),
            check.engine or "–",
            result.elements,
            result.unexpected,
            percentage(result.share),
            _verdict(result),
            result.problem or result.observed or "–",
        )
        for check, result in history.results
    ]
    print_columns(_DETAIL, rows, text={"began", "rows of", "by", "result", "observed"})


def _extent(check: KeptCheck) -> str:
    if check.scope == "condition":
        return "a condition"
    if check.scope == "interval":
        return "what was to be published"
    if check.scope == "table" or check.found == "table":
        return "the whole table"
    return f"{check.snapshots:,} {'snapshot' if check.snapshots == 1 else 'snapshots'} to {check.head}"


def _verdict(result: KeptResult) -> str:
    return "passed" if result.passed else "not evaluated" if result.problem else "failed"
