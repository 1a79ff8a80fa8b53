"""Named schemas: the columns that the writer schemas say which the first records of a stream name by their ids.

By them a table is made whose topics have no subject of their own, as those of Confluent's RecordNameStrategy and
TopicRecordNameStrategy: the records say themselves what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.formats.connect_json.inference import merged_columns
from jobs.formats.decoder import Format
from jobs.formats.problems import ValueProblem
from jobs.formats.record_columns import SchemaIdPlace
from jobs.formats.registry_wire import KEY_HEADER, USE_SCHEMA_ID, VALUE_HEADER, WrittenAs, group_by_schema
from jobs.formats.writer_schema import BadWriterSchema, RegistrySchema, SchemaId, WriterSchema
from jobs.kafka.topic_sample import SampleRecord
from jobs.schema.iceberg_schema import fresh_schema
from jobs.schema.parser import KAFKA_COLUMN_PREFIX

MOST_SCHEMAS = 100
"""Different ones that are looked at, those of most records first."""

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
    """The columns that hold the records of all writer schemas that a sample names; None where it names none.

    The columns are those of `merged_columns`, the schema of most records first. Ids that the registry does not know,
    and schemas that are none of the format, are left out: their records fail one by one.

    Args:
        sample: The records.
        format_: Of the part.
        options: Of the format.
        find: Gives the schema of an id; raises ValueProblem for one that is unknown.
        part: Of the records, whose schemas are meant.
        named: Where they name them.

    Raises:
        OSError: The registry cannot be asked.
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
        # Names that only columns of frazil's own may have.
        columns = [each for each in columns if not each.name.casefold().startswith(KAFKA_COLUMN_PREFIX)]
    return fresh_schema(columns) if columns else None


def _counted(
    sample: Iterable[Sequence[SampleRecord]],
    format_: Format,
    part: Part,
    named: SchemaIdPlace,
    use_schema_id: int | None,
) -> Counter[WrittenAs]:
    """How many records name each writer schema, in the order in which they were met."""
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
    """What the header says; as the decoders have it, one without a value says nothing, and the last one counts."""
    name = _HEADERS[part]
    last = next(islice((value or b"" for key, value in reversed(record.headers) if key == name), 1), None)
    return b"" if last is None and named == "header" else last
