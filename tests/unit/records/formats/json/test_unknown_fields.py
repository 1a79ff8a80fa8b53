"""Keys that a schema does not declare: where they are found, and the column that is offered for them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder import LONGEST_PATH, shortened_path
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.unknown_fields import (
    MOST_VALUES,
    column_for,
    guessed_type,
    unknown_examples,
)
from jobs.records.formats.json_texts import canonical
from jobs.records.schema.parser import parse_schema

SCHEMA = "id string, payer struct<name: string>, items list<struct<sku: string>>, limits map<string, struct<n: int>>"
DECLARED = parse_schema(SCHEMA)


@pytest.mark.parametrize(
    ("values", "guess"),
    [
        ([], "string"),
        ([None], "string"),
        (["a", None], "string"),
        ([1, 2**62], "long"),
        ([2**63], "decimal(38,0)"),
        ([1, 2.5], "double"),
        ([True], "boolean"),
        ([True, 1], "string"),
        (["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+01:00"], "timestamptz"),
        (["2026-01-31T12:00:00"], "string"),
        (["2026-01-31"], "date"),
        (["2026-01-31", "soon"], "string"),
        ([[1, None], []], "list<long>"),
        ([[]], "list<string>"),
        ([{"a": 1}, {"b": "x", "a": None}], "struct<a: long, b: string>"),
        ([[{"a-b": 1.5}]], "list<struct<`a-b`: double>>"),
        ([{}], "struct<…>"),
        ([{f"key{i}": "x" for i in range(50)}], "struct<…>"),
        ([1, "a"], "string"),
    ],
)
def test_the_guess(values: list[Any], guess: str) -> None:
    assert guessed_type(values) == guess
    offered = column_for("x", values)
    if "…" in guess:
        assert offered is None
    else:
        assert offered == f"x {guess}"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("note", "note string"),
        ("order-id", "`order-id` string"),
        ("a`b", "`a``b` string"),
        ("9", "`9` string"),
        ('a"b', None),
        ("", None),
    ],
)
def test_the_column_is_one_that_a_schema_takes(name: str, column: str | None) -> None:
    assert column_for(name, ["x"]) == column
    if column is not None:
        assert parse_schema(column).fields[0].name == name


def test_each_key_is_found_where_it_first_stands() -> None:
    records = [
        {"id": "a"},
        {"id": "a", "x": None, "payer": {"name": "n", "mail": "m"}},
        {"items": [{"sku": "s"}, {"sku": "s", "n": 5}], "x": 7},
        {"limits": {"one": {"n": 1, "deep": {"a": [1]}}}, "a.b": True},
    ]
    values = pa.array([json.dumps(each).encode() for each in records], pa.binary())
    paths = ["$.x", "$.payer.mail", "$.items[].n", "$.limits{}.deep", "$.a.b", "…", "$.never"]
    found = unknown_examples(DECLARED, values, range(4), paths)
    assert {path: (each.row, each.within, each.name, each.values) for path, each in found.items()} == {
        "$.x": (1, "$", "x", [None, 7]),
        "$.payer.mail": (1, "$.payer", "mail", ["m"]),
        "$.items[].n": (2, "$.items[]", "n", [5]),
        "$.limits{}.deep": (3, "$.limits{}", "deep", [{"a": [1]}]),
        "$.a.b": (3, "$", "a.b", [True]),
    }
    many = pa.array([b'{"x": %d}' % i for i in range(50)], pa.binary())
    assert len(unknown_examples(DECLARED, many, range(50), ["$.x"])["$.x"].values) == MOST_VALUES


def test_a_path_is_short_and_does_nothing_to_a_terminal() -> None:
    assert shortened_path("$.x") == "$.x"
    assert shortened_path("$.\x1b[2J") == "$.\\x1b[2J"
    assert len(shortened_path("$." + "y" * 10_000)) == LONGEST_PATH + 1


KEYS = st.sampled_from(["id", "payer", "items", "limits", "name", "sku", "n", "x", "y", "a.b"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["s", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=8))
def test_whatever_the_decoder_counts_is_found(records: list[dict[str, Any]]) -> None:
    values = pa.array([json.dumps(each).encode() for each in records], pa.binary())
    decoded = JsonReferenceDecoder(DECLARED).decode(values)
    found = unknown_examples(DECLARED, values, decoded.positions, decoded.unknown_fields)
    assert set(found) == set(decoded.unknown_fields)
    for each in found.values():
        guessed_type(each.values)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(values, st.sampled_from([None, 1, "\t"]), st.booleans(), st.randoms())
def test_white_space_order_and_escapes_do_not_matter(value: Any, indent: Any, ascii_only: bool, chance: Any) -> None:
    def shuffled(each: Any) -> Any:
        if isinstance(each, list):
            return [shuffled(one) for one in each]
        if isinstance(each, dict):
            return dict(sorted(((k, shuffled(one)) for k, one in each.items()), key=lambda _: chance.random()))
        return each

    one = canonical(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode())
    assert canonical(json.dumps(shuffled(value), ensure_ascii=not ascii_only).encode()) == one
    assert canonical(one) == one
    assert json.loads(one) == value


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (' { "b" : 1.50 , "a" : [ 1E2, -0, 123456789012345 ] } ', '{"a":[1E2,-0,123456789012345],"b":1.50}'),
        (r'"\u0041\u00e9\/\"\\\b\u0001\u007f😀\ud83d\ude00"', '"Aé/\\"\\\\\\b\\u0001\x7f😀😀"'),
        ('{"a":1,"a":{"x":1,"x":2}}', '{"a":{"x":2}}'),
        ('{"\uffff":1,"😀":2,"Z":3,"é":4,"":5}', '{"":5,"Z":3,"é":4,"\uffff":1,"😀":2}'),
        ("null", "null"),
        ("[]", "[]"),
        ("{}", "{}"),
    ],
)  # fmt: skip
def test_the_text_of_a_value(sent: str, text: str) -> None:
    assert canonical(sent.encode()) == text.encode()


@pytest.mark.parametrize("sent", ["", "NaN", "[Infinity]", "{", "1 2", "'a'", r'"\ud800"', "01"])
def test_what_is_no_json_is_refused(sent: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        canonical(sent.encode())
