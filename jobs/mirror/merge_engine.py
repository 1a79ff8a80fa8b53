"""Merge engine: what makes rows of a mirror of an increment's changes; Arrow in this process, or Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.offsets import TopicPartition
from jobs.mirror.log_scan import LogScan
from jobs.mirror.merge_plan import MergeCounts, MergePlan, MergeResult
from jobs.mirror.order import Order


class MergeEngine(Protocol):
    """Merges changes into a branch of a mirror.

    `small_merge.merge_small` does it by Arrow, where changes and mirror are small enough; `merge.merge_increment` by
    Spark. Both make the same rows, and go on from each other.
    """

    def __call__(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult | None:
        """Merge the changes of files; None if that is left to the next engine, and nothing has changed."""
        ...


def increment_order(plan: MergePlan, scans: Mapping[TopicPartition, LogScan]) -> tuple[Order, MergeCounts]:
    """The order of an increment's changes, and how many there are of each sort.

    Args:
        scans: Of all its changes, by partition.

    Raises:
        StreamStopped: The mirror has to stop; see `Order.of`.
    """
    counts = MergeCounts(
        read=sum(scan.rows for scan in scans.values()),
        repeats=sum(scan.repeated_rows for scan in scans.values()),
        late=sum(scan.late_rows for scan in scans.values()),
        truncates=sum(scan.truncate_rows for scan in scans.values()),
    )
    order = Order.of(plan.stream, plan.key, plan.state, scans, plan.scope, scattered=plan.scattered, begins=plan.begins)
    return order, counts
