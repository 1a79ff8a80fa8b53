"""The protocol of a stream whose tables are parked where they are dropped, renamed or refuse their commits.

What holds, whatever else happens: the stream goes on. What a parked table does not get is a letter that names it, and
no other table lacks anything. Once a table is back, an operator has said so, and the letters were replayed, it has
every record of its own exactly once.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.commit.errors import FencedError, NothingToAcceptError, TableUnableError
from jobs.commit.parked_target import parked_id
from jobs.commit.session import CommitSession
from jobs.commit.stamp_history import history
from jobs.errors import StreamStopped
from jobs.operator.unpark import unpark_table
from jobs.stream.open_stream import known_targets
from tests.unit.commit.protocol_driver import EveryonesLease
from tests.unit.commit.protocol_world import DEAD, TABLE, TARGETS, WAYS, World, assert_ledger_says_so
from tests.unit.commit.test_protocol import (
    CONFIGS,
    WORLD,
    _world_in_memory,
    incidents,
    moves,
    play,
    produces,
    recover,
    run_to,
    starts,
    stories,
    target_in_memory,
)

__all__ = ["_world_in_memory"]

FURTHER = [each.name for each in TARGETS[2:]]
which_further = st.integers(2, len(TARGETS) - 1)
faults = st.one_of(
    st.tuples(st.just("drop"), which_further),
    st.tuples(st.just("drop"), which_further),
    st.tuples(st.just("put back"), which_further),
    st.tuples(st.just("refuse"), which_further),
    st.tuples(st.just("refuse"), which_further),
    st.tuples(st.just("unpark"), which_further),
    incidents,
)
chapters = st.tuples(produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(faults, max_size=4))


class ParkingWorld(World):
    """A world whose further tables are parked."""

    def __init__(self) -> None:
        super().__init__(TARGETS)
        self.parkable = tuple(FURTHER)
        # What a record holds for a table is of no use to its letters: a file that was changed is put back for them.
        self.pending_was_lost = True

    def drop(self, name: str) -> None:
        """Somebody drops a table, or renames it, once the stream has it."""
        if history(self.tables[TABLE].metadata(), "payments").newest is not None:
            super().drop(name)

    def counted(self, name: str) -> Counter[tuple]:
        """What stands in a table; of the dead letters, those of records that failed."""
        found = super().counted(name)
        return found if name != DEAD else Counter({each: times for each, times in found.items() if len(each) == 2})

    def letters(self, name: str) -> Counter[tuple]:
        """The records that wait for a table among the dead letters."""
        found = super().counted(DEAD)
        return Counter({each[:2]: times for each, times in found.items() if len(each) > 2 and each[2] == name})

    @property
    def parked(self) -> set[str]:
        newest = history(self.tables[TABLE].metadata(), "payments").newest
        return set(newest.parked) if newest else set()

    def unpark(self, name: str) -> None:
        """An operator says that a table takes commits again; nothing happens where that cannot be."""
        if name not in self.parked or name not in self.tables or name in self.refusing:
            return
        spec, world = self.spec("one"), cast(Any, self)
        targets = known_targets(spec, world, {})
        session = CommitSession("payments", "one", EveryonesLease(self), targets)
        with session.held(), contextlib.suppress(StreamStopped):
            unpark_table(
                session, spec, world, name, "ada: it is back", make_target=target_in_memory, ensure=lambda *_: None
            )

    def replay(self) -> None:
        """What a replay does for tables that are not parked: each record lands where it is missing."""
        for name in FURTHER:
            if name not in self.parked:
                lacks = set(self.letters(name)) - set(self.counted(name))
                path = f"mem://replay-{name}"
                self.files[path] = sorted(lacks)
                self.tables[name].files.append(path)


def new_parking_world() -> ParkingWorld:
    world = ParkingWorld()
    WORLD[:] = [world]
    return world


def finish(world: ParkingWorld, config: str) -> None:
    """Recover, and see that nothing keeps the stream from going on, whatever has become of its further tables."""
    for _ in range(6):
        try:
            return recover(world, config)
        except Exception as problem:
            # A driver that meets such a table while it runs opens the stream again.
            if not isinstance(problem, TableUnableError):
                raise
    raise AssertionError("it opens again and again")


def assert_nothing_lost_or_doubled(world: ParkingWorld) -> None:
    """Every record has, for each of its tables, a row or a letter; no row twice."""
    counted = {name: world.counted(name) for name in world.names}
    waiting = {name: world.letters(name) for name in FURTHER}
    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            at = (partition, offset)
            rows = {name: each.pop(at, 0) for name, each in counted.items()}
            letters = {name: each.pop(at, 0) for name, each in waiting.items()}
            has = {name for name in world.names if rows[name] or letters.get(name)}
            if max(rows.values()) > 1 or max(letters.values()) > 1:
                wrong.append(f"{at} twice: {rows} {letters}")
            elif has not in [world.destinations(partition, offset, way) for way in WAYS]:
                wrong.append(f"{at}: {has}")
    assert not wrong and not any(counted.values()) and not any(waiting.values()), (wrong, counted, waiting)
    letters_table = world.tables[DEAD].metadata()
    for name in FURTHER:
        newest = history(letters_table, parked_id("payments", name)).newest
        assert world.letters(name).total() == (newest.totals.read if newest else 0)


def assert_exactly_once_in_tables(world: ParkingWorld) -> None:
    """Every record is once in each of its tables, and in no other."""
    counted = {name: world.counted(name) for name in world.names}
    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            there = Counter({name: each.pop((partition, offset), 0) for name, each in counted.items()})
            if +there not in [Counter(world.destinations(partition, offset, way)) for way in WAYS]:
                wrong.append(f"{partition} {offset}: {dict(+there)}")
    assert not wrong and not any(counted.values()), (wrong, counted)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(chapters), st.sampled_from(CONFIGS))
def test_no_record_is_lost_or_doubled_whatever_becomes_of_tables(story: list[tuple], last_config: str) -> None:
    try:
        world = new_parking_world()
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


@pytest.mark.parametrize("fault", ["drop", "refuse"])
@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "its record is lost"])
def test_at_any_moment_of_a_batch_each_table_in_turn(fault: str, lost: bool) -> None:
    """Every third moment: the driver goes on after the fault, and is killed some moments later; its successor, too."""
    for moment in range(1, 400, 3):
        world = new_parking_world()
        play(world, [("produce", 0, 12), ("start", "one", [12]), ("finish", 0), ("produce", 0, 20)])
        play(world, [("start", "one", [20])])
        driver, faulty = world.drivers[-1], 2 + moment % len(FURTHER)
        for _ in range(moment):
            driver.advance()
        ended = driver.ended
        play(world, [(fault, faulty), ("advance", 0, moment % 7), ("kill", 0)])
        if lost:
            world.lose_state()
        play(world, [("start", "one", [4]), ("advance", 0, 9 + moment % 23), ("kill", 0)])
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


@pytest.mark.parametrize("fault", ["drop", "refuse"])
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
    with session.held(), pytest.raises(NothingToAcceptError, match=r"orders\.often of stream payments is not parked"):
        unpark_table(session, spec, cast(Any, world), "orders.often", "ada: why")


def test_a_table_is_not_unparked_while_letters_of_the_newest_batch_are_to_be_made() -> None:
    world = new_parking_world()
    play(world, [("produce", 0, 40), ("start", "one", [20]), ("to", 0, "step after_anchor_commit")])
    play(world, [("drop", world.names.index("orders.often")), ("kill", 0), ("start", "one", [20])])
    play(world, [("to", 0, "step after_parking"), ("kill", 0), ("put back", world.names.index("orders.often"))])
    spec = world.spec("one")
    session = CommitSession("payments", "one", EveryonesLease(world), known_targets(spec, cast(Any, world), {}))
    with session.held(), pytest.raises(StreamStopped, match="letters of the newest batch are not all made yet"):
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
    assert f"table {DEAD} is gone" in str(world.drivers[-1].error) and not world.parked
