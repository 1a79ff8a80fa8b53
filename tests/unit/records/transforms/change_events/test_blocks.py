"""Blocks of events: what becomes of a record does not depend on those beside it."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.records.transforms.change_events.streams import (
    fates,
    key_of,
    landed,
    stream,
)

P = "__debezium_unavailable_value"
ROW = "struct<id: int, note: string, tags: list<string>>"
EVENTS = (
    f"before {ROW}, after {ROW}, op string, ts_ms long, transaction struct<id: string>, "
    "source struct<connector: string, name: string, db: string, ts_ms: long, sequence: string, txId: long, "
    "server_id: long, file: string, pos: long, row: int>"
)
NOTES = st.sampled_from([None, "a", P])
ROWS = st.fixed_dictionaries(
    {"id": st.integers(0, 3), "note": NOTES, "tags": st.sampled_from([None, [], [P], ["b", P]])}
)
SOURCES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "connector": st.just("postgresql"),
            "name": st.just("n"),
            "ts_ms": st.sampled_from([None, 5, 10**18]),
            "sequence": st.sampled_from([None, '["1","2"]', '[null,"3"]', "x"]),
            "txId": st.sampled_from([None, 7]),
        }
    ),
    st.fixed_dictionaries({"connector": st.just("mysql"), "file": st.sampled_from(["b.01", "b"]), "pos": st.just(4)}),
)
VALUES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "before": st.none() | ROWS,
            "after": st.none() | ROWS,
            "op": st.sampled_from([None, *"crudtmx"]),
            "ts_ms": st.sampled_from([None, 1, 10**18]),
            "source": SOURCES,
            "transaction": st.none() | st.fixed_dictionaries({"id": st.just("t")}),
        }
    ),
)
HEADERS = st.sampled_from([{}, {"__debezium.oldkey": {"id": 9}}, {"__debezium.oldkey": "no key"}, {"other": {"id": 1}}])
RECORDS = st.fixed_dictionaries(
    {"value": VALUES, "key": st.sampled_from([None, {"id": 1}, {"id": "x"}]), "headers": HEADERS}
)


def event(source: dict[str, Any]) -> dict[str, Any]:
    """One with a time that counts only if the source has none."""
    value = {"before": None, "after": None, "op": "t", "ts_ms": 10**18, "source": source, "transaction": None}
    return {"value": value, "key": {"id": 1}, "headers": {}}


@given(st.lists(RECORDS, min_size=1, max_size=12), st.booleans())
@example([event({"connector": "x", "ts_ms": 5}), event({"connector": "x", "ts_ms": None})], False)
@settings(max_examples=25, deadline=None)
def test_events(records: list[dict[str, Any]], before: bool) -> None:
    spec = stream(EVENTS, {"envelope": "debezium", "before": before}, key_of("id int"))
    assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]


@given(
    st.lists(st.fixed_dictionaries({"value": st.none() | ROWS, "key": st.sampled_from([None, {"id": 1}])}), max_size=6)
)
@settings(max_examples=8, deadline=None)
def test_upserts(records: list[dict[str, Any]]) -> None:
    spec = stream("id int, note string, tags list<string>", "upsert", key_of("id int"))
    if records:
        assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]


DMS = (
    "data struct<id: int, note: string>, `before-image` struct<id: int, note: string>, "
    "metadata struct<operation: string, `record-type`: string, `commit-timestamp`: string, timestamp: string>"
)
TIMES = st.sampled_from([None, "2026-01-01T00:00:00Z", "x"])
LOADED = st.fixed_dictionaries(
    {
        "data": st.none() | st.fixed_dictionaries({"id": st.integers(0, 3), "note": st.none() | st.just("a")}),
        "before-image": st.none() | st.fixed_dictionaries({"id": st.just(1), "note": st.just("b")}),
        "metadata": st.fixed_dictionaries(
            {
                "operation": st.sampled_from([None, "insert", "load", "update", "delete", "truncate-table", "other"]),
                "record-type": st.sampled_from(["data", "control"]),
                "commit-timestamp": TIMES,
                "timestamp": TIMES,
            }
        ),
    }
)


def loaded(at: str | None) -> dict[str, Any]:
    """One with a time that counts only if it was not told when its change was committed."""
    metadata = {"operation": "truncate-table", "commit-timestamp": at, "timestamp": "x"}
    return {"value": {"data": None, "metadata": metadata}, "key": {"id": 1}}


@given(st.lists(st.fixed_dictionaries({"value": LOADED, "key": st.sampled_from([None, {"id": 1}])}), max_size=6))
@example([loaded("2026-01-01T00:00:00Z"), loaded(None)])
@settings(max_examples=8, deadline=None)
def test_dms(records: list[dict[str, Any]]) -> None:
    spec = stream(DMS, {"envelope": "dms", "before": True}, key_of("id int"))
    if records:
        assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]


WORDED = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(0, 3),
        "note": NOTES,
        "op": st.sampled_from([None, *"crudtx"]),
        "v": st.sampled_from([None, -1, 7]),
        "sequence": st.sampled_from([None, '["1","2"]', "x"]),
        "at": st.sampled_from([None, 1, -5]),
    }
)


@given(st.lists(st.fixed_dictionaries({"value": WORDED, "key": st.sampled_from([None, {"id": 1}])}), max_size=6))
@settings(max_examples=8, deadline=None)
def test_columns(records: list[dict[str, Any]]) -> None:
    changes = {"envelope": "columns", "op": "op", "order_by": ["v", "sequence"], "at": "at"}
    spec = stream("id int, note string, op string, v long, sequence string, at long", changes, key_of("id int"))
    if records:
        assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]


DOCUMENTS = st.sampled_from([None, '{"_id": 1, "n": 2}', '{"_id": 2, "n": "x"}', '{"n": 3}', "no document"])
MONGO = (
    "before string, after string, op string, ts_ms long, source struct<connector: string, ts_ms: long>, "
    "updateDescription struct<removedFields: list<string>, updatedFields: string>"
)
DOCUMENT_EVENTS = st.fixed_dictionaries(
    {
        "before": DOCUMENTS,
        "after": DOCUMENTS,
        "op": st.sampled_from([None, *"crudm"]),
        "ts_ms": st.sampled_from([None, 1, 10**18]),
        "source": st.fixed_dictionaries({"connector": st.just("mongodb"), "ts_ms": st.sampled_from([None, 5, 10**18])}),
        "updateDescription": st.none()
        | st.fixed_dictionaries({"removedFields": st.just(["n"]), "updatedFields": DOCUMENTS}),
    }
)


@given(
    st.lists(st.fixed_dictionaries({"value": DOCUMENT_EVENTS, "key": st.sampled_from([None, {"id": "1"}])}), max_size=6)
)
@settings(max_examples=8, deadline=None)
def test_documents(records: list[dict[str, Any]]) -> None:
    spec = stream(MONGO, {"envelope": "mongo", "schema": "_id string, n int"}, key_of("id string"))
    if records:
        assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]
