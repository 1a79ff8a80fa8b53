"""Maintenance report as sentences, rows and JSON facts: a plan, what was done, and what was gained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.measure.text import size_text
from jobs.maintenance.plan.plan import Plan, Step, plan_json
from jobs.maintenance.plan.results import LOST, StepProgress, StepResult
from jobs.maintenance.run.maintenance_run import MaintenanceOutcome
from orchestration.formatting import span

# The nouns that an action counts.
_COUNTED = {
    "position_deletes": "delete files",
    "manifests": "manifests",
    "expire": "snapshots",
    "orphans": "files listed",
}
PLAN_COLUMNS = ("action", "where", "files", "bytes", "about", "reason")
DONE_COLUMNS = ("table", "score", "data files", "delete files", "manifests", "snapshots", "rewritten", "took")
# The figures that maintenance reduces.
FIGURES = ("data_files", "delete_files", "manifests", "snapshots", "metadata_bytes")


@dataclass(frozen=True, slots=True)
class ActionSum:
    """The report's sum of all steps of one action on a table, planned or done."""

    action: str
    steps: int
    files_before: int
    files_after: int
    bytes: int
    seconds: float

    @staticmethod
    def each(steps: Iterable[Step | StepResult]) -> Iterator[ActionSum]:
        """The sums by action, in the order in which the actions come."""
        for action, group in groupby(steps, lambda step: step.action if isinstance(step, Step) else step.step.action):
            of = list(group)
            yield ActionSum(
                action,
                len(of),
                sum(step.files_before for step in of),
                sum(step.files_after for step in of),
                sum(step.bytes for step in of),
                sum(step.seconds for step in of),
            )

    def sentence(self) -> str:
        """`compact ×30: 3,000 → 30 files, 48 MB, 12 s`."""
        times = f" ×{self.steps}" if self.steps > 1 else ""
        size = f", {size_text(self.bytes)}" if self.bytes else ""
        what = _COUNTED.get(self.action, "files")
        # Their number is not known before they are searched for.
        counted = f"{before_and_after(self.files_before, self.files_after)} {what}{size}, " if self.files_before else ""
        return f"{self.action}{times}: {counted}{span(self.seconds)}"


def before_and_after(before: int, after: int | None) -> str:
    """A number in a report: `3,000 → 30`; the number alone where nothing changes."""
    return f"{before:,}" if after is None or after == before else f"{before:,} → {after:,}"


def table_sentences(outcome: MaintenanceOutcome, *, dry_run: bool) -> Iterator[str]:
    """The sentences of the maintenance report about a table beside its problems, the most important first."""
    result = outcome.result
    if result is None:
        return
    name, plan = outcome.table.name, result.plan
    if result.skipped:
        yield f"{name}: left alone: {result.skipped}"
        return
    steps = plan.steps if dry_run else [step for step in result.done if step.done and step.error is None]
    sums = [each.sentence() for each in ActionSum.each(steps)]
    if not plan.steps:
        yield f"{name}: score {plan.score.total}, nothing is due"
    elif dry_run:
        yield f"{name}: score {plan.score.total}; would do {'; '.join(sums)}"
    else:
        yield f"{name}: score {_scores(outcome)}; {'; '.join(sums) or 'nothing was done'}"
    yield from (f"{name}: {warning}" for warning in (*plan.warnings, *plan.branches))
    yield from (f"{name}: {sentence}" for step in result.done for sentence in _held(step))


def _held(done: StepResult) -> Iterator[str]:
    """Sentences about snapshots and steps that were left, and why, as left snapshots pile up."""
    if lost := done.detail.get(LOST):
        yield f"{done.step.action} left to the next run: {lost}"
    if changes := done.detail.get("expired_changes"):
        yield f"{changes:,} changes from before {done.detail['before']} have expired: all mirrors have them"
    if done.step.action != "expire" or done.error is not None:
        return
    if holders := done.detail.get("held_by"):
        yield f"snapshots stay for {holders}"
    if warning := done.detail.get("warning"):
        yield str(warning)
    if why := done.detail.get("ledger"):
        yield f"the ledger could not be filled before the expiry: {why}"


def progress_sentence(told: StepProgress) -> str:
    """The report of a maintenance step that begins or has ended."""
    step, result = told.step, told.result
    where = f" {step.scope}" if step.scope else ""
    what = f"{told.table}: step {told.number:,} of {told.total:,}, {step.action}{where}"
    if result is None:
        return what
    if result.error:
        return f"{what}: failed: {result.error}"
    return f"{what}: {before_and_after(result.files_before, result.files_after)} {_COUNTED.get(step.action, 'files')}"


def skip_sentences(plan: Plan) -> Iterator[str]:
    """The report's sentences on what maintenance does not do, and why."""
    for skip in plan.skips:
        yield f"no {' '.join(filter(None, (skip.action, skip.scope)))}: {skip.reason}"


def _scores(outcome: MaintenanceOutcome) -> str:
    """The scores before and after, as `61 → 98`; only the present one of a table that was just planned."""
    result = outcome.result
    if result is None:
        return "–"
    return before_and_after(result.plan.score.total, outcome.score_after)


def plan_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Rows of the maintenance report: one per step of a plan, below `PLAN_COLUMNS`."""
    return [
        (
            step.action,
            step.scope or "–",
            before_and_after(step.files_before, step.files_after) if step.files_before else "–",
            size_text(step.bytes) if step.bytes else "–",
            span(step.seconds),
            step.reason,
        )
        for step in plan.steps
    ]


def report_row(outcome: MaintenanceOutcome) -> tuple[str, ...]:
    """A row of the maintenance report: a table before and after, below `DONE_COLUMNS`."""
    result = outcome.result
    if result is None:
        return (outcome.table.name, *("–" for _ in DONE_COLUMNS[1:]))
    before, after = result.before, result.after
    figures = [
        before_and_after(getattr(before, name), getattr(after, name) if after is not None else None)
        for name in ("data_files", "delete_files", "manifests", "snapshots")
    ]
    rewritten = sum(step.bytes for step in result.done)
    return (
        outcome.table.name,
        _scores(outcome),
        *figures,
        size_text(rewritten) if rewritten else "–",
        span(result.seconds),
    )


def outcome_facts(outcome: MaintenanceOutcome) -> dict[str, Any]:
    """The maintenance report of a table as `--json` has it."""
    result, table = outcome.result, outcome.table
    facts: dict[str, Any] = {"table": table.name, "stream": table.stream, "role": table.role}
    if result is not None:
        facts |= {
            "plan": plan_json(result.plan),
            "done": [_step_facts(step) for step in result.done],
            "before": _figures(result.before),
            "after": _figures(result.after) if result.after is not None else None,
            "score_before": result.plan.score.total,
            "score_after": outcome.score_after,
            "skipped": result.skipped,
            "seconds": round(result.seconds, 3),
        }
    facts["problems"] = [{"sentence": problem.message, "next": problem.fix} for problem in outcome.problems]
    return facts


def _step_facts(done: StepResult) -> dict[str, Any]:
    return {
        "action": done.step.action,
        "scope": done.step.scope,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "bytes": done.bytes,
        "seconds": round(done.seconds, 3),
        "detail": dict(done.detail),
        "error": done.error,
    }


def _figures(facts: TableFacts) -> dict[str, int]:
    return {name: getattr(facts, name) for name in FIGURES}


def run_sentence(outcomes: Sequence[MaintenanceOutcome], *, dry_run: bool) -> str:
    """The report of a whole maintenance run in a sentence."""
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    if dry_run:
        planned = sum(bool(result.plan.steps) for result in results)
        return f"{planned:,} of {len(outcomes):,} tables have something to do; nothing was changed"
    worked = sum(any(step.done and step.error is None for step in result.done) for result in results)
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    return f"{worked:,} of {len(outcomes):,} tables were maintained, {failed:,} failed"
