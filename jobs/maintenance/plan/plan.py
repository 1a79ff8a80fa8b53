"""Plan of a table's maintenance: its steps and skips, what the planning rules are given, and estimates. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import msgspec

from jobs.maintenance.measure.health_facts import PartitionFacts, TableFacts
from jobs.maintenance.measure.health_score import Score
from jobs.maintenance.measure.maintenance_history import ActionRecord, MaintenanceHistory
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY

Action = Literal["compact", "position_deletes", "manifests", "remake", "changes", "expire", "orphans", "metadata"]
# In the order in which they are done: each works on what the one before has left.
ACTIONS: tuple[Action, ...] = get_args(Action)

# A first estimate, until the table's own history says better: Parquet decoded, encoded and written by one core.
BYTES_PER_SECOND = 10e6
# What a step takes whatever its size: planning, one or more jobs of Spark, a commit.
FIXED_SECONDS: Mapping[Action, float] = {
    "compact": 2.0,
    "position_deletes": 2.0,
    "manifests": 2.0,
    "remake": 1.0,
    "changes": 2.0,
    "expire": 5.0,
    "orphans": 10.0,
    "metadata": 0.2,
}
# Files below this share of the target are worth bringing together (Iceberg's own, and Amoro's).
UNDERSIZED_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do.

    Attributes:
        scope: Name of the partition; empty for the whole table.
        partition: That partition, if it is one.
        reason: Why, in a sentence with numbers.
        files_before, files_after: What the action counts: data files, delete files, manifests, snapshots; after is an
            estimate.
        bytes: To rewrite.
        seconds: An estimate.
        detail: What the procedure is called with.
    """

    action: Action
    scope: str
    partition: PartitionFacts | None
    reason: str
    files_before: int = 0
    files_after: int = 0
    bytes: int = 0
    seconds: float = 0.0
    detail: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skip:
    """One thing that is not done, and why, in a sentence."""

    action: Action
    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a table, and what not.

    Attributes:
        steps: In the order in which they are done.
        skips: What is left, in the order of the actions.
        warnings: What in the policy cannot be kept as it is.
        branches: What branches keep that nothing here mends, each with the next command.
    """

    table: str
    uuid: str
    steps: tuple[Step, ...]
    skips: tuple[Skip, ...]
    score: Score
    warnings: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """What all steps rewrite."""
        return sum(step.bytes for step in self.steps)

    @property
    def seconds(self) -> float:
        """What all steps take, by estimate."""
        return sum(step.seconds for step in self.steps)


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON has it; of a partition its key, not every file's size."""
    steps = [
        {
            **msgspec.to_builtins(replace(step, partition=None)),
            "partition": {value.name: value.text for value in step.partition.values} if step.partition else None,
        }
        for step in plan.steps
    ]
    return {**msgspec.to_builtins(replace(plan, steps=())), "steps": steps}


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What every rule looks at beside the table's facts.

    Attributes:
        facts: The table.
        history: What was done to it.
        now: With its zone.
        cores: That Spark has.
    """

    facts: TableFacts
    history: MaintenanceHistory
    now: datetime
    cores: int = 1

    def done(self, action: Action, partition: PartitionFacts | None = None) -> ActionRecord | None:
        """What is known of the action on that very partition, or on the table; None if it was never tried."""
        if partition is None:
            return self.history.entry(action)
        return self.history.entry(action, partition.spec_id, partition.name)

    def since(self, action: Action, partition: PartitionFacts | None = None) -> timedelta | None:
        """How long ago it last ended well; None if it never did."""
        done = self.done(action, partition)
        return self.now - done.at if done is not None and done.at is not None else None

    def seconds(self, action: Action, size: int = 0) -> float:
        """How long an action takes by estimate: as fast as it has been here, if it has been done."""
        if size and (speed := self.history.speed(action)):
            return size / speed
        done = None if size else self.done(action)
        if done is not None and done.at is not None:
            return done.seconds
        return FIXED_SECONDS[action] + size / (BYTES_PER_SECOND * max(1, self.cores))


def files_written(size: int, target: int, undersized: float) -> int:
    """How many files Iceberg makes of so many bytes (`SizeBasedFileRewritePlanner.expectedOutputFiles`).

    A remainder becomes a file of its own only if it is larger than `undersized`, the procedure's
    `min-file-size-bytes`, or if the others would grow by a tenth.
    """
    if size < target:
        return 1
    without = size // target
    if size % target > undersized or size / without >= 1.1 * target:
        return math.ceil(size / target)
    return without


def written_by_frazil(facts: TableFacts) -> bool:
    """Whether frazil writes the table: nobody else then merges into it, and its properties are frazil's to keep."""
    readers = "frazil.reader."
    return bool(facts.streams) or any(
        name.startswith("frazil.") and not name.startswith(readers) for name in facts.properties
    )


def is_mirror(facts: TableFacts) -> bool:
    """Whether all merges into the table take its lock, so that none meets a compaction."""
    return MIRROR_PROPERTY in facts.properties


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that a plan may rewrite because it would pay.

    Attributes:
        step: To rewrite what is due of it.
        candidates: Sizes of the files that are rewritten, ascending; what a smaller budget may take a part of. Empty
            where it is all or nothing.
    """

    step: Step
    candidates: tuple[int, ...] = ()

    @property
    def rank(self) -> tuple[float, int, int, str]:
        """Sorts by files won for each byte, the most first; then the smallest, then by name."""
        partition = self.step.partition
        deletes = partition.delete_files if partition and "delete_file_threshold" in self.step.detail else 0
        won = self.step.files_before - self.step.files_after + deletes
        size = self.step.bytes
        return -won / max(1, size), size, partition.spec_id if partition else 0, self.step.scope
