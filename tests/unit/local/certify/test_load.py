"""The records of a certificate: the same for the same seed, with the fate that the real decoder gives them."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from jobs.local.certify.load import (
    BAD_KINDS,
    SCHEMA,
    Expected,
    Fate,
    record_to_load,
)
from jobs.local.certify.shapes import TYPES
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.parser import parse_schema


def test_a_seed_makes_the_same_records() -> None:
    assert [record_to_load(3, number) for number in range(50)] == [record_to_load(3, number) for number in range(50)]
    assert [record_to_load(3, number) for number in range(50)] != [record_to_load(4, number) for number in range(50)]


def test_fields_that_are_added_change_no_other() -> None:
    for number in range(200):
        plain, more = record_to_load(3, number), record_to_load(3, number, ["added_1"])
        assert (plain.kind, plain.key, plain.fate) == (more.kind, more.key, more.fate)
        if plain.value and plain.kind == "good":
            assert json.loads(more.value or b"") == {**json.loads(plain.value), "added_1": number}


def test_types_that_come_later_change_nothing_but_the_type_of_some() -> None:
    seen = Counter[str]()
    for number in range(2000):
        plain, more = record_to_load(3, number), record_to_load(3, number, (), ["new_1", "new_2"])
        assert plain.key == more.key
        seen[more.type] += 1
        if more.kind == "good" and more.value:
            assert json.loads(more.value)["type"] == more.type
    assert set(seen) == {*TYPES, "new_1", "new_2"}
    assert 0.2 < (seen["new_1"] + seen["new_2"]) / 2000 < 0.3


def test_what_lands_by_a_type_that_came_later() -> None:
    names = (*TYPES, "new_1")
    expected = Expected({0: np.array([1, 1, 2], np.uint8)}, types={0: np.array([4, 0, 4], np.uint8)}, names=names)
    assert expected.landed(["new_1"])[0].tolist() == [True, False, False]
    assert expected.landed(TYPES[:1])[0].tolist() == [False, True, False]
    assert expected.landed(())[0].tolist() == [False, False, False]


def test_every_kind_comes_and_the_bad_are_few() -> None:
    kinds = Counter(record_to_load(1, number).kind for number in range(5000))
    assert set(kinds) == {"good", *BAD_KINDS}
    assert 0.02 < 1 - kinds["good"] / 5000 < 0.05


def test_what_lands_by_its_type() -> None:
    records = [record_to_load(1, number) for number in range(2000)]
    fates = np.array([each.fate for each in records], np.uint8)
    types = np.array([TYPES.index(each.type) for each in records], np.uint8)
    expected = Expected({0: fates}, types={0: types})
    assert set(types.tolist()) == {0, 1, 2, 3}
    assert expected.landed()[0].tolist() == [each.kind == "good" for each in records]
    some = expected.landed(TYPES[:2])[0].tolist()
    assert some == [each.kind == "good" and each.type in TYPES[:2] for each in records]
    for each in records:
        if each.kind == "good" and each.value:
            assert json.loads(each.value)["type"] == each.type


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_decoder_agrees_with_each_fate(seed: int) -> None:
    records = [record_to_load(seed, number) for number in range(2000)]
    decoded = JsonReferenceDecoder(parse_schema(SCHEMA)).decode(pa.array([each.value for each in records], pa.binary()))
    found = dict.fromkeys(decoded.positions.tolist(), Fate.LANDED)
    found |= dict.fromkeys((failure.row for failure in decoded.failures), Fate.DEAD)
    found |= dict.fromkeys(decoded.tombstones.tolist(), Fate.TOMBSTONE)
    assert [found[row] for row in range(len(records))] == [each.fate for each in records]
