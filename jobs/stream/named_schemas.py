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
from pyiceberg.types import NestedField

from jobs.formats.connect_json.inference import merged_type
from jobs.formats.decoder import Format
from jobs.formats.problems import ValueProblem
from jobs.formats.record_columns import SchemaIdPlace
from jobs.formats.registry_wire import KEY_HEADER, VALUE_HEADER, WrittenAs, group_by_schema
from jobs.formats.writer_schema import BadWriterSchema, RegistrySchema, SchemaId, WriterSchema
from jobs.kafka.topic_sample import SampleRecord
from jobs.schema.field_ids import fresh_schema
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

    A field is a column of the widest type that its schemas give it, and required if each has and requires it. Of types
    that no type holds together that of the schema with most records counts. Ids that the registry does not know, and
    schemas that are none of the format, are left out: their records fail one by one.

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
    for written, _ in _counted(sample, format_, part, named).most_common(MOST_SCHEMAS):
        try:
            schema = find(written.schema)
        except ValueProblem:
            continue
        if schema.kind != format_.registry_kind or format_.writer_rows is None:
            continue
        try:
            writer = WriterSchema(schema.schema.text, schema.schema.references, written.message)
            found.append(format_.writer_rows(writer, options))
        except BadWriterSchema:
            continue
    return merged_rows(found, own_names=part == "key")


def merged_rows(schemas: Sequence[Schema], *, own_names: bool = False) -> Schema | None:
    """Columns that take what schemas say of each field, the first schema's first; None where none is left.

    Args:
        schemas: Of records, those that count most first.
        own_names: Whether fields stay whose names only columns of frazil's own may have.
    """
    columns: dict[str, NestedField] = {}
    seen: Counter[str] = Counter()
    for schema in schemas:
        for each in schema.fields:
            name = each.name.casefold()
            if not own_names and name.startswith(KAFKA_COLUMN_PREFIX):
                continue
            known = columns.setdefault(name, each)
            # Of names that differ by case only a table has one.
            if known.name == each.name:
                seen[name] += 1
                kind = merged_type(known.field_type, each.field_type) or known.field_type
                required = known.required and each.required
                columns[name] = known.model_copy(update={"field_type": kind, "required": required})
    everywhere = (
        each.model_copy(update={"required": each.required and seen[name] == len(schemas)})
        for name, each in columns.items()
    )
    return fresh_schema(everywhere) if columns else None


def _counted(
    sample: Iterable[Sequence[SampleRecord]], format_: Format, part: Part, named: SchemaIdPlace
) -> Counter[WrittenAs]:
    """How many records name each writer schema, in the order in which they were met."""
    counts: Counter[WrittenAs] = Counter()
    for records in sample:
        there = [each for each in records if (each.value if part == "value" else each.key) is not None]
        values = pa.array([each.value if part == "value" else each.key for each in there], pa.binary())
        ids = None if named == "prefix" else pa.array([_header(each, part, named) for each in there], pa.binary())
        grouped = group_by_schema(values, ids, messages=format_.registry_kind == "PROTOBUF")
        for group in grouped.groups:
            counts[group.written] += len(group.rows)
    return counts


def _header(record: SampleRecord, part: Part, named: SchemaIdPlace) -> bytes | None:
    """What the header says; as the decoders have it, one without a value says nothing, and the last one counts."""
    name = _HEADERS[part]
    last = next(islice((value or b"" for key, value in reversed(record.headers) if key == name), 1), None)
    return b"" if last is None and named == "header" else last
