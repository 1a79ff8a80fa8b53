"""Steps that one run of Spark does together, and which of them its results belong to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobs.maintain.facts import PartitionFacts
from jobs.maintain.plan import Step

if TYPE_CHECKING:
    from jobs.maintain.procedures import Rewritten

# In one run of Spark; what it has to say of itself is one condition for each.
_PARTITIONS_AT_ONCE = 50
# What Java and Python write alike, so that a group of files is known by it; of a float they write other digits.
_ALIKE = (int, str, Decimal, UUID, type(None))


def batches(steps: Sequence[Step], current_spec: int) -> list[list[Step]]:
    """Steps in the order given, those that one run of Spark can do together side by side.

    Args:
        current_spec: The table's; Iceberg does not tell apart the partitions of older ones.
    """
    found: list[list[Step]] = []
    for step in steps:
        last = found[-1] if found else []
        if last and len(last) < _PARTITIONS_AT_ONCE and _together(last[0], step, current_spec):
            last.append(step)
        else:
            found.append([step])
    return found


def _together(one: Step, other: Step, current_spec: int) -> bool:
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
class Share:
    """What is a step's own of what one run of Spark did.

    Attributes:
        seconds: By its bytes.
        beside: Bytes of files under earlier partition specs that may hold rows of the batch, so that Iceberg took them
            along; told with its first step.
    """

    step: Step
    groups: Sequence[Rewritten]
    seconds: float
    beside: int = 0


def shared(steps: Sequence[Step], groups: Sequence[Rewritten], seconds: float) -> list[Share]:
    """Tell whose each group of files is.

    Args:
        steps: A batch, see `batches`.
        groups: What became of its files.
        seconds: That the whole took.
    """
    if len(steps) == 1:
        return [Share(steps[0], groups, seconds)]
    by_key: dict[tuple[str, ...], list[Rewritten]] = {}
    for group in groups:
        by_key.setdefault(_key(group.key), []).append(group)
    own = [by_key.pop(_key(_values(step.partition)), []) for step in steps]
    beside = sum(group.bytes for foreign in by_key.values() for group in foreign)
    sizes = [1 + sum(each.bytes for each in found) for found in own]
    return [
        Share(step, found, seconds * size / sum(sizes), 0 if index else beside)
        for index, (step, found, size) in enumerate(zip(steps, own, sizes, strict=True))
    ]


def _values(partition: PartitionFacts | None) -> tuple[Any, ...]:
    return tuple(value.value for value in partition.values) if partition else ()


def _key(values: tuple[Any, ...]) -> tuple[str, ...]:
    """As text: what Java gives as a UUID or a decimal is another object here."""
    return tuple("null" if value is None else str(value) for value in values)
