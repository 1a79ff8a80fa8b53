"""Letters of a queue's records: those of Kafka Connect's dead letters that become none of the stream's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.deadletter.rows import dead_letter_rows
from jobs.formats.decoder import Failure
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.known_formats import FORMATS
from jobs.pipeline.topic_tables import columns_by_topic
from jobs.replay.connect.records import QueueRecords
from jobs.schema.name_matching import EXACT_NAMES
from jobs.spec.models import StreamSpec


def queue_letters(
    spec: StreamSpec,
    config: str,
    tables: Mapping[str, Table],
    first_seen: datetime,
    fetched: QueueRecords,
    failures: Sequence[Failure],
) -> Iterator[pa.RecordBatch]:
    """Rows of the dead letters, those of each table's topics together: what is masked is so by the names that it has.

    Args:
        spec: The stream, as its file has it.
        config: The hash of the configuration by which the records failed.
        tables: All tables of the stream.
        first_seen: When.
        fetched: The records.
        failures: Of those that become letters, by their places among the fetched.
    """
    columns_of, topics = columns_by_topic(spec, tables.get), fetched.records.column("topic").to_pylist()
    by_columns: dict[int, tuple[ResolvedSchema | None, list[Failure]]] = {}
    for each in sorted(failures, key=lambda failure: failure.row):
        # Which table a record is for that does not say its topic nobody knows.
        unknown = spec.own_columns and bool(fetched.lacking[each.row])
        resolved = None if unknown else columns_of(topics[each.row])
        by_columns.setdefault(id(resolved), (resolved, []))[1].append(each)
    for resolved, those in by_columns.values():
        yield dead_letter_rows(
            fetched.records.take(pa.array([failure.row for failure in those])),
            those,
            stream=spec.stream,
            config_hash=config,
            # They number the batches of the stream's own driver, which the topic of the letters follows.
            batch_id=None,
            epoch=None,
            first_seen=first_seen,
            mask=spec.errors.mask,
            rows=resolved.schema if resolved else Schema(),
            columns=spec.record_columns,
            json_fields=FORMATS[spec.decode.format].json_fields,
            names=resolved.names if resolved else EXACT_NAMES,
        )
