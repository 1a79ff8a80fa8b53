"""The protocol of a stream of whose tables some are dropped or renamed, refuse their commits, and come back.

What holds, whatever else happens to drivers, state and tables: a driver that finds a table gone stops, names it, and
makes no other in its place; no table keeps another from a batch; and once they are back, every record is exactly once
in each of its tables.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.tables.commit.stamp.errors import (
    CommitDeniedError,
    FencedError,
    TableGoneError,
    TargetRecreatedError,
)
from tests.unit.tables.commit.protocol_driver import Driver
from tests.unit.tables.commit.protocol_world import DEAD, TABLE
from tests.unit.tables.commit.test_protocol import (
    CONFIGS,
    WORLD,
    _world_in_memory,
    assert_exactly_once,
    incidents,
    moves,
    play,
    produces,
    recover,
    run_to,
    starts,
    stories,
    which_table,
)
from tests.unit.tables.commit.test_protocol_named import NamedWorld, new_named_world

__all__ = ["_world_in_memory"]

faults = st.one_of(
    st.tuples(st.just("drop"), which_table),
    st.tuples(st.just("drop"), which_table),
    st.tuples(st.just("put back"), which_table),
    st.tuples(st.just("refuse"), which_table),
    incidents,
)
chapters = st.tuples(produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(faults, max_size=4))


def assert_stops_where_one_is_gone(world: NamedWorld, config: str) -> None:
    """Whoever opens the stream now names one that is gone, or in whose place another is, and makes and lands nothing.

    Another is there if a driver that slept has made it, so it is empty.
    """
    for driver in world.drivers:
        driver.kill()
    there = {name: (table.uuid, len(table.snapshots)) for name, table in world.tables.items()}
    replaced = {name for name, uuid in world.known().items() if name in there and there[name][0] != uuid}
    told = {f"table {name} was dropped and created again" for name in replaced}
    told |= {f"table {name} was dropped, with" for name in world.known() if name not in there}
    if not told:
        return
    opening = Driver(world, config, [3])
    opening.finish()
    assert isinstance(opening.error, TargetRecreatedError), opening.error
    assert any(each in opening.error.message for each in told), (told, opening.error)
    assert {name: (table.uuid, len(table.snapshots)) for name, table in world.tables.items()} == there
    assert not any(world.tables[name].snapshots for name in replaced)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(chapters), st.sampled_from(CONFIGS))
def test_every_record_is_once_in_each_of_its_tables_once_these_are_back(story: list[tuple], last_config: str) -> None:
    try:
        world = new_named_world()
        play(world, story)
        assert_stops_where_one_is_gone(world, last_config)
        world.mend()
        recover(world, last_config)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        assert_exactly_once(world)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


def test_a_record_of_a_batch_for_which_a_table_was_made_that_is_another_one_by_now_is_dropped() -> None:
    # Two drivers at once: the one whose record stands has made the table that is dropped, and an older one another.
    world = new_named_world()
    play(world, [("produce", 0, 3), *[("start", "one", [2])] * 2, ("to", 1, "before orders.")])
    play(world, [("to", 0, "after write")])
    (made,) = set(world.made)
    play(world, [("drop", world.names.index(made)), ("advance", 1, 1)])
    assert world.made == [made, made] and not world.tables[TABLE].files
    recover(world, "one")
    assert_exactly_once(world)


def test_a_record_of_another_table_does_not_stop_one_that_was_made_again_for_the_same_batch() -> None:
    # A driver's record stands, the table that it made is dropped, and another driver lands the same range so far that
    # its coordinator's stamp looks like the record's own.
    world = new_named_world()
    play(world, [("produce", 0, 3), *[("start", "one", [4])] * 2, ("to", 1, "looks for")])
    play(world, [("to", 0, "step after_recovery"), ("to", 1, "after write")])
    name = world.made[0]
    play(world, [("drop", world.names.index(name)), ("to", 0, "after an append")])
    assert world.made.count(name) == 2 and len(world.store.documents) == 2
    recover(world, "one")
    assert_exactly_once(world)


def meeting_of_two_makers(at: str) -> tuple[NamedWorld, Driver, str]:
    """A driver that sleeps as it makes a table, whose successor has made, recorded and anchored one that is dropped.

    Args:
        at: Where the first one sleeps; `{}` stands for the table.

    Returns:
        The world, the sleeper and the table's name.
    """
    world = new_named_world()
    play(world, [("produce", 0, 3), ("start", "one", [6])])
    first = Driver(world, "one", [6])
    while not first.at.startswith("before orders."):
        first.advance()
    name = first.at.split()[1]
    first.kill()
    sleeper = run_to(world.drivers[0], at.format(name))
    play(world, [("start", "one", [6])])
    successor = run_to(world.drivers[-1], "step before_commit")
    play(world, [("drop", world.names.index(name))])
    successor.finish()
    assert isinstance(successor.error, TableGoneError) and successor.error.table == name
    assert world.made.count(name) == 1 and world.known()[name] == f"uuid {1 + world.made.index(name)} of {name}"
    return world, sleeper, name


@pytest.mark.parametrize("record", ["stands", "is lost"])
def test_an_empty_table_that_a_sleeper_has_made_in_the_place_of_one_that_was_dropped(record: str) -> None:
    # The coordinator counts rows in the table that was dropped. It never had any, which nobody can know.
    world, sleeper, name = meeting_of_two_makers("before {} is made")
    sleeper.finish()
    assert isinstance(sleeper.error, FencedError) and world.made.count(name) == 2
    opening = Driver(world, "one", [6])
    opening.finish()
    assert isinstance(opening.error, TargetRecreatedError) and not isinstance(opening.error, TableGoneError)
    assert f"table {name} was dropped and created again" in opening.error.message
    assert "which was made for the stream and is empty" in opening.error.message
    assert "restore the former table in place of this one" in str(opening.error)
    assert_stops_where_one_is_gone(world, "one")
    if record == "is lost":
        world.lose_state()
    world.mend()
    recover(world, "one")
    assert_exactly_once(world)


@pytest.mark.parametrize("at", ["step after_recovery", "verifies the lease"])
def test_a_driver_that_was_taken_over_makes_no_table_in_the_place_of_one_that_was_dropped(at: str) -> None:
    world, sleeper, name = meeting_of_two_makers(at)
    sleeper.finish()
    assert isinstance(sleeper.error, FencedError)
    assert name not in world.tables and world.made.count(name) == 1
    assert_stops_where_one_is_gone(world, "one")
    world.mend()
    recover(world, "one")
    assert_exactly_once(world)


@pytest.mark.parametrize("fault", ["drop", "refuse"])
@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "and is killed"])
def test_at_any_moment_of_a_batch_each_table_in_turn(fault: str, killed: bool) -> None:
    """Every third moment, another table each time: together they are all moments of a batch and of a take-over."""
    for moment in range(1, 400):
        world = new_named_world()
        play(world, [("produce", 0, 12), ("start", "one", [12]), ("finish", 0), ("produce", 0, 20)])
        play(world, [("start", "one", [20])])
        driver = world.drivers[-1]
        for _ in range(moment):
            driver.advance()
        ended = driver.ended
        play(world, [(fault, moment)])
        if not killed:
            driver.finish()
        assert_stops_where_one_is_gone(world, "one")
        world.mend()
        recover(world, "one")
        assert_exactly_once(world)
        if ended:
            return
    raise AssertionError("the driver never came to its end")


@pytest.mark.parametrize("fault", ["drop", "refuse"])
def test_a_table_that_has_no_commit_keeps_no_other_from_the_batch(fault: str) -> None:
    world = new_named_world()
    play(world, [("produce", 0, 40), ("start", "one", [40])])
    driver = run_to(world.drivers[0], "step after_anchor_commit")
    names = [name for name in world.names if name in world.tables and name not in (TABLE, DEAD)]
    assert len(names) > 3
    faulty = names[:2]
    play(world, [(fault, world.names.index(name)) for name in faulty])
    driver.finish()
    assert isinstance(driver.error, TargetRecreatedError if fault == "drop" else CommitDeniedError)
    assert all(name in driver.error.message for name in faulty), "both are told"
    assert {name for name in world.tables if not world.tables[name].files} <= set(faulty)
    world.mend()
    recover(world, "one")
    assert_exactly_once(world)
