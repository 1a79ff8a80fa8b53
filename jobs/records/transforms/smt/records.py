"""Transforms of Kafka Connect that change fields, or a record's topic, key or headers, or drop the record."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.value_texts import texts
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.cast import cast_problem
from jobs.records.transforms.columns import Columns, TransformProblem, no_column
from jobs.records.transforms.conditional import Filter
from jobs.records.transforms.mask import Mask
from jobs.records.transforms.record_parts import (
    DropHeaders,
    ToHeaders,
    ToKey,
    with_headers,
)
from jobs.records.transforms.select import (
    Drop,
    Extract,
    Flatten,
    Hoist,
    Keep,
    Rename,
)
from jobs.records.transforms.set_columns import Set, SetColumn
from jobs.records.transforms.smt.java import Replacement, java_pattern
from jobs.records.transforms.smt.known import Known, Properties, quoted
from jobs.records.transforms.smt.simple_date_format import SimpleDateFormat, simple_date_format
from jobs.records.transforms.transform import (
    Applied,
    PassingStep,
    Rows,
    Transform,
)

_KAFKA = "org.apache.kafka.connect.transforms."
_DEFAULTS = "replace.null.with.default"
_PASSES = "; lenient: true passes over it, as Kafka Connect does"
_V2 = re.compile(r"`((?:[^`\\]|\\.|`(?!\.|$))*)`(?=\.|$)|([^.`][^.]*)")


def _flatten(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [Flatten(properties.text("delimiter", "."))]


def _extract(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    parts, text = path_of_field(properties), properties.text("field")
    if parts[0] not in columns.names:
        raise TransformProblem(no_column(parts[0], columns.names), ("field",))
    if len(parts) == 1 and not isinstance(kind := columns.field(parts[0]).field_type, ice.StructType):
        raise TransformProblem(
            f"the column '{text}' is {schema_text(kind)}: a row is not made of a single value; keep: [{text}] leaves "
            "this column alone",
            ("field",),
        )
    step = Extract(".".join(map(quoted, parts)))
    try:
        step.output(columns)
    except TransformProblem as problem:
        raise TransformProblem(problem.message, ("field",)) from None
    return [step]


def path_of_field(properties: Properties) -> tuple[str, ...]:
    """Return the names of the path for ExtractField, in the configured syntax.

    Raises:
        TransformProblem: The path is missing or invalid.
    """
    text = properties.needed("field")
    version = properties.choice("field.syntax.version", ("V1", "V2"), "V1", ignore_case=True)
    return (text,) if version == "V1" else _nested(text)


def _nested(text: str) -> tuple[str, ...]:
    """Return the names of a path in Connect's second syntax: dots between them, backticks around a name with dots."""
    parts: list[str] = []
    at = 0
    while at <= len(text):
        match = _V2.match(text, at)
        if match is None:
            said = f"the path '{text}' has an unbalanced backtick, or no name, at position {at}"
            raise TransformProblem(said, ("field",))
        within = match.group(1)
        parts.append(match.group(2) if within is None else within.replace("\\`", "`"))
        at = match.end() + 1
    return tuple(parts)


def _hoist(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [Hoist(properties.needed("field"))]


def _replace(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    exclude, include = properties.names("exclude"), properties.names("include")
    renames = properties.pairs("renames")
    for key, names in (("exclude", exclude), ("include", include), ("renames", [old for old, _ in renames])):
        for name in names:
            if name not in columns.names and not lenient:
                raise TransformProblem(no_column(name, columns.names) + _PASSES, (key,))
    left = [name for name in columns.names if name not in exclude and (not include or name in include)]
    if not left:
        raise TransformProblem("ReplaceField would leave no column", ())
    new = {old: name for old, name in renames if old in left}
    taken = [new.get(name, name) for name in left]
    if doubled := next((name for name in taken if taken.count(name) > 1), None):
        raise TransformProblem(f"there would be two columns '{doubled}'", ("renames",))
    steps: list[Transform] = []
    if len(left) < len(columns.names):
        steps.append(Keep(tuple(map(quoted, left))))
    if new:
        steps.append(Rename(tuple((quoted(old), name) for old, name in new.items())))
    return steps


def _insert(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    values = [
        (key, SetColumn(_name(properties, key), source=key.removesuffix(".field"), replace=lenient))
        for key in _INSERTED[:4]
        if key in properties
    ]
    if "static.field" in properties:
        if "static.value" not in properties:
            raise TransformProblem("InsertField needs 'static.value' for the static field", ("static.field",))
        name, value = _name(properties, "static.field"), properties.text("static.value")
        values.append(("static.field", SetColumn(name, literal=value, type="string", replace=lenient)))
    if not values:
        raise TransformProblem("InsertField needs a field to insert, such as topic.field", ())
    for key, each in values:
        if each.name in columns.names and not lenient:
            hint = "lenient: true puts the inserted one in its place"
            raise TransformProblem(f"there is a column '{each.name}' already; {hint}", (key,))
    return [Set(tuple(each for _, each in values))]


def _name(properties: Properties, key: str) -> str:
    """Return a name without the mark for required or optional."""
    text = properties.needed(key)
    return text[:-1] if text[-1] in "!?" and len(text) > 1 else text


def _mask(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    fields = properties.needed_names("fields")
    if "replacement" in properties:
        properties.needed("replacement")
    step = Mask(tuple(map(quoted, fields)), properties.text("replacement") or None)
    if not columns.names:
        # The caller asks only for added columns, with unknown ones before.
        return [step]
    for name in fields:
        if name not in columns.names:
            raise TransformProblem(no_column(name, columns.names), ("fields",))
    try:
        step.output(columns)
    except TransformProblem as problem:
        place = ("replacement" if "replacement" in properties else "fields",)
        raise TransformProblem(problem.message, place) from None
    return [step]


def _metadata(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    """Return no steps: no row has the name or version of Connect's schema."""
    if "schema.name" not in properties and "schema.version" not in properties:
        raise TransformProblem("SetSchemaMetadata needs 'schema.name' or 'schema.version'", ())
    return []


_INSERTED = ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field", "static.value")
FIELDS = (
    Known(f"{_KAFKA}Flatten$Value", ("delimiter",), _flatten),
    Known(f"{_KAFKA}ExtractField$Value", ("field", "field.syntax.version", _DEFAULTS), _extract),
    Known(f"{_KAFKA}HoistField$Value", ("field",), _hoist),
    Known(f"{_KAFKA}ReplaceField$Value", ("exclude", "include", "renames", _DEFAULTS), _replace),
    Known(f"{_KAFKA}InsertField$Value", (*_INSERTED, _DEFAULTS), _insert, leaves=True),
    Known(f"{_KAFKA}MaskField$Value", ("fields", "replacement", _DEFAULTS), _mask, leaves=True),
    Known(f"{_KAFKA}SetSchemaMetadata$Value", ("schema.name", "schema.version", _DEFAULTS), _metadata, leaves=True),
)


_PLAIN = (ice.IntegerType, ice.LongType, ice.FloatType, ice.DoubleType, ice.DecimalType, ice.BooleanType)


@dataclass(frozen=True, slots=True)
class ToJsonKey(PassingStep):
    """Set the record's key from columns, in their order: `{"id":1,"name":"a"}`. Columns stay.

    Attributes:
        columns: Names of columns at the top.
    """

    name: ClassVar[str] = "to_json_key"
    columns: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        for name in self.columns:
            kind = columns.field(name, ("fields",)).field_type
            if not isinstance(kind, ice.BinaryType) and cast_problem(kind, ice.StringType()):
                raise TransformProblem(
                    f"the column '{name}' is {schema_text(kind)}, and no text can be made of it", ("fields",)
                )
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Set a key for each row; null where a step removed the row's value."""
        parts: list[pa.Array | pa.Scalar] = []
        for number, name in enumerate(self.columns):
            parts.append(pa.scalar(("," if number else "{") + json.dumps(name, ensure_ascii=False) + ":"))
            at = rows.columns.index(name)
            parts.append(_json_values(rows.batch.column(at), rows.columns.fields[at].field_type))
        keys = pc.binary_join_element_wise(*parts, pa.scalar("}"), "").cast(pa.binary())
        if rows.tombstones is not None:
            keys = pc.if_else(rows.tombstones, pa.scalar(None, pa.binary()), keys)
        return Applied(Rows(rows.columns, rows.batch, rows.frame.with_part("key", keys), rows.tombstones))


def _json_values(array: pa.Array, kind: ice.IcebergType) -> pa.Array:
    """Return each value as JSON; values that are no finite number or boolean are texts."""
    if isinstance(kind, ice.BinaryType):
        found: Sequence[str | None] = [
            None if each is None else base64.b64encode(each).decode() for each in array.to_pylist()
        ]
        return _quoted(found)
    said = texts(array, kind)
    if not isinstance(kind, _PLAIN):
        return _quoted(said.to_pylist())
    if isinstance(kind, (ice.FloatType, ice.DoubleType)):
        finite = [each is None or math.isfinite(each) for each in array.to_pylist()]
        if not all(finite):
            said = pc.if_else(pa.array(finite), said, _quoted(said.to_pylist()))
    return pc.fill_null(said, "null")


def _quoted(values: Sequence[str | None]) -> pa.Array:
    known: dict[str | None, str] = {each: json.dumps(each, ensure_ascii=False) for each in dict.fromkeys(values)}
    return pa.array([known[each] for each in values], pa.string())


_HEADERS = frozenset({"headers"})
_PLACEHOLDER = re.compile(r"(\$\{topic\}|\$\{timestamp\})")


@dataclass(frozen=True)
class RouteByPattern(PassingStep):
    """Replace the topic's name if a pattern matches the whole of it.

    Attributes:
        pattern: Pattern of the topic's whole name.
        replacement: The new name.
    """

    name: ClassVar[str] = "route_by_pattern"
    pattern: re.Pattern[str]
    replacement: Replacement

    def apply(self, rows: Rows) -> Applied:
        encoded = pc.dictionary_encode(rows.frame.part("topic"))
        names = [self._routed(each) for each in encoded.dictionary.to_pylist()]
        return Applied(with_topic(rows, pa.array(names, pa.string()).take(encoded.indices)))

    def _routed(self, topic: str) -> str:
        match = self.pattern.fullmatch(topic)
        return topic if match is None else self.replacement.of(match)


@dataclass(frozen=True)
class RouteByTime(PassingStep):
    """Replace the topic's name by one from the name and the record's time.

    Attributes:
        parts: Texts, with `${topic}` and `${timestamp}` among them.
        format: Format of the time, in UTC.
    """

    name: ClassVar[str] = "route_by_time"
    parts: tuple[str, ...]
    format: SimpleDateFormat

    def apply(self, rows: Rows) -> Applied:
        topics = rows.frame.part("topic")
        ms = rows.frame.part("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        values = {"${topic}": topics, "${timestamp}": self.format.written(ms)}
        texts = [values.get(part, pa.repeat(pa.scalar(part, pa.string()), rows.count)) for part in self.parts]
        return Applied(with_topic(rows, pc.binary_join_element_wise(*texts, "")))


def with_topic(rows: Rows, topics: pa.Array) -> Rows:
    """Return the rows with other names of their topics."""
    return replace(rows, frame=rows.frame.with_part("topic", topics))


@dataclass(frozen=True, slots=True)
class AddHeader(PassingStep):
    """Add a header behind those of a record, the same for all.

    Attributes:
        header: Name of the header.
        value: Text of the header.
    """

    name: ClassVar[str] = "add_header"
    header: str
    value: str

    @property
    def asks(self) -> frozenset[str]:
        return _HEADERS

    def apply(self, rows: Rows) -> Applied:
        """Append the header, whether or not one of the name exists."""
        values = pa.repeat(pa.scalar(self.value.encode(), pa.binary()), rows.count)
        headers = with_headers(rows.frame.part("headers"), [(self.header, values)])
        return Applied(replace(rows, frame=rows.frame.with_part("headers", headers)))


def _regex_router(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    pattern = java_pattern(properties.needed("regex"), "regex")
    if "replacement" not in properties:
        raise TransformProblem("RegexRouter needs 'replacement'", ())
    return [RouteByPattern(pattern, Replacement(properties.text("replacement"), pattern, "replacement"))]


def _logical_router(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    """Return the steps of its routing; its change of the key is in no row."""
    pattern = java_pattern(properties.needed("topic.regex"), "topic.regex")
    replacement = Replacement(properties.needed("topic.replacement"), pattern, "topic.replacement")
    return [RouteByPattern(pattern, replacement)]


def _timestamp_router(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    parts = _PLACEHOLDER.split(properties.text("topic.format", "${topic}-${timestamp}"))
    format_ = simple_date_format(properties.text("timestamp.format", "yyyyMMdd"), "timestamp.format")
    return [RouteByTime(tuple(part for part in parts if part), format_)]


def _drop_headers(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [DropHeaders(properties.needed_names("headers"))]


def _insert_header(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [AddHeader(properties.needed("header"), properties.needed("value.literal"))]


def _header_from(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    fields, headers = properties.needed_names("fields"), properties.needed_names("headers")
    move = properties.choice("operation", ("move", "copy")) == "move"
    if len(fields) != len(headers):
        raise TransformProblem(f"there are {len(fields)} fields and {len(headers)} headers", ("headers",))
    _there(fields, columns)
    paths = [quoted(name) for name in fields]
    steps: list[Transform] = [ToHeaders(tuple(zip(headers, paths, strict=True)))]
    return [*steps, Drop(tuple(dict.fromkeys(paths)))] if move else steps


def _value_to_key(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    fields = properties.needed_names("fields")
    _there(fields, columns)
    return [ToKey(quoted(fields[0])) if len(fields) == 1 else ToJsonKey(fields)]


def _there(fields: Sequence[str], columns: Columns) -> None:
    for name in fields:
        if name not in columns.names:
            raise TransformProblem(no_column(name, columns.names), ("fields",))


def _filter(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    return [Filter()]


_LOGICAL = (
    *("topic.regex", "topic.replacement", "key.enforce.uniqueness", "key.field.name", "key.field.regex"),
    *("key.field.replacement", "schema.name.adjustment.mode", "logical.table.cache.size"),
)
HEADER_FROM = Known(f"{_KAFKA}HeaderFrom$Value", ("fields", "headers", "operation", _DEFAULTS), _header_from, _HEADERS)
RECORDS = (
    Known(f"{_KAFKA}DropHeaders", ("headers",), _drop_headers, _HEADERS, leaves=True),
    Known(f"{_KAFKA}InsertHeader", ("header", "value.literal"), _insert_header, _HEADERS, leaves=True),
    HEADER_FROM,
    Known(f"{_KAFKA}RegexRouter", ("regex", "replacement"), _regex_router, leaves=True),
    Known(f"{_KAFKA}TimestampRouter", ("topic.format", "timestamp.format"), _timestamp_router, leaves=True),
    Known(f"{_KAFKA}ValueToKey", ("fields", _DEFAULTS), _value_to_key),
    Known(f"{_KAFKA}Filter", (), _filter),
    Known("io.debezium.transforms.ByLogicalTableRouter", _LOGICAL, _logical_router, leaves=True),
)
