"""Blocks of events: what becomes of a record does not depend on those beside it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transform.changes.streams import fates, key_of, landed, stream

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
            "ts_ms": st.sampled_from([None, 1]),
            "source": SOURCES,
            "transaction": st.none() | st.fixed_dictionaries({"id": st.just("t")}),
        }
    ),
)
HEADERS = st.sampled_from([{}, {"__debezium.oldkey": {"id": 9}}, {"__debezium.oldkey": "no key"}, {"other": {"id": 1}}])
RECORDS = st.fixed_dictionaries(
    {"value": VALUES, "key": st.sampled_from([None, {"id": 1}, {"id": "x"}]), "headers": HEADERS}
)


@given(st.lists(RECORDS, min_size=1, max_size=12), st.booleans())
@settings(max_examples=25, deadline=None)
def test_events(records: list[dict[str, Any]], before: bool) -> None:
    spec = stream(EVENTS, {"envelope": "debezium", "before": before}, key_of("id int"))
    assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]


@given(
    st.lists(st.fixed_dictionaries({"value": st.none() | ROWS, "key": st.sampled_from([None, {"id": 1}])}), max_size=9)
)
@settings(max_examples=15, deadline=None)
def test_upserts(records: list[dict[str, Any]]) -> None:
    spec = stream("id int, note string, tags list<string>", "upsert", key_of("id int"))
    if records:
        assert fates(landed(spec, records)) == [fates(landed(spec, [each]))[0] for each in records]
