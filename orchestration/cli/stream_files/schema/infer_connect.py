"""Inference of a stream from records with the schema envelope of Connect's JsonConverter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyiceberg import types as ice

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.records.formats.connect_json.inference import (
    MergedColumn,
    SeenColumn,
    SeenEnvelopes,
    SeenSchema,
)
from jobs.records.formats.json.inference import FEW
from jobs.records.schema.declared import quoted
from jobs.records.schema.iceberg_schema import schema_text
from orchestration.cli.stream_files.schema.stream_yaml import (
    ColumnLines,
    NewStream,
    SampleCounts,
    undeclarable,
)

_LONGEST_VALUE = 40
_SHOWN_SCHEMAS = 20
_MOST_DIGITS, _USUAL_DIGITS = 38, 18
_SAID = "Records beyond the sample may differ. `not null` behind a column refuses records without it."
_TIMES = (ice.TimestamptzType, ice.TimestampType, ice.DateType)


class LookedAtEnvelopes:
    """Summary of a sample of records with schema envelopes.

    Args:
        show_values: Whether comments show values.
    """

    def __init__(self, *, show_values: bool) -> None:
        self.seen: SeenEnvelopes = SeenEnvelopes(keep_examples=show_values)
        self._counts: SampleCounts = SampleCounts()

    def add(self, records: Iterable[SampleRecord]) -> None:
        """Add records to the summary."""
        self.seen.add(list(self._counts.values(records)))

    def stream(self, topic: str, end: str, stream: str, table: str) -> NewStream:
        """Build the topic's stream.

        Raises:
            FrazilError: No record carries a schema that can be read.
        """
        columns: list[ColumnLines] = []
        left_out: list[str] = []
        partition_by: str | None = None
        for each, others in self.seen.merged():
            otherwise = sum(schema.count for schema in others)
            mixed = otherwise > FEW * sum(schema.count for schema in self.seen.schemas.values())
            text = f"{quoted(each.field.name)} json" if mixed else _text(each.field)
            if problem := undeclarable(each.field.name, text):
                left_out.append(f"Left out: {quoted(each.field.name)}: {problem}.")
                continue
            columns.append(ColumnLines(text, (self._about(each, others, mixed=mixed),)))
            if (
                partition_by is None
                and not mixed
                and isinstance(each.field.field_type, _TIMES)
                and each.field.name.isidentifier()
            ):
                partition_by = each.field.name
        if not columns:
            raise FrazilError(
                f"topic {topic}: no record that was looked at is an envelope whose schema has columns.",
                fix=f"frazil schema infer {topic} --format json, or --oldest",
            )
        told = [*self._told(topic, end), *left_out, _SAID]
        return NewStream(stream, topic, "connect_json", columns, table, told, partition_by)

    def _told(self, topic: str, end: str) -> Iterator[str]:
        seen = self.seen
        yield self._counts.opening(topic, end, f"{seen.count:,} are envelopes of a schema and a payload")
        schemas = list(seen.schemas.values())
        yield f"Schemas: {len(schemas):,}."
        yield from (f"  {_schema(each)}" for each in schemas[:_SHOWN_SCHEMAS])
        if len(schemas) > _SHOWN_SCHEMAS:
            yield f"  and {len(schemas) - _SHOWN_SCHEMAS:,} more"
        if seen.more_schemas:
            yield f"Of still other schemas: {seen.more_schemas:,} records, which were not looked at."
        yield from self._counts.sentences()
        if seen.plain:
            yield f"Without a schema in the envelope: {seen.plain:,}; their payloads are read by the columns below."
        if seen.failures:
            among = ", ".join(f"{count:,} {kind}" for kind, count in sorted(seen.failures.items()))
            yield f"Would become dead letters: {among}; the first at {seen.first_failure}."

    def _about(self, merged: MergedColumn, others: Iterable[SeenSchema], *, mixed: bool) -> str:
        seen = self.seen.columns.get(merged.field.name, SeenColumn())
        parts = [_share(seen, self.seen.count), *_range(seen, merged.field.field_type)]
        total = sum(each.rows is not None for each in self.seen.schemas.values())
        if merged.schemas < total:
            parts.append(f"in {merged.schemas} of {total} schemas")
        elif merged.field.required:
            parts.append("required by the schema")
        outcome = "json takes both" if mixed else "those records become dead letters"
        parts += [f"of another type in {_called(each)}: {outcome}" for each in others]
        if seen.first is not None:
            parts.append(f"first at {seen.first}")
        if seen.examples:
            parts.append("such as " + ", ".join(_shown(each) for each in seen.examples))
        return "; ".join(parts)


def _schema(seen: SeenSchema) -> str:
    read = f", cannot be read: {seen.problem}" if seen.problem else ""
    return f"{seen.name or 'without a name'} in {seen.count:,} records, first at {seen.first}{read}"


def _called(seen: SeenSchema) -> str:
    return f"{seen.name or 'the schema'} (first at {seen.first})"


def _share(seen: SeenColumn, records: int) -> str:
    share = "in every record" if seen.there == records else f"in {seen.there:,} of {records:,} records"
    return f"{share}, null in {seen.nulls:,}" if seen.nulls else share


def _range(seen: SeenColumn, kind: ice.IcebergType) -> Iterator[str]:
    if seen.least is None:
        return
    if isinstance(kind, (ice.StringType, ice.BinaryType)):
        unit = "characters" if isinstance(kind, ice.StringType) else "bytes"
        yield f"{seen.least:,} {unit}" if seen.least == seen.most else f"{seen.least:,} to {seen.most:,} {unit}"
        return
    yield f"{_shown(seen.least)} to {_shown(seen.most)}"
    if isinstance(kind, ice.DecimalType) and isinstance(seen.most, Decimal):
        digits = max(_whole_digits(seen.least), _whole_digits(seen.most))
        if kind.precision == _MOST_DIGITS and digits + kind.scale <= _USUAL_DIGITS:
            yield f"the schema has no number of digits; decimal({_USUAL_DIGITS},{kind.scale}) would hold these"


def _whole_digits(value: Decimal) -> int:
    return max(0, value.adjusted() + 1)


def _shown(value: Any) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case int():
            text = f"{value:,}"
        case datetime():
            text = value.isoformat(sep=" ").replace("+00:00", "Z")
        case _:
            text = str(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _text(column: ice.NestedField) -> str:
    return f"{quoted(column.name)} {schema_text(_optional(column.field_type))}"


def _optional(kind: ice.IcebergType) -> ice.IcebergType:
    """Copy of a type in which nothing is required."""
    match kind:
        case ice.StructType(fields=fields):
            return ice.StructType(
                *(
                    ice.NestedField(each.field_id, each.name, _optional(each.field_type), required=False)
                    for each in fields
                )
            )
        case ice.ListType():
            return ice.ListType(kind.element_id, _optional(kind.element_type), element_required=False)
        case ice.MapType():
            value = _optional(kind.value_type)
            return ice.MapType(kind.key_id, kind.key_type, kind.value_id, value, value_required=False)
        case _:
            return kind
