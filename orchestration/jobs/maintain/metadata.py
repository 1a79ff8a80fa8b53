"""Maintenance metadata in Dagster: numbers under stable names that plot, and tables of what was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.metadata import cell
from assets.table_health import health_metadata
from jobs.maintenance.measure.text import size_text
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.run.maintenance_run import MaintenanceOutcome
from orchestration.jobs.maintain.report import (
    DONE_COLUMNS,
    FIGURES,
    before_and_after,
    report_row,
    run_sentence,
    skip_sentences,
    table_sentences,
)

_SHOWN_STEPS = 50


def outcome_metadata(outcome: MaintenanceOutcome) -> dict[str, Any]:
    """The observation of a table in Dagster: its state before and after, and the gain; each number every time."""
    result = outcome.result
    said = [*table_sentences(outcome, dry_run=False), *(str(problem) for problem in outcome.problems)]
    told: dict[str, Any] = {"result": said[0], "problems": len(outcome.problems)}
    if result is None or outcome.health is None:
        return told
    before, after = result.before, result.after or result.before
    told |= health_metadata(after, outcome.health) | {"health_before": result.plan.score.total}
    for name in FIGURES:
        told |= {f"{name}_before": getattr(before, name), f"{name}_less": getattr(before, name) - getattr(after, name)}
    told |= {
        "rewritten_bytes": sum(step.bytes for step in result.done),
        "steps_done": sum(step.done and step.error is None for step in result.done),
        "steps_failed": sum(step.error is not None for step in result.done),
        "maintenance_s": round(result.seconds, 3),
    }
    if result.done:
        told["steps"] = dg.MetadataValue.md(_markdown(result.done))
    also = [*said[1:], *skip_sentences(result.plan)]
    if also:
        told["also"] = dg.MetadataValue.md("\n".join(f"- {cell(each)}" for each in also[:_SHOWN_STEPS]))
    return told


def _markdown(done: Sequence[StepResult]) -> str:
    lines = ["| action | where | files | bytes | s | |", "|---|---|---:|---:|---:|---|"]
    for step in done[:_SHOWN_STEPS]:
        files = before_and_after(step.files_before, step.files_after)
        where, error = cell(step.step.scope), cell(step.error or "")
        size = size_text(step.bytes)
        lines.append(f"| {step.step.action} | {where} | {files} | {size} | {step.seconds:.1f} | {error} |")
    if len(done) > _SHOWN_STEPS:
        lines.append(f"| … | {len(done) - _SHOWN_STEPS:,} more | | | | |")
    return "\n".join(lines)


def run_metadata(outcomes: Sequence[MaintenanceOutcome], *, dry_run: bool) -> dict[str, Any]:
    """A whole run: its numbers, and a row per table."""
    metadata: dict[str, Any] = {
        "dry_run": dry_run,
        "result": run_sentence(outcomes, dry_run=dry_run),
        "tables": len(outcomes),
        "tables_failed": sum(bool(outcome.problems) for outcome in outcomes),
    }
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    metadata["maintenance_s"] = round(sum(result.seconds for result in results), 3)
    metadata["rewritten_bytes"] = sum(step.bytes for result in results for step in result.done)
    if outcomes:
        records = [dg.TableRecord(_record(outcome, dry_run=dry_run)) for outcome in outcomes]
        metadata["by_table"] = dg.MetadataValue.table(records)
    if dry_run and any(result.plan.steps for result in results):
        metadata["next"] = "launch it again with dry_run: false"
    return metadata


def _record(outcome: MaintenanceOutcome, *, dry_run: bool) -> dict[str, str | int]:
    said = [*(problem.message for problem in outcome.problems), *table_sentences(outcome, dry_run=dry_run)]
    row: dict[str, str | int] = {"table": outcome.table.name, "failed": int(bool(outcome.problems)), "result": said[0]}
    return row | dict(zip(DONE_COLUMNS[1:], report_row(outcome)[1:], strict=True))
