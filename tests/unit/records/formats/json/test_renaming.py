"""Keys of JSON records that have another name than their column: an alias, or another case."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    MapType,
    StructType,
)
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NAME_MAPPING, NAME_RULE, NameRule
from jobs.records.schema.needs import Path
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import with_extra_column
from tests.helpers.alike_records import alike_blocks
from tests.helpers.decoders import CountingReference
from tests.helpers.json_records import blocks
from tests.unit.records.formats.json.test_block import same

SCHEMA = parse_schema(
    "id string not null, n long, payer struct<name string not null, age int>, items list<struct<sku string>>, "
    "m map<string, struct<v int>>"
)
RULE = NameRule(
    (
        (("id",), ("key", "identifier")),
        (("payer",), ("customer",)),
        (("payer", "name"), ("full",)),
        (("items", "element", "sku"), ("article",)),
        (("m", "value", "v"), ("w",)),
    )
)
ANY_CASE = NameRule(any_case=True)
BOTH = NameRule(RULE.aliases, any_case=True)


def decoded(record: bytes, rule: NameRule, unknown: Any = "ignore") -> Decoded:
    return JsonReferenceDecoder(SCHEMA, unknown_fields=unknown, names=rule).decode(pa.array([record], pa.binary()))


LANDS: list[tuple[NameRule, str, dict[str, Any], dict[str, int]]] = [
    (RULE, '{"id":"a"}', {"id": "a"}, {}),
    (RULE, '{"key":"a"}', {"id": "a"}, {}),
    (RULE, ' \n{"identifier":"a"} ', {"id": "a"}, {}),
    (RULE, '{"key":"a","customer":{"full":"b","age":3}}', {"id": "a", "payer": {"name": "b", "age": 3}}, {}),
    (RULE, '{"id":"a","items":[{"sku":"b"},null,{"article":"c"}]}', {"items": [{"sku": "b"}, None, {"sku": "c"}]}, {}),
    (RULE, '{"id":"a","m":{"key":{"w":1},"x":{"v":2}}}', {"m": [("key", {"v": 1}), ("x", {"v": 2})]}, {}),
    # An alias is one within its struct only.
    (RULE, '{"id":"a","full":1,"w":2}', {"id": "a"}, {"$.full": 1, "$.w": 1}),
    (RULE, '{"key":"a","other":1,"customer":{"full":"b","x":2}}', {"id": "a"}, {"$.other": 1, "$.payer.x": 1}),
    # Null is the same as no key.
    (RULE, '{"id":null,"key":"a"}', {"id": "a"}, {}),
    (RULE, '{"key":"a","id":null,"identifier":null}', {"id": "a"}, {}),
    (RULE, '{"key":"b","key":"a"}', {"id": "a"}, {}),
    # In another case it is another field, if the column has one.
    (RULE, '{"key":"a","KEY":"b","ID":"c"}', {"id": "a"}, {"$.KEY": 1, "$.ID": 1}),
    (ANY_CASE, '{"ID":"a","N":5,"Payer":{"NAME":"b"}}', {"id": "a", "n": 5, "payer": {"name": "b", "age": None}}, {}),
    (ANY_CASE, '{"ID":"a","ITEMS":[{"Sku":"b"}],"M":{"K":{"V":1}}}', {"items": [{"sku": "b"}]}, {}),
    (ANY_CASE, '{"id":"a","KEY":1}', {"id": "a"}, {"$.KEY": 1}),
    (BOTH, '{"KEY":"a","CUSTOMER":{"Full":"b"}}', {"id": "a", "payer": {"name": "b", "age": None}}, {}),
    (BOTH, '{"\\u004bEY":"a"}', {"id": "a"}, {}),
]


@pytest.mark.parametrize(("rule", "record", "row", "unknown"), LANDS)
def test_a_key_goes_into_the_column_that_it_names(
    rule: NameRule, record: str, row: dict[str, Any], unknown: dict[str, int]
) -> None:
    found = decoded(record.encode(), rule)
    assert found.failures == []
    assert {name: value for name, value in found.rows.to_pylist()[0].items() if name in row} == row
    assert found.unknown_fields == unknown


FAILS = [
    (
        RULE,
        '{"id":"a","key":"b"}',
        "ambiguous_field",
        "$.id",
        "needs one field for the column 'id', found 'id' and 'key'",
    ),
    (RULE, '{"key":"a","identifier":"a"}', "ambiguous_field", "$.id", "found 'key' and 'identifier'"),
    (RULE, '{"id":"a","items":[{},{"sku":"x","article":"y"}]}', "ambiguous_field", "$.items[1].sku", "'article'"),
    (ANY_CASE, '{"id":"a","N":1,"n":2}', "ambiguous_field", "$.n", "found 'N' and 'n'"),
    (ANY_CASE, '{"id":"a","M":{"k":{"v":1,"V":2}}}', "ambiguous_field", "$.m[...].v", "found 'v' and 'V'"),
    # The paths of failures are those of columns.
    (RULE, '{"key":7}', "wrong_type", "$.id", "needs string, found a whole number"),
    (RULE, '{"key":"a","customer":{"full":null}}', "null_in_required", "$.payer.name", "found null"),
    (RULE, '{"Key":"a"}', "key_case", "$.Key", "needs the key 'key', found 'Key', which differs by case"),
    (RULE, '{"ID":"a"}', "key_case", "$.ID", "needs the key 'id', found 'ID', which differs by case"),
    # Of an optional column, too: it would be null without a word.
    (RULE, '{"id":"a","CUSTOMER":{"name":"b"}}', "key_case", "$.CUSTOMER", "needs the key 'customer'"),
    (RULE, '{"id":"a","items":[{},{"Article":"b"}]}', "key_case", "$.items[1].Article", "needs the key 'article'"),
    (ANY_CASE, '{"key":"a"}', "missing_field", "$.id", "found no such key"),
    (RULE, '{"key":"a"', "malformed_json", None, "needs one complete JSON object"),
    (RULE, "[1]", "not_an_object", None, "found an array"),
]


@pytest.mark.parametrize(("rule", "record", "error_class", "field", "message"), FAILS)
def test_what_is_refused(rule: NameRule, record: str, error_class: str, field: str | None, message: str) -> None:
    (failure,) = decoded(record.encode(), rule).failures
    assert (failure.error_class, failure.field) == (error_class, field)
    assert message in failure.message


def test_a_key_without_a_column_is_still_refused_where_the_stream_says_so() -> None:
    assert decoded(b'{"key":"a"}', RULE, "fail").failures == []
    (failure,) = decoded(b'{"key":"a","x":1}', RULE, "fail").failures
    assert (failure.error_class, failure.field) == ("unknown_field", "$.x")


def members(declared: DeclaredType, path: Path = ()) -> Iterator[Path]:
    """Every column by its path."""
    match declared:
        case StructType(fields):
            for each in fields:
                yield (*path, each.name)
                yield from members(each.type, (*path, each.name))
        case ListType(element):
            yield from members(element, (*path, "element"))
        case MapType(_, value):
            yield from members(value, (*path, "value"))
        case _:
            return


def other_names(declared: StructType, rng: random.Random) -> NameRule:
    aliases = {
        path: (f"old_{path[-1]}", rng.choice(["x", "y", "id"])) for path in members(declared) if rng.random() < 0.6
    }
    return NameRule(tuple(aliases.items()), any_case=rng.random() < 0.5)


def otherwise(record: bytes | None, rule: NameRule, rng: random.Random) -> bytes | None:
    """A record some of whose keys are written otherwise, as text."""
    if record is None or rng.random() < 0.3:
        return record
    for path, names in rule.aliases:
        if rng.random() < 0.5:
            own = json.dumps(path[-1]).encode()
            record = record.replace(own + b":", json.dumps(rng.choice(names)).encode() + b":")
    if rng.random() < 0.2 and (keys := [name for path, names in rule.aliases for name in (path[-1], *names)]):
        own = json.dumps(rng.choice(keys)).encode()
        record = record.replace(own + b":", own.upper() + b":", rng.choice([1, -1]))
    if rng.random() < 0.1 and rule.aliases and record.startswith(b"{") and len(record) > 2:
        path, names = rng.choice(rule.aliases)
        value = rng.choice([b"null", b'"a"', b"1"])
        record = b"{" + json.dumps(rng.choice([path[-1], *names])).encode() + b":" + value + b"," + record[1:]
    return record


@settings(max_examples=150)
@given(st.integers(0, 2**64), st.sampled_from(["ignore", "ignore", "fail"]))
def test_blocks_give_what_the_reference_gives(seed: int, unknown: Any) -> None:
    schema, each = alike_blocks(seed)
    rng = random.Random(seed)
    rule = other_names(schema, rng)
    # Some blocks have each record otherwise, others all of them in one way.
    changed = [
        [otherwise(value, rule, random.Random(way) if way else rng) for value in values]
        for values in each
        for way in (0, rng.getrandbits(8) + 1)
    ]
    _check(schema, changed, rule, unknown)


@settings(max_examples=60)
@given(blocks, st.sampled_from(["ignore", "fail"]), st.integers(0, 2**64))
def test_hostile_blocks_give_what_the_reference_gives(
    block: tuple[StructType, list[bytes | None]], unknown: Any, seed: int
) -> None:
    schema, values = block
    rng = random.Random(seed)
    rule = other_names(schema, rng)
    values = [otherwise(value, rule, rng) for value in values]
    _check(schema, [values, values[::-1], values + values], rule, unknown)


def _check(schema: StructType, each: list[list[bytes | None]], rule: NameRule, unknown: Any) -> None:
    reference = JsonReferenceDecoder(schema, unknown_fields=unknown, names=rule)
    decoder = JsonBlockDecoder(schema, unknown_fields=unknown, smallest=1, names=rule)
    for values in each:
        block = pa.array(values, pa.binary())
        same(decoder.decode(block), reference.decode(block), schema)


@settings(max_examples=100)
@given(st.integers(0, 2**64))
def test_a_record_means_what_it_means_with_the_columns_names(seed: int) -> None:
    """Against the plainest rule: rename in Python's objects, then decode by exact names."""
    schema, each = alike_blocks(seed)
    rng = random.Random(seed)
    rule = other_names(schema, rng)
    plain, renaming = JsonReferenceDecoder(schema), JsonReferenceDecoder(schema, names=rule)
    for value in [otherwise(value, rule, rng) for values in each for value in values[:20]]:
        try:
            msgspec.json.decode(value or b"")
            record = json.loads(value or b"", parse_float=_Number, parse_int=_Number, object_pairs_hook=_unique)
        except (ValueError, msgspec.DecodeError):
            continue
        if not isinstance(record, dict):
            continue
        found = renaming.decode(pa.array([value], pa.binary()))
        near: list[str] = []
        try:
            renamed = _renamed(record, schema, rule, (), near)
        except LookupError:
            assert [failure.error_class for failure in found.failures] == ["ambiguous_field"]
            continue
        if near:
            assert [failure.error_class for failure in found.failures] == ["key_case"]
            continue
        same(found, plain.decode(pa.array([_text(renamed).encode()], pa.binary())), schema)


class _Number(str):
    """A number as it was sent."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _text(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{_text(inner)}" for name, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_text, value)) + "]"
        case _:
            return json.dumps(value)


def _renamed(value: Any, declared: DeclaredType, rule: NameRule, path: Path, near: list[str]) -> Any:
    match declared:
        case StructType(fields) if isinstance(value, dict):
            names = rule.of_struct(path, [each.name for each in fields])
            found: dict[str, Any] = {}
            for name, inner in value.items():
                column = names.column(name) or name
                if found.get(column) is not None and inner is not None:
                    raise LookupError
                if inner is not None or column not in found:
                    found[column] = inner
            types = {each.name: each.type for each in fields}
            meant = {name: names.near.get(name.casefold(), (name, ""))[0] for name in found}
            near += [name for name, column in meant.items() if column not in found]
            return {
                name: _renamed(inner, types[name], rule, (*path, name), near) if name in types else inner
                for name, inner in found.items()
            }
        case ListType(element) if isinstance(value, list):
            return [_renamed(inner, element, rule, (*path, "element"), near) for inner in value]
        case MapType(_, inner_type) if isinstance(value, dict):
            return {name: _renamed(inner, inner_type, rule, (*path, "value"), near) for name, inner in value.items()}
        case _:
            return value


@pytest.mark.parametrize("keys", [["old_id"], ["ID"], ["id", "old_id"], ["id", "old_id", "ID", "Id"]])
def test_records_with_other_names_are_read_in_blocks(keys: list[str]) -> None:
    """No record of a stream whose producers have another name for a column, or are about to, is the reference's."""
    schema = parse_schema("id string not null, n long")
    rule = NameRule(((("id",), ("old_id",)),), any_case=True)
    values = [json.dumps({keys[i % len(keys)]: f"a{i}", "n": i}, separators=(",", ":")).encode() for i in range(2_000)]
    reference = CountingReference(schema, rule)
    decoder = JsonBlockDecoder(schema, names=rule, reference=reference)
    found = decoder.decode(pa.array(values, pa.binary()))
    assert found.rows.column("id").to_pylist() == [f"a{i}" for i in range(2_000)]
    assert reference.records == 0


def test_what_a_table_lacks_is_told_by_the_columns_names() -> None:
    """New fields, wider types, texts beside clashing values and kept fields, of records with other names."""
    rows = iceberg_schema(parse_schema("id string not null, n int, payer struct<name string>"))
    aliases = ((("id",), ("key",)), (("payer",), ("customer",)), (("payer", "name"), ("full",)))
    records = [
        b'{"key":"a","customer":{"full":"b","new":1}}',
        b'{"key":"b","N":4000000000}',
        b'{"ID":"c","N":"many"}',
        b'{"key":"d","id":"e","other":1}',
    ]

    def decoded_by(spec: StreamSpec) -> Decoded:
        mapping = [{"field-id": rows.find_field(".".join(path)).field_id, "names": names} for path, names in aliases]
        found = spec.resolved_for(rows, {NAME_MAPPING: json.dumps(mapping)}, evolving=True).decoder
        return FORMATS["json"].block(found).decode(pa.array(records, pa.binary()))

    evolving = decoded_by(spec_of({}, {"add": "auto", "widen": "auto", "clash": "shadow"}))
    assert {(need.change, need.path, str(need.type), need.row) for need in evolving.needs} == {
        ("add", ("payer", "new"), "long", 0),
        ("widen", ("n",), "long", 1),
        ("add", ("n_text",), "string", 2),
    }
    assert [each.error_class for each in evolving.failures] == ["out_of_range", "wrong_type", "ambiguous_field"]
    keeping = decoded_by(spec_of({"unknown_fields": "keep"}, {}))
    assert keeping.needs[0].path == ("_extra",)
    rows = with_extra_column(rows)
    assert decoded_by(spec_of({"unknown_fields": "keep"}, {})).rows.to_pylist() == [
        {"id": "a", "n": None, "payer": {"name": "b"}, "_extra": '{"payer":{"new":1}}'}
    ]


def spec_of(decode: dict[str, Any], evolve: dict[str, Any]) -> StreamSpec:
    decode = {"value": "json", "schema": "table", "case_insensitive": True, **decode}
    file = {"stream": "s", "source": {"topics": ["t"]}, "decode": decode, "table": {"name": "n.s"}, "evolve": evolve}
    return StreamSpec.model_validate(file)


def test_examples_of_unknown_fields_are_without_what_a_column_takes() -> None:
    decoder = DecoderSpec("json", DeclaredSchema(SCHEMA.text), {NAME_RULE: BOTH})
    values = pa.array([b'{"KEY":"a","CUSTOMER":{"Full":"b","x":1}}'], pa.binary())
    found = FORMATS["json"].unknown_fields(decoder, values, [0], ["$.payer.x"])
    assert {path: (field.within, field.column) for path, field in found.items()} == {"$.payer.x": ("$.payer", "x long")}
