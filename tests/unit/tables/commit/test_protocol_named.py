"""The protocol of a stream whose records name tables: these are made within batches, by whoever meets a record first.

Drivers sleep, are killed and taken over at any moment of that, state is lost and tables are altered, as in all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.records.schema.needs import Coordinates
from jobs.streaming.task.needs import UnnamedTable
from jobs.tables.commit.stamp.offsets import Ranges, TopicPartition
from tests.helpers.targets import spec_with
from tests.unit.tables.commit.protocol_driver import Driver
from tests.unit.tables.commit.protocol_pauses import pause
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    PAIR,
    TARGETS,
    TOPIC,
    FakeTable,
    Way,
    World,
    destinations,
)
from tests.unit.tables.commit.test_protocol import (
    CONFIGS,
    WORLD,
    _world_in_memory,
    assert_exactly_once,
    play,
    recover,
    run_to,
    stories,
)

__all__ = ["_world_in_memory"]

NAMEABLE = TARGETS[2:]


class NamedWorld(World):
    """A world with two tables at first."""

    def __init__(self, *, recreate: bool = False) -> None:
        super().__init__(PAIR)
        self.recreate = recreate
        # What there may be in the end.
        self.targets, self.names = TARGETS, tuple(each.name for each in TARGETS)
        self.made: list[str] = []

    def spec(self, config: str) -> Any:
        route = SimpleNamespace(
            to="orders.{value}",
            table_names=(),
            limit=99,
            unmatched="dead_letter",
            recreate=self.recreate,
            asks=frozenset(),
        )
        plain = super().spec(config)
        given = {"config_hash": config, "source": plain.source, "errors": plain.errors, "table": plain.table}
        return spec_with(
            "payments", PAIR, nameable=NAMEABLE, route=route, publish=None, dead_letter_table=DEAD, **given
        )

    def unnamed(self, ranges: Ranges, targets: Collection[str], way: Way) -> tuple[UnnamedTable, ...]:
        first: dict[str, Coordinates] = {}
        for partition, (start, end) in sorted(ranges.items()):
            for offset in range(start, end):
                for name in sorted(destinations(partition, offset, way, TARGETS) - set(targets)):
                    first.setdefault(name, Coordinates(*partition, offset))
        return tuple(UnnamedTable(name.removeprefix("orders."), at) for name, at in first.items())

    def existing(self, name: str) -> Any:
        pause(f"looks for {name}")
        # In one step: a table that is dropped in between would be taken for one that is no table of Iceberg.
        if name not in self.tables:
            return None
        metadata = self.tables[name].metadata()
        return SimpleNamespace(metadata=metadata, schema=metadata.schema, properties=metadata.properties)

    def ensure(self, name: str) -> None:
        pause(f"before {name} is made")
        if name not in self.tables:
            self.made.append(name)
            self.tables[name] = FakeTable(
                f"uuid {len(self.made)} of {name}", properties={"frazil.as-made": "payments 0/0"}
            )
        pause(f"after {name} is made")


def new_named_world(*, recreate: bool = False) -> NamedWorld:
    world = NamedWorld(recreate=recreate)
    WORLD[:] = [world]
    return world


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(), st.sampled_from(CONFIGS))
def test_every_record_lands_exactly_once_in_tables_that_its_values_name(story: list[tuple], last_config: str) -> None:
    try:
        world = new_named_world()
        play(world, story)
        recover(world, last_config)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        assert_exactly_once(world)
        assert len(world.made) == len(set(world.made)), "each is made once"
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "its record is lost"])
def test_killed_at_any_moment_of_a_batch_that_brings_new_tables(lost: bool) -> None:
    for moment in range(1, 400):
        world = new_named_world()
        play(world, [("produce", 0, 30), ("start", "one", [20])])
        driver = world.drivers[0]
        for _ in range(moment):
            driver.advance()
        ended = driver.ended
        driver.kill()
        if lost:
            world.lose_state()
        recover(world, "one")
        assert_exactly_once(world)
        assert len(world.made) == len(set(world.made))
        if ended:
            return
    raise AssertionError("the driver never came to its end")


def test_a_successor_takes_the_tables_that_a_sleeper_has_made_and_the_sleeper_commits_nothing() -> None:
    world = new_named_world()
    play(world, [("produce", 0, 30), ("start", "one", [20]), ("to", 0, "step after_new_tables")])
    sleeper, made = world.drivers[0], list(world.made)
    assert made
    play(world, [("start", "one", [7]), ("finish", 0)])
    successor = world.drivers[-1]
    assert successor.error is None and world.made[: len(made)] == made
    sleeper.finish()
    assert sleeper.error is not None
    assert_exactly_once(world)


def test_a_table_that_was_made_for_a_batch_that_never_landed_is_no_target() -> None:
    world = new_named_world()
    play(world, [("produce", 0, 30), ("start", "one", [20]), ("to", 0, "step after_new_tables"), ("kill", 0)])
    made = list(world.made)
    world.log[TopicPartition(TOPIC, 0)] = 0
    world.log.clear()
    idle = Driver(world, "one", [5])
    idle.finish()
    assert idle.error is None and all(not world.tables[name].snapshots for name in made)


def test_a_driver_that_slept_before_it_made_a_table_finds_the_one_of_its_successor() -> None:
    world = new_named_world()
    play(world, [("produce", 0, 30), ("start", "one", [20])])
    sleeper = run_to(world.drivers[0], "step before_new_tables")
    play(world, [("start", "one", [30]), ("finish", 0)])
    sleeper.finish()
    assert sleeper.error is not None and len(world.made) == len(set(world.made))
    assert_exactly_once(world)
