"""Columns of a new table, of what its first records held; and what is kept beside the columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.formats.decoder_spec import resolved_rows
from jobs.formats.json.inference import first_columns
from jobs.formats.json.rescued_json import members_without_column
from jobs.formats.json.seen_values import Place, SeenValues
from jobs.formats.json_texts import canonical
from jobs.formats.known_formats import FORMATS
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.schema.rescued_data import with_extra_column


def columns(*records: Any, **infer: Any) -> str | None:
    seen = SeenValues()
    for number, record in enumerate(records):
        seen.add(record, Place("t", 0, number))
    found = first_columns(seen, infer)
    return found.text if found else None


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"a": 1, "b": None}, {"c": []}, {"d": {}}], "a long"),
        ([{"a": {"b": None, "c": 1}}], "a struct<c long>"),
        ([{"a": {"b": None}}, {"l": [None]}, {"l": [[]]}], None),
        ([{"a": [{"x": None, "y": "t"}]}], "a list<struct<y string>>"),
        ([], None),
        # Iceberg calls the field b in a by the name of the other one.
        ([{"a": {"b": 1}, "a.b": 2, "l.element": 1, "l": [1]}], "a struct<b long>, `l.element` long"),
        ([{"s": {"a": {"b": 1}, "a.b": 2}}], None),
    ],
)
def test_what_says_nothing_has_no_column(records: list[Any], expected: str | None) -> None:
    assert columns(*records) == expected


def test_what_is_asked_for() -> None:
    record = {"t": "2026-01-31", "o": {"p": 1, "q": 2}, "s": {"p": 1, "q": "x"}}
    assert columns(record, times=True, objects="map") == "t date, o map<string, long>, s struct<p long, q string>"
    assert columns({"n": 1}, fractions="decimal(9,2)") == "n long"


TABLE = parse_schema("id string, s struct<a int>, l list<struct<x int>>, m map<string, struct<y int>>")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"id":"a"}', None),
        (b'{"id":"a","b":1.10,"a":[1, {"z":1e5,"y":null}]}', '{"a":[1,{"y":null,"z":1e5}],"b":1.10}'),
        (b' {"s":{"a":1,"b":2}} ', '{"s":{"b":2}}'),
        (b'{"l":[{"x":1},{"q":true},{}]}', '{"l":[null,{"q":true},null]}'),
        (b'{"m":{"k":{"y":1,"z":"u"},"j":{}}}', '{"m":{"k":{"z":"u"}}}'),
        (b'{"s":null,"n":null,"\\u00fc":"\\u00fc"}', '{"n":null,"ü":"ü"}'),
        (b'{"x":1,"x":2}', '{"x":2}'),
    ],
)
def test_members_without_column(record: bytes, expected: str | None) -> None:
    assert members_without_column(TABLE, record) == expected


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "x", "b c"]), inner, max_size=2),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from(["id2", "b", "ü"]), values), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_nothing_of_a_record_is_lost(records: list[dict[str, Any]]) -> None:
    rows = with_extra_column(iceberg_schema(TABLE))
    spec = resolved_rows("json", rows, {"unknown_fields": "keep"}).decoder
    block = [json.dumps({"id": str(n), **each}).encode() for n, each in enumerate(records)]
    for make in (FORMATS["json"].reference, FORMATS["json"].block):
        decoded = make(spec).decode(pa.array(block, pa.binary()))
        assert not decoded.failures and not decoded.unknown_fields
        kept = decoded.rows.column("_extra").to_pylist()
        assert kept == [canonical(json.dumps(each).encode()).decode() if each else None for each in records]
