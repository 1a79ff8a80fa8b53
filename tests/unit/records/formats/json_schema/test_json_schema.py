"""Records of JSON Schema: types as Confluent's converter has them, decoded alike by both decoders."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.config.values.decode import Decode
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DecoderSpec, TableSchema
from jobs.records.formats.interface.writer_schema import (
    BadWriterSchema,
    RegistrySchema,
    SchemaId,
    WriterSchema,
)
from jobs.records.formats.json.block import SMALLEST_BLOCK
from jobs.records.formats.json.writer_decoder import JsonWriterDecoder, JsonWriterTypes
from jobs.records.formats.json_schema.options import JsonSchemaOptions
from jobs.records.formats.json_schema.schema import json_schema_types
from jobs.records.formats.known_formats import JSON_SCHEMA
from jobs.records.schema.arrow_schema import rows_arrow_schema
from tests.helpers.json_schema_records import SCHEMAS, Kind, records

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": INTEGER}}
UNION = "connect_union_field_"
LIST_OF_UNIONS = f"f list<struct<{UNION}0 string, {UNION}1 struct<a long>> not null> not null"
DECIMAL = {
    "type": "number",
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2"},
}
DATE = {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"}


def types(schema: Any, *references: tuple[str, Any]) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    written = WriterSchema(text, tuple((name, json.dumps(one)) for name, one in references))
    return json_schema_types(written).declared.text


def of(schema: Any, *references: tuple[str, Any]) -> str:
    """The type of a property."""
    return types({"type": "object", "properties": {"f": schema}, "required": ["f"]}, *references)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STRING, "f string not null"),
        ({"type": "boolean"}, "f boolean not null"),
        (INTEGER, "f long not null"),
        ({"type": "number"}, "f double not null"),
        ({"type": "integer", "connect.type": "int8"}, "f int as int8 not null"),
        ({"type": "number", "connect.type": "float32"}, "f float not null"),
        ({"type": "string", "connect.type": "bytes"}, "f binary not null"),
        (DECIMAL, "f decimal(38,2) as unscaled not null"),
        (DATE, "f date as epoch_days not null"),
        ({"type": "integer", "title": "org.apache.kafka.connect.data.Date"}, "f long not null"),
        ({"type": "string", "format": "date-time"}, "f string not null"),
        ({"enum": ["a", "b"]}, "f string not null"),
        ({"const": "a"}, "f string not null"),
        ({"enum": ["a", None]}, "f string"),
        ({"enum": [1, 2]}, "f long not null"),
        ({"const": 1.5}, "f double not null"),
        ({"const": True}, "f boolean not null"),
        ({"type": ["null", "string"]}, "f string"),
        ({"oneOf": [NULL, INTEGER]}, "f long"),
        ({"anyOf": [{"oneOf": [NULL, INTEGER]}]}, "f long"),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "f string not null"),
        ({"oneOf": [STRING, NULL, INTEGER]}, f"f struct<{UNION}0 string, {UNION}1 long>"),
        ({"anyOf": [OBJECT, STRING]}, f"f struct<{UNION}0 struct<a long>, {UNION}1 string> not null"),
        ({"type": ["string", "integer"]}, f"f struct<{UNION}0 string, {UNION}1 long> not null"),
        ({"type": ["string", "null", "boolean"]}, f"f struct<{UNION}0 string, {UNION}1 boolean>"),
        ({"type": "array", "items": {"oneOf": [STRING, OBJECT]}}, LIST_OF_UNIONS),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "f string not null"),
        ({"allOf": [OBJECT, {"properties": {"b": STRING}}]}, "f struct<a long, b string> not null"),
        ({"allOf": [OBJECT, {"required": ["a"]}]}, "f struct<a long not null> not null"),
        ({**OBJECT, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "f struct<a long> not null"),
        (
            {**OBJECT, "oneOf": [{"properties": {"b": STRING}, "required": ["b"]}, OBJECT]},
            "f struct<a long, b string> not null",
        ),
        ({**OBJECT, "oneOf": [{"properties": {"b": STRING}}, {}]}, "f struct<a long, b string> not null"),
        ({"allOf": [OBJECT, {"properties": {"a": STRING, "b": STRING}}]}, "f struct<b string> not null"),
        ({"allOf": [INTEGER, {"type": "number"}]}, "f long not null"),
        ({"type": "object", "additionalProperties": INTEGER}, "f map<string, long not null> not null"),
        ({"type": "array", "items": {"oneOf": [NULL, STRING]}}, "f list<string> not null"),
        ({"type": "array", "items": STRING}, "f list<string not null> not null"),
        (
            {"type": "object", "connect.type": "map", "additionalProperties": INTEGER},
            "f map<string, long not null> not null",
        ),
        ({"type": "object", "properties": {"a": INTEGER}}, "f struct<a long> not null"),
    ],
)
def test_a_type(schema: Any, expected: str) -> None:
    assert of(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"oneOf": [STRING, {}]},
        {"oneOf": []},
        {"type": "object"},
        {"type": "object", "additionalProperties": {}},
        {"type": "object", "patternProperties": {"^a": STRING}},
        {"type": "array"},
        {"type": "array", "items": [STRING, INTEGER]},
        {"enum": ["a", 1]},
        {"enum": [True, 1]},
        {"const": None},
        {"type": "null"},
        {"allOf": [STRING, INTEGER]},
    ],
)
def test_what_has_no_one_type_is_left_out(schema: Any) -> None:
    assert types({"type": "object", "properties": {"f": schema, "g": STRING}}) == "g string"


def test_properties_stand_where_connect_had_them() -> None:
    properties = {"b": {**STRING, "connect.index": 1}, "a": {**STRING, "connect.index": 0}}
    assert types({"type": "object", "properties": properties}) == "a string, b string"


def test_what_is_not_required_may_be_asked_to_be_there_and_choices_have_connect_s_older_names() -> None:
    schema = {"type": "object", "properties": {"a": STRING, "b": {"oneOf": [NULL, STRING, INTEGER]}}}
    made = json_schema_types(
        WriterSchema(json.dumps(schema)),
        JsonSchemaOptions.of({"use_optional_for_nonrequired": False, "generalized_sum_type_support": False}),
    )
    old = "`io.confluent.connect.json.OneOf.field.{}`"
    assert made.declared.text == f"a string not null, b struct<{old.format(0)} string, {old.format(1)} long>"


def decoded(schema: Any, *records: Any, unknown: Any = "ignore") -> tuple[list[Any], list[tuple[str, str | None]]]:
    """Rows, and class and field of each failure."""
    decoder = JsonWriterDecoder(json_schema_types(WriterSchema(json.dumps(schema))), block=True, unknown_fields=unknown)
    texts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in records]
    made = decoder.decode(pa.array(texts, pa.binary()))
    return made.rows.to_pylist(), [(each.error_class, each.field) for each in made.failures]


BOUGHT = {"type": "object", "properties": {"kind": {"const": "bought"}, "n": INTEGER}, "required": ["kind", "n"]}
VIEWED = {"type": "object", "properties": {"kind": {"const": "viewed"}, "page": STRING}, "required": ["kind"]}


def test_events_of_several_types_in_one_topic() -> None:
    schema = {"oneOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/v"}], "$defs": {"b": BOUGHT, "v": VIEWED}}
    bought, viewed = {"kind": "bought", "n": 1}, {"kind": "viewed", "page": "x"}
    rows, failures = decoded(schema, bought, viewed, {"kind": "sold", "n": 1}, {"kind": "bought"}, 7, b"{", b"null")
    zero, one = f"{UNION}0", f"{UNION}1"
    assert rows == [{zero: bought, one: None}, {zero: None, one: viewed}]
    assert failures == [
        *[("wrong_type", "$")] * 3,
        ("malformed_json", None),
        ("not_an_object", None),
    ]


def test_a_value_goes_to_the_alternative_that_it_fits() -> None:
    kinds = [STRING, INTEGER, {"type": "number"}, {"type": "array", "items": STRING}, BOUGHT, VIEWED, OBJECT]
    schema = {"type": "object", "properties": {"f": {"anyOf": kinds}, "g": {"oneOf": [INTEGER, BOUGHT]}}}
    values = ["x", 2**70, 1.5, ["a"], {"kind": "bought", "n": 1}, {"kind": "viewed", "page": "p"}, {"a": 1}, {}]
    rows, failures = decoded(schema, *({"f": value} for value in values))
    found = [[name.removeprefix(UNION) for name, one in row["f"].items() if one is not None] for row in rows]
    # A number of more than 64 bits is an integer, which no column takes.
    assert failures == [("out_of_range", f"$.f.{UNION}1")]
    assert found == [["0"], ["2"], ["3"], ["4"], ["5"], ["6"], ["6"]]
    bad = [True, [1], {"a": "x"}]
    assert decoded(schema, *({"f": value} for value in bad))[1] == [
        ("wrong_type", "$.f"),
        # What only one could have meant is told where it is wrong.
        ("wrong_type", f"$.f.{UNION}3[0]"),
        ("wrong_type", "$.f"),
    ]
    assert decoded(schema, {"g": {"kind": "bought", "n": "1"}})[1] == [("wrong_type", f"$.g.{UNION}1.n")]


@pytest.mark.parametrize(
    "more",
    [
        {"$ref": "#/$defs/round"},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": 7},
        {"type": [{}], "properties": ["x"], "required": 5},
        {"required": [{}], "allOf": 7, "oneOf": {}, "anyOf": [], "items": [7], "enum": 7},
        {"type": "array", "items": {"$ref": "#/$defs/tree"}},
        7,
    ],
)
def test_what_nobody_has_looked_at_says_nothing(more: Any) -> None:
    schema = {
        "oneOf": [{**BOUGHT, "additionalProperties": more}, {**VIEWED, "additionalProperties": more}],
        "$defs": {"round": {"$ref": "#/$defs/round"}, "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    }
    rows, failures = decoded(schema, {"kind": "viewed", "x": [[], [[]]]}, {"kind": "bought", "n": 1, "x": []})
    assert failures == []
    assert [[name for name, each in row.items() if each] for row in rows] == [[f"{UNION}1"], [f"{UNION}0"]]


def test_a_value_of_a_choice_that_is_nested_too_deep_fails() -> None:
    schema = {"properties": {"f": {"oneOf": [{**OBJECT, "additionalProperties": {"$ref": "#"}}, STRING]}}}
    record = b'{"f":' + b'{"x":' * 5000 + b"1" + b"}" * 5001
    assert decoded(schema, record, b'{"f":"a"}') == (
        [{"f": {f"{UNION}0": None, f"{UNION}1": "a"}}],
        [("too_deep", None)],
    )


def test_a_whole_number_belongs_to_integers_wherever_these_stand() -> None:
    rows, _ = decoded({"properties": {"f": {"type": ["number", "integer"]}}}, {"f": 2**63 - 2}, {"f": 0.5})
    assert [list(row["f"].values()) for row in rows] == [[None, 2**63 - 2], [0.5, None]]


def test_choices_within_lists_and_maps_and_keys_that_come_twice() -> None:
    either = {"oneOf": [NULL, STRING, INTEGER]}
    entries = {"type": "array", "connect.type": "map", "items": {"properties": {"key": INTEGER, "value": either}}}
    schema = {
        "properties": {
            "l": {"type": "array", "items": either},
            "m": {"type": "object", "connect.type": "map", "additionalProperties": either},
            "e": entries,
        }
    }
    record = b'{"l":[true],"l":["a",1,null],"m":{"x":1},"e":[{"key":1,"value":"v"}],"z":[1.0]}'
    (row,), failures = decoded(schema, record)
    text, number = {f"{UNION}0": "a", f"{UNION}1": None}, {f"{UNION}0": None, f"{UNION}1": 1}
    assert failures == []
    assert row == {"l": [text, number, None], "m": [("x", number)], "e": [(1, {**text, f"{UNION}0": "v"})]}
    assert decoded(schema, record, unknown="fail")[1] == [("unknown_field", "$.z")]
    assert decoded(schema, {"l": [1, True]})[1] == [("wrong_type", "$.l[1]")]


def test_a_list_of_choices_at_the_top() -> None:
    rows, failures = decoded({"type": "array", "items": {"oneOf": [STRING, INTEGER]}}, ["a"], [True], b"[1")
    assert rows == [{"value": [{f"{UNION}0": "a", f"{UNION}1": None}]}]
    assert failures == [("wrong_type", "$.value[0]"), ("malformed_json", None)]


def test_references_by_anchor_by_id_and_relative_to_one() -> None:
    schema = {
        "$id": "http://example.com/schemas/payment.json",
        "type": "object",
        "properties": {
            "a": {"$ref": "#money"},
            "b": {"$ref": "http://example.com/schemas/payment.json#/$defs/n"},
            "c": {"$ref": "payer.json"},
            "d": {"$ref": "#/allOf/0"},
        },
        "allOf": [{"properties": {"x": STRING}}],
        "$defs": {"m": {"$anchor": "money", "type": "number"}, "n": INTEGER},
    }
    payer = ("http://example.com/schemas/payer.json", OBJECT)
    assert types(schema, payer) == "a double, b long, c struct<a long>, d struct<x string>, x string"


def test_references_within_and_to_other_schemas() -> None:
    other = {"$defs": {"x/y": {"type": "object", "properties": {"z": {"$ref": "#/$defs/n"}}}, "n": INTEGER}}
    assert of({"$ref": "other.json#/$defs/x~1y"}, ("other.json", other)) == "f struct<z long> not null"
    assert of({"$ref": "other.json"}, ("other.json", STRING)) == "f string not null"


NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"n": INTEGER, "next": {"oneOf": [NULL, {"$ref": "#/$defs/node"}]}},
    "required": ["n"],
}


def test_what_lies_within_itself_is_json() -> None:
    tree = {"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}, "id": STRING}, "$defs": {"node": NODE}}
    assert types(tree) == "root struct<n long not null, next json>, id string"
    deep = {"n": 2, "next": {"n": 3.0, "next": None}}
    assert decoded(tree, {"root": {"n": 1, "next": deep}}, {"root": {"n": 1, "next": None}}, {"id": "a"}) == (
        [
            {"id": None, "root": {"n": 1, "next": '{"n":2,"next":{"n":3.0,"next":null}}'}},
            {"id": None, "root": {"n": 1, "next": None}},
            {"id": "a", "root": None},
        ],
        [],
    )
    assert types({"type": "object", "properties": {"a": {"$ref": "#"}}}) == "a json"


def test_a_choice_of_what_lies_within_itself() -> None:
    either = {"oneOf": [{"$ref": "#"}, STRING, {"type": "array", "items": {"$ref": "#"}}]}
    schema = {"type": "object", "properties": {"n": INTEGER, "f": either}, "required": ["n"]}
    names = [f"{UNION}{number}" for number in range(3)]
    assert types(schema) == f"n long not null, f struct<{names[0]} json, {names[1]} string, {names[2]} list<json>>"
    rows, failures = decoded(
        schema, {"n": 1, "f": {"n": 2, "f": "x"}}, {"n": 1, "f": "x"}, {"n": 1, "f": [{"n": 3}]}, {"n": 1, "f": 7}
    )
    assert [each["f"] for each in rows] == [
        dict(zip(names, ['{"f":"x","n":2}', None, None], strict=True)),
        dict(zip(names, [None, "x", None], strict=True)),
        dict(zip(names, [None, None, ['{"n":3}']], strict=True)),
    ]
    assert failures == [("wrong_type", "$.f")]
    endless = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"f": {"oneOf": [{"$ref": "#/$defs/a"}, STRING]}}}
    assert decoded(endless, {"f": 7}) == ([{"f": {names[0]: "7", names[1]: None}}], [])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "nested too deep"),
        ([], "it is no schema"),
        ({"type": "object"}, "nothing to land"),
        ({"$ref": "#"}, "within itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "the field a refers to what is not there"),
        ({"type": "object", "properties": {"a": {"$ref": "no.json"}}}, "not among its references"),
        ({"type": "object", "properties": {"a": {"$ref": "#nowhere"}}}, "the field a refers to what is not there"),
        ({"allOf": [{"properties": {"a": STRING}}, {"properties": {"A": STRING}}]}, "differ by case only"),
        ({"oneOf": 7}, "it has oneOf that is no array"),
        ('{"oneOf":[' * 400 + "{}" + "]}" * 400, "its schemas are within each other too deep"),
        ({"type": "object", "properties": {"a": {"type": [1, 2]}}}, "a type that JSON Schema does not know"),
        ({"type": "object", "properties": {"a": STRING, "A": STRING}}, "differ by case only"),
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "a type that JSON Schema does not know"),
        ({"type": "object", "properties": []}, "properties that are no object"),
    ],
)
def test_one_that_is_none_says_where(schema: Any, message: str) -> None:
    with pytest.raises(BadWriterSchema) as caught:
        types(schema)
    assert message in caught.value.message


class Known:
    """One schema, with the number 1."""

    def __init__(self, schema: Any) -> None:
        self.schema: WriterSchema = WriterSchema(json.dumps(schema))

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        assert schema_id.number == 1
        return RegistrySchema("JSON", self.schema)


RECORD = {
    "type": "object",
    "properties": {
        "id": STRING,
        "amount": DECIMAL,
        "on": {"oneOf": [NULL, DATE]},
        "m": {
            "type": "array",
            "connect.type": "map",
            "items": {"type": "object", "properties": {"key": INTEGER, "value": STRING}},
        },
        "either": {"oneOf": [STRING, INTEGER]},
        "any": {},
    },
    "required": ["id"],
}


@pytest.mark.parametrize("unknown", ["ignore", "fail"])
def test_records_behind_the_id_of_their_schema(unknown: str) -> None:
    known = Known(RECORD)
    assert JSON_SCHEMA.writer_rows is not None
    rows = JSON_SCHEMA.writer_rows(known.schema, {})
    spec = DecoderSpec("json_schema", TableSchema(rows.model_dump_json()), {"unknown_fields": unknown}, known)  # type: ignore[arg-type]
    texts = [
        b'{"id":"a","amount":1.25,"on":20454,"m":[{"key":1,"value":"x"}]}',
        b'{"id":"b","amount":"ME8="}',
        b'{"id":"c","on":null,"either":5,"any":[5]}',
        b'{"id":null}',
        b'{"id":"d","m":[{"key":1,"value":"x"},{"key":1,"value":"y"}]}',
        b'{"id":"e"} x',
        b"",
    ]
    values = pa.array([None, *(b"\x00\x00\x00\x00\x01" + text for text in texts)] * 100, pa.binary())
    made, expected = JSON_SCHEMA.block(spec).decode(values), JSON_SCHEMA.reference(spec).decode(values)
    assert (made.failures, made.unknown_fields) == (expected.failures, expected.unknown_fields)
    assert made.rows.equals(expected.rows)
    assert made.positions.tolist() == expected.positions.tolist()
    assert [failure.error_class for failure in made.failures[: 4 + (unknown == "fail")]] == [
        *(["unknown_field"] if unknown == "fail" else []),
        *("null_in_required", "wrong_type", "malformed_json", "empty_value"),
    ]
    assert made.rows.column("amount").to_pylist()[:2] == [Decimal("1.25"), Decimal("123.67")]
    assert made.unknown_fields == ({} if unknown == "fail" else {"$.any": 100})
    assert len(made.tombstones) == 100


def test_options_have_connect_s_names_and_those_without_a_meaning_are_refused() -> None:
    given = {"format": "json_schema", "use.optional.for.nonrequired": False}
    decode = Decode(value=given, schema="registry")  # type: ignore[arg-type, call-arg]
    assert JsonSchemaOptions.of(decode.options) == JsonSchemaOptions(use_optional_for_nonrequired=False)
    given = {"format": "json_schema", "as_sent": [DATE["title"]]}
    decode = Decode(value=given, schema="registry")  # type: ignore[arg-type, call-arg]
    written = WriterSchema(json.dumps({"type": "object", "properties": {"f": DATE}, "required": ["f"]}))
    assert json_schema_types(written, JsonSchemaOptions.of(decode.options)).declared.text == "f int not null"
    for name in ("decimal.format", "object.additional.properties"):
        with pytest.raises(ValidationError, match="is about"):
            Decode(value={"format": "json_schema", name: "x"}, schema="registry")  # type: ignore[arg-type, call-arg]


OPTIONS = st.builds(JsonSchemaOptions, st.booleans(), st.booleans())
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def types_of(kind: Kind, options: JsonSchemaOptions) -> JsonWriterTypes:
    try:
        return json_schema_types(WriterSchema(json.dumps(kind.schema)), options)
    except BadWriterSchema:
        assume(False)
        raise


def check(types: JsonWriterTypes, values: list[bytes], unknown: Any) -> Decoded:
    reference = JsonWriterDecoder(types, block=False, unknown_fields=unknown)
    block = JsonWriterDecoder(types, block=True, unknown_fields=unknown)
    array = pa.array([b"cut off", *values], pa.binary())[1:]
    # Twice, since a decoder of blocks learns.
    block.decode(array)
    made, expected = block.decode(array), reference.decode(array)
    made.rows.validate(full=True)
    assert made.rows.schema.equals(rows_arrow_schema(block.schema))
    assert made.failures == expected.failures
    assert made.positions.tolist() == expected.positions.tolist()
    assert repr(made.rows.to_pylist()) == repr(expected.rows.to_pylist())
    assert made.unknown_fields == expected.unknown_fields
    assert sorted([*made.positions, *(failure.row for failure in made.failures)]) == list(range(len(values)))
    return made


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(SCHEMAS, SCHEMAS, OPTIONS, st.sampled_from(["ignore", "fail"]), st.data())
def test_blocks_give_what_the_reference_gives(
    kind: Kind, other: Kind, options: JsonSchemaOptions, unknown: str, data: st.DataObject
) -> None:
    types = types_of(kind, options)
    values = data.draw(st.lists(records(kind, other), min_size=1, max_size=8))
    check(types, values * (1 + SMALLEST_BLOCK // len(values)), unknown)


def sent(row: Any) -> Any:
    """What a record was, of what a row has of it: the only value that a choice has, and nothing that is null."""
    match row:
        case dict():
            members = {str(name): sent(each) for name, each in row.items() if each is not None}
            chosen = [each for name, each in members.items() if "connect_union_field_" in name]
            return chosen[0] if chosen else members
        case list():
            return [sent(each) for each in row]
        case _:
            return row


def comparable(value: Any, row: Any) -> Any:
    """A record without nulls; entries as the map that they mean, where the row has one."""
    match value:
        case dict():
            within = row if isinstance(row, dict) else {}
            return {name: comparable(each, within.get(name)) for name, each in value.items() if each is not None}
        case list() if isinstance(row, dict):
            entries = ((str(one["key"]), one["value"]) for one in value if one["value"] is not None)
            return {key: comparable(each, row.get(key)) for key, each in entries}
        case list() if isinstance(row, list):
            return [comparable(each, inner) for each, inner in zip(value, row, strict=True)]
        case _:
            return value


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(SCHEMAS, st.data())
def test_a_valid_record_lands_as_it_was_sent(kind: Kind, data: st.DataObject) -> None:
    types = types_of(kind, JsonSchemaOptions())
    value = data.draw(kind.values)
    made = check(types, [json.dumps(value).encode()], "ignore")
    assume(not made.unknown_fields)
    if made.failures:
        # Null at the top is no row.
        assert value is None, made.failures
        return
    (row,) = made.rows.to_pylist(maps_as_pydicts="strict")
    found = sent(row["value"] if types.single else row)
    assert found == comparable(value, found)
