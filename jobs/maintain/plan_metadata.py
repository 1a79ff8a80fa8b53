"""Table metadata in a plan: whether manifests are rewritten, and which properties are set. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobs.maintain.health_facts import TableFacts
from jobs.maintain.plan import PlanInput, Skip, Step, written_by_frazil
from jobs.maintain.text import size_text

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Manifests, Metadata

_SMALL_MANIFEST = 2 * 1024**2
_MANY_MANIFESTS = 20
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
_PREVIOUS_BY_DEFAULT = 100
MANIFEST_TARGET = "commit.manifest.target-size-bytes"
_MANIFEST_TARGET = 8 * 1024**2


def plan_manifests(at: PlanInput, policy: Manifests, commits: int = 0) -> Step | Skip:
    """Returns whether the manifests are written anew: only where at least half of them go.

    Args:
        policy: What is much.
        commits: That the steps before make in the same run, at most. Each adds a manifest, and what they leave is to be
            well, too: so it is judged with them.
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
    """How many are left: of each partition spec, of data and of deletes by themselves, as many as their bytes fill."""
    told = str(facts.properties.get(MANIFEST_TARGET, ""))
    # Iceberg's procedure takes no other size.
    target = int(told) if told.isdecimal() and int(told) else _MANIFEST_TARGET
    if facts.manifest_groups:
        return sum(max(1, math.ceil(size / target)) for size in facts.manifest_groups)
    kinds = 1 + bool(facts.delete_manifests) + facts.mixed_specs
    return max(kinds, math.ceil(facts.manifest_bytes / target) + kinds - 1)


def plan_properties(at: PlanInput, policy: Metadata) -> Step | Skip:
    """Returns the properties without which former versions of the metadata file would stay for ever, or too many."""
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
