"""Seam of a takeover: where the sink ended and where the stream began, by the stamps."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.takeover.takeover_plan import TakeoverPlan
from jobs.proof.audit.audit import audit
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class SeamPartition:
    """The seam in one partition; all offsets are next offsets.

    Attributes:
        sink_end: Where the sink ended.
        begin: Where the first batch of frazil began; None if it has landed nothing of the partition yet.
        position: Where the stream stands.
    """

    partition: TopicPartition
    sink_end: int
    begin: int | None
    position: int

    @property
    def gap(self) -> int:
        """Offsets between the two; negative if they overlap."""
        return (self.position if self.begin is None else self.begin) - self.sink_end


@dataclass(frozen=True, slots=True)
class Seam:
    """The seam of a takeover, and the audit of what frazil has landed since.

    Attributes:
        read: Records that frazil has read.
        missing, doubled: By the audit.
        stops: Open questions that the audit found, as sentences.
    """

    partitions: tuple[SeamPartition, ...]
    read: int
    missing: int
    doubled: int
    stops: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is missing, doubled or open."""
        counted = not self.missing and not self.doubled and not self.stops
        return counted and all(partition.gap == 0 for partition in self.partitions)


def seam_of(spec: StreamSpec, settings: Settings, catalog: Catalog, plan: TakeoverPlan) -> Seam:
    """Compare where the sink ended and the stream began, and audit what the stream has landed since."""
    table = stream_table(catalog, spec, spec.coordinator)
    begin: dict[TopicPartition, int] = {}
    position = plan.start
    newest_first = [stamp for _, stamp in stamps_along_main(table.metadata, spec.stream)]
    if newest_first:
        position = {**position, **newest_first[0].position}
    for stamp in newest_first:
        if stamp.kind == "accept":
            # The start that the takeover stamped.
            break
        if stamp.kind == "batch":
            moved = {p: at for p, at in stamp.start.items() if stamp.position.get(p, at) > at}
            begin |= moved
    result = audit(spec, settings, catalog)
    partitions = tuple(
        SeamPartition(partition, at, begin.get(partition), position.get(partition, at))
        for partition, at in plan.start.items()
    )
    stops = tuple(problem.sentence for problem in result.problems if problem.kind == "stopped")
    return Seam(partitions, result.read, result.missing, result.doubled, stops)
