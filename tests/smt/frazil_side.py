"""Frazil's side of the tables: a case's records through frazil's stages, and Connect's results as rows of frazil's."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, TableSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.iceberg_schema import fresh_schema, iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.frame import HEADERS
from jobs.records.transforms.smt.keys import KEY_COLUMN, of_key
from jobs.records.transforms.smt.smt import Smt, smt_step
from jobs.records.transforms.transform import Chain, Transform
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import Pipeline
from jobs.streaming.pipeline.row_steps import RowSteps
from jobs.streaming.pipeline.stages import DecodeValue
from tests.smt.case import Case
from tests.smt.connect_schema import connect_schema

_LOGICAL: Mapping[str, ice.IcebergType] = {
    "org.apache.kafka.connect.data.Timestamp": ice.TimestamptzType(),
    "org.apache.kafka.connect.data.Date": ice.DateType(),
    "org.apache.kafka.connect.data.Time": ice.TimeType(),
    "io.debezium.time.Timestamp": ice.TimestampType(),
}
_TYPES: Mapping[str, ice.IcebergType] = {
    **dict.fromkeys(("int8", "int16", "int32"), ice.IntegerType()),
    "int64": ice.LongType(),
    **dict.fromkeys(("float", "float32"), ice.FloatType()),
    **dict.fromkeys(("double", "float64"), ice.DoubleType()),
    "boolean": ice.BooleanType(),
    "string": ice.StringType(),
    "bytes": ice.BinaryType(),
}
KEY = "key"
"""The column that keys are decoded into."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Landed:
    """What frazil made of a case.

    Attributes:
        columns: Behind the last step.
        rows: By the index of their record.
        topics: Likewise: the name that steps left.
        headers: Likewise.
        keys: Likewise, of those whose key a step has made.
        failures: Classes, by the index of the record.
        filtered: Records that a filter dropped.
        tombstones: Records without a value.
    """

    columns: Columns
    rows: dict[int, dict[str, Any]]
    topics: dict[int, str]
    headers: dict[int, list[tuple[str, str | None]]]
    keys: dict[int, str | None] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    filtered: frozenset[int] = frozenset()
    tombstones: frozenset[int] = frozenset()


def steps_of(case: Case, *, lenient: bool) -> list[Transform]:
    """The steps of a case; TransformProblem where frazil refuses one."""
    more = case.raw.get("more", {})
    return [
        _step({**each, **({KEY_COLUMN: KEY} if of_key(each["type"]) else more)}, case.predicates, lenient=lenient)
        for each in case.transforms
    ]


def _step(block: Mapping[str, Any], predicates: Mapping[str, Any], *, lenient: bool) -> Transform:
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in block.items()}
    alias, negate = texts.pop("predicate", None), texts.pop("negate", "false") == "true"
    smt = Smt(texts.pop("type"), tuple(texts.items()), lenient)
    return smt_step(smt, None if alias is None else predicates.get(alias, {"type": alias}), negate=negate)


def landed(case: Case, *, lenient: bool) -> Landed:
    """A case's records through decoding and the steps.

    Raises:
        TransformProblem, StepProblem: Frazil refuses a step.
    """
    chain = Chain(tuple(steps_of(case, lenient=lenient)))
    schema = decoded_schema(case)
    if "columns" in case.raw:
        decoder = DecoderSpec("json", DeclaredSchema(case.raw["columns"]))
        values = [None if each.value is None else _payload(each.value) for each in case.records]
    else:
        decoder = DecoderSpec("connect_json", TableSchema(schema.model_dump_json()))
        values = [each.value for each in case.records]
    key = key_column(case)
    steps = RowSteps(Columns.of((*schema.fields, *([key] if key else []))), chain)
    columns = steps.columns
    format_ = FORMATS[decoder.kind]
    decode = DecodeValue(format_.reference(decoder), format_.probe)
    stages = [decode, *([WithKeys(case, key)] if key else [])]
    block = Pipeline([*stages, *steps.stages()], "table").run(_records(case, values))
    decoded = Block.of(_records(case, values), "table")
    for stage in stages:
        decoded = stage.apply(decoded)
    _without_rows(decoded.part(0, 0), steps)
    topics = block.frame.part("topic").to_pylist()
    asked = "headers" in chain.asks
    headers = block.frame.part("headers").to_pylist() if asked else [[] for _ in topics]
    at = block.positions.tolist()
    return Landed(
        columns,
        dict(zip(at, block.rows.to_pylist(), strict=True)),
        dict(zip(at, topics, strict=True)),
        {row: [(one["key"], _text(one["value"])) for one in of or []] for row, of in zip(at, headers, strict=True)},
        dict(zip(at, map(_text, block.changed["key"].to_pylist()), strict=True)) if "key" in block.changed else {},
        {each.row: each.error_class for each in block.failures},
        frozenset(block.filtered.tolist()),
        frozenset(block.dropped.tolist()),
    )


class WithKeys:
    """A stage that puts the keys of a case's records into a column, as `decode.key` does.

    Args:
        case: The case.
        column: Its name and type.
    """

    name: str = "decode_key"

    def __init__(self, case: Case, column: ice.NestedField) -> None:
        self._keys: list[Any] = [None if each.key is None else json.loads(each.key)["payload"] for each in case.records]
        self._field: pa.Field = pa.field(column.name, rows_arrow_type(column.field_type))

    def apply(self, block: Block) -> Block:
        """The block with the column."""
        found = pa.array([self._keys[at] for at in block.positions.tolist()], self._field.type)
        rows = pa.RecordBatch.from_arrays([*block.rows.columns, found], schema=block.rows.schema.append(self._field))
        return block.with_rows(rows)

    def probe(self, block: Block) -> Block:
        """No records."""
        return block.part(0, 0)


def key_column(case: Case) -> ice.NestedField | None:
    """The column that a case's keys are decoded into; None where no step of it asks for one."""
    asked = [each for each in case.transforms if of_key(each["type"])] or "key_column" in case.raw.get("more", {})
    if not asked or "key_schema" not in case.raw:
        return None
    return ice.NestedField(1, KEY, _ice(connect_schema(case.raw["key_schema"])), required=False)


def _without_rows(block: Block, steps: RowSteps) -> None:
    """A block that no record is left of passes all steps, and has their columns."""
    for stage in steps.stages():
        block = stage.apply(block)
    assert block.rows.num_rows == 0
    assert block.rows.schema.equals(steps.columns.arrow)


def decoded_schema(case: Case) -> Schema:
    """The columns of a case's records as frazil decodes them."""
    if "columns" in case.raw:
        return iceberg_schema(parse_schema(case.raw["columns"]))
    found = _ice(connect_schema(case.raw["schema"]))
    if isinstance(found, ice.StructType):
        return fresh_schema(found.fields)
    return Schema(ice.NestedField(1, "value", found, required=False))


def _ice(schema: Mapping[str, Any]) -> ice.IcebergType:
    """The type of a column for a schema of Connect, from an envelope or a table."""
    match schema["type"]:
        case "struct":
            named = schema["fields"]
            pairs = [(e["field"], e) for e in named] if isinstance(named, list) else list(named.items())
            fields = [
                ice.NestedField(at, name, _ice(each), required=not each.get("optional", False))
                for at, (name, each) in enumerate(pairs, 1)
            ]
            return ice.StructType(*fields)
        case "array":
            return ice.ListType(1, _ice(schema["items"]), element_required=False)
        case "map":
            return ice.MapType(1, _ice(schema["keys"]), 2, _ice(schema["values"]), value_required=False)
        case kind:
            name = schema.get("name", "")
            if name.endswith(".Decimal"):
                return ice.DecimalType(38, int(schema["parameters"]["scale"]))
            return _LOGICAL.get(name) or _TYPES[kind]


def column_kinds(schema: Mapping[str, Any]) -> dict[str, ice.IcebergType]:
    """The columns that a schema of a result stands for, by name."""
    kind = _ice(schema)
    return {each.name: each.field_type for each in kind.fields} if isinstance(kind, ice.StructType) else {}


def expected_value(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """A value of a table as Python has frazil's."""
    name = (schema or {}).get("name", "")
    match value:
        case {"$date_ms": int(ms)}:
            instant = _EPOCH + timedelta(milliseconds=ms)
            if name.endswith(".Date"):
                return instant.date()
            return instant.time() if name.endswith(".Time") else instant
        case {"$decimal": str(text)}:
            return Decimal(text)
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$double": str(text)}:
            return float(text.replace("Infinity", "inf"))
        case {}:
            fields = (schema or {}).get("fields") or {}
            return {key: expected_value(each, fields.get(key)) for key, each in value.items()}
        case list():
            return [expected_value(each, (schema or {}).get("items")) for each in value]
        case float() | int() if (schema or {}).get("type") == "float32":
            return float(np.float32(value))
        case _:
            return value


def same(expected: Any, found: Any) -> bool:
    """Whether two values are one; a field that one of two structs lacks is null in it."""
    if isinstance(found, list) and isinstance(expected, dict) and all(isinstance(each, tuple) for each in found):
        found = dict(found)
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(same(expected.get(key), found.get(key)) for key in {*expected, *found})
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, (datetime, date, time)) or isinstance(found, (datetime, date, time)):
        return type(expected) is type(found) and expected == found
    return expected == found or (expected != expected and found != found)


def header_text(value: Any) -> str | None:
    """A header's value in Connect as the text that its converter writes."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _payload(value: bytes) -> bytes:
    return json.dumps(json.loads(value)["payload"]).encode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _records(case: Case, values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    headers = [[{"key": name, "value": value} for name, value in each.headers] for each in case.records]
    times = [each.timestamp * 1_000 for each in case.records]
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([case.topic] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "headers": pa.array(headers, HEADERS),
        }
    )
