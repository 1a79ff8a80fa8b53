"""The protocol of a stream with many targets: who is claimed, and what a file that names others finds."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from jobs.streaming.driver.opening import takeover
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import FencedError, HalfCommittedError
from jobs.tables.commit.stamp.target_directory import directory_key
from tests.unit.tables.commit.protocol_driver import Driver
from tests.unit.tables.commit.protocol_world import (
    PAIR,
    TABLE,
    TARGETS,
    TOPIC,
    FakeTable,
    World,
)
from tests.unit.tables.commit.test_protocol import (
    _world_in_memory,
    assert_exactly_once,
    new_world,
    play,
    run_to,
)

__all__ = ["_world_in_memory"]

HALF = [("produce", 0, 40), ("start", "one", [30]), ("to", 0, "step after_anchor_commit")]


def finished(world: World, config: str, sizes: list[int]) -> Driver:
    driver = Driver(world, config, sizes)
    driver.finish()
    return driver


def names(world: World, targets: tuple) -> None:
    """The stream's file names these tables from now on; those that are not there are made."""
    world.targets, world.names = tuple(targets), tuple(each.name for each in targets)
    world.configs |= {"one", "two"}
    for name in world.names:
        world.tables.setdefault(name, FakeTable(f"uuid of {name}"))


def test_a_sleeper_cannot_finish_its_batch_on_any_table_once_it_was_taken_over() -> None:
    world = new_world(TARGETS)
    play(world, HALF)
    sleeper = world.drivers[0]
    run_to(sleeper, "before an append")
    world.lose_state()
    play(world, [("start", "one", [30]), ("to", 0, "step after_claims"), ("kill", 0)])
    before = {name: list(world.tables[name].files) for name in world.names}
    sleeper.finish()
    assert isinstance(sleeper.error, FencedError)
    assert {name: world.tables[name].files for name in world.names} == before
    assert finished(world, "one", [7]).error is None
    assert_exactly_once(world)


def test_a_takeover_claims_the_tables_of_the_newest_batch_and_the_dead_letters() -> None:
    world = new_world(TARGETS)
    # Offsets 0 to 2: none of them goes to most of the tables.
    assert finished(world, "one", [3]).error is None
    before = {name: len(world.tables[name].snapshots) for name in world.names}
    play(world, [("start", "one", [3]), ("to", 0, "step after_claims")])
    claimed = {name for name in world.names if len(world.tables[name].snapshots) > before[name]}
    there = {name for name in world.names if world.tables[name].files}
    assert claimed == {TABLE, PAIR[1].name} | there and len(claimed) < len(TARGETS)


def test_a_route_is_added_to_a_stream_that_has_landed_and_taken_away_again() -> None:
    world = new_world(PAIR)
    play(world, [("produce", 0, 20)])
    assert finished(world, "one", [6]).error is None
    names(world, TARGETS)
    play(world, [("produce", 0, 20)])
    assert finished(world, "two", [6]).error is None
    assert directory_key("payments") in world.tables[TABLE].properties
    routed = {name: world.counted(name) for name in world.names}
    assert all(routed[each.name] for each in TARGETS[2:5])
    names(world, PAIR)
    play(world, [("produce", 0, 20)])
    assert finished(world, "one", [6]).error is None
    assert {name: world.counted(name) for name in routed if name not in world.names} == {
        name: each for name, each in routed.items() if name not in world.names
    }
    landed = sum((world.counted(name) for name in routed if "copies" not in name), start=Counter[tuple]())
    tombstones = {(p, offset) for p, end in world.log.items() for offset in range(end) if (offset * 7) % 10 == 0}
    assert set(landed) | tombstones == {(p, o) for p, end in world.log.items() for o in range(end)}
    assert max(landed.values()) == 1


@pytest.mark.parametrize("later", [PAIR, TARGETS[:4]])
def test_a_file_that_no_longer_names_a_table_which_lacks_a_batch_is_refused(
    later: tuple,
) -> None:
    world = new_world(TARGETS)
    play(world, [*HALF, ("kill", 0)])
    world.lose_state()
    names(world, later)
    driver = finished(world, "two", [9])
    assert isinstance(driver.error, HalfCommittedError)
    assert "orders.copies" in str(driver.error) and f"{TOPIC}-0 [0, 30)" in str(driver.error)
    names(world, TARGETS)
    assert finished(world, "one", [9]).error is None
    assert_exactly_once(world)


def test_a_batch_is_finished_from_its_record_on_tables_that_the_file_names_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = new_world(TARGETS)
    monkeypatch.setattr(takeover, "Target", partial(Target, commit_once=world.commit_once))
    play(world, [*HALF, ("kill", 0)])
    names(world, PAIR)
    assert finished(world, "two", [9]).error is None
    assert world.counted("orders.copies") and world.counted("orders.often")
