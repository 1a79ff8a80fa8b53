"""Rows that say in a column what happened to them, and rows that stand in place of former ones."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.transforms.change_events.row_changes import without_placeholders
from tests.unit.records.transforms.change_events.streams import (
    fates,
    key_of,
    landed,
    stream,
)

UNWRAPPED = "id int not null, note string, __op string, __source_sequence string, __ts_ms long"
BY_SEQUENCE = {"envelope": "columns", "op": "__op", "order_by": "__source_sequence", "at": "__ts_ms"}
P = "__debezium_unavailable_value"


def test_unwrapped_rows_have_the_columns_of_events() -> None:
    spec = stream(UNWRAPPED, BY_SEQUENCE, key_of("id int"))
    at = {"__ts_ms": 1764000000000}
    records = [
        {"key": {"id": 1}, "value": {"id": 1, "note": "a", "__op": "r", "__source_sequence": '[null,"255"]', **at}},
        {"key": {"id": 1}, "value": {"id": 1, "note": P, "__op": "u", "__source_sequence": '["256","257"]', **at}},
        {"key": {"id": 1}, "value": {"id": 1, "note": None, "__op": "d", "__source_sequence": '["258","257"]', **at}},
        {"key": {"id": 1}, "value": None},
        {
            "key": {"id": 2},
            "headers": {"__debezium.oldkey": {"id": 1}},
            "value": {"id": 2, "note": "b", "__op": "c", "__source_sequence": '["258","259"]', **at},
        },
    ]
    first, update, deletion, tombstone, created = fates(landed(spec, records))
    assert first == {
        "id": 1,
        "note": "a",
        "__source_sequence": '[null,"255"]',
        "__ts_ms": 1764000000000,
        "_change_op": "r",
        "_change_at": datetime(2025, 11, 24, 16, tzinfo=UTC),
        "_change_position": "0000000000000000/00000000000000ff",
        "_change_lineage": "columns",
        "_change_transaction": None,
        "_change_unavailable": None,
        "_change_key": {"id": 1},
        "_change_old_key": None,
    }
    assert (update["note"], update["_change_unavailable"]) == (None, ["note"])
    assert deletion["_change_op"] == "d"
    # A deletion is a row of its own here, so what follows it says nothing more.
    assert tombstone == "tombstone"
    assert created["_change_old_key"] == {"id": 1}
    assert first["_change_position"] < update["_change_position"] < deletion["_change_position"]


WORDS: dict[str, Any] = {"column": "kind", "insert": "I", "update": ["U", "1"], "delete": ["D", True], "read": "0"}


def test_a_time_beyond_the_calendar_is_a_dead_letter() -> None:
    spec = stream("id int, kind string, at long", {"envelope": "columns", "op": "kind", "order_by": ["id"], "at": "at"})
    records = [{"value": {"id": n, "kind": "c", "at": at}} for n, at in enumerate([1731508712229224, 2**62, 0])]
    *found, landed_row = fates(landed(spec, records))
    said = "changes: needs timestamptz as epoch_ms in the years 0001 to 9999, found"
    assert found == [f"{said} 1731508712229224", f"{said} {2**62}"]
    assert landed_row["_change_at"] == datetime(1970, 1, 1, tzinfo=UTC)


def test_words_of_ones_own_and_the_time_of_kafka() -> None:
    spec = stream("id int, kind string, v long", {"envelope": "columns", "op": WORDS, "order_by": ["v"]})
    records = [
        {"value": {"id": n, "kind": each, "v": v}, "timestamp": 1000}
        for n, (each, v) in enumerate([("I", -1), ("U", 0), ("1", 1), ("D", 2), ("true", 3), ("0", -5)])
    ]
    found = fates(landed(spec, records))
    assert [each["_change_op"] for each in found] == list("cuuddr")
    assert found[0]["_change_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [each["id"] for each in sorted(found, key=lambda each: each["_change_position"])] == [5, 0, 1, 2, 3, 4]
    assert not [name for name in found[0] if name.endswith("key") or name == "kind"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"id": 1, "kind": "x", "v": 1}, "changes: needs I, U, 1, D, true, 0, found 'x'"),
        ({"id": 1, "v": 1}, "changes: needs I, U, 1, D, true, 0, found null"),
        ({"id": 1, "kind": "I"}, "changes: needs a value, by which changes are ordered, found null"),
    ],
)
def test_what_says_nothing_is_a_dead_letter(value: dict[str, Any], said: str) -> None:
    spec = stream("id int, kind string, v long", {"envelope": "columns", "op": WORDS, "order_by": ["v"]})
    assert fates(landed(spec, [{"value": value}])) == [said]


def test_a_text_that_is_no_sequence_is_a_dead_letter() -> None:
    value = {"id": 1, "__op": "u", "__source_sequence": "24023119"}
    found = fates(landed(stream(UNWRAPPED, BY_SEQUENCE, key_of("id int")), [{"key": {"id": 1}, "value": value}]))
    assert found == [
        'changes: needs a value, by which changes are ordered, found no text such as ["24023119","24023128"]'
    ]


ROWS = "id int not null, name string not null"


@pytest.mark.parametrize("reference", [False, True])
def test_each_record_stands_in_place_of_the_former_one(reference: bool) -> None:
    spec = stream(ROWS, "upsert", key_of("id long, shard int"))
    records = [
        {"value": None, "key": {"id": 7, "shard": 1}, "timestamp": 1000},
        {"value": {"id": 1, "name": "a"}, "key": {"id": 1}},
        {"value": {"id": 2}, "key": {"id": 2}},
        {"value": None, "key": {"id": 1}},
        {"value": None, "key": None},
        {"value": None, "key": b"["},
        {"value": {"id": 3, "name": "c"}, "key": None},
    ]
    found = fates(landed(spec, records, reference=reference))
    assert found[0] == {
        # The key holds more than the row's column may, so that stays null.
        "id": None,
        "name": None,
        "_change_op": "d",
        "_change_at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "_change_position": None,
        "_change_lineage": None,
        "_change_transaction": None,
        "_change_unavailable": None,
        "_change_key": {"id": 7, "shard": 1},
        "_change_old_key": None,
    }
    assert (found[1]["_change_op"], found[1]["name"]) == ("u", "a")
    assert found[2] == "decode_value: needs string, found no such key"
    assert (found[3]["_change_op"], found[3]["_change_key"]) == ("d", {"id": 1, "shard": None})
    assert found[4] == "changes: needs a key, as a record without a value deletes the row of its key, found null"
    assert str(found[5]).startswith("decode_key: ")
    assert found[6]["_change_key"] is None


def test_a_key_that_is_a_single_value_fills_its_column() -> None:
    key = {"format": "string", "into": "_change_key"}
    spec = stream("code string, n int", {"envelope": "upsert", "key": "code"}, key)
    rows = fates(landed(spec, [{"value": None, "key": b"x"}, {"value": {"code": "y", "n": 1}, "key": b"y"}]))
    assert [(each["_change_op"], each["code"], each["_change_key"]) for each in rows] == [
        ("d", "x", {"code": "x"}),
        ("u", "y", {"code": "y"}),
    ]


def test_only_records_without_a_value_are_rows_as_well() -> None:
    steps = [{"where": "_change_op = 'd'"}, {"compute": {"k": "id + 1"}}]
    spec = stream(ROWS, "upsert", key_of("id int"), transform=steps)
    records = [{"value": None, "key": {"id": n}} for n in range(3)]
    assert [each["k"] for each in fates(landed(spec, records))] == [1, 2, 3]


def test_headers_stand_beside_the_row() -> None:
    file = {"decode": {"value": "json", "schema": ROWS, "headers": {"trace": "string"}, "key": key_of("id int")}}
    spec = stream(ROWS, "upsert", **file)
    (row,) = fates(landed(spec, [{"value": None, "key": {"id": 1}, "headers": {"trace": b"t"}}]))
    assert list(row)[:4] == ["id", "name", "trace", "_change_op"]
    assert (row["id"], row["trace"]) == (1, "t")


UNAVAILABLE_P = "__debezium_unavailable_value"
CODES = list(UNAVAILABLE_P.encode())
FORMS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.string(), UNAVAILABLE_P, UNAVAILABLE_P + "x"),
    (pa.string(), f'"{UNAVAILABLE_P}"', UNAVAILABLE_P[:-1]),
    (pa.string(), f'["{UNAVAILABLE_P}"]', f'["{UNAVAILABLE_P}","a"]'),
    (pa.string(), f'{{"{UNAVAILABLE_P}":"{UNAVAILABLE_P}"}}', "{}"),
    (pa.string(), UNAVAILABLE_P.encode().hex(), ""),
    (pa.string(), "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "X19k"),
    (pa.binary(), UNAVAILABLE_P.encode(), b""),
    (pa.list_(pa.string()), [UNAVAILABLE_P], [UNAVAILABLE_P, UNAVAILABLE_P]),
    (pa.list_(pa.binary()), [UNAVAILABLE_P.encode()], []),
    (pa.list_(pa.int32()), CODES, [*CODES, 1]),
    (pa.list_(pa.int64()), CODES, [None] * len(CODES)),
    (pa.list_(pa.date32()), CODES, CODES[::-1]),
    (pa.map_(pa.string(), pa.string()), [(UNAVAILABLE_P, UNAVAILABLE_P)], [("a", UNAVAILABLE_P)]),
]


def without(array: pa.Array, among: list[bool] | None = None) -> tuple[list[Any], list[Any] | None]:
    mask = np.array([True] * len(array) if among is None else among, bool)
    columns, names = without_placeholders(["n", "c"], [pa.nulls(len(array), pa.int32()), array], UNAVAILABLE_P, mask)
    assert columns[1].type == array.type
    columns[1].validate(full=True)
    return columns[1].to_pylist(), None if names is None else names.to_pylist()


@pytest.mark.parametrize(("kind", "sent", "other"), FORMS, ids=str)
def test_each_form_is_null_and_named(kind: pa.DataType, sent: Any, other: Any) -> None:
    # As a part of a longer array, behind a longer value.
    array = pa.array([other, other, sent, None, other, sent], kind)[1:]
    expected = array.to_pylist()
    values, names = without(array)
    assert values == [expected[0], None, None, expected[3], None]
    assert names == [None, ["c"], None, None, ["c"]]
    assert without(array, [True, False, True, True, False]) == (expected, None)


def test_a_uuid_of_it_in_lists_of_uuids() -> None:
    made = uuid.UUID(bytes=hashlib.md5(UNAVAILABLE_P.encode(), usedforsecurity=False).digest(), version=3)
    for kind, value in ((pa.binary(16), made.bytes), (pa.string(), str(made))):
        assert without(pa.array([[value], [value, value], None], pa.list_(kind)))[1] == [["c"], None, None]


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.int64(), pa.float64(), pa.list_(pa.float64()), pa.list_(pa.list_(pa.string())), pa.binary(16)],
    ids=str,
)
def test_other_types_hold_none(kind: pa.DataType) -> None:
    assert without(pa.nulls(2, kind))[1] is None


@given(st.lists(st.tuples(*[st.sampled_from([UNAVAILABLE_P, "a", None])] * 3), max_size=6), st.integers(0, 2))
def test_names_are_in_the_order_of_the_columns(rows: list[tuple[Any, ...]], skipped: int) -> None:
    names = ["x", "y", "z"]
    arrays = [pa.array([None, *(row[at] for row in rows)], pa.string())[1:] for at in range(3)]
    among = np.array([at % 3 != skipped for at in range(len(rows))], bool)
    columns, found = without_placeholders(names, arrays, UNAVAILABLE_P, among)
    lists = [None] * len(rows) if found is None else found.to_pylist()
    for at, row in enumerate(rows):
        gone = [name for name, value in zip(names, row, strict=True) if value == UNAVAILABLE_P and among[at]]
        assert lists[at] == (gone or None)
        left = tuple(each[at].as_py() for each in columns)
        assert left == tuple(None if name in gone else value for name, value in zip(names, row, strict=True))
