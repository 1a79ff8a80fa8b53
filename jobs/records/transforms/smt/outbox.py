"""EventRouter of Debezium: a change of an outbox's row is replaced by the event that the row holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.value_texts import texts
from jobs.records.formats.interface.problems import NULL_IN_REQUIRED, WRONG_TYPE, shown
from jobs.records.transforms.cast import cast_problem
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    no_column,
    optional,
)
from jobs.records.transforms.masks import mask_of
from jobs.records.transforms.parse_json import ParseJson
from jobs.records.transforms.record_parts import with_headers
from jobs.records.transforms.smt.debezium_envelope import (
    kind_at,
    row_fields,
    struct_or_null,
    value_of,
)
from jobs.records.transforms.smt.java import BLANKS, Replacement, java_pattern
from jobs.records.transforms.smt.known import Known, Properties
from jobs.records.transforms.timestamps import instants_of
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)


@dataclass(frozen=True, slots=True)
class EmptyListsAsNull(Transform):
    """Replace empty lists of some optional columns by null, within structs and lists as well.

    Attributes:
        columns: Names of existing columns.
    """

    name: ClassVar[str] = "empty_lists_as_null"
    columns: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        return columns

    def apply(self, rows: Rows) -> Applied:
        arrays = [
            _without_empty(array, field) if field.name in self.columns else array
            for array, field in zip(rows.batch.columns, rows.columns.arrow, strict=True)
        ]
        return Applied(rows.with_batch(rows.columns, arrays))


def _without_empty(array: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_struct(kind):
        children = [_without_empty(pc.struct_field(array, [at]), each) for at, each in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if not pa.types.is_list(kind):
        return array
    mask = array.is_null()
    if field.nullable:
        mask = pc.or_(mask, pc.fill_null(pc.equal(pc.list_value_length(array), 0), True))
    # Null lists have no element left.
    offsets = pc.fill_null(pc.list_value_length(array), 0)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(offsets).cast(pa.int32())])
    values = _without_empty(array.flatten(), kind.value_field)
    return pa.ListArray.from_arrays(ends, values, type=kind, mask=mask)


_NAME = "EventRouter"
_PAYLOAD = "payload"
_INVALID = ("warn", "error", "fatal")
_NULLS = ("ignore", "optional_bytes")
_EMPTY = ("optional_string", "ignore")
_PLACES = ("header", "envelope", "partition")


class Placed(NamedTuple):
    """A field of the outbox's row with its name in the event."""

    name: str
    field: str


@dataclass(frozen=True)
class OutboxEvent(Transform):
    """Replace a row of an outbox by its event: the payload and its other fields. Updates and deletions are dropped.

    Attributes:
        payload: The field with the payload.
        envelope: Columns beside the payload.
        headers: Headers to add, with the event's id.
        key: The field that becomes the record's key.
        topic: The field by which the record is routed.
        pattern: Pattern of its whole text.
        replacement: The new name of the topic.
        time: The field with the record's time, in ms if it is a number; None for the time of the change.
        fatal: Whether an update fails instead of being dropped.
        tombstones: Whether an event with an empty payload has no value.
    """

    name: ClassVar[str] = "outbox"
    payload: str
    envelope: tuple[Placed, ...]
    headers: tuple[Placed, ...]
    key: str
    topic: str
    pattern: re.Pattern[str]
    replacement: Replacement
    time: str | None
    fatal: bool
    tombstones: bool

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"})

    def output(self, columns: Columns) -> Columns:
        fields = {each.name: each for each in row_fields(columns, _NAME)}
        made = [optional(column(_PAYLOAD, fields[self.payload].field_type))]
        return Columns.of([*made, *(column(each.name, fields[each.field].field_type) for each in self.envelope)])

    def apply(self, rows: Rows) -> Applied:
        """Convert all rows together; each distinct topic is matched once."""
        into = rows.columns.behind(self)
        after, ops = struct_or_null(rows, "after"), value_of(rows, ("op",))
        skipped = mask_of(pc.is_in(ops, value_set=pa.array(["d"] if self.fatal else ["d", "u"])))

        def of(name: str) -> pa.Array:
            return pc.struct_field(after, [name])

        failures = [] if not self.fatal else self._updates(ops)
        failures += [
            RowFailure(int(row), NULL_IN_REQUIRED, "needs a value, found null", path)
            for values, path in ((after, "$.after"), (of(self.topic), f"$.after.{self.topic}"))
            for row in np.flatnonzero(mask_of(values.is_null()) & ~skipped)
        ]
        arrays = [of(self.payload), *(of(each.field) for each in self.envelope)]
        made = rows.with_batch(into, [a.cast(f.type) for a, f in zip(arrays, into.arrow, strict=True)])
        frame = rows.frame
        added = [(each.name, _bytes(rows, each.field)) for each in self.headers]
        frame = frame.with_part("headers", with_headers(frame.part("headers"), added))
        frame = frame.with_part("topic", self._topics(of(self.topic), frame.part("topic")))
        frame = frame.with_part("key", _bytes(rows, self.key))
        times, odd = self._times(rows, frame.part("timestamp"))
        failures += odd
        frame = frame.with_part("timestamp", times)
        gone = self._gone(rows, arrays[0])
        if gone is not None:
            # A removed text is not read as JSON, either.
            payload = pc.if_else(gone, pa.scalar(None, arrays[0].type), arrays[0])
            made = made.with_batch(into, [payload.cast(into.arrow.field(0).type), *made.batch.columns[1:]])
        made = replace(made, frame=frame, tombstones=gone)
        return settled(made, failures, np.flatnonzero(skipped))

    def _gone(self, rows: Rows, payload: pa.Array) -> pa.Array | None:
        """Return a mask of the rows without a value: their only column is a null payload; or an empty one, if asked."""
        gone = payload.is_null()
        if self.tombstones and pa.types.is_string(payload.type):
            gone = pc.or_(gone, pc.fill_null(pc.equal(pc.utf8_trim(payload, characters=BLANKS), ""), True))
        elif not self.tombstones and self.envelope:
            return rows.tombstones
        return gone if rows.tombstones is None else pc.or_(gone, rows.tombstones)

    def _topics(self, values: pa.Array, before: pa.Array) -> pa.Array:
        encoded = pc.dictionary_encode(values)
        names = [
            each if (match := self.pattern.fullmatch(each)) is None else self.replacement.of(match)
            for each in encoded.dictionary.to_pylist()
        ]
        return pc.coalesce(pa.array(names, pa.string()).take(encoded.indices), before)

    def _times(self, rows: Rows, before: pa.Array) -> tuple[pa.Array, list[RowFailure]]:
        """Return times in UTC: those of the event, else of the change, else of the record."""
        found = pa.nulls(rows.count, pa.timestamp("us", tz="UTC"))
        failures: list[RowFailure] = []
        for path in ((("after", self.time),) if self.time is not None else ()) + (("ts_ms",),):
            if kind_at(rows.columns, path) is not None:
                times, odd = instants_of(value_of(rows, path), f"$.{'.'.join(path)}")
                # A record's own first time counts.
                lacking = mask_of(found.is_null())
                failures += [each for each in odd if lacking[each.row]]
                found = pc.coalesce(found, times)
        return pc.coalesce(found, before), failures

    def _updates(self, ops: pa.Array) -> list[RowFailure]:
        found = np.flatnonzero(mask_of(pc.equal(ops, "u")))
        said = f"needs an insertion into the outbox, found op {shown('u')}"
        return [RowFailure(int(row), WRONG_TYPE, said, "$.op") for row in found]


def _bytes(rows: Rows, field: str) -> pa.Array:
    values, kind = value_of(rows, ("after", field)), kind_at(rows.columns, ("after", field))
    assert kind is not None
    return values if isinstance(kind, ice.BinaryType) else texts(values, kind).cast(pa.binary())


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    fields = {each.name: each.field_type for each in row_fields(columns, _NAME)}

    def field(key: str, default: str = "") -> str:
        name = properties.text(key) or default
        if name and name not in fields:
            raise TransformProblem(no_column(name, fields, "after"), (key,) if key in properties else ())
        return name

    expand = properties.choice("table.expand.json.payload", ("true", "false"), "false") == "true"
    if expand and "schema" not in properties:
        raise TransformProblem(
            f"{_NAME} guesses the payload's columns from every record; declare them beside its properties, such as "
            "schema: 'id long, tags map<string, string>'",
            ("table.expand.json.payload",),
        )
    properties.choice("table.json.payload.null.behavior", _NULLS, "ignore", ignore_case=True)
    empty = properties.choice("table.json.payload.empty.array.behavior", _EMPTY, "ignore", ignore_case=True)
    payload, topic = field("table.field.event.payload", _PAYLOAD), field("route.by.field", "aggregatetype")
    field("table.field.event.schema.version")
    if not isinstance(fields[topic], ice.StringType):
        raise TransformProblem(f"the topic is made of text, and '{topic}' is {fields[topic]}", ("route.by.field",))
    pattern = java_pattern(properties.text("route.topic.regex", "(?<routedByValue>.*)"), "route.topic.regex")
    replacement = properties.text("route.topic.replacement", "outbox.event.${routedByValue}")
    time = field("table.field.event.timestamp") or None
    if time is not None and not isinstance(fields[time], ice.LongType | ice.TimestampType | ice.TimestamptzType):
        raise TransformProblem(
            f"'{time}' is {fields[time]}, and no time in milliseconds", ("table.field.event.timestamp",)
        )
    headers, envelope = _placed(properties, tuple(fields), lenient=lenient)
    headers = (Placed("id", field("table.field.event.id", "id")), *headers)
    key = field("table.field.event.key", "aggregateid")
    for name in (key, *(each.field for each in headers)):
        if not isinstance(fields[name], ice.BinaryType) and cast_problem(fields[name], ice.StringType()):
            raise TransformProblem(f"no text can be made of '{name}', which is {fields[name]}", ())
    expanded: list[Transform] = []
    if expand:
        parse = ParseJson(_PAYLOAD, properties.needed("schema"), into=_PAYLOAD if envelope else None)
        made = (_PAYLOAD,) if envelope else tuple(each.name for each in parse.fields)
        expanded = [parse, EmptyListsAsNull(made)] if empty == "ignore" else [parse]
    return [
        OutboxEvent(
            payload=payload,
            envelope=envelope,
            headers=headers,
            key=key,
            topic=topic,
            pattern=pattern,
            replacement=Replacement(replacement, pattern, "route.topic.replacement"),
            time=time,
            fatal=properties.choice("table.op.invalid.behavior", _INVALID, "warn", ignore_case=True) == "fatal",
            tombstones=properties.choice("route.tombstone.on.empty.payload", ("true", "false"), "false") == "true",
        ),
        *expanded,
    ]


def _placed(
    properties: Properties, fields: Sequence[str], *, lenient: bool
) -> tuple[tuple[Placed, ...], tuple[Placed, ...]]:
    """Return the fields that become headers, and those that become columns; partitions stay the records' own."""
    key = "table.fields.additional.placement"
    ignored = properties.choice("table.field.additional.missing", ("error", "ignore"), "error") == "ignore"
    found: dict[str, list[Placed]] = {place: [] for place in _PLACES}
    for entry in properties.names(key):
        name, _, rest = (part.strip() for part in entry.partition(":"))
        place, _, alias = (part.strip() for part in rest.partition(":"))
        if place.lower() not in found:
            raise TransformProblem(
                f"'{entry}' is no field with a place, such as type:header or type:envelope:kind", (key,)
            )
        if name not in fields:
            if ignored or lenient:
                continue
            raise TransformProblem(no_column(name, fields, "after"), (key,))
        found[place.lower()].append(Placed(alias or name, name))
    return tuple(found["header"]), tuple(found["envelope"])


_TRACING = ("tracing.span.context.field", "tracing.operation.name", "tracing.with.context.field.only")
OUTBOX = Known(
    "io.debezium.transforms.outbox.EventRouter",
    (
        *("table.op.invalid.behavior", "table.field.event.id", "table.field.event.key", "table.field.event.type"),
        *("table.field.event.timestamp", "table.field.event.payload", "table.field.event.schema.version"),
        *("table.fields.additional.placement", "table.field.additional.missing", "table.expand.json.payload"),
        *("table.json.payload.null.behavior", "table.json.payload.empty.array.behavior", "route.by.field"),
        *("route.topic.regex", "route.topic.replacement", "route.tombstone.on.empty.payload", *_TRACING, "schema"),
    ),
    _steps,
    frozenset({"headers"}),
)
