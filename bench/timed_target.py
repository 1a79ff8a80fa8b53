"""Timed target: the demo's table and one driver's commits to it, without Kafka and a driver process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from jobs.config.settings.loading import load_stream
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.protocol.proposals import ProposalOutcome, Seen
from jobs.tables.commit.protocol.target import NO_SUMMARY, Target
from jobs.tables.commit.schema.operations import Operation
from jobs.tables.commit.stamp.errors import HeadMovedError
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, PartitionCounts
from jobs.tables.commit.stamp.stamps import Stamp

SPEC = Path(__file__).resolve().parents[1] / "streams" / "payments.yaml"
KAFKA_PARTITIONS = 12


def payments_spec() -> StreamSpec:
    """The demo's stream: a table by day with a payment's six columns and the four of Kafka."""
    return load_stream(SPEC)


class TimedTarget(Target):
    """The stream's table, with the time that commits take.

    Args:
        catalog: Catalog of the table.
        spec: The stream's.

    Attributes:
        seconds: Time of each commit that landed, its refusals included.
        rebased: Seconds from the first refusal to the landing, of the commits that were refused at first.
        ran_again: Batches whose files did not fit any more, so that tasks would have had to run again.
    """

    def __init__(self, catalog: Catalog, spec: StreamSpec) -> None:
        super().__init__(catalog, spec.table.name, spec.stream)
        self.seconds: list[float] = []
        self.rebased: list[float] = []
        self.ran_again: int = 0
        self._config: str = spec.config_hash
        self._refused_at: float | None = None

    def take_over(self) -> None:
        """Take the table over, like a starting driver."""
        nowhere = {TopicPartition(self.stream, n): 0 for n in range(KAFKA_PARTITIONS)}
        epoch = 1 + self.greatest_epoch()

        def claim(newest: Stamp | None) -> Stamp:
            fresh = Stamp(self.stream, "claim", -1, epoch, self._config, start=nowhere, position=nowhere)
            return newest.claimed(epoch) if newest else fresh

        self.claim(epoch, claim)

    def land_rows(self, files: Sequence[DataFile], rows: int, seen: Seen) -> ProposalOutcome:
        """Commit a batch of so many rows, shared evenly among Kafka's partitions.

        Args:
            files: Files that its tasks wrote.
            seen: The table as they saw it.
        """
        newest = self.newest
        assert newest is not None, "take_over comes first"
        start = newest.position
        share, rest = divmod(rows, len(start))
        counts = {p: Counts(read=n, landed=n) for i, p in enumerate(sorted(start)) for n in [share + (i < rest)]}
        batch: Ranges = {p: OffsetRange(start[p], start[p] + counts[p].read) for p in counts}
        position = {p: range_.end for p, range_ in batch.items()}
        stamp = Stamp(
            self.stream,
            "batch",
            newest.batch + 1,
            newest.epoch,
            self._config,
            start=start,
            position=position,
            ends=position,
            valid_through_ms=int(time.time() * 1000),
            rows={self.name: rows},
            counts=Counts(read=rows, landed=rows),
            targets={self.name: self.uuid},
            parts={p: PartitionCounts(start[p], counts[p]) for p in counts if counts[p].read},
        )
        began = time.monotonic()
        outcome = self.land(stamp, files, seen=seen, batch=batch, position=start)
        if outcome is ProposalOutcome.LANDED:
            self.seconds.append(time.monotonic() - began)
        else:
            self.ran_again += 1
        return outcome

    def commit(
        self,
        operation: Operation,
        stamp: Stamp | None,
        summary: Mapping[str, str] = NO_SUMMARY,
        more: Mapping[str, str] = NO_SUMMARY,
    ) -> int:
        try:
            snapshot_id = super().commit(operation, stamp, summary, more)
        except HeadMovedError:
            self._refused_at = self._refused_at or time.monotonic()
            raise
        if self._refused_at is not None:
            self.rebased.append(time.monotonic() - self._refused_at)
            self._refused_at = None
        return snapshot_id
