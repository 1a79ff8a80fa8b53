"""Continuity of the logs: whether the log of a batch continues the log that was read before."""

from __future__ import annotations

from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError, LogEnds
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.tables.commit.stamp.log_state import LogState, another_topic, check_continuity
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import at_positions
from jobs.tables.commit.stamp.stamps import Stamp


def log_departures(newest: Stamp | None, log: LogState, kafka: KafkaLog) -> dict[TopicPartition, int]:
    """Offsets at which the present logs depart from what was read of them, by the coordinator's newest stamp.

    The leader that took the last read record has it. While it leads under the same epoch, no broker is asked.
    """
    if newest is None:
        return {}
    marks = {
        partition: mark
        for partition, mark in at_positions(newest.last_reads, newest.position).items()
        if partition in log.latest
        and not another_topic(newest.topics.get(partition.topic), log.topics.get(partition.topic))
        and log.leader_epochs.get(partition) != mark.epoch
    }
    return kafka.departures(marks) if marks else {}


class Continuity:
    """Follows the leaders of a stream's partitions from batch to batch.

    While a partition keeps its leader, its log is not cut, and no broker is asked. If the leader has changed, the
    brokers are asked about the last record of the batches before, and of each piece of this batch.
    """

    def __init__(self, stream: OpenStream, kafka: KafkaLog) -> None:
        self._stream: OpenStream = stream
        self._kafka: KafkaLog = kafka
        self._leaders: dict[TopicPartition, int] = dict(stream.log.leader_epochs)

    def check(self, ends: LogEnds, results: TaskResults) -> None:
        """Raise if the records of a batch do not continue those before.

        Raises:
            TopicRecreatedError: The log was cut before the stream's position.
            KafkaUnavailableError: The log was cut while the batch was read, so the batch is to be read again.
        """
        moved = {p for p in ends.latest if (e := ends.leader_epochs.get(p)) is None or e != self._leaders.get(p)}
        newest = self._stream.anchor.newest
        if moved and newest:
            before = {p: mark for p, mark in at_positions(newest.last_reads, newest.position).items() if p in moved}
            check_continuity(self._stream.spec.stream, newest.position, self._kafka.departures(before))
        for marks in results.piece_marks(moved):
            for partition, offset in self._kafka.departures(marks).items():
                raise KafkaUnavailableError(
                    f"topic {partition.topic}, partition {partition.partition}: its log was cut at offset {offset} "
                    "while it was read.",
                    fix=f"frazil run {self._stream.spec.stream}, which reads it again",
                )
        self._leaders |= ends.leader_epochs
