"""Source lookup of missing rows: reads Kafka again, if it still has the records, to name their offsets exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.settings.settings import KafkaSettings
from jobs.proof.audit.audit_ranges import OffsetRanges
from jobs.proof.audit.audit_result import AuditProblem
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

MAX_OFFSETS = 5_000_000


def name_missing_offsets(problems: Iterable[AuditProblem], settings: KafkaSettings, sink: str) -> list[AuditProblem]:
    """The problems, with exact offsets for rows of the sink that are missing among others, if Kafka has the records.

    A record with a value whose offset is in neither table is missing. What Kafka no longer has stays unchanged.

    Raises:
        KafkaUnavailableError: The brokers are unavailable.
    """
    return [_named(problem, settings) if problem.table == sink else problem for problem in problems]


def _named(problem: AuditProblem, settings: KafkaSettings) -> AuditProblem:
    partition = problem.partition
    if problem.kind != "missing" or problem.exact or partition is None or problem.more or not problem.where:
        return problem
    span = OffsetRange(problem.where[0].start, problem.where[-1].end)
    if span.end - span.start > MAX_OFFSETS:
        return problem
    log = KafkaLog(settings)
    if partition.topic not in log.identities([partition.topic]):
        return problem
    if log.earliest([partition])[partition] > span.start or log.latest([partition])[partition] < span.end:
        return problem
    candidates = {offset for start, end in problem.where for offset in range(start, end)}
    found = sorted(_with_value(partition, span, settings) & candidates)
    if len(found) != problem.records:
        return problem
    ranges = OffsetRanges(limit=len(found))
    ranges.add(np.array(found), 0)
    return replace(problem, where=tuple(ranges.kept), exact=True)


def _with_value(partition: TopicPartition, span: OffsetRange, settings: KafkaSettings) -> set[int]:
    """Offsets of the span whose record has a value."""
    with TopicReader(settings, "frazil-audit") as reader:
        messages = (message for batch in reader.read(partition, span) for message in batch)
        return {message.offset() or 0 for message in messages if message.value() is not None}
