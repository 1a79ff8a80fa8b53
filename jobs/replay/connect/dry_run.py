"""Dry run of a queue's import: what would become of Kafka Connect's dead letters. It changes and claims no table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple

from pyiceberg.catalog import Catalog

from jobs.commit.branch import stream_table
from jobs.commit.named_tables import with_named_tables
from jobs.commit.offsets import OffsetRange
from jobs.commit.stamp_history import history
from jobs.commit.target_positions import restart_positions, target_positions
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.topic_reader import TopicReader
from jobs.replay.connect.importer import (
    QueueResult,
    left_of,
    next_end,
    refuse_own_topic,
    refuse_unknown_rows,
)
from jobs.replay.connect.opening import as_stream, queue_id, refuse_missing
from jobs.replay.connect.task import QueueCounts, QueueTask
from jobs.replay.request import ReplayRequest, columns_left_null
from jobs.replay.result import Reasons, ReplayProgress
from jobs.replay.routing import refuse_other_tables, refuse_parked
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.gone_tables import without_dropped
from jobs.stream.source_topics import parked_tables
from jobs.stream.writer_schemas import schema_lookup
from jobs.task.tally import count_unknown_fields


def dry_run_queue(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    topic: str,
    request: ReplayRequest,
    *,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> QueueResult:
    """Find out what would become of what a topic of Connect's dead letters holds now and was not taken before.

    A record that the queue holds twice, more than some thousands apart, is counted twice.

    Raises:
        FrazilError: As `import_queue`; also that the stream has no tables yet.
    """
    began = time.monotonic()
    refuse_own_topic(spec, topic)
    spec, request = without_dropped(with_named_tables(spec, catalog), catalog), request.with_tables_of(catalog)
    refuse_parked(spec, parked_tables(spec, catalog))
    for name in spec.target_names:
        if not catalog.table_exists(name):
            raise FrazilError(f"stream {spec.stream}: table {name} does not exist.", fix=f"frazil run {spec.stream}")
    tables = {name: stream_table(catalog, spec, name) for name in spec.target_names}
    refuse_unknown_rows(spec, tables[spec.table.name])
    corrected = request.corrected(spec)
    refuse_other_tables(spec, corrected)
    null_columns = columns_left_null(spec, catalog, request)
    unknown_fields: dict[str, int] = {}
    log = KafkaLog(settings.kafka).state(as_stream(corrected, topic).source)
    refuse_missing(log, topic, settings)
    stamps = {name: history(table.metadata, queue_id(spec.stream)).newest for name, table in tables.items()}
    taken = restart_positions(target_positions(stamps, spec.coordinator))
    at = {p: max(start, taken.get(p, 0)) for p, start in log.earliest.items() if p.topic == topic}
    ends = {p: end for p, end in log.latest.items() if p.topic == topic}
    total, counts, reasons = left_of(at, ends), QueueCounts(), Reasons()
    with TopicReader(settings.kafka, "frazil-replay") as reader:
        task = QueueTask(spec, corrected, reader, schema_lookup(corrected, settings))
        while left_of(at, ends):
            end = next_end(at, ends, task.size.most)
            ranges = {partition: OffsetRange(at[partition], last) for partition, last in end.items()}
            for outcome in task.process(ranges, tables):
                counts += outcome.counts
                count_unknown_fields(unknown_fields, outcome.unknown_fields)
                for failure in outcome.failures:
                    reasons.add(failure, outcome.fetched.place(failure.row))
            at = end
            on_progress(ReplayProgress(total, total - left_of(at, ends), counts.landed, counts.dead))
    return QueueResult(
        spec.stream,
        topic,
        *astuple(counts),
        seconds=time.monotonic() - began,
        dry_run=True,
        reasons=reasons.by_count(),
        null_columns=null_columns,
        unknown_fields=unknown_fields,
    )
