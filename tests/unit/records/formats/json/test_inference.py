"""Inferred schemas take the records that they are inferred from, and ask for nothing that was not said."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.json.inference import InferenceRules, Inferred, inferred
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.seen_values import Place, SeenValues, parsed
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema

PLAIN = InferenceRules()
TIMES = InferenceRules(times=True)
ENCODER = msgspec.json.Encoder(decimal_format="number")
DECLARED = InferenceRules(declared=True)
DECIMAL = InferenceRules(decimal=Primitive("decimal", 12, 2, "number"))


def seen(records: list[bytes], first: int = 0) -> SeenValues:
    found = SeenValues()
    for offset, record in enumerate(records, first):
        value = parsed(record)
        assert value is not None
        found.add(value, Place("t", 0, offset))
    return found


def infer(*records: Any, rules: InferenceRules = PLAIN) -> Inferred:
    return inferred(seen([each if isinstance(each, bytes) else json.dumps(each).encode() for each in records]), rules)


def text(found: Inferred) -> str:
    assert found.schema is not None
    return found.schema.text


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"a": 1}], "a long"),
        ([{"a": 2**63 - 1}, {"a": -(2**63)}], "a long"),
        ([{"a": 2**63}], "a decimal(38,0)"),
        ([{"a": 1}, {"a": 1.5}], "a double"),
        ([b'{"a":1.0}'], "a double"),
        ([b'{"a":1e3}'], "a double"),
        ([{"a": "x"}], "a string"),
        ([{"a": "2026-01-31T12:00:00Z"}], "a string"),
        ([{"a": True}, {"a": None}], "a boolean"),
        ([{"a": None}], "a string"),
        ([{"a": [1, 2.5]}], "a list<double>"),
        ([{"a": []}], "a list<string>"),
        ([{"a": []}, {"a": [True]}], "a list<boolean>"),
        ([{"a": {}}], "a map<string, string>"),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], "a struct<b long, c string>"),
        ([{"a": [{"b": 1}, {"c": [1]}]}], "a list<struct<b long, c list<long>>>"),
        ([{"a b": 1, "select": "x"}], "`a b` long, select string"),
        ([{"a": {f"k{n}": n}} for n in range(200)], "a map<string, long>"),
        ([{"b": 1}, {"a": 1}], "b long, a long"),
    ],
)
def test_columns_of_records(records: list[Any], expected: str) -> None:
    assert text(infer(*records)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.123+02:00"], "timestamptz"),
        (["2026-01-31T12:00:00"], "timestamp"),
        (["2026-01-31"], "date"),
        (["2026-01-31", "2026-01-31T12:00:00"], "string"),
        (["2026-01-31", "later"], "string"),
        (["20260131"], "string"),
    ],
)
def test_texts_are_times_only_if_asked(values: list[str], expected: str) -> None:
    records = [{"a": value} for value in values]
    assert text(infer(*records, rules=TIMES)) == f"a {expected}"
    assert text(infer(*records)) == "a string"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2026-02-30", "2026-02-28"], "string"),
        (["2026-01-31T12:00:00.1234567"], "string"),
        (["Jan 5 2026", "Feb 28 2026"], "date as 'MMM d yyyy'"),
        (["5.1.2026 7:05", "28.12.2026 17:05"], "timestamp as 'd.M.yyyy H:mm'"),
        (["5.1.2026", "28.12.2026 17:05"], "string"),
        (["7", "1.5"], "string"),
    ],
)
def test_a_file_declares_times_as_they_are_written(values: list[str], expected: str) -> None:
    rules = InferenceRules(times=True, declared=True)
    assert text(infer(*({"a": value} for value in values), rules=rules)) == f"a {expected}"
    assert text(infer({"a": "Jan 5 2026"}, rules=TIMES)) == "a string", "no table has a type of a pattern"


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"a": 1}, {"a": "x"}], "a json"),
        ([*[{"a": 1}] * 19, {"a": "x"}], "a long"),
        ([{"a": [1, 2, "x"]}], "a list<json>"),
        ([{"a": [*[1] * 50, "x"]}], "a list<json>"),
        ([{"a": {f"k{n}-{m}": m or {"x": 1} for m in range(9)}} for n in range(30)], "a map<string, json>"),
        ([{"a": {f"k{n}-{m}": {f"l{m}": m or "x"} for m in range(9)}} for n in range(30)],
         "a map<string, struct<l0 string, l1 long, l2 long, l3 long, l4 long, l5 long, l6 long, l7 long, l8 long>>"),
        ([{"a": 10**39}], "a json"),
        ([b'{"a":1e400}'], "a json"),
        ([b'{"a":1e300}'], "a double"),
        ([{"a": {"x.y": 1, "x": {"y": 2}}}], "a json"),
        ([{"x.y": 1, "x": {"y": 2}}], "`x.y` long"),
        ([{"a": {'"': 1}}], "a json"),
        ([{"a": {f"k{n}": n for n in range(2_001)}}], "a map<string, json>"),
    ],
)  # fmt: skip
def test_what_no_other_type_takes_is_declared_as_json(records: list[Any], expected: str) -> None:
    assert text(infer(*records, rules=DECLARED)) == expected


def test_fractions_are_the_decimal_that_is_asked_for() -> None:
    assert text(infer({"a": 1.25, "n": 3}, rules=DECIMAL)) == "a decimal(12,2), n long"


@pytest.mark.parametrize(
    ("records", "path", "doubt"),
    [
        ([{"a": None}], "$.a", "always_null"),
        ([{"a": []}], "$.a", "empty"),
        ([{"a": {}}], "$.a", "empty"),
        ([{"a": 1}, {"a": "x"}, {"a": 2}], "$.a", "mixed"),
        ([{"a": 10**38}], "$.a", "beyond_decimal"),
        ([{"x": 1, 'a"b': 1}], '$.a"b', "name"),
        ([{"x": 1, "": 1}], "$.", "name"),
        ([{"a": 1, "A": 2}, {"a": 1}], "$.A", "case"),
        ([{"x": 1, "_kafka_offset": 2}], "$._kafka_offset", "kafka_name"),
    ],
)
def test_what_a_person_should_look_at(records: list[Any], path: str, doubt: str) -> None:
    found = infer(*records)
    assert {column.path: column.doubts for column in found.columns if column.doubts} == {path: (doubt,)}
    parse_schema(text(found))


def test_of_values_of_several_kinds_the_most_frequent_decides() -> None:
    found = infer({"a": 1}, {"a": "x"}, {"a": 2})
    assert text(found) == "a long"
    assert found.columns[0].seen.kinds == {"number": 2, "text": 1}
    assert found.columns[0].seen.first_of["text"] == Place("t", 0, 1)


def test_what_was_seen_is_counted() -> None:
    found = infer({"a": 5, "b": {"c": "xyz"}}, {"a": None}, {"a": -7.25}).columns
    a, b, c = found
    assert (a.path, a.of, a.seen.count, a.seen.nulls) == ("$.a", 3, 2, 1)
    assert (float(a.seen.least or 0), a.seen.most, a.seen.whole_digits, a.seen.fraction_digits) == (-7.25, 5, 1, 2)
    assert (b.path, b.seen.count, c.path, c.of, c.seen.longest) == ("$.b", 1, "$.b.c", 1, 3)


def test_no_record_with_a_field_gives_no_schema() -> None:
    assert infer({}).schema is None
    assert inferred(SeenValues(), PLAIN).schema is None


def test_types_are_nested_no_deeper_than_a_schema_can_be() -> None:
    value: Any = 1
    for _ in range(60):
        value = {"a": value}
    found = infer(value)
    parse_schema(text(found))
    assert found.columns[-1].doubts == ("too_deep",)


@pytest.mark.parametrize("record", [b"", b"null", b"[1]", b'"a"', b"{", b'{"a":\xff}', b"[" * 5000])
def test_what_is_no_object_is_none(record: bytes) -> None:
    assert parsed(record) is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "C", "d e"]), inner, max_size=3)
    ),
    max_leaves=8,
)
records = st.lists(st.dictionaries(st.sampled_from(["id", "n", "o"]), values, min_size=1), min_size=1, max_size=6)


@given(records)
@settings(max_examples=150, deadline=None)
def test_records_land_unless_there_is_a_doubt_about_a_field_of_theirs(made: list[dict[str, Any]]) -> None:
    block = [json.dumps(record).encode() for record in made]
    found = inferred(seen(block), PLAIN)
    assert found.schema is not None
    parse_schema(text(found))
    decoded = JsonReferenceDecoder(found.schema, unknown_fields="fail").decode(pa.array(block, pa.binary()))
    if not any("mixed" in column.doubts for column in found.columns):
        assert decoded.failures == []


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.sampled_from(
        ["2026-01-31", "2026-02-30", "2026-01-31T00:00:00.1234567Z", "Jan 5 2026", "5.1.2026 1:05", "7", "1.5"]
    )
    | st.sampled_from([0.5, 1e300, Decimal("1e400"), Decimal("-1e-400")]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "A", "a.b", "b", '"', "", "_kafka_x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["id", "a", "a.b", "o", "_kafka_y", '"']), odd, min_size=1),
        min_size=1,
        max_size=19,
    ),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_whatever_is_declared_takes_the_records_that_were_seen(made: list[dict[str, Any]], times: bool) -> None:
    block = [ENCODER.encode(record) for record in made]
    found = inferred(seen(block), InferenceRules(times=times, declared=True))
    if found.schema is not None:
        declared = parse_schema(text(found))
        assert JsonReferenceDecoder(declared).decode(pa.array(block, pa.binary())).failures == []


@given(records, st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_what_was_seen_in_parts_is_merged(made: list[dict[str, Any]], cut: int) -> None:
    block = [json.dumps(record).encode() for record in made]
    cut = min(cut, len(block))
    parts = seen(block[:cut])
    parts.merge(seen(block[cut:], cut))
    assert parts == seen(block)
    assert inferred(parts, TIMES) == inferred(seen(block), TIMES)
