"""Changelogs on the whole way of a batch, with real tables: rows, columns that grow, tombstones and replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from tests.helpers.evolving_stream import EvolvingStream

SOURCE = "source struct<connector: string, name: string, db: string, ts_ms: long, sequence: string>"
EVENTS = f"after struct<id: int, note: string>, op string not null, ts_ms long, {SOURCE}"
KEY: dict[str, Any] = {"format": "json", "schema": "id int", "into": "_change_key"}


def event(op: str, row: Any, lsn: int, *, before: Any = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "n", "db": "d", "ts_ms": 1000, "sequence": f'["1","{lsn}"]'}
    return {"before": before, "after": row, "op": op, "ts_ms": 2000, "source": source}


def keyed(one: EvolvingStream, *keys: Any) -> None:
    first = len(one.log)
    one.keys |= {first + at: json.dumps(key).encode() for at, key in enumerate(keys) if key is not None}


def test_events_land_and_their_new_columns_are_the_changelogs(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, columns=EVENTS, decode={"key": KEY}, more={"changes": "debezium"})
    assert list(one.columns)[:3] == ["id", "note", "_change_op"]
    keyed(one, {"id": 1}, {"id": 2}, {"id": 2}, None, {"serverName": "n"})
    done = one.land(
        event("c", {"id": 1, "note": "a"}, 10),
        event("u", {"id": 2, "note": "__debezium_unavailable_value", "born": 7}, 11),
        None,
        {"status": "END", "id": "5:6", "event_count": 2, "data_collections": [{"event_count": 2}], "ts_ms": 5},
        {"ts_ms": 2000},
    )
    assert (done.counts.landed, done.counts.tombstones, done.counts.filtered, done.counts.dead) == (2, 1, 2, 0)
    assert one.columns["born"] == "long"
    # What ends of transactions hold is none of the table's columns.
    assert {each for each in one.columns if not each.startswith("_change")} == {"id", "note", "born"}
    first, second = one.rows
    assert (first["id"], first["note"], first["_change_position"]) == (1, "a", f"{1:016x}/{10:016x}")
    assert (second["id"], second["born"], second["_change_unavailable"]) == (2, 7, ["note"])

    keyed(one, {"id": 2}, {"id": 1})
    one.land(
        event("d", None, 12, before={"id": 2, "note": "b", "born": 3_000_000_000}),
        event("u", {"id": 2**40, "note": "c"}, 13),
        batch=1,
    )
    assert one.columns["id"] == "long"
    assert [(each["_change_op"], each["id"]) for each in one.rows[2:]] == [("d", 2), ("u", 2**40)]
    assert one.letters == {}
    one.catalog.close()


def test_a_column_with_a_name_of_the_changelogs_own_is_refused(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, columns=EVENTS, decode={"key": KEY}, more={"changes": "debezium"})
    keyed(one, {"id": 1}, {"id": 1})
    one.land(event("c", {"id": 1, "_change_op": "x"}, 10), event("u", {"id": 1}, 11))
    assert one.letters == {0: "schema_change_refused"}
    (letter,) = one.catalog.load_table(one.spec.dead_letter_table).scan().to_arrow().to_pylist()
    assert "names with _change_ are the changelog's own" in letter["message"]
    assert [each["_change_op"] for each in one.rows] == ["u"]
    one.catalog.close()


def test_tombstones_of_upserts_are_rows_and_their_letters_are_whole(tmp_path: Path) -> None:
    one = EvolvingStream(tmp_path, columns="id int, name string", decode={"key": KEY}, more={"changes": "upsert"})
    keyed(one, {"id": 1}, {"id": 1}, {"id": 2**40}, None)
    done = one.land({"id": 1, "name": "a"}, None, None, None)
    assert (done.counts.read, done.counts.landed, done.counts.dead, done.counts.tombstones) == (4, 2, 2, 0)
    assert [(each["_change_op"], each["id"], each["_change_key"]) for each in one.rows] == [
        ("u", 1, {"id": 1}),
        ("d", 1, {"id": 1}),
    ]
    assert one.letters == {2: "out_of_range", 3: "wrong_type"}
    # The value that is not there is no reason; what is wrong with the keys still is.
    result = replay(one.spec, one.settings, one.catalog, ReplayRequest())
    assert (result.replayed, result.failed_again) == (0, 2)
    assert {each.error_class for each in result.reasons} == {"out_of_range", "wrong_type"}
    keyed(one, {"id": 3})
    one.land({"id": 3, "name": "b", "new": 1}, batch=1)
    assert one.columns["new"] == "long"
    one.catalog.close()
