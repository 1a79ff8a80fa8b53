"""First records of a stream that infers its columns: a sample of them determines its new table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.topic_sample import SampleRecord, read_sample, sample_ranges
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.connect_json.inference import SeenEnvelopes, merged_columns
from jobs.records.formats.connect_types import AS_SENT
from jobs.records.formats.interface.decoder import Format
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.formats.interface.writer_schema import (
    BadWriterSchema,
    RegistrySchema,
    SchemaId,
    WriterSchema,
)
from jobs.records.formats.json.inference import first_columns
from jobs.records.formats.json.seen_values import Place, SeenValues, parsed
from jobs.records.formats.record_columns import SchemaIdPlace
from jobs.records.formats.registry_wire import (
    KEY_HEADER,
    USE_SCHEMA_ID,
    VALUE_HEADER,
    WrittenAs,
    group_by_schema,
)
from jobs.records.schema.column_names import ColumnNames, usable_columns
from jobs.records.schema.iceberg_schema import fresh_schema, iceberg_schema
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Positions

MOST_RECORDS = 10_000


class RecordsAwaitedError(FrazilError):
    """No record exists yet from which the columns could be inferred.

    Safe: No table was created.
    Next: produce records, or declare the columns
    """


Sample = Callable[[], Iterable[Sequence[SampleRecord]]]
"""Returns first records, in parts; without it they are read from Kafka."""


def inferred_rows(
    spec: StreamSpec,
    settings: Settings,
    log: LogState,
    begin: Positions | None = None,
    sample: Sample | None = None,
) -> Schema:
    """Columns that the first records of a stream need, from up to `MOST_RECORDS` of all its partitions.

    If a stream begins at the end of its topics, their newest records are used.

    Args:
        begin: Offsets at which its records begin; None: as in the stream's file.
        sample: Returns the first records in place of Kafka.

    Raises:
        RecordsAwaitedError: No record exists, or none with a value that needs a column.
    """
    records = sample() if sample else first_sample(spec, settings, log, begin)
    rows = _enveloped(spec, records) if spec.decode.format == "connect_json" else _of_json(spec, records)
    # Fields that no column can have become dead letters once the table exists.
    rows = rows and usable_columns(rows, ColumnNames(None, None if spec.shapes else spec.table.partition_names))
    if rows is None or not rows.fields:
        raise RecordsAwaitedError(
            (
                f"stream {spec.stream}: its topics have no record yet that determines the columns of table "
                f"{spec.table.name}."
            ),
            fix=f"produce records, or declare the columns in streams/{spec.stream}.yaml",
        )
    return rows


def first_sample(
    spec: StreamSpec, settings: Settings, log: LogState, begin: Positions | None = None
) -> Iterator[list[SampleRecord]]:
    """First records of a stream, in parts: up to `MOST_RECORDS` of all its partitions.

    Arguments as of `inferred_rows`.

    Raises:
        KafkaUnavailableError: Nothing arrived within the timeout for requests.
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
    """Columns by the schemas in the records' envelopes."""
    seen = SeenEnvelopes(as_sent=spec.decode.options.get(AS_SENT, ()))
    for records in sample:
        seen.add([(_place(each), each.value) for each in records if each.value is not None])
    fields = [each.field for each, _ in seen.merged()]
    return fresh_schema(fields) if fields else None


def _place(record: SampleRecord) -> Place:
    return Place(record.partition.topic, record.partition.partition, record.offset)


def inferred_key(
    spec: StreamSpec,
    settings: Settings,
    log: LogState,
    begin: Positions | None = None,
    sample: Sample | None = None,
) -> Schema:
    """Columns of the keys of a stream's first records; empty if these are changes of a table without a key.

    Arguments as of `inferred_rows`.

    Raises:
        RecordsAwaitedError: None of the records has a key with fields.
        KafkaUnavailableError: Nothing arrived within the timeout for requests.
    """
    key = spec.decode.key
    connect = key is not None and key.format == "connect_json"
    as_sent = key.options.get(AS_SENT, ()) if key is not None else ()
    records = sample() if sample else first_sample(spec, settings, log, begin)
    found = key_columns(records, connect=connect, events=spec.changes is not None, as_sent=as_sent)
    if found is None or not (found.fields or may_be_keyless(spec)):
        raise RecordsAwaitedError(
            f"stream {spec.stream}: its topics have no record yet whose key determines the key columns of table "
            f"{spec.table.name}.",
            fix=f"produce records with keys, or declare them in decode.key.schema of streams/{spec.stream}.yaml",
        )
    return found


def may_be_keyless(spec: StreamSpec) -> bool:
    """Whether records without keys land if the file does not declare the keys' columns.

    They do if they are changes. A file may require keys (`into: _change_key not null`).
    """
    key, changes = spec.record_columns.key, spec.changes
    asked = key is not None and key.required
    return spec.shapes and changes is not None and not changes.needs_keys and not asked


def are_keyless(sample: Iterable[Sequence[SampleRecord]]) -> bool:
    """Whether records are changes of a table without a key."""
    found = key_columns(sample, connect=False, events=True)
    return found is not None and not found.fields


def key_columns(
    sample: Iterable[Sequence[SampleRecord]], *, connect: bool, events: bool, as_sent: Collection[str] = ()
) -> Schema | None:
    """Columns of the keys of records; empty if no record of a row has a key; None if unknown.

    Args:
        connect: Whether keys contain their schema, in Connect's envelope.
        events: Whether the records are changes of a source; keys of changes without a row do not count.
        as_sent: Names of logical types whose values stay texts, numbers or bytes.
    """
    envelopes, values, keys, bare = SeenEnvelopes(as_sent=as_sent), SeenValues(), 0, 0
    for records in sample:
        for each in records:
            if events and _of_no_row(each.value):
                continue
            keys, bare = keys + (each.key is not None), bare + (each.key is None and each.value is not None)
            if each.key is None:
                continue
            place = Place(each.partition.topic, each.partition.partition, each.offset)
            if connect:
                envelopes.add([(place, each.key)])
            elif (value := parsed(each.key)) is not None:
                values.add(value, place)
    if bare and not keys:
        return Schema()
    if connect:
        merged = [each.field for each, _ in envelopes.merged()]
        return fresh_schema(merged) if merged else None
    columns = first_columns(values)
    return None if columns is None else iceberg_schema(columns)


def _of_no_row(value: bytes | None) -> bool:
    """Whether a value is a heartbeat, a message or the like; False if unknown."""
    found = parsed(value) if value is not None else None
    if found is None:
        return False
    payload = found["payload"] if found.keys() == {"schema", "payload"} else found
    return isinstance(payload, dict) and ("ts_ms" in payload and payload.get("op") in (None, "m"))


MOST_SCHEMAS = 100
"""Most different schemas that are looked at, those of the most records first."""

Part = Literal["value", "key"]
_HEADERS: Mapping[Part, str] = {"value": VALUE_HEADER, "key": KEY_HEADER}


def named_rows(
    sample: Iterable[Sequence[SampleRecord]],
    format_: Format,
    options: Mapping[str, Any],
    find: Callable[[SchemaId], RegistrySchema],
    *,
    part: Part = "value",
    named: SchemaIdPlace = "both",
) -> Schema | None:
    """Columns for the records of all writer schemas in a sample; None if it names none.

    They are those of `merged_columns`, the schema of the most records first. Unknown ids and schemas of another format
    are left out: their records fail one by one.

    Args:
        find: Returns the schema of an id; raises ValueProblem for an unknown id.
        part: Part of the records with the schemas.
        named: Place of the schema ids.
    """
    found: list[Schema] = []
    counts: list[int] = []
    use_schema_id = options.get(USE_SCHEMA_ID)
    for written, count in _counted(sample, format_, part, named, use_schema_id).most_common(MOST_SCHEMAS):
        try:
            schema = find(written.schema)
        except ValueProblem:
            continue
        if schema.kind != format_.registry_kind or format_.writer_rows is None:
            continue
        try:
            writer = WriterSchema(schema.schema.text, schema.schema.references, written.message)
            found.append(format_.writer_rows(writer, options))
            counts.append(count)
        except BadWriterSchema:
            continue
    columns = [each.field for each in merged_columns(found, counts)]
    if part == "value":
        # Only frazil's own columns may have such names.
        columns = [each for each in columns if not each.name.casefold().startswith(KAFKA_COLUMN_PREFIX)]
    return fresh_schema(columns) if columns else None


def _counted(
    sample: Iterable[Sequence[SampleRecord]],
    format_: Format,
    part: Part,
    named: SchemaIdPlace,
    use_schema_id: int | None,
) -> Counter[WrittenAs]:
    """Number of records by writer schema, in the order of first appearance."""
    counts: Counter[WrittenAs] = Counter()
    for records in sample:
        there = [each for each in records if (each.value if part == "value" else each.key) is not None]
        values = pa.array([each.value if part == "value" else each.key for each in there], pa.binary())
        ids = None if named == "prefix" else pa.array([_header(each, part, named) for each in there], pa.binary())
        messages = format_.registry_kind == "PROTOBUF"
        grouped = group_by_schema(values, ids, messages=messages, use_schema_id=use_schema_id)
        for group in grouped.groups:
            counts[group.written] += len(group.rows)
    return counts


def _header(record: SampleRecord, part: Part, named: SchemaIdPlace) -> bytes | None:
    """Value of the header, by the decoders' rules: one without a value does not count, and the last one wins."""
    name = _HEADERS[part]
    last = next(islice((value or b"" for key, value in reversed(record.headers) if key == name), 1), None)
    return b"" if last is None and named == "header" else last
