"""Health score of a table, from 0 to 100, and the reasons for lost points. Pure functions.

Small files cost up to 40 points, deletes 30, snapshots and the size of the metadata 20, manifests 10. Small tables lose
less, because nobody notices a few files and rewriting them gains nothing. Small files are weighed against files that
are not small, not against all, so that more files never look healthier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.maintenance.measure.health_facts import TableFacts, delete_ratio
from jobs.maintenance.measure.text import size_text

if TYPE_CHECKING:
    from jobs.config.services.maintenance_policy import Policy
    from jobs.maintenance.measure.maintenance_history import MaintenanceHistory

WEIGHTS = {"small_files": 40, "deletes": 30, "snapshots": 20, "manifests": 10}
# Commits slow down with the metadata that each one writes: 57 ms at one snapshot, 560 ms at 600.
_MANY_TIMES = 3
_METADATA_FROM, _METADATA_TO = 2 * 1024**2, 10 * 1024**2
_METADATA_SHARE = 0.3
_MIXED_SPECS = 0.2
# The action that corrects each part.
_DONE = {"small_files": "compact", "deletes": "position_deletes", "snapshots": "expire", "manifests": "manifests"}


@dataclass(frozen=True, slots=True)
class Score:
    """Health of a table.

    Attributes:
        total: 0 to 100; 100 minus the parts.
        parts: Points lost, by the keys of `WEIGHTS`; every key is present.
        sentences: Reasons by the same keys; every key is present.
        small_below: Size below which data files are small, bytes.
        small_files: Number of small files.
        hours_since: Hours since each action was last done, for actions that were.
    """

    total: int
    parts: Mapping[str, int]
    sentences: Mapping[str, str]
    small_below: float
    small_files: int
    hours_since: Mapping[str, float]


def score(facts: TableFacts, policy: Policy, history: MaintenanceHistory | None = None) -> Score:
    """Score a table.

    Args:
        facts: Measured facts; `facts.measured_at` is the present.
        policy: Limits for small and for many.
        history: Past maintenance, for the sentences.
    """
    lost = {
        "small_files": _small_files(facts, policy),
        "deletes": _deletes(facts, policy),
        "snapshots": _snapshots(facts, policy),
        "manifests": _manifests(facts, policy),
    }
    parts = {name: round(WEIGHTS[name] * share) for name, (share, _) in lost.items()}
    since = _hours_since(facts, history) if history is not None else {}
    ago = {name: f"; {_DONE[name]} was done {_ago(since[_DONE[name]])}" for name in _DONE if _DONE[name] in since}
    small_below = policy.compact.small
    return Score(
        total=100 - sum(parts.values()),
        parts=parts,
        sentences={name: sentence + ago.get(name, "") + "." for name, (_, sentence) in lost.items()},
        small_below=small_below,
        small_files=facts.small_files(small_below),
        hours_since=since,
    )


def mergeable(sizes: tuple[int, ...], target: int) -> int:
    """For the score: number of files saved by merging these to the target's size; 0 or more."""
    return max(0, len(sizes) - math.ceil(sum(sizes) / target)) if sizes else 0


def _small_files(facts: TableFacts, policy: Policy) -> tuple[float, str]:
    target, few = policy.compact.target, policy.compact.min_files
    small_below = policy.compact.small
    if facts.partitions is None:
        # No manifest was read: the totals bound the gain, as if the table had one partition.
        small = facts.data_files if facts.average_file < small_below else 0
        gain = max(0, small - math.ceil(facts.bytes / target))
    else:
        smalls = [partition.smaller(small_below) for partition in facts.partitions]
        small = sum(map(len, smalls))
        gain = sum(mergeable(sizes, target) for sizes in smalls)
    files = f"{facts.data_files:,} data files of {size_text(facts.average_file)} on average"
    if not gain:
        return 0.0, f"{files}, none that merging would spare" if facts.data_files else "No data files"
    share = gain / (gain + facts.data_files - small)
    said = f"{small:,} of {files} are below {size_text(small_below)}; merged, there would be {gain:,} files fewer"
    return share * _rise(gain, few / 2, 4 * few), said


def _deletes(facts: TableFacts, policy: Policy) -> tuple[float, str]:
    if not facts.delete_files:
        return 0.0, "No deletes"
    compact = policy.compact
    by_equality = delete_ratio(facts.equality_deletes, facts.records)
    badness = max(
        _rise(facts.delete_ratio, 0, 3 * compact.delete_ratio),
        # A reader has to join them with every row, while it only skips positions.
        _rise(by_equality, 0, compact.delete_ratio),
        _rise(facts.delete_files / max(1, facts.data_files), 0, compact.max_delete_files),
    )
    damping = max(_rise(facts.delete_files, 0, compact.min_files), _rise(facts.bytes, 0, compact.target))
    said = (
        f"{facts.delete_files:,} delete files with {facts.position_deletes:,} positions and "
        f"{facts.equality_deletes:,} equality deletes, {facts.delete_ratio:.1%} of the rows"
    )
    return badness * damping, said


def _snapshots(facts: TableFacts, policy: Policy) -> tuple[float, str]:
    allowed = policy.expire.max_snapshots
    many = _rise(facts.snapshots, allowed, _MANY_TIMES * allowed)
    large = _rise(facts.metadata_bytes, _METADATA_FROM, _METADATA_TO)
    said = f"{facts.snapshots:,} snapshots (at most {allowed:,}), metadata of {size_text(facts.metadata_bytes)}"
    return (1 - _METADATA_SHARE) * many + _METADATA_SHARE * large, said


def _manifests(facts: TableFacts, policy: Policy) -> tuple[float, str]:
    allowed = policy.manifests.max
    many = _rise(facts.manifests, allowed, _MANY_TIMES * allowed)
    said = f"{facts.manifests:,} manifests (at most {allowed:,}) of {size_text(facts.manifest_bytes)} in all"
    if not facts.mixed_specs:
        return many, said
    return max(many, _MIXED_SPECS), f"{said}, some with files of an earlier partition spec"


def _rise(value: float, start: float, full: float) -> float:
    """0 up to `start`, 1 from `full` on, linear in between."""
    if value >= full:
        return 1.0 if value > start else 0.0
    return max(0.0, (value - start) / (full - start))


def _hours_since(facts: TableFacts, history: MaintenanceHistory) -> dict[str, float]:
    last = {action: history.last(action) for action in sorted({action for action, _, _ in history.entries})}
    return {
        action: max(0.0, (facts.measured_at - at).total_seconds() / 3600)
        for action, at in last.items()
        if at is not None
    }


def _ago(hours: float) -> str:
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"
