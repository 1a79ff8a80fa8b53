"""Tables with columns of their own that were rolled back: their records land again as they did, though they evolved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import BooleanType, LongType

from jobs.base.errors import FrazilError
from jobs.records.schema.decoded_columns import decoded_property
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.streaming.driver.tables import schema_evolution
from jobs.streaming.operator.accept import Answer, record_answer
from tests.helpers.lane_stream import DEAD, LaneStream, Log
from tests.helpers.stories import Killed

ROUTE: dict[str, Any] = {"by": "topic", "to": "lake.{value}"}
STEPS: dict[str, Any] = {"transform": [{"rename": {"id": "key"}}, {"where": "key <> 'skip'"}, {"drop": ["secret"]}]}


class World:
    """The stream, opened anew by each driver."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
        self._log: Log = {}
        self._open: Any = lambda epoch: LaneStream(home, ROUTE, self._log, monkeypatch, epoch, **more)
        self.epoch: int = 0
        self.again()

    def again(self) -> LaneStream:
        """The next driver opens the stream."""
        self.epoch += 1
        self.one: LaneStream = self._open(self.epoch)
        return self.one

    def roll_back(self, table: str) -> None:
        """Take a table back to its first snapshot, and answer that its records are landed again."""
        one = self.one
        loaded = one.catalog.load_table(table)
        loaded.manage_snapshots().rollback_to_snapshot(loaded.metadata.snapshots[0].snapshot_id).commit()
        record_answer(one.stream.spec, one.settings, lambda: None, Answer(rollback="reland"), "ada")  # pyright: ignore[reportArgumentType]
        self.epoch += 1

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows, without Kafka's columns, by their offset."""
        found = self.one.catalog.load_table(table).scan().to_arrow().sort_by("_kafka_offset").to_pylist()
        return [{name: value for name, value in row.items() if name[:6] != "_kafka"} for row in found]


@pytest.mark.parametrize("fails", [False, True])
def test_a_table_of_which_the_newest_batch_had_no_records_lands_again_by_the_columns_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Records of batches before have fields that came later than the table's first schema: none is refused."""
    fail = {"decode": {"value": "json", "schema": "infer", "unknown_fields": "fail"}, "evolve": {"add": "ignore"}}
    world = World(tmp_path / "home", monkeypatch, fail if fails else {})
    one = world.one
    one.produce("a", {"id": 1})
    one.produce("b", {"id": "x"})
    one.land()
    if fails:
        with one.catalog.load_table("lake.b").update_schema() as update:
            update.add_column("more", LongType()).add_column("last", BooleanType())
        one = world.again()
    one.produce("b", {"id": "y", "more": 1})
    one.land(1)
    one.produce("b", {"id": "z", "more": 2, "last": True})
    one.land(2)
    one.produce("a", {"id": 2})
    one.land(3)
    newest = one.stream.anchor.newest
    assert newest is not None and newest.schemas == {"lake.a": 0}
    before, placed = world.rows("lake.b"), one.placed()
    world.roll_back("lake.b")
    after = world.again()
    after.land()
    assert world.rows("lake.b") == before and before[2] == {"id": "z", "more": 2, "last": True}
    assert after.placed() == placed and DEAD not in placed


def test_a_table_of_which_the_newest_batch_had_no_records_keeps_the_names_of_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "home", monkeypatch, {})
    one = world.one
    one.produce("b", {"id": "x"})
    one.land()
    table = one.catalog.load_table("lake.b")
    number = table.schema().find_field("id").field_id
    with table.update_schema() as update:
        update.rename_column("id", "key")
    mapping = json.dumps([{"field-id": number, "names": ["key", "id"]}])
    with one.catalog.load_table("lake.b").transaction() as change:
        change.set_properties({NAME_MAPPING: mapping})
    one = world.again()
    one.produce("b", {"id": "y"})
    one.land()
    one.produce("a", {"id": 1})
    one.land(1)
    before = world.rows("lake.b")
    assert before == [{"key": "x"}, {"key": "y"}]
    world.roll_back("lake.b")
    world.again().land()
    assert world.rows("lake.b") == before


@pytest.mark.parametrize("passed_over", [False, True])
def test_decoded_columns_that_a_stamp_names_stay_with_a_table_that_is_altered_and_landed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed_over: bool
) -> None:
    """A driver alters the table for a batch that does not land; then somebody rolls it back."""
    world = World(tmp_path / "home", monkeypatch, STEPS)
    one = world.one
    one.produce("a", {"id": "1", "secret": 1})
    one.produce("b", {"id": "x", "secret": "s"})
    one.land()
    one.produce("b", {"id": "y", "secret": "s"})
    one.land(1)
    # One that is filtered changes no table, and gives no row: the table's own stamp is of the batch before.
    one.produce("b", {"id": "skip" if passed_over else "z", "more": 1})
    one.land(2)
    before = world.rows("lake.b")
    one.produce("b", {"id": "later", "last": 1})
    with monkeypatch.context() as patch:
        patch.setattr(schema_evolution, "step", _killed)
        with pytest.raises(Killed):
            one.land(3)
    assert "last" in one.columns("lake.b")
    world.roll_back("lake.b")
    after = world.again()
    after.land()
    after.land(1)
    assert [row["key"] for row in world.rows("lake.b")] == [*(row["key"] for row in before), "later"]
    assert [row.get("more") for row in world.rows("lake.b")] == [None, None, *([] if passed_over else [1]), None]
    assert ("more" in world.one.columns("lake.b")) is not passed_over
    assert DEAD not in after.placed()


def _killed(step: str) -> None:
    if step == "after_schema_commit":
        raise Killed


def test_a_table_with_columns_of_its_own_that_has_lost_the_decoded_ones_stops_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "home", monkeypatch, STEPS)
    world.one.produce("a", {"id": "1", "secret": 1})
    world.one.produce("b", {"id": "x", "secret": "s"})
    world.one.land()
    with world.one.catalog.load_table("lake.b").transaction() as change:
        change.remove_properties(decoded_property("shop"))
    with pytest.raises(FrazilError, match=r"table lake\.b has lost its property frazil\.decoded\.shop"):
        world.again()
