"""Batches of compaction steps: which of them one run of Spark does together, and each step's share of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobs.maintain.health_facts import PartitionFacts
from jobs.maintain.plan import Step

if TYPE_CHECKING:
    from jobs.maintain.iceberg_procedures import RewriteResult

# In one run of Spark; what it has to say of itself is one condition for each.
_PARTITIONS_AT_ONCE = 50
# The most that one group of files may be, which is what a failure costs at most.
_GROUP_BYTES = 2 * 1024**3
# Each is a commit that a stream may meet. Of small groups some go into one; a full one is worth its own.
_COMMITS = 10
_GROUPS_PER_COMMIT = 5
# What Java and Python write alike, so that a group of files is known by it; of a float they write other digits.
_ALIKE = (int, str, Decimal, UUID, type(None))


def batches(steps: Sequence[Step], current_spec: int | None, most_bytes: int | None = None) -> list[list[Step]]:
    """Steps in the order given, those that one run of Spark can do together side by side.

    Args:
        current_spec: The table's; Iceberg does not tell apart the partitions of older ones.
        most_bytes: That those of several steps rewrite; None: as many as there are.
    """
    found: list[list[Step]] = []
    for step in steps:
        last = found[-1] if found else []
        few = most_bytes is None or sum(each.bytes for each in last) + step.bytes <= most_bytes
        if last and few and len(last) < _PARTITIONS_AT_ONCE and _together(last[0], step, current_spec):
            last.append(step)
        else:
            found.append([step])
    return found


def group_bytes(steps: Sequence[Step]) -> int:
    """How large a group of files of a batch of compactions may be."""
    return max(_GROUP_BYTES, 2 * int(steps[0].detail["target_file_size_bytes"]))


def max_commits(steps: Sequence[Step]) -> int:
    """In how many commits a batch of compactions is made, at most; each adds a manifest."""
    group = group_bytes(steps)
    groups = sum(max(1, math.ceil(step.bytes / group)) for step in steps)
    full = sum(step.bytes // group for step in steps)
    return min(_COMMITS, max(full, math.ceil(groups / _GROUPS_PER_COMMIT)))


def _together(one: Step, other: Step, current_spec: int | None) -> bool:
    if one.action != other.action or one.action not in ("compact", "position_deletes"):
        return False
    if any(step.partition is None or step.partition.spec_id != current_spec for step in (one, other)):
        return False
    if not all(isinstance(value, _ALIKE) for step in (one, other) for value in _values(step.partition)):
        return False
    return "max_files_to_rewrite" not in one.detail and _same(one) == _same(other)


def _same(step: Step) -> dict[str, str | int | float]:
    return {key: value for key, value in step.detail.items() if key != "max_file_size_bytes"}


@dataclass(frozen=True, slots=True)
class StepShare:
    """A step's share of a batch of compactions, which one run of Spark did.

    Attributes:
        seconds: By its bytes.
        beside: Bytes of files under earlier partition specs that may hold rows of the batch, so that Iceberg took them
            along; told with its first step.
    """

    step: Step
    groups: Sequence[RewriteResult]
    seconds: float
    beside: int = 0

    @property
    def rewritten(self) -> int:
        """Files that were rewritten."""
        return sum(group.rewritten for group in self.groups)


def step_shares(
    steps: Sequence[Step], groups: Sequence[RewriteResult], seconds: float, current_spec: int | None = None
) -> list[StepShare]:
    """Tell to which step of a batch of compactions each group of files belongs.

    Args:
        steps: A batch, see `batches`.
        groups: What became of its files.
        seconds: That the whole took.
        current_spec: The table's partition spec; None: all that a single step rewrote is its own.
    """
    if len(steps) == 1:
        own = _own(steps[0], groups, current_spec)
        beside = sum(group.bytes for group in groups) - sum(group.bytes for group in own)
        return [StepShare(steps[0], own, seconds, beside)]
    by_key: dict[tuple[str, ...], list[RewriteResult]] = {}
    for group in groups:
        by_key.setdefault(_key(group.key), []).append(group)
    own = [by_key.pop(_key(_values(step.partition)), []) for step in steps]
    beside = sum(group.bytes for foreign in by_key.values() for group in foreign)
    sizes = [1 + sum(each.bytes for each in found) for found in own]
    return [
        StepShare(step, found, seconds * size / sum(sizes), 0 if index else beside)
        for index, (step, found, size) in enumerate(zip(steps, own, sizes, strict=True))
    ]


def _own(step: Step, groups: Sequence[RewriteResult], current_spec: int | None) -> Sequence[RewriteResult]:
    """The groups of a step's own partition, without what Iceberg took along of another partition spec.

    It has one group without a key for all files of earlier specs.
    """
    partition = step.partition
    if current_spec is None or partition is None or not partition.values:
        return groups
    if partition.spec_id != current_spec:
        own = [group for group in groups if all(value is None for value in group.key)]
    elif all(isinstance(value, _ALIKE) for value in _values(partition)):
        own = [group for group in groups if _key(group.key) == _key(_values(partition))]
    else:
        return groups
    return own or [group for group in groups if any(value is not None for value in group.key)]


def _values(partition: PartitionFacts | None) -> tuple[Any, ...]:
    return tuple(value.value for value in partition.values) if partition else ()


def _key(values: tuple[Any, ...]) -> tuple[str, ...]:
    """As text: what Java gives as a UUID or a decimal is another object here."""
    return tuple("null" if value is None else str(value) for value in values)
