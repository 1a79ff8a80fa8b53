"""First records of a stream that infers its columns: a sample of what it would land first makes its table."""

from __future__ import annotations

from pyiceberg.schema import Schema

from jobs.commit.log_state import LogState
from jobs.errors import FrazilError
from jobs.formats.json.first_columns import first_columns
from jobs.formats.json.seen_values import Place, SeenValues, parsed
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.topic_sample import read_sample, sample_ranges
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

MOST_RECORDS = 10_000


class RecordsAwaitedError(FrazilError):
    """No record is there yet that would say which columns the stream's table has."""


def inferred_rows(spec: StreamSpec, settings: Settings, log: LogState) -> Schema:
    """The columns that the first records of a stream need, of up to `MOST_RECORDS` of all its partitions.

    A stream that begins at the end of its topics is told by the newest records that they hold.

    Raises:
        RecordsAwaitedError: There is no record, or none with a value that needs a column.
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    begin, end = KafkaLog(settings.kafka).first_start(spec.source, log), "oldest"
    if spec.source.start == "latest":
        begin, end = log.earliest, "newest"
    latest = {partition: max(log.latest.get(partition, at), at) for partition, at in begin.items()}
    seen = SeenValues()
    for records in read_sample(settings.kafka, sample_ranges(begin, latest, MOST_RECORDS, end)):
        for record in records:
            value = parsed(record.value) if record.value is not None else None
            if value is not None:
                seen.add(value, Place(record.partition.topic, record.partition.partition, record.offset))
    columns = first_columns(seen, spec.decode.options.get("infer"))
    if columns is None:
        raise RecordsAwaitedError(
            f"stream {spec.stream}: its topics hold no record yet that says which columns table {spec.table.name} has.",
            fix=f"produce records, or declare the columns in streams/{spec.stream}.yaml",
        )
    return iceberg_schema(columns)
