"""First records of a stream that infers its columns: a sample of what it would land first makes its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyiceberg.schema import Schema

from jobs.commit.log_state import LogState
from jobs.commit.offsets import Positions
from jobs.errors import FrazilError
from jobs.formats.connect_json.inference import SeenEnvelopes
from jobs.formats.connect_types import AS_SENT
from jobs.formats.json.inference import first_columns
from jobs.formats.json.seen_values import Place, SeenValues, parsed
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.topic_sample import SampleRecord, read_sample, sample_ranges
from jobs.schema.column_names import ColumnNames, usable_columns
from jobs.schema.iceberg_schema import fresh_schema, iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

MOST_RECORDS = 10_000


class RecordsAwaitedError(FrazilError):
    """No record is there yet that would say which columns the stream's table has."""


def inferred_rows(spec: StreamSpec, settings: Settings, log: LogState, begin: Positions | None = None) -> Schema:
    """The columns that the first records of a stream need, of up to `MOST_RECORDS` of all its partitions.

    A stream that begins at the end of its topics is told by the newest records that they hold.

    Args:
        spec: The stream.
        settings: Of the deployment.
        log: Its topics.
        begin: Where its records begin; without it the stream's file says where.

    Raises:
        RecordsAwaitedError: There is no record, or none with a value that needs a column.
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    sample = first_sample(spec, settings, log, begin)
    rows = _enveloped(spec, sample) if spec.decode.format == "connect_json" else _of_json(spec, sample)
    # Fields that no column can have are dead letters once the table is there.
    rows = rows and usable_columns(rows, ColumnNames(None, None if spec.shapes else spec.table.partition_names))
    if rows is None or not rows.fields:
        raise RecordsAwaitedError(
            f"stream {spec.stream}: its topics hold no record yet that says which columns table {spec.table.name} has.",
            fix=f"produce records, or declare the columns in streams/{spec.stream}.yaml",
        )
    return rows


def first_sample(
    spec: StreamSpec, settings: Settings, log: LogState, begin: Positions | None = None
) -> Iterator[list[SampleRecord]]:
    """The first records of a stream, up to `MOST_RECORDS` of all its partitions, in parts; arguments as of
    `inferred_rows`.

    Raises:
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    end = "oldest"
    if begin is None and spec.source.start == "latest":
        begin, end = log.earliest, "newest"
    elif begin is None:
        begin = KafkaLog(settings.kafka).first_start(spec.source, log)
    latest = {partition: max(log.latest.get(partition, at), at) for partition, at in begin.items()}
    return read_sample(settings.kafka, sample_ranges(begin, latest, MOST_RECORDS, end))


def _of_json(spec: StreamSpec, sample: Iterable[Sequence[SampleRecord]]) -> Schema | None:
    seen = SeenValues()
    for records in sample:
        for record in records:
            value = parsed(record.value) if record.value is not None else None
            if value is not None:
                seen.add(value, _place(record))
    columns = first_columns(seen, spec.decode.options.get("infer"))
    return None if columns is None else iceberg_schema(columns)


def _enveloped(spec: StreamSpec, sample: Iterable[Sequence[SampleRecord]]) -> Schema | None:
    """The columns that the schemas of the records say."""
    seen = SeenEnvelopes(as_sent=spec.decode.options.get(AS_SENT, ()))
    for records in sample:
        seen.add([(_place(each), each.value) for each in records if each.value is not None])
    fields = [each.field for each, _ in seen.merged()]
    return fresh_schema(fields) if fields else None


def _place(record: SampleRecord) -> Place:
    return Place(record.partition.topic, record.partition.partition, record.offset)
