"""Plan of a table's maintenance: its steps and skips, the input of its rules, and estimates. Pure functions."""

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
# In the order of execution: each action works on the result of the one before.
ACTIONS: tuple[Action, ...] = get_args(Action)

# Initial estimate, replaced by the table's own history: one core decodes, encodes and writes Parquet.
BYTES_PER_SECOND = 10e6
# Fixed time of a step: planning, one or more jobs of Spark, a commit.
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
# Files below this share of the target are worth merging (Iceberg's own limit, and Amoro's).
UNDERSIZED_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Step:
    """One step of maintenance.

    Attributes:
        scope: Name of the partition; empty for the whole table.
        partition: Partition that the step works on; None for the whole table.
        reason: Reason, a sentence with numbers.
        files_before, files_after: Numbers of what the action counts: data files, delete files, manifests, snapshots;
        the latter is an estimate.
        bytes: Bytes to rewrite.
        seconds: Estimated time.
        detail: Arguments of the procedure.
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
    """One thing that is not done, with the reason as a sentence."""

    action: Action
    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps and skips for a table.

    Attributes:
        steps: Steps in the order of execution.
        skips: Skips in the order of the actions.
        warnings: Parts of the policy that cannot be kept.
        branches: What branches keep and no action removes, each with the next command.
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
        """Bytes that all steps rewrite."""
        return sum(step.bytes for step in self.steps)

    @property
    def seconds(self) -> float:
        """Estimated time of all steps, seconds."""
        return sum(step.seconds for step in self.steps)


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON; partitions appear with their key, without the size of every file."""
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
    """Input of every rule beside the table's facts.

    Attributes:
        facts: Facts of the table.
        history: Past maintenance.
        now: Present time, with its zone.
        cores: Number of cores of Spark.
    """

    facts: TableFacts
    history: MaintenanceHistory
    now: datetime
    cores: int = 1

    def done(self, action: Action, partition: PartitionFacts | None = None) -> ActionRecord | None:
        """Record of the action on that partition, or on the table; None if it was never tried."""
        if partition is None:
            return self.history.entry(action)
        return self.history.entry(action, partition.spec_id, partition.name)

    def since(self, action: Action, partition: PartitionFacts | None = None) -> timedelta | None:
        """Time since its last success; None without one."""
        done = self.done(action, partition)
        return self.now - done.at if done is not None and done.at is not None else None

    def seconds(self, action: Action, size: int = 0) -> float:
        """Estimated time of an action, by its speed here if it has been done before."""
        if size and (speed := self.history.speed(action)):
            return size / speed
        done = None if size else self.done(action)
        if done is not None and done.at is not None:
            return done.seconds
        return FIXED_SECONDS[action] + size / (BYTES_PER_SECOND * max(1, self.cores))


def files_written(size: int, target: int, undersized: float) -> int:
    """Number of files that Iceberg makes of so many bytes (`SizeBasedFileRewritePlanner.expectedOutputFiles`).

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
    """Whether frazil writes the table: nobody else merges into it, and frazil may keep its properties."""
    readers = "frazil.reader."
    return bool(facts.streams) or any(
        name.startswith("frazil.") and not name.startswith(readers) for name in facts.properties
    )


def is_mirror(facts: TableFacts) -> bool:
    """Whether all merges into the table take its lock, so that none collides with a compaction."""
    return MIRROR_PROPERTY in facts.properties


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that a plan may rewrite because it pays.

    Attributes:
        step: Step that rewrites it.
        candidates: Sizes of the files to rewrite, ascending, of which a smaller budget may take a part; empty if it is
            all or nothing.
    """

    step: Step
    candidates: tuple[int, ...] = ()

    @property
    def rank(self) -> tuple[float, int, int, str]:
        """Sort key: most files saved per byte first, then the smallest, then by name."""
        partition = self.step.partition
        deletes = partition.delete_files if partition and "delete_file_threshold" in self.step.detail else 0
        won = self.step.files_before - self.step.files_after + deletes
        size = self.step.bytes
        return -won / max(1, size), size, partition.spec_id if partition else 0, self.step.scope
