"""Names of columns in a stamp: whatever becomes of a table's mapping, the columns are found as the first time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.decided_names import (
    MOST_CHARACTERS,
    DecidedNames,
    decided_names,
    decided_properties,
    pack_names,
    unpack_names,
)
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.name_matching import NAME_MAPPING, Aliases, aliases_of
from jobs.schema.parser import parse_schema

SCHEMA = iceberg_schema(parse_schema("id string, s struct<a int, b int>, l list<struct<x int>>, m map<string, int>"))
IDS = sorted(SCHEMA.field_ids)
names = st.lists(st.sampled_from(["id", "a", "b", "x", "s", "other", "der Name", "é", "long " * 30]), max_size=3)


def entry(number: int, of: list[str], inner: list[Any]) -> dict[str, Any]:
    return {"field-id": number, "names": of, "fields": inner}


flat = st.lists(st.builds(entry, st.sampled_from(IDS), names, st.just([])), max_size=8)
mappings = st.one_of(
    st.none(),
    flat.map(json.dumps),
    st.builds(lambda outer, inner: json.dumps([entry(2, outer, inner)]), names, flat),
)


def matched(properties: Mapping[str, str]) -> Aliases:
    return aliases_of(SCHEMA, properties, "n.t")


def of(mapping: str | None) -> dict[str, str]:
    return {"other": "property"} | ({} if mapping is None else {NAME_MAPPING: mapping})


def carried(mapping: str | None) -> DecidedNames:
    """As a stamp's JSON brings it to the second run."""
    text = json.dumps(pack_names(decided_names(SCHEMA, mapping)))
    assert len(text) <= 2 * MOST_CHARACTERS
    found = unpack_names(json.loads(text))
    assert found is not None
    return found


@given(mappings, mappings, st.lists(mappings, max_size=3))
def test_a_second_run_matches_names_as_the_first(then: str | None, now: str | None, between: list[str | None]) -> None:
    older = [of(each) for each in (*between, then)]
    made = decided_properties(carried(then), SCHEMA, of(now), older)
    assert matched(made) == matched(of(then))
    assert made["other"] == "property"


MANY = json.dumps([entry(1, [f"name {number}" for number in range(100)], [])])


def test_very_many_names_are_a_digest_and_looked_for_where_they_stood() -> None:
    names = carried(MANY)
    assert isinstance(names, str) and len(names) == 16
    asked: list[int] = []

    def older() -> Iterator[Mapping[str, str]]:
        for number, mapping in enumerate(("no mapping", None, MANY, "never asked for")):
            asked.append(number)
            yield of(mapping)

    found = decided_properties(names, SCHEMA, of(None), older())
    assert matched(found) == matched(of(MANY)) and asked == [0, 1, 2]
    # What came since for other columns is no other mapping.
    asked.clear()
    more = json.dumps([*json.loads(MANY), entry(99, ["of a column that came since"], [])])
    assert matched(decided_properties(names, SCHEMA, of(more), older())) == matched(of(MANY)) and asked == []
    # Where nothing goes with it any more, the mapping stays as it is, and letters that are missing are told.
    assert decided_properties(names, SCHEMA, of("[]"), [of(None)]) == of("[]")


@pytest.mark.parametrize(
    ("document", "found"), [(None, None), ({}, {}), ({"1": ["a"]}, {1: ("a",)}), ("ab", "ab"), (5, None)]
)
def test_what_a_stamp_says(document: Any, found: Any) -> None:
    assert unpack_names(document) == found
    assert pack_names(found) == (document if document != 5 else None)
