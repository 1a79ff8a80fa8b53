"""What Connect's JsonConverter makes of records, case by case: the same here, or a failure where it changes a value."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.records.formats.connect_json.format import CONNECT_JSON
from jobs.records.formats.connect_types import DECIMAL
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DecoderSpec, TableSchema
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.schema.needs import EvolutionPolicy

DATA = "org.apache.kafka.connect.data."


def decode(record: bytes | None, columns: Any = None, **options: Any) -> Decoded:
    """One record in the columns of a schema in Connect's JSON; of the record's own if none is given."""
    schema = columns if columns is not None else json.loads(record or b"")["schema"]
    assert CONNECT_JSON.writer_rows is not None
    rows = CONNECT_JSON.writer_rows(WriterSchema(json.dumps(schema)), options)
    spec = DecoderSpec("connect_json", TableSchema(rows.model_dump_json()), options)
    return CONNECT_JSON.reference(spec).decode(pa.array([record], pa.binary()))


def outcome(schema: dict[str, Any], payload: str, **options: Any) -> Any:
    """The value of a field, or the class of the failure."""
    record = {"type": "struct", "fields": [{**schema, "field": "f"}]}
    text = f'{{"schema":{json.dumps(record)},"payload":{{{payload}}}}}'.encode()
    made = decode(text, record, **options)
    return made.failures[0].error_class if made.failures else made.rows.to_pylist()[0]["f"]


INT8, INT32, OPTIONAL = {"type": "int8"}, {"type": "int32"}, {"optional": True}
AMOUNT = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}


@pytest.mark.parametrize(
    ("schema", "token", "expected"),
    [
        # Connect: 0, 1, 44, 0, false, an empty list, infinity, 7, 0.0, in this order.
        (INT32, '"abc"', "wrong_type"),
        (INT32, "1.9", "wrong_type"),
        (INT8, "300", "out_of_range"),
        (INT32, "4294967296", "out_of_range"),
        ({"type": "boolean"}, '"true"', "wrong_type"),
        ({"type": "array", "items": INT32}, "5", "wrong_type"),
        ({"type": "double"}, "1e400", "out_of_range"),
        (INT32, "007", "malformed_json"),
        ({"type": "double"}, '"NaN"', "wrong_type"),
        # Connect fails, too.
        ({"type": "string"}, "5", "wrong_type"),
        ({"type": "double"}, "NaN", "malformed_json"),
        (INT32, "null", "null_in_required"),
        ({"type": "bytes"}, '"no base64"', "bad_binary"),
        ({"type": "map", "keys": {"type": "string"}, "values": INT32}, '[["a",1]]', "wrong_type"),
        ({"type": "map", "keys": INT32, "values": INT32}, '{"1":1}', "wrong_type"),
        ({"type": "map", "keys": INT32, "values": INT32}, "[[1]]", "wrong_type"),
        ({"type": "map", "keys": INT32, "values": INT32}, "[[1,2,3]]", "wrong_type"),
        ({"type": "int32", "name": DATA + "Date"}, '"2026-01-01"', "wrong_type"),
        ({"type": "int64", "name": DATA + "Timestamp"}, "1.5", "wrong_type"),
        ({"type": "int32", "name": DATA + "Time"}, "86400000", "out_of_range"),
        (AMOUNT, "true", "wrong_type"),
        (AMOUNT, '""', "bad_binary"),
        # Connect and its sink round this one.
        (AMOUNT, "1.005", "precision_loss"),
        # The same value.
        ({"type": "string", **OPTIONAL}, "null", None),
        (INT8, "-128", -128),
        ({"type": "int16"}, "32767", 32767),
        ({"type": "float"}, "0.1", pytest.approx(0.1, rel=1e-7)),
        ({"type": "bytes"}, '"AP8="', b"\x00\xff"),
        (AMOUNT, '"ME8="', Decimal("123.67")),
        (AMOUNT, '"/w=="', Decimal("-0.01")),
        (AMOUNT, "123.67", Decimal("123.67")),
        (AMOUNT, "12345678901234567890.12", Decimal("12345678901234567890.12")),
        ({"type": "int32", "name": DATA + "Date"}, "20454", date(2026, 1, 1)),
        ({"type": "int32", "name": DATA + "Time"}, "1001", time(0, 0, 1, 1000)),
        ({"type": "int64", "name": DATA + "Timestamp"}, "-1", datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
        ({"type": "map", "keys": INT32, "values": {"type": "string"}}, '[[1,"a"],[2,"b"]]', [(1, "a"), (2, "b")]),
        ({"type": "map", "keys": {"type": "string"}, "values": INT32}, '{"a":1}', [("a", 1)]),
        ({"type": "map", "keys": INT32, "values": INT32}, "[[1,2],[1,3]]", "wrong_type"),
        # What Debezium calls them; the sink writes the numbers.
        ({"type": "int32", "name": "io.debezium.time.Date"}, "1", date(1970, 1, 2)),
        ({"type": "int32", "name": "io.debezium.time.Time"}, "1", time(0, 0, 0, 1000)),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, "1", time(0, 0, 0, 1)),
        ({"type": "int64", "name": "io.debezium.time.NanoTime"}, "1000", time(0, 0, 0, 1)),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, "1", datetime(1970, 1, 1, 0, 0, 0, 1000)),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "1", datetime(1970, 1, 1, 0, 0, 0, 1)),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, "1001", "precision_loss"),
        ({"type": "int64", "name": "some.other.name"}, "1", 1),
    ],
)
def test_a_field(schema: dict[str, Any], token: str, expected: Any) -> None:
    assert outcome(schema, f'"f":{token}') == expected


def test_a_uuid_of_debezium_is_one() -> None:
    schema = {"type": "string", "name": "io.debezium.data.Uuid"}
    found = outcome(schema, '"f":"0f8fad5b-d9cb-469f-a165-70867728950e"')
    assert found == bytes.fromhex("0f8fad5bd9cb469fa16570867728950e")


@pytest.mark.parametrize(
    ("schema", "payload", "kept", "replaced"),
    [
        ({**INT32, "default": 7}, "", "missing_field", 7),
        ({**INT32, "default": 7}, '"f":null', "null_in_required", 7),
        ({**INT32, "default": 7}, '"f":8', 8, 8),
        ({**INT32, **OPTIONAL, "default": 7}, "", None, 7),
        ({**INT32, **OPTIONAL, "default": 7}, '"f":null', None, 7),
        ({**INT32, **OPTIONAL, "default": None}, '"f":null', None, None),
        ({**AMOUNT, **OPTIONAL, "default": "ME8="}, "", None, Decimal("123.67")),
        ({**AMOUNT, "default": 1.10}, "", "missing_field", Decimal("1.10")),
        ({"type": "array", "items": {**INT32, "default": 7}}, '"f":[1,null]', "null_in_required", [1, 7]),
        ({"type": "array", "items": INT32, "default": [1, 2]}, "", "missing_field", [1, 2]),
        (
            {"type": "map", "keys": {"type": "string"}, "values": {**INT32, "default": 7}},
            '"f":{"a":null,"b":1}',
            "null_in_required",
            [("a", 7), ("b", 1)],
        ),
        (
            {"type": "struct", "fields": [{**INT32, "field": "g", "default": 7}, {**INT32, **OPTIONAL, "field": "h"}]},
            '"f":{}',
            "missing_field",
            {"g": 7, "h": None},
        ),
        (
            {"type": "struct", "fields": [{**INT32, "field": "g", "default": 7}], "default": {}},
            "",
            "missing_field",
            {"g": 7},
        ),
    ],
)
def test_null_and_missing_members_take_the_default_only_where_the_stream_says_so(
    schema: dict[str, Any], payload: str, kept: Any, replaced: Any
) -> None:
    assert outcome(schema, payload) == kept
    assert outcome(schema, payload, **{"replace.null.with.default": True}) == replaced


def test_a_null_struct_stays_null_though_its_fields_have_defaults() -> None:
    schema = {"type": "struct", "fields": [{**INT32, "field": "g", "default": 7}], **OPTIONAL}
    assert outcome(schema, '"f":null', **{"replace.null.with.default": True}) is None


ENVELOPED = {"type": "struct", "fields": [{"type": "int32", "field": "f"}]}
TEXT = json.dumps(ENVELOPED)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b"", "empty_value"),
        (b" \n", "empty_value"),
        (b"null", "bad_envelope"),
        (b"5", "bad_envelope"),
        (b"[]", "bad_envelope"),
        (b"{}", "bad_envelope"),
        (b'{"f":1}', "bad_envelope"),
        (f'{{"schema":{TEXT}}}'.encode(), "bad_envelope"),
        (b'{"payload":{"f":1}}', "bad_envelope"),
        (f'{{"schema":{TEXT},"payload":{{"f":1}},"more":1}}'.encode(), "bad_envelope"),
        (f'{{"Schema":{TEXT},"payload":{{"f":1}}}}'.encode(), "bad_envelope"),
        (f'{{"schema":{TEXT},"payload":{{"f":1}}}} trailing'.encode(), "malformed_json"),
        (f'{{"schema":{TEXT},"payload":{{"f":1}}'.encode(), "malformed_json"),
        (f'{{"schema":{TEXT},"payload":null}}'.encode(), "not_an_object"),
        (f'{{"schema":{TEXT},"payload":5}}'.encode(), "not_an_object"),
        (b'{"schema":null,"payload":null}', "not_an_object"),
        (b'{"schema":{"type":"int33"},"payload":5}', "bad_schema"),
        (b'{"schema":5,"payload":5}', "bad_schema"),
        (b'{"schema":"int32","payload":5}', "bad_schema"),
        (f'{{"schema":{TEXT},"payload":{{"f":1}}}}'.encode(), [{"f": 1}]),
        (f'{{"schema":{TEXT},"payload":{{"f":1,"other":2}}}}'.encode(), [{"f": 1}]),
        (f'{{"schema":{TEXT},"payload":{{"f":1,"f":2}}}}'.encode(), [{"f": 2}]),
        (f'{{"payload":{{"f":1}},"schema":{TEXT}}}'.encode(), [{"f": 1}]),
        (b'{"schema":null,"payload":{"f":1}}', [{"f": 1}]),
        (b'{"schema":null,"payload":{"f":1.5}}', "wrong_type"),
    ],
)
def test_the_envelope(record: bytes, expected: Any) -> None:
    made = decode(record, ENVELOPED)
    assert (made.failures[0].error_class if made.failures else made.rows.to_pylist()) == expected
    assert not len(made.tombstones)


def test_only_a_null_value_is_a_tombstone() -> None:
    assert decode(None, ENVELOPED).tombstones.tolist() == [0]


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        ({"type": "int64"}, "5", [{"value": 5}]),
        ({"type": "int64", **OPTIONAL}, "null", [{"value": None}]),
        ({"type": "int64"}, "null", "null_in_required"),
        ({"type": "string"}, '"a\\"b"', [{"value": 'a"b'}]),
        ({"type": "array", "items": INT32}, "[1,2]", [{"value": [1, 2]}]),
        ({"type": "map", "keys": {"type": "string"}, "values": INT32}, '{"a":1}', [{"value": [("a", 1)]}]),
        (AMOUNT, '"ME8="', [{"value": Decimal("123.67")}]),
    ],
)
def test_a_payload_that_is_no_struct_is_one_column(schema: dict[str, Any], payload: str, expected: Any) -> None:
    made = decode(f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode())
    assert (made.failures[0].error_class if made.failures else made.rows.to_pylist()) == expected


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"f":1}', [{"f": 1}]),
        (b'{"f":1,"payload":2}', [{"f": 1}]),
        (f'{{"schema":{TEXT},"payload":{{"f":3}}}}'.encode(), [{"f": 3}]),
        (b'{"schema":null,"payload":{"f":3}}', [{"f": 3}]),
        (b'{"f":"x"}', "wrong_type"),
        (b"", "empty_value"),
        (b"null", "not_an_object"),
    ],
)
def test_with_a_schema_of_the_file_a_record_may_be_a_plain_payload(record: bytes, expected: Any) -> None:
    made = decode(record, ENVELOPED, **{"schema.content": TEXT})
    assert (made.failures[0].error_class if made.failures else made.rows.to_pylist()) == expected


def test_unknown_members_are_counted_and_an_example_is_found() -> None:
    text = f'{{"schema":{TEXT},"payload":{{"f":1,"other":2}}}}'.encode()
    assert decode(text, ENVELOPED).unknown_fields == {"$.other": 1}
    assert decode(text, ENVELOPED, unknown_fields="fail").failures[0].error_class == "unknown_field"
    assert CONNECT_JSON.writer_rows is not None
    narrow = CONNECT_JSON.writer_rows(WriterSchema(TEXT.replace('"f"', '"g"')), {})
    spec = DecoderSpec("connect_json", TableSchema(narrow.model_dump_json()), {})
    found = CONNECT_JSON.unknown_fields(spec, pa.array([b"bad", text], pa.binary()), [0, 1], ["$.other", "$.f", "$.no"])
    assert {path: tuple(each) for path, each in found.items()} == {
        "$.other": (1, "$", "other long"),
        "$.f": (1, "$", "f int"),
    }


def test_a_decimal_asks_for_more_digits_only_where_a_value_has_them() -> None:
    schema = {"type": "struct", "fields": [{**AMOUNT, "field": "a"}]}
    spec = DecoderSpec(
        "connect_json", TableSchema(json.dumps(_columns("decimal(5, 2)"))), {"evolve": EvolutionPolicy(widen="auto")}
    )
    values = [f'{{"schema":{json.dumps(schema)},"payload":{{"a":{token}}}}}'.encode() for token in ("1.25", "1234.5")]
    small = CONNECT_JSON.reference(spec).decode(pa.array(values[:1], pa.binary()))
    assert (small.rows.to_pylist(), small.needs) == ([{"a": Decimal("1.25")}], ())
    both = CONNECT_JSON.reference(spec).decode(pa.array(values, pa.binary()))
    assert [failure.error_class for failure in both.failures] == ["out_of_range"]
    assert [(need.change, str(need.type)) for need in both.needs] == [("widen", "decimal(38, 2)")]


def _columns(kind: str) -> dict[str, Any]:
    return {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": kind, "required": False}]}


def test_a_map_whose_keys_the_column_does_not_hold_fails() -> None:
    schema = {"type": "struct", "fields": [{"field": "m", "type": "map", "keys": INT32, "values": INT32}]}
    columns = {**schema, "fields": [{**schema["fields"][0], "keys": {"type": "string"}}]}  # type: ignore[index, dict-item]
    made = decode(f'{{"schema":{json.dumps(schema)},"payload":{{"m":[[1,2]]}}}}'.encode(), columns)
    assert [failure.error_class for failure in made.failures] == ["wrong_type"]
