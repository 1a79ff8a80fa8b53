"""Table metadata in a plan: manifests, properties, and branches other than main. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.config.documents.units import format_size
from jobs.maintenance.measure.health_facts import BranchFacts, TableFacts
from jobs.maintenance.measure.text import size_text
from jobs.maintenance.plan.plan import (
    PlanInput,
    Skip,
    Step,
    written_by_frazil,
)

if TYPE_CHECKING:
    from jobs.config.services.maintenance_policy import Manifests, Metadata, Remake

_SMALL_MANIFEST = 2 * 1024**2
_MANY_MANIFESTS = 20
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
_PREVIOUS_BY_DEFAULT = 100
MANIFEST_TARGET = "commit.manifest.target-size-bytes"
_MANIFEST_TARGET = 8 * 1024**2


def plan_manifests(at: PlanInput, policy: Manifests, commits: int = 0) -> Step | Skip:
    """Step or skip for rewriting the manifests: only if at least half of them go.

    Args:
        policy: Limits.
        commits: Most commits of the previous steps in the same run. Each adds a manifest, and the result has to be
            healthy with them.
    """
    facts = at.facts
    if not policy.enabled:
        return Skip("manifests", "", "manifests.enabled is false.")
    if not facts.manifests:
        return Skip("manifests", "", "Healthy: no manifests.")
    number = facts.manifests + commits
    average = facts.manifest_bytes / number
    after = _manifests_after(facts)
    said = f"{facts.manifests:,} manifests of {size_text(facts.manifest_bytes / facts.manifests)} on average"
    said += f", and up to {commits:,} more by the steps before" if commits else ""
    reasons: list[str] = []
    if number > policy.max:
        reasons.append(f"more than {policy.max}")
    if number > _MANY_MANIFESTS and average < _SMALL_MANIFEST:
        reasons.append(f"more than {_MANY_MANIFESTS} below {size_text(_SMALL_MANIFEST)}")
    if number > _MANY_MANIFESTS and facts.mixed_specs:
        reasons.append("of more than one partition spec")
    if not reasons:
        return Skip("manifests", "", f"Healthy: {said}.")
    if 2 * after > number:
        return Skip("manifests", "", f"{said}, {', '.join(reasons)}; but {after:,} would be left, too many to pay.")
    return Step(
        "manifests",
        "",
        None,
        f"{said}, {', '.join(reasons)}.",
        files_before=facts.manifests,
        files_after=after,
        bytes=facts.manifest_bytes,
        seconds=at.seconds("manifests", facts.manifest_bytes),
    )


def _manifests_after(facts: TableFacts) -> int:
    """Number of manifests afterwards: for each partition spec and content (data, deletes), what their bytes fill."""
    told = str(facts.properties.get(MANIFEST_TARGET, ""))
    # Iceberg's procedure uses this size only.
    target = int(told) if told.isdecimal() and int(told) else _MANIFEST_TARGET
    if facts.manifest_groups:
        return sum(max(1, math.ceil(size / target)) for size in facts.manifest_groups)
    kinds = 1 + bool(facts.delete_manifests) + facts.mixed_specs
    return max(kinds, math.ceil(facts.manifest_bytes / target) + kinds - 1)


def plan_properties(at: PlanInput, policy: Metadata) -> Step | Skip:
    """Step or skip for the properties that limit former metadata files."""
    facts = at.facts
    if not policy.enabled:
        return Skip("metadata", "", "metadata.enabled is false.")
    if not written_by_frazil(facts):
        return Skip("metadata", "", "frazil does not write this table, and leaves its properties to those who do.")
    wanted: dict[str, str | int | float] = {}
    if str(facts.properties.get(DELETE_AFTER_COMMIT, "false")).lower() != "true":
        wanted[DELETE_AFTER_COMMIT] = "true"
    versions = str(facts.properties.get(PREVIOUS_VERSIONS, _PREVIOUS_BY_DEFAULT))
    if not versions.isdecimal() or int(versions) > policy.previous_versions:
        wanted[PREVIOUS_VERSIONS] = str(policy.previous_versions)
    before = facts.previous_metadata
    if not wanted:
        return Skip("metadata", "", f"Healthy: {before:,} former versions of the metadata, at most {versions}.")
    return Step(
        "metadata",
        "",
        None,
        f"{before:,} former versions of the metadata; to be set: {', '.join(f'{k}={v}' for k, v in wanted.items())}.",
        files_before=before,
        files_after=min(before, policy.previous_versions),
        seconds=at.seconds("metadata"),
        detail=wanted,
    )


@dataclass(frozen=True, slots=True)
class RemakeForecast:
    """Forecast of a branch's rebase.

    Attributes:
        snapshots: Number of snapshots that would be copied.
        waiting: Number of these with unpublished rows.
        refused: Reason of a refusal; None without one.
    """

    snapshots: int = 0
    waiting: int = 0
    refused: str | None = None


def remake_pays(branch: BranchFacts, policy: Remake) -> bool:
    """Whether a branch keeps so much that main has replaced that a rebase is worth checking."""
    return policy.enabled and _keeps_much(branch, policy)


def _keeps_much(branch: BranchFacts, policy: Remake) -> bool:
    return branch.replaced_files >= policy.files or branch.replaced_bytes >= policy.size


def plan_branches(at: PlanInput, policy: Remake, gated: Mapping[str, RemakeForecast | None]) -> Iterator[Step | Skip]:
    """Step or skip for each branch other than main, and what the branch costs.

    Args:
        policy: Limits.
        gated: Branches of write-audit-publish streams; with the forecast of a rebase, if it was checked.
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
    """Warnings about branches that have grown so that a person has to act, because no maintenance helps.

    Args:
        policy: Limits of what a branch may keep, whether it can be rebased or not.
        small_below: Average size below which a branch that nobody compacts has too many files of its own, bytes.
        gated: See `plan_branches`.
    """
    for branch in facts.branches:
        said = f"Branch {branch.name} keeps {_keeps(branch)}"
        if branch.name not in gated:
            many_small = branch.own_files >= policy.files and branch.own_bytes < branch.own_files * small_below
            if _keeps_much(branch, policy) or many_small:
                yield (
                    f"{said}. It grows without end: only main is compacted, and no stream publishes it, so it is "
                    f"never rebased. Next: {_ended(facts, branch)}"
                )
        elif not _keeps_much(branch, policy):
            continue
        elif not policy.enabled:
            yield (
                f"{said}. It is not rebased: remake.enabled is false. Next: set it to true for {facts.name} in "
                f"frazil.yaml, then frazil maintain {facts.name}"
            )
        elif (forecast := gated[branch.name]) is not None and forecast.refused is not None:
            yield f"{said}. It cannot be rebased: {forecast.refused}"


def _ended(facts: TableFacts, branch: BranchFacts) -> str:
    """How to end what a branch costs."""
    stream = facts.streams[0] if len(facts.streams) == 1 else "STREAM"
    publish = f"frazil publish {stream}, " if branch.own_files else ""
    return f"frazil stop {stream}, {publish}drop the branch, start the stream"


def _keeps(branch: BranchFacts) -> str:
    replaced = f"{branch.replaced_files:,} files of {size_text(branch.replaced_bytes)} that main has replaced"
    return f"{replaced}, and {branch.own_files:,} of {size_text(branch.own_bytes)} that main lacks"
