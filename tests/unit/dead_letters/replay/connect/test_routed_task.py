"""Batches of a queue of a stream with a route: which records land in which tables, on real tables, Kafka left aside."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.dead_letters.connect_queue.task import QueueCounts, QueueTask
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.target_positions import TargetNeed, need
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.unit.dead_letters.replay.connect.queue_letters import QUEUE, Letter, Reader

DEAD = f"{SINK}_dead"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def tables_of(one: RoutedStream) -> dict[str, Table]:
    return {name: stream_table(one.catalog, one.spec, name) for name in one.spec.target_names}


def taken(
    one: RoutedStream, *letters: Letter, at: dict[str, int] | None = None, decided: int | None = None
) -> tuple[dict[str, int], QueueCounts, Any]:
    """Takes letters, of which tables may have the first ones by their stamps; rows by table, counts and the tally."""
    reader: Any = Reader(letters)
    ranges = {QUEUE: OffsetRange(0, len(letters))}
    needs: dict[str, TargetNeed] = {
        name: need(ranges, {QUEUE: (at or {}).get(name, 0)}) for name in one.spec.target_names
    }
    task = QueueTask(one.spec, one.spec, reader)
    results, counts = task.run(
        ranges, tables_of(one), needs, first_seen=NOW, file_prefix="connect", decided=decided
    )  # fmt: skip
    files = {name: sum(file.record_count for file in each) for name, each in results.files.items()}
    for name, each in results.files.items():
        with one.catalog.load_table(name).transaction() as change, change.update_snapshot().fast_append() as append:
            for file in each:
                append.append_data_file(file)
    return {name: rows for name, rows in files.items() if rows}, counts, results


@pytest.fixture
def one(tmp_path: Path) -> RoutedStream:
    stream = RoutedStream(tmp_path / "home", ROUTE)
    stream.land({"id": "a", "type": "INS", "n": 1})
    return stream


def test_each_record_lands_in_the_tables_that_its_route_names(one: RoutedStream) -> None:
    letters = [
        Letter(0),
        Letter(1, "UPD"),
        Letter(2, "OWN"),
        Letter(3, "what"),
        Letter(4, value=b"{"),
        Letter(1, "UPD"),
    ]
    rows, counts, results = taken(one, *letters)
    assert rows == {SINK: 1, "orders.changes": 2, "orders.deletes": 1, DEAD: 2}
    assert (counts.read, counts.landed, counts.dead, counts.known) == (6, 3, 2, 1)
    assert sum(each.elsewhere for each in results.tallies) == 2, "landed, and not in the stream's main table"
    assert sum(each.rows.get("orders.changes", 0) for each in results.tallies) == 2
    # What was taken is known, table by table.
    again, counts, _ = taken(one, *letters)
    assert again == {} and (counts.landed, counts.known) == (0, 6)
    assert {each["offset"]: each["error_class"] for each in dead(one)} == {3: "unrouted", 4: "malformed_json"}


def dead(one: RoutedStream) -> list[dict[str, Any]]:
    return one.catalog.load_table(DEAD).scan().to_arrow().to_pylist()


def test_a_record_lands_only_where_it_is_missing(one: RoutedStream) -> None:
    first, _, _ = taken(one, Letter(1, "DEL"))
    assert first == {"orders.deletes": 1}
    rows, counts, _ = taken(one, Letter(1, "UPD"))
    assert rows == {"orders.changes": 1} and (counts.landed, counts.known) == (1, 0)


def test_what_the_stream_reads_itself_is_left_to_it(one: RoutedStream) -> None:
    rows, counts, _ = taken(one, Letter(0, "INS", topic="payments"), Letter(7, "INS", topic="payments"))
    assert rows == {} and (counts.known, counts.left) == (1, 1)


def test_a_table_that_lacks_the_batch_gets_its_part_and_the_others_nothing(one: RoutedStream) -> None:
    letters = [Letter(0), Letter(1, "UPD"), Letter(2, "DEL"), Letter(3, value=b"{")]
    at = {SINK: 4, "orders.changes": 4, DEAD: 4}
    # As the first run left it: but for deletes, all have their part.
    rows, _, _ = taken(one, letters[0], letters[1], letters[3], at={"orders.deletes": 3})
    assert rows == {"orders.changes": 2, DEAD: 1}
    rows, counts, _ = taken(one, *letters, at=at, decided=0)
    assert rows == {"orders.deletes": 2}
    assert (counts.landed, counts.known) == (0, 0), "they were counted with the commit to the stream's main table"


def test_a_record_that_would_be_lost_in_a_table_stops_the_queue(one: RoutedStream) -> None:
    with pytest.raises(FrazilError, match=r"orders\.deletes lacks a batch of the queue .* 1 of its records fail now"):
        taken(one, Letter(1, "DEL", value=b"{"), at={SINK: 1, "orders.changes": 1, DEAD: 1}, decided=0)


def test_a_value_without_a_table_is_a_letter_that_says_how_it_gets_one(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {"by": "type", "to": "orders.of_{value}", "columns": ["id"]})
    one.land({"id": "a", "type": "INS", "n": 1})
    one.spec = one.stream.spec
    rows, counts, _ = taken(one, Letter(1, "INS"), Letter(2, "NEW"))
    assert rows == {"orders.of_INS": 1, DEAD: 1} and (counts.landed, counts.dead) == (1, 1)
    (letter,) = dead(one)
    assert letter["error_class"] == "unrouted" and "--to-topic" in letter["message"]


@pytest.mark.parametrize("route", [None, ROUTE], ids=["alone", "routed"])
def test_a_record_that_stands_among_late_rows_is_known(tmp_path: Path, route: dict[str, Any] | None) -> None:
    """They have it where the stream itself landed it, after a rollback or a reset."""
    schema = "id string not null, type string, n int, at timestamptz as iso"
    times = {"column": "at", "grace": "1m", "late": "table"}
    one = RoutedStream(tmp_path / "home", route, event_time=times, decode={"value": "json", "schema": schema})
    one.land({"id": "a", "type": "INS", "at": "2026-03-01T12:00:00Z"})
    one.land({"id": "b", "type": "INS", "at": "2026-03-01T11:00:00Z"}, batch=1)
    assert one.offsets(f"{SINK}_late") == [1]
    rows, counts, _ = taken(one, Letter(1, topic="payments"), Letter(0, topic="payments"))
    assert rows == {} and (counts.landed, counts.known) == (0, 2)
