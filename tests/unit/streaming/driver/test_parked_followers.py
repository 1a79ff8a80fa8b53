"""Parked tables that follow a stream's own one, on real tables: it goes on, and they catch up when unparked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import dry_run
from jobs.tables.commit.stamp.errors import SchemaChangeError, TableUnableError
from orchestration.cli.stream_files.schema.tables import followers_of
from orchestration.cli.stream_files.validate.table_checks import check_followers
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log
from tests.helpers.parking import Killed, audited, killed, replayed, unpark
from tests.helpers.parking import lane_offsets as offsets
from tests.helpers.parking import lane_parked as parked
from tests.helpers.parking import lane_waiting as waiting
from tests.unit.streaming.driver.test_followers import EVENTS, NAMED, logged

CHANGES, DELETES, UPDATES = "lake.changes", "lake.deletes", "lake.updates"
PLAIN: dict[str, Any] = {
    "by": "type",
    "tables": [
        {"match": "INS|UPD", "table": CHANGES, "partition_by": ["bucket(4, id)"]},
        {"match": ["DEL"], "table": DELETES, "columns": ["id", "type"]},
        {"match": "UPD", "table": UPDATES},
    ],
}
PARK: dict[str, Any] = {**PLAIN, "on_table_error": "park"}
FIRST = [{"id": 1, "type": "INS"}, {"id": 2, "type": "DEL"}, {"id": 3, "type": "UPD"}]
SECOND = [{"id": at, "type": kind, "more": at / 2} for at, kind in ((4, "INS"), (5, "DEL"), (6, "UPD"))]
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {EVENTS: []}

    def make(epoch: int = 1, route: dict[str, Any] = PARK, log: Log | None = None, **more: Any) -> LaneStream:
        known.update(log or {})
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **more)

    return make


def begun(opened: Opened, route: dict[str, Any] = PARK) -> LaneStream:
    one = opened(route=route, log=logged(*FIRST))
    one.land()
    return one


def changed_type(one: LaneStream, table: str) -> None:
    """Somebody gives a column of a table a type that the own table's does not go with."""
    with one.catalog.load_table(table).update_schema() as update:
        update.delete_column("type")
    with one.catalog.load_table(table).update_schema() as update:
        update.add_column("type", LongType())


def test_the_own_table_evolves_while_one_that_is_gone_is_parked_and_it_catches_up(opened: Opened) -> None:
    one = begun(opened)
    one.catalog.rename_table(UPDATES, "lake.aside")
    after = opened(20)
    assert parked(after) == {UPDATES}
    after.produce("events", *SECOND)
    done = after.land()
    assert (done.counts.read, done.counts.landed, done.counts.dead) == (3, 3, 0)
    grown = {"id": "long", "type": "string", "more": "double"}
    assert after.columns(OWN) == after.columns(CHANGES) == grown
    # Nobody can say whether it had the batch before.
    assert offsets(after) == {CHANGES: [0, 2, 3, 5], DELETES: [1, 4], DEAD: [2, 5]}
    assert waiting(after, UPDATES) == [2, 5]
    assert UPDATES not in followers_of(after.spec, after.settings), "no command asks it for columns"
    told = check_followers(after.spec, after.catalog.load_table(OWN).metadata, after.catalog)
    assert [each.sentence for each in told if UPDATES in each.sentence] == [
        f"table {UPDATES} is suspended: it gets the columns of table {OWN} when it is resumed"
    ]
    assert replayed(after).replayed == 0 and dry_run(after.spec, after.catalog, ReplayRequest()).replayed == 0
    audited(after, gone=UPDATES)
    after.catalog.rename_table("lake.aside", UPDATES)
    assert "more" not in after.columns(UPDATES)
    unpark(after, UPDATES)
    assert after.columns(UPDATES) == grown, "before a row lands there"
    third = opened(40)
    third.produce("events", {"id": 7, "type": "UPD"})
    third.land()
    assert dry_run(third.spec, third.catalog, ReplayRequest()).replayed == 1
    assert replayed(third).replayed == 1
    assert offsets(third)[UPDATES] == [2, 5, 6] and offsets(third)[CHANGES] == [0, 2, 3, 5, 6]
    rows = third.catalog.load_table(UPDATES).scan().to_arrow().to_pylist()
    assert {row["id"]: row["more"] for row in rows} == {3: None, 6: 3.0, 7: None}
    assert replayed(third).replayed == 0
    audited(third)


def test_one_that_values_name_is_parked_and_comes_home(opened: Opened) -> None:
    one = begun(opened, route := {**NAMED, "on_table_error": "park"})
    one.catalog.drop_table("lake.DEL")
    after = opened(20, route)
    after.produce("events", *SECOND, {"id": 9, "type": "NEW"})
    after.land()
    assert not after.catalog.table_exists("lake.DEL") and waiting(after, "lake.DEL") == [1, 4]
    unpark(after, "lake.DEL")
    replayed(after)
    assert offsets(after) == {"lake.INS": [0, 3], "lake.DEL": [1, 4], "lake.UPD": [2, 5], "lake.NEW": [6], DEAD: [1, 4]}
    audited(after)


@pytest.mark.parametrize("open_", [False, True], ids=["under a driver", "before it opens the stream"])
def test_one_that_cannot_take_the_columns_of_the_own_table_is_parked(opened: Opened, open_: bool) -> None:
    one = begun(opened)
    if open_:
        changed_type(one, UPDATES)
        one = opened(5)
    else:
        one.produce("events", {"id": 3, "type": "UPD"})
        one.land(1)
        changed_type(one, UPDATES)
        one.stream.targets[UPDATES].read()
    one.produce("events", *SECOND)
    with pytest.raises(
        TableUnableError, match=f"{UPDATES} takes no commits, and is suspended: .*cannot take the columns"
    ):
        one.land(2)
    assert parked(one) == {UPDATES}
    assert not one.stream.folder.pending_records()
    after = opened(20)
    after.land()
    held = waiting(after, UPDATES)
    assert held == ([5] if open_ else [6]), "of what it has there is no letter"
    assert all("more" in after.columns(each) for each in (OWN, CHANGES)) and "more" not in after.columns(UPDATES)
    audited(after)
    with pytest.raises(SchemaChangeError, match=f"dependent table {UPDATES} cannot take the columns") as told:
        unpark(after, UPDATES)
    assert told.value.fix == f"alter table {UPDATES} so that it can; then give the same answer again"
    with after.catalog.load_table(UPDATES).update_schema() as update:
        update.delete_column("type")
    unpark(after, UPDATES)
    assert after.columns(UPDATES) == after.columns(OWN)
    third = opened(40)
    assert replayed(third).replayed == 1
    assert offsets(third)[UPDATES] == [2, 5] if open_ else [2, 3, 6]
    audited(third)


@pytest.mark.parametrize("at", ["before_parking", "between_parking", "after_parking"])
def test_killed_while_it_is_parked_for_its_columns(opened: Opened, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(name: str) -> None:
        if name == at:
            raise Killed

    one = begun(opened)
    changed_type(one, UPDATES)
    one = opened(5)
    one.produce("events", *SECOND)
    monkeypatch.setattr("jobs.streaming.driver.tables.parked_tables.step", kill)
    with pytest.raises(Killed):
        one.land(1)
    monkeypatch.undo()
    monkeypatch.setattr("jobs.streaming.driver.tables.first_records.read_sample", one._sample)
    after = opened(10)
    if at != "after_parking":
        with pytest.raises(TableUnableError):
            after.land()
        after = opened(20)
    after.land()
    assert waiting(after, UPDATES) == [5] and offsets(after)[CHANGES] == [0, 2, 3, 5]
    audited(after)


def test_one_that_the_stream_does_not_know_yet_stops_it(opened: Opened) -> None:
    one = begun(opened)
    more = {**PARK, "tables": [*PARK["tables"], {"match": "INS", "table": "lake.more"}]}
    one.catalog.create_table("lake.more", one.catalog.load_table(UPDATES).schema())
    changed_type(one, "lake.more")
    with pytest.raises(FrazilError, match=r"its dependent table lake\.more cannot take the columns"):
        opened(5, more)


LEAST = -(2**63)
"""Cut to fifties it has no place in 64 bits."""


@pytest.mark.parametrize("there", [False, True], ids=["gone", "it takes no commits"])
def test_records_that_it_could_not_hold_are_letters_once_though_all_else_is_lost(opened: Opened, there: bool) -> None:
    cut = {"partition_by": ["truncate(50, id)"]}
    route = {**PARK, "tables": [each | cut if each["table"] == UPDATES else each for each in PARK["tables"]]}
    one = begun(opened, route)
    one.produce("events", {"id": LEAST, "type": "UPD"}, {"id": 5, "type": "UPD"}, b"none")
    for name in (CHANGES, UPDATES, DEAD):
        one.stream.targets[name]._commit_once = killed  # type: ignore[assignment]
    with pytest.raises(Killed):
        one.land(1)
    one.stream.folder.store.delete(one.stream.folder.pending(one.stream.epoch))
    one.catalog.rename_table(UPDATES, "lake.aside")
    after = opened(20, route)
    if there:
        after.catalog.rename_table("lake.aside", UPDATES)
    after.land()
    assert waiting(after, UPDATES) == [4] and offsets(after)[CHANGES] == [0, 2, 4]
    assert offsets(after)[DEAD] == [3, 4, 5], "the one that it could not hold, and what is no record"
    audited(after, gone=None if there else UPDATES)
