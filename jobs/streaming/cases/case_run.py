"""Run of a case: its records go through the stream's task, as in `frazil preview`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import quick_catalog
from jobs.clients.kafka.records import FetchedBlock, as_bytes, fetched_block, headers_of
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.records.schema.needs import Coordinates
from jobs.streaming.cases.case_file import Case, CaseRecord
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.streaming.driver.tables.new_rows import NewColumns, new_columns
from jobs.streaming.preview.preview import asked_parts, preview_stream
from jobs.streaming.preview.record import PreviewedLetter, StreamPreview
from jobs.streaming.preview.run import part_with_tables
from jobs.streaming.preview.values import Row
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Rows and dead letters that a stream makes of a case's records, in their order; records are counted from 1.

    Attributes:
        rows: Number of the record, name of the table, and the row.
        letters: Number of the record, and its dead letter.
    """

    rows: tuple[tuple[int, str, Row], ...]
    letters: tuple[tuple[int, PreviewedLetter], ...]


def run_case(spec: StreamSpec, settings: Settings, case: Case) -> CaseOutcome:
    """Run a case's records through the stream's task.

    Tables count as created by a first start. If the stream's schemas are in a registry, the registry is asked. If its
    columns are those of an existing table, the catalog is asked.

    Raises:
        FrazilError: The stream's file and the case do not determine the table's columns, or a service that knows them
            does not answer.
    """
    messages = case_messages(spec, case)
    numbers = {place: number for number, (place, _) in enumerate(messages, 1)}
    lookup = schema_lookup(spec, settings)
    rows: list[tuple[int, str, Row]] = []
    letters: list[tuple[int, PreviewedLetter]] = []
    # If each table has its own columns, a preview covers one table, and so the topics that go there.
    topics = list(dict.fromkeys(place.topic for place in numbers))
    for part in [[topic] for topic in topics] if spec.own_columns else [topics]:
        chosen = [(place, message) for place, message in messages if place.topic in part]
        found = _previewed(spec, settings, part, chosen, lookup)
        for at, record in found.records.items():
            rows += [(numbers[at], table, row) for table, row in record.rows.items()]
            letters += [(numbers[at], record.letter)] if record.letter is not None else []
    return CaseOutcome(
        tuple(sorted(rows, key=lambda row: row[:2])), tuple(sorted(letters, key=lambda letter: letter[0]))
    )


def _previewed(
    spec: StreamSpec,
    settings: Settings,
    topics: Sequence[str],
    messages: Sequence[tuple[Coordinates, Message]],
    lookup: SchemaLookup | None,
) -> StreamPreview:
    def new(of_table: StreamSpec) -> NewColumns:
        partitions = {TopicPartition(at.topic, at.partition): 0 for at, _ in messages}
        log = LogState(dict.fromkeys(topics, ""), partitions, partitions)
        return new_columns(of_table, settings, log, partitions, lambda: [_sample(messages)])

    from_table = "table" in (spec.decode.schema_source, spec.decode.key and spec.decode.key.schema_source)
    with quick_catalog(settings) if from_table else nullcontext() as catalog:
        part, tables = part_with_tables(spec, topics, catalog, new)
    blocks = _blocks(messages, asked_parts(part, tables))
    return preview_stream(part, tables, blocks, schemas=lookup, mask=spec.errors.mask)


def case_messages(spec: StreamSpec, case: Case) -> list[tuple[Coordinates, Message]]:
    """The records of a case as Kafka's client returns them, in the order of the case.

    Raises:
        FrazilError: The stream does not read a record's topic.
    """
    ends: dict[TopicPartition, int] = {}
    made: list[tuple[Coordinates, Message]] = []
    for number, record in enumerate(case.records, 1):
        topic = record.topic or (spec.source.topics or ("",))[0]
        if not spec.source.reads(topic):
            named = f"is of topic {topic}" if topic else "names no topic"
            raise FrazilError(
                f"stream {spec.stream}: record {number} of case '{case.name}' {named}, and the stream reads "
                f"{', '.join(spec.source.topics or ()) or spec.source.topics_pattern}.",
                fix="write topic: NAME into the record",
            )
        partition = TopicPartition(topic, record.partition)
        offset = ends.get(partition, 0) if record.offset is None else record.offset
        ends[partition] = max(ends.get(partition, 0), offset + 1)
        made.append((Coordinates(topic, record.partition, offset), _message(record, topic, offset)))
    return made


def _message(record: CaseRecord, topic: str, offset: int) -> Message:
    return Message(
        topic=topic,
        partition=record.partition,
        offset=offset,
        key=record.key_bytes,
        value=record.value_bytes,
        headers=record.header_list,
        timestamp=(TIMESTAMP_CREATE_TIME, int(record.instant.timestamp() * 1000)),
    )


def _sample(messages: Sequence[tuple[Coordinates, Message]]) -> list[SampleRecord]:
    return [
        SampleRecord(
            TopicPartition(at.topic, at.partition),
            at.offset,
            message.value(),
            message.key(),
            tuple((name, as_bytes(value)) for name, value in headers_of(message) or ()),
        )
        for at, message in messages
    ]


def _blocks(messages: Sequence[tuple[Coordinates, Message]], parts: frozenset[str]) -> list[FetchedBlock]:
    by_partition: dict[TopicPartition, list[tuple[int, Message]]] = {}
    for at, message in messages:
        by_partition.setdefault(TopicPartition(at.topic, at.partition), []).append((at.offset, message))
    made: list[FetchedBlock] = []
    for partition, records in by_partition.items():
        records.sort(key=lambda record: record[0])
        offsets = np.array([offset for offset, _ in records], np.int64)
        made.append(fetched_block(partition, [message for _, message in records], offsets, parts))
    return made
