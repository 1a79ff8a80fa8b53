"""Keys that a table has beside the rows that are checked, and its rows per hour, by PyIceberg in bounded memory."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.quality.contracts.earlier_rows import EarlierRows
from jobs.quality.incremental_scan.arrow_rows import small_table
from jobs.quality.incremental_scan.row_selection import RowSelection, whole_table
from tests.helpers.check_world import no_spark
from tests.helpers.landed_table import BEGIN, COORDINATES, LandedTable

SCHEMA = "id long, name string, day date, price decimal(12,2), u uuid, at timestamptz, wall timestamp"


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> LandedTable:
    return LandedTable(tmp_path_factory.mktemp("earlier") / "home", schema="id long, name string")


def earlier(landed: LandedTable, rows: pa.Table) -> EarlierRows:
    everything = whole_table(landed.table, COORDINATES, None)
    return EarlierRows(everything, rows, no_spark, landed.settings)


KEYS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None])), max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=KEYS, new=KEYS)
def test_known_keys_are_those_of_other_rows(tmp_path_factory: Any, before: list[Any], new: list[Any]) -> None:
    landed = LandedTable(tmp_path_factory.mktemp("keys") / "home", schema="id long, name string")

    def land(start: int, rows: list[Any]) -> int:
        return landed.land((0, start, start + len(rows)), id=[n for n, _ in rows], name=[text for _, text in rows])

    if before:
        land(0, before)
    if not new:
        return
    snapshot = land(len(before), new)
    from jobs.quality.incremental_scan.increment import added_files

    found = landed.table.metadata.snapshot_by_id(snapshot)
    assert found is not None
    rows = small_table(RowSelection(landed.table, None, tuple(added_files(found, landed.table.io))), {"id", "name"})
    keys = rows.select(["name", "id"]).group_by(["name", "id"]).aggregate([])
    known = earlier(landed, rows).known_keys(("name", "id"), keys)
    assert known.schema == keys.schema
    # A key with a null is none.
    expected = {(text, n) for n, text in new if text is not None} & {(text, n) for n, text in before}
    assert {(row["name"], row["id"]) for row in known.to_pylist()} == expected
    ids = earlier(landed, rows).known_keys(("id",), rows.select(["id"]).group_by(["id"]).aggregate([]))
    assert set(ids["id"].to_pylist()) == {n for n, _ in new} & {n for n, _ in before}


def test_keys_of_other_types_and_of_many_values(tmp_path: Path) -> None:
    from decimal import Decimal

    landed = LandedTable(tmp_path / "home", schema=SCHEMA)
    count = 500

    def values(rows: range) -> dict[str, Any]:
        return {
            "name": [f"n{n}" for n in rows],
            "day": [19_000 + n for n in rows],
            "price": [Decimal(n) for n in rows],
            "u": [n.to_bytes(16, "big") for n in rows],
            "wall": [(BEGIN + timedelta(minutes=n)).replace(tzinfo=None) for n in rows],
        }

    landed.land((0, 0, count), **values(range(count)))
    landed.land((0, count, count + 300), **values(range(400, 700)))
    new = whole_table(landed.table, COORDINATES, None, where=f"_kafka_offset >= {count}")
    for name in ("name", "day", "price", "u", "wall"):
        rows = small_table(new, {name})
        known = earlier(landed, rows).known_keys((name,), rows)
        assert known.num_rows == 100, name
        few = rows.slice(98, 4)
        assert earlier(landed, rows).known_keys((name,), few).num_rows == 2, name
    assert earlier(landed, rows).known_keys(("wall",), rows.slice(0, 0)).num_rows == 0


def test_rows_per_hour(tmp_path: Path) -> None:
    landed = LandedTable(tmp_path / "home", schema=SCHEMA)
    minutes = [0, 1, 59, 60, 61, 300, 301]
    times = [BEGIN + timedelta(minutes=n) for n in minutes]
    naive = [each.replace(tzinfo=None) for each in times]
    empty: dict[str, Any] = {"name": ["a"] * 7, "day": [None] * 7, "price": [None] * 7, "u": [None] * 7}
    landed.land((0, 0, 7), at=times, wall=naive, _kafka_timestamp=times, **empty)
    nothing = {name: pa.array([], pa.timestamp("us", "UTC")) for name in ("at", "wall", "_kafka_timestamp")}
    table = earlier(landed, pa.table(nothing))
    last = BEGIN + timedelta(hours=5)
    whole = {BEGIN: 3, BEGIN + timedelta(hours=1): 2, last: 2}
    for column in ("at", "wall", None):
        told = table.past_volumes(column, last - timedelta(days=1), last, time_column="_kafka_timestamp")
        assert dict(told) == whole, column
    told = table.past_volumes("at", last - timedelta(hours=4), last)
    assert dict(told) == {BEGIN + timedelta(hours=1): 2, last: 2}
    # Rows that are checked are no past.
    checked = earlier(landed, pa.table({"at": pa.array(times[3:6], pa.timestamp("us", "UTC"))}))
    assert dict(checked.past_volumes("at", last - timedelta(hours=9), last)) == {BEGIN: 3, last: 1}
    # In another zone the hours are the same.
    there = last.astimezone(timezone(timedelta(hours=5)))
    assert dict(table.past_volumes("at", there - timedelta(hours=4), there)) == dict(told)
    assert not table.past_volumes("at", BEGIN - timedelta(days=9), BEGIN - timedelta(days=8))
    for column in ("name", "nothing", None):
        with pytest.raises(FrazilError, match=r"has no column .* of times"):
            table.past_volumes(column, last, last)
    assert all(each.tzinfo is UTC for each in told)
