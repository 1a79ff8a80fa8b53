"""The changes of a certificate: the same for the same seed, with the fate that the real decoder gives them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from jobs.local.certify.changes import (
    CHANGES_SCHEMA,
    KEYS,
    NOT_SENT,
    Change,
    ChangedRows,
    change_to_load,
    partition_of,
    source_change,
)
from jobs.local.certify.load import BAD_KINDS, Fate
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.parser import parse_schema


@pytest.mark.parametrize("seed", [1, 2])
def test_the_decoder_agrees_with_each_fate(seed: int) -> None:
    records = [change_to_load(seed, number) for number in range(2000)]
    decoder = JsonReferenceDecoder(parse_schema(CHANGES_SCHEMA))
    decoded = decoder.decode(pa.array([each.value for each in records], pa.binary()))
    found = dict.fromkeys(decoded.positions.tolist(), Fate.LANDED)
    found |= dict.fromkeys((failure.row for failure in decoded.failures), Fate.DEAD)
    found |= dict.fromkeys(decoded.tombstones.tolist(), Fate.TOMBSTONE)
    assert [found[row] for row in range(len(records))] == [each.fate for each in records]


def test_a_record_says_which_change_it_bears() -> None:
    records = [change_to_load(7, number) for number in range(3000)]
    kinds = Counter(each.kind for each in records)
    assert set(kinds) == {"good", *BAD_KINDS}
    again = 0
    for number, each in enumerate(records):
        change = source_change(7, each.number)
        assert each.key == change.id.encode()
        assert each == change_to_load(7, each.number), "one that was sent again is as it was"
        again += each.number < number
        if each.kind == "good" and each.value:
            event = json.loads(each.value)
            row = event["before" if change.op == "d" else "after"]
            assert (event["op"], row["id"], row["amount"]) == (change.op, change.id, change.amount)
    assert 0.03 < again / len(records) < 0.07
    changes = [source_change(7, number) for number in range(3000)]
    assert len({each.id for each in changes}) == KEYS
    assert {each.op for each in changes if each.note == NOT_SENT} == {"u"}


def test_all_changes_of_a_row_are_in_one_partition_and_in_the_order_of_the_source_but_for_what_is_sent_again() -> None:
    places: dict[bytes, set[int]] = {}
    sent: dict[int, list[int]] = {0: [], 1: []}
    for number in range(2000):
        record = change_to_load(5, number)
        places.setdefault(record.key, set()).add(partition_of(record, 2))
        if record.number == number:
            sent[partition_of(record, 2)].append(record.number)
    assert {len(each) for each in places.values()} == {1}
    assert min(map(len, sent.values())) > 500
    assert all(before < after for each in sent.values() for before, after in pairwise(each))


def test_the_rows_that_changes_make() -> None:
    made = ChangedRows()
    made.follow([Change(1, "a", "c", 10, "x"), Change(2, "b", "u", 20, NOT_SENT), Change(3, "a", "u", 11, NOT_SENT)])
    assert made.rows == {"a": (11, "x"), "b": (20, None)}
    # Sent again behind a later change of the partition; the newest one again changes nothing.
    made.follow([Change(1, "a", "c", 10, "x"), Change(3, "a", "u", 11, NOT_SENT)])
    assert made.rows["a"] == (11, "x")
    made.follow([Change(4, "a", "d", 0, ""), Change(1, "a", "c", 10, "x")])
    assert made.rows == {"b": (20, None)}
    made.follow([Change(5, "a", "u", 12, NOT_SENT)])
    assert made.rows["a"] == (12, None), "nothing is known of it any more"
