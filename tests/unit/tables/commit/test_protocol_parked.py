"""The protocol of a stream whose tables are parked where they are dropped, or refuse their commits or columns.

What holds, whatever else happens: the stream goes on. What a parked table does not get is a letter that names it, and
no other table lacks anything. Once a table is back, an operator has said so, and the letters were replayed, it has
every record of its own exactly once.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.base.errors import StreamStopped
from jobs.streaming.driver.context.open_stream import known_targets
from jobs.streaming.operator.unpark import unpark_table
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.stamp.errors import FencedError, NothingToAcceptError, TableUnableError
from tests.unit.tables.commit.parking_world import (
    FURTHER,
    assert_exactly_once_in_tables,
    assert_nothing_lost_or_doubled,
    finish,
    new_parking_world,
)
from tests.unit.tables.commit.protocol_driver import EveryonesLease
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    TABLE,
    TARGETS,
    assert_ledger_says_so,
)
from tests.unit.tables.commit.test_protocol import (
    CONFIGS,
    WORLD,
    _world_in_memory,
    incidents,
    moves,
    play,
    produces,
    run_to,
    starts,
    stories,
)

__all__ = ["_world_in_memory"]

which_further = st.integers(2, len(TARGETS) - 1)
faults = st.one_of(
    st.tuples(st.just("drop"), which_further),
    st.tuples(st.just("drop"), which_further),
    st.tuples(st.just("put back"), which_further),
    st.tuples(st.just("refuse"), which_further),
    st.tuples(st.just("refuse"), which_further),
    st.tuples(st.just("forbid"), which_further),
    st.tuples(st.just("misfit"), which_further),
    st.tuples(st.just("unpark"), which_further),
    incidents,
)
chapters = st.tuples(produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(faults, max_size=4))


@settings(max_examples=90, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(chapters), st.sampled_from(CONFIGS), st.booleans())
def test_no_record_is_lost_or_doubled_whatever_becomes_of_tables(
    story: list[tuple], last_config: str, own_columns: bool
) -> None:
    try:
        world = new_parking_world(own_columns=own_columns)
        play(world, story)
        finish(world, last_config)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        note(f"parked: {world.parked}")
        world.mend()
        assert_nothing_lost_or_doubled(world)
        assert_ledger_says_so(world)
        for name in sorted(world.parked):
            world.unpark(name)
        assert not world.parked
        world.replay()
        play(world, [("produce", 0, 20)])
        finish(world, last_config)
        assert_exactly_once_in_tables(world)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@pytest.mark.parametrize("fault", ["drop", "refuse", "forbid", "misfit"])
@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "its record is lost"])
@pytest.mark.parametrize("own_columns", [False, True], ids=["", "tables cannot hold each record"])
def test_at_any_moment_of_a_batch_each_table_in_turn(fault: str, lost: bool, own_columns: bool) -> None:
    """Every third moment: the driver goes on after the fault, and is killed some moments later; its successor, too."""
    for moment in range(1, 400, 3):
        world = new_parking_world(own_columns=own_columns)
        play(world, [("produce", 0, 12), ("start", "one", [12]), ("finish", 0), ("produce", 0, 20)])
        play(world, [("start", "one", [20])])
        driver, faulty = world.drivers[-1], 2 + moment % len(FURTHER)
        for _ in range(moment):
            driver.advance()
        ended = driver.ended
        play(world, [(fault, faulty), ("advance", 0, moment % 7), ("kill", 0)])
        if lost:
            world.lose_state()
        play(world, [("start", "one", [4]), ("advance", 0, 9 + moment * 7 % 60), ("kill", 0)])
        finish(world, "one")
        assert world.parked <= {world.names[faulty]}
        world.mend()
        assert_nothing_lost_or_doubled(world)
        assert_ledger_says_so(world)
        world.unpark(world.names[faulty])
        world.replay()
        play(world, [("produce", 0, 20)])
        finish(world, "one")
        assert_exactly_once_in_tables(world)
        if ended:
            return
    raise AssertionError("the driver never came to its end")


@pytest.mark.parametrize("fault", ["drop", "refuse", "forbid"])
def test_the_others_have_the_batch_and_the_parked_table_is_named(fault: str) -> None:
    world = new_parking_world()
    play(world, [("produce", 0, 40), ("start", "one", [40])])
    driver = run_to(world.drivers[0], "step after_anchor_commit")
    faulty = [name for name in FURTHER if name != "orders.seldom"][:2]
    play(world, [(fault, world.names.index(name)) for name in faulty])
    driver.finish()
    assert isinstance(driver.error, TableUnableError) and all(name in driver.error.message for name in faulty)
    newest = history(world.tables[TABLE].metadata(), "payments").newest
    assert newest is not None and set(faulty) < {name for name, rows in newest.rows.items() if rows}
    there = {name for name in world.tables if world.tables[name].files}
    assert there >= {name for name, rows in newest.rows.items() if rows} - set(faulty)
    finish(world, "one")
    assert world.parked == set(faulty)
    assert {name for name in FURTHER if world.letters(name)} == set(faulty)
    assert_nothing_lost_or_doubled(world)


def test_a_table_that_was_never_parked_is_no_operators_business() -> None:
    world = new_parking_world()
    play(world, [("produce", 0, 40), ("start", "one", [40]), ("finish", 0)])
    spec = world.spec("one")
    session = CommitSession("payments", "one", EveryonesLease(world), known_targets(spec, cast(Any, world), {}))
    with (
        session.held(),
        pytest.raises(NothingToAcceptError, match=r"orders\.often of stream payments is not suspended"),
    ):
        unpark_table(session, spec, cast(Any, world), "orders.often", "ada: why")


def test_a_table_is_not_unparked_while_letters_of_the_newest_batch_are_to_be_made() -> None:
    world = new_parking_world()
    play(world, [("produce", 0, 40), ("start", "one", [20]), ("to", 0, "step after_anchor_commit")])
    play(world, [("drop", world.names.index("orders.often")), ("kill", 0), ("start", "one", [20])])
    play(world, [("to", 0, "step after_parking"), ("kill", 0), ("put back", world.names.index("orders.often"))])
    spec = world.spec("one")
    session = CommitSession("payments", "one", EveryonesLease(world), known_targets(spec, cast(Any, world), {}))
    with (
        session.held(),
        pytest.raises(StreamStopped, match="some of its dead letters of the newest batch are not written yet"),
    ):
        unpark_table(session, spec, cast(Any, world), "orders.often", "ada: why")
    finish(world, "one")
    world.unpark("orders.often")
    world.replay()
    finish(world, "one")
    assert not world.parked
    assert_exactly_once_in_tables(world)


@pytest.mark.parametrize("step", ["before_parking", "between_parking", "after_parking"])
def test_killed_or_asleep_while_a_table_is_parked(step: str) -> None:
    world = new_parking_world()
    play(world, [("produce", 0, 40), ("start", "one", [20]), ("to", 0, "step after_anchor_commit")])
    play(world, [("drop", world.names.index("orders.often")), ("kill", 0), ("start", "one", [20])])
    sleeper = run_to(world.drivers[-1], f"step {step}")
    play(world, [("start", "one", [9]), ("finish", 0)])
    assert world.drivers[-1].error is None
    sleeper.finish()
    assert isinstance(sleeper.error, FencedError)
    assert world.parked == {"orders.often"}
    assert_nothing_lost_or_doubled(world)


def test_the_streams_own_table_and_its_dead_letters_stop_it_as_ever() -> None:
    world = new_parking_world()
    play(world, [("produce", 0, 40), ("start", "one", [40]), ("finish", 0), ("drop", world.names.index(DEAD))])
    play(world, [("produce", 0, 9), ("start", "one", [40]), ("finish", 0)])
    assert f"table {DEAD} was dropped" in str(world.drivers[-1].error) and not world.parked
