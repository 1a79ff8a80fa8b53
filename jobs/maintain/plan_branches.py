"""Branches in a plan: which are remade from main, and what the others cost, since only main is compacted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.maintain.health_facts import BranchFacts, TableFacts
from jobs.maintain.plan import PlanInput, Skip, Step
from jobs.maintain.text import size_text
from jobs.spec.units import format_size

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Remake


@dataclass(frozen=True, slots=True)
class RemakeForecast:
    """What a remake of a branch would do.

    Attributes:
        snapshots: That would be issued again.
        waiting: Those of them with rows that are not published.
        refused: Why it is not done; None if it is.
    """

    snapshots: int = 0
    waiting: int = 0
    refused: str | None = None


def remake_pays(branch: BranchFacts, policy: Remake) -> bool:
    """Whether a branch keeps so much that main has replaced that it is worth while to ask whether it can be remade."""
    return policy.enabled and _keeps_much(branch, policy)


def _keeps_much(branch: BranchFacts, policy: Remake) -> bool:
    return branch.replaced_files >= policy.files or branch.replaced_bytes >= policy.size


def plan_branches(at: PlanInput, policy: Remake, gated: Mapping[str, RemakeForecast | None]) -> Iterator[Step | Skip]:
    """What is done about each branch other than main, and what it costs.

    Args:
        policy: When it pays.
        gated: The branches that are published through a gate; with what a remake would do, where that was asked.
    """
    for branch in at.facts.branches:
        keeps = _keeps(branch)
        if branch.name not in gated:
            yield Skip("compact", f"branch {branch.name}", f"Only main is compacted: this branch keeps {keeps}.")
            continue
        forecast = gated[branch.name]
        if not policy.enabled:
            yield Skip("remake", branch.name, f"remake.enabled is false: this branch keeps {keeps}.")
        elif not remake_pays(branch, policy):
            enough = f"at {policy.files:,} files, or {format_size(policy.size)}, that main has replaced it does"
            yield Skip("remake", branch.name, f"Not worth it yet: this branch keeps {keeps}; {enough}.")
        elif forecast is not None and forecast.refused is not None:
            yield Skip("remake", branch.name, f"This branch keeps {keeps}. {forecast.refused}")
        else:
            number = forecast.waiting if forecast else 0
            waits = f", with {number:,} {'snapshot that is' if number == 1 else 'snapshots that are'} not published"
            yield Step(
                "remake",
                branch.name,
                None,
                f"The branch keeps {keeps}: it begins again at main's head{waits}.",
                files_before=branch.files,
                files_after=at.facts.data_files + branch.own_files,
                seconds=at.seconds("remake"),
                detail={"branch": branch.name, "replaced_bytes": branch.replaced_bytes},
            )


def branch_warnings(
    facts: TableFacts, policy: Remake, small_below: float, gated: Mapping[str, RemakeForecast | None]
) -> Iterator[str]:
    """Says which branches have grown so that it is time for something, and nothing of what maintenance does mends them.

    Args:
        facts: Of the table.
        policy: From when on a branch keeps too much, whether it would be remade or not.
        small_below: Bytes; a branch that nobody compacts has too many files of its own where they are smaller.
        gated: See `plan_branches`.
    """
    for branch in facts.branches:
        said = f"Branch {branch.name} keeps {_keeps(branch)}"
        if branch.name not in gated:
            many_small = branch.own_files >= policy.files and branch.own_bytes < branch.own_files * small_below
            if _keeps_much(branch, policy) or many_small:
                yield (
                    f"{said}. It grows without end: only main is compacted, and no stream publishes it through a gate, "
                    f"so it is never remade. Next: {_ended(facts, branch)}"
                )
        elif not _keeps_much(branch, policy):
            continue
        elif not policy.enabled:
            yield (
                f"{said}. It is not remade: remake.enabled is false. Next: set it to true for {facts.name} in "
                f"frazil.yaml, then frazil maintain {facts.name}"
            )
        elif (forecast := gated[branch.name]) is not None and forecast.refused is not None:
            yield f"{said}. It cannot be remade: {forecast.refused}"


def _ended(facts: TableFacts, branch: BranchFacts) -> str:
    """How what a branch costs is ended."""
    stream = facts.streams[0] if len(facts.streams) == 1 else "STREAM"
    publish = f"frazil publish {stream}, " if branch.own_files else ""
    steps = f"frazil stop {stream}, {publish}drop the branch, start the stream"
    return f"{steps} (docs/publishing.md, A branch that has grown)"


def _keeps(branch: BranchFacts) -> str:
    replaced = f"{branch.replaced_files:,} files of {size_text(branch.replaced_bytes)} that main has replaced"
    return f"{replaced}, and {branch.own_files:,} of {size_text(branch.own_bytes)} that main lacks"
