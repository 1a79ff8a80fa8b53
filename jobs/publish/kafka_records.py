"""Kafka's records of a discarded interval, read again by their offsets, as far as the log still has them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

import numpy as np
import pyarrow as pa

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.records import whole_records
from jobs.kafka.topic_reader import TopicReader
from jobs.spec.settings import KafkaSettings
from jobs.spec.source import Source

_GAP = 2_000
"""Offsets between two records beyond which to begin anew costs less than to read what is between them."""


class KafkaRecords:
    """Reads records by their offsets; a context manager. What the log has no more is left out.

    Args:
        settings: Brokers, security, isolation and time-out.
        name: What the brokers' logs show as its group; nothing is committed to it.
    """

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self._log: KafkaLog = KafkaLog(settings)
        self._reader: TopicReader = TopicReader(settings, name)
        self._kept: dict[TopicPartition, OffsetRange] = {}
        self._open: contextlib.ExitStack = contextlib.ExitStack()

    def __enter__(self) -> KafkaRecords:
        self._open.enter_context(self._reader)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def read(self, partition: TopicPartition, offsets: np.ndarray) -> Iterator[pa.RecordBatch]:
        """The records of a partition at these offsets, and those between them, in the columns of `WHOLE`.

        Args:
            partition: Of the topic; one that is not there any more has no records.
            offsets: Ascending.

        Raises:
            KafkaUnavailableError: Kafka does not answer.
        """
        kept = self.kept(partition)
        there = offsets[(offsets >= kept.start) & (offsets < kept.end)]
        for run in np.split(there, np.flatnonzero(np.diff(there) > _GAP) + 1):
            if len(run):
                for messages in self._reader.read(partition, OffsetRange(int(run[0]), int(run[-1]) + 1)):
                    yield whole_records(messages)

    def kept(self, partition: TopicPartition) -> OffsetRange:
        """The offsets that the log of a partition has; none if it is not there."""
        if partition not in self._kept:
            known = self._log.topics(Source(topics=(partition.topic,)))
            for number in known.get(partition.topic, ()):
                each = TopicPartition(partition.topic, number)
                self._kept[each] = OffsetRange(self._log.earliest([each])[each], self._log.latest([each])[each])
            self._kept.setdefault(partition, OffsetRange(0, 0))
        return self._kept[partition]
