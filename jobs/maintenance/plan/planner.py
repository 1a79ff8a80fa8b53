"""Planner of a table's maintenance: from facts, history and policy to steps and skips with reasons. Pure functions.

The reference of maintenance explains the thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from jobs.config.services.maintenance_policy import is_open
from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.measure.health_score import score
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.measure.text import duration_text, size_text
from jobs.maintenance.plan.compaction import batches, max_commits
from jobs.maintenance.plan.plan import (
    ACTIONS,
    Action,
    Candidate,
    Plan,
    PlanInput,
    Skip,
    Step,
    files_written,
)
from jobs.maintenance.plan.plan_compaction import plan_compactions, plan_position_deletes
from jobs.maintenance.plan.plan_expiry import (
    ChangesForecast,
    expiry_warnings,
    plan_changes,
    plan_expiry,
    plan_orphans,
)
from jobs.maintenance.plan.plan_metadata import (
    RemakeForecast,
    branch_warnings,
    plan_branches,
    plan_manifests,
    plan_properties,
)
from jobs.maintenance.plan.snapshot_retention import ExpiryCutoff

if TYPE_CHECKING:
    from jobs.config.services.maintenance_policy import Policy


NO_BRANCHES: Mapping[str, RemakeForecast | None] = MappingProxyType({})
_SUPPORTED = (1, 2, 3)
# Streams need these at any time: each commit rewrites the list of all snapshots, and former metadata accumulates.
_ANYTIME: tuple[Action, ...] = ("changes", "expire", "metadata")
# Number of consecutive failures after which each further attempt waits twice as long.
_FAILURES = 3
_LONGEST_WAIT = timedelta(days=1)


def plan(
    facts: TableFacts,
    policy: Policy,
    history: MaintenanceHistory,
    now: datetime,
    *,
    cores: int = 1,
    cutoff: ExpiryCutoff | str | None = None,
    gated: Mapping[str, RemakeForecast | None] = NO_BRANCHES,
    changes: ChangesForecast | None = None,
) -> Plan:
    """Decide what pays.

    Args:
        history: Past maintenance of the table.
        cores: Number of cores of Spark; only estimates depend on it.
        cutoff: Snapshots that may expire, see `plan_expiry`.
        gated: Branches of write-audit-publish streams, see `plan_branches`.
        changes: Forecast for a changelog whose changes expire.
    """
    at = PlanInput(facts, history, now, cores)
    judged = score(facts, policy, history)
    if (refused := _refused(facts, policy)) is not None:
        skips = tuple(Skip(action, "", refused) for action in ACTIONS)
        return Plan(facts.name, facts.uuid, (), skips, judged)
    left = _Budget(policy.budget)
    candidates, skips = plan_compactions(at, policy)
    allowed, held = _held_back(candidates, at, policy)
    steps = left.spend_on(allowed, policy.compact.target)
    skips += held
    applying = [step for step in steps if "delete_file_threshold" in step.detail or "rewrite_all" in step.detail]
    deletes = list(plan_position_deletes(at, policy, applying))
    commits = sum(max_commits(batch) for batch in batches(steps, facts.spec_id))
    commits += sum(isinstance(each, Step) for each in deletes)
    further: list[Step | Skip] = [
        *deletes,
        plan_manifests(at, policy.manifests, commits),
        *plan_branches(at, policy.remake, gated),
        *plan_changes(at, changes),
        plan_expiry(at, policy.expire, cutoff),
        plan_orphans(at, policy.orphans),
        plan_properties(at, policy.metadata),
    ]
    skips += [each for each in further if isinstance(each, Skip)]
    allowed, held = _held_back([Candidate(each) for each in further if isinstance(each, Step)], at, policy)
    steps += left.spend_on(allowed, policy.compact.target)
    skips += [*held, *left.skips]
    return Plan(
        table=facts.name,
        uuid=facts.uuid,
        steps=tuple(steps),
        skips=tuple(sorted(skips, key=lambda skip: (ACTIONS.index(skip.action), skip.scope))),
        score=judged,
        warnings=tuple(expiry_warnings(at, policy.expire)),
        branches=tuple(branch_warnings(facts, policy.remake, policy.compact.small, gated)),
    )


def _refused(facts: TableFacts, policy: Policy) -> str | None:
    """Reason why nothing at all is done."""
    if not policy.enabled:
        return "maintenance.enabled is false for this table."
    if facts.format_version not in _SUPPORTED:
        known = ", ".join(map(str, _SUPPORTED[:-1]))
        return f"Format version {facts.format_version} is not supported; {known} and {_SUPPORTED[-1]} are."
    if facts.unread:
        return f"Spark does not know the type time, so it can do nothing to the table: {', '.join(facts.unread)}."
    return facts.hindered(loads=False)


def _held_back(candidates: Sequence[Candidate], at: PlanInput, policy: Policy) -> tuple[list[Candidate], list[Skip]]:
    """Take out candidates that have to wait: for a window of the day, or after repeated failures."""
    opened = is_open(policy.windows, at.now)
    windows = ", ".join(str(window) for window in policy.windows)
    allowed: list[Candidate] = []
    held: list[Skip] = []
    for candidate in candidates:
        step = candidate.step
        if not opened and step.action not in _ANYTIME:
            reason = f"Outside the windows ({windows} UTC): {step.reason}"
            held.append(Skip(step.action, step.scope, reason))
        elif (wait := _wait(at, step)) is not None:
            held.append(Skip(step.action, step.scope, wait))
        else:
            allowed.append(candidate)
    return allowed, held


def _wait(at: PlanInput, step: Step) -> str | None:
    """Reason why a step is not retried yet: from the third consecutive failure on it waits 1 h, 2 h, 4 h, … a day."""
    done = at.done(step.action, step.partition)
    if done is None or done.failed_at is None or done.failures < _FAILURES:
        return None
    pause = min(_LONGEST_WAIT, timedelta(hours=2 ** min(done.failures - _FAILURES, 10)))
    since = at.now - done.failed_at
    if since >= pause:
        return None
    times = f"It failed {done.failures:,} times in a row, last {duration_text(since)} ago"
    return f"{times}, and is tried again in {duration_text(pause - since)}: {done.error}"


class _Budget:
    """Bytes that a run may rewrite; what does not fit becomes skips."""

    def __init__(self, bytes_of_run: int) -> None:
        self.whole = self.left = bytes_of_run
        self.skips: list[Skip] = []

    def spend_on(self, candidates: Iterable[Candidate], target: int) -> list[Step]:
        """Steps that fit, in the given order; a part of a partition that no run could take whole."""
        taken: list[Step] = []
        for candidate in candidates:
            step = candidate.step
            if step.bytes > self.whole and (part := _part(candidate, self.left, self.whole, target)) is not None:
                step = part
            if step.bytes > self.left:
                self.skips.append(Skip(step.action, step.scope, self._why(step)))
            else:
                self.left -= step.bytes
                taken.append(step)
        return taken

    def _why(self, step: Step) -> str:
        over = f"Over budget: it would rewrite {size_text(step.bytes)}, and"
        if step.bytes > self.whole:
            return f"{over} a run may rewrite {size_text(self.whole)}: raise maintenance.budget. {step.reason}"
        left = f"{size_text(self.left)} of the run's {size_text(self.whole)} are left"
        return f"{over} {left}: the next run looks again. {step.reason}"


def _part(candidate: Candidate, left: int, whole: int, target: int) -> Step | None:
    """A part of a partition's files that fits, if at least half of them go."""
    number = size = 0
    for each in reversed(candidate.candidates):
        if size + each > left:
            break
        number, size = number + 1, size + each
    written = files_written(size, target, float(candidate.step.detail.get("min_file_size_bytes", target)))
    if not number or 2 * written > number:
        return None
    step = candidate.step
    fits = f"Only {number:,} of them fit into the budget of {size_text(whole)}"
    reason = f"{step.reason} {fits}; the rest is for later runs."
    seconds = step.seconds * size / step.bytes
    detail = {**step.detail, "max_files_to_rewrite": number}
    after = step.files_before - number + written
    return replace(step, reason=reason, files_after=after, bytes=size, seconds=seconds, detail=detail)
