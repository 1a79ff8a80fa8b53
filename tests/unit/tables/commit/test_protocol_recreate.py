"""The protocol of a stream that begins tables anew by itself which values named, and which somebody dropped.

What holds, whatever else happens: the stream goes on. No table has a record twice, and none has one that is not its
own. A table that was never begun anew has each of its records; one that was has each from the position on at which
the coordinator's stamp says so, and names no other table.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.streaming.driver.tables.gone_tables import NOTE
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.errors import TargetRecreatedError
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    TABLE,
    TOPIC,
    WAYS,
    assert_ledger_says_so,
)
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
)
from tests.unit.tables.commit.test_protocol_named import NAMEABLE, NamedWorld, new_named_world

__all__ = ["_world_in_memory"]

NAMED = [each.name for each in NAMEABLE]
which_named = st.integers(2, 1 + len(NAMED))
faults = st.one_of(
    st.tuples(st.just("drop"), which_named),
    st.tuples(st.just("drop"), which_named),
    st.tuples(st.just("put back"), which_named),
    incidents,
)
chapters = st.tuples(produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(faults, max_size=4))


def recover_without_empty_ones(world: NamedWorld, config: str) -> None:
    """Recover; an operator drops an empty table that a sleeping driver has made in the place of a dropped one."""
    try:
        recover(world, config)
    except TargetRecreatedError as stop:
        (name,) = [each for each in NAMED if f"table {each} was dropped and created again" in stop.message]
        assert not world.tables[name].files
        world.drop(name)
        recover_without_empty_ones(world, config)


def begun_anew(world: NamedWorld) -> dict[str, Positions]:
    """The tables that the coordinator says were begun anew, and from where on by the last such stamp."""
    found: dict[str, Positions] = {}
    before: Mapping[str, str] = {}
    for _, stamp in reversed(stamps_along_main(world.tables[TABLE].metadata(), "payments")):
        if stamp.decision and stamp.decision.answer == "recreated_table":
            assert stamp.kind == "accept" and stamp.note == NOTE
            left_out = before.keys() - stamp.targets.keys()
            assert left_out and left_out <= set(NAMED)
            found |= dict.fromkeys(left_out, stamp.position)
        before = stamp.targets
    return found


def assert_once_from_where_it_was_begun(world: NamedWorld) -> dict[str, Positions]:
    anew, counted = begun_anew(world), {name: world.counted(name) for name in world.names}
    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            there = {name: each.pop((partition, offset), 0) for name, each in counted.items()}
            # What a table may lack: it was dropped with what it had.
            free = {name for name, begun in anew.items() if offset < begun.get(partition, 0)}
            has = {name for name, times in there.items() if times}
            ways = [world.destinations(partition, offset, way) for way in WAYS]
            if max(there.values()) > 1 or not any(way - free <= has <= way for way in ways):
                wrong.append(f"{partition} {offset}: {there} of {ways}, {free}")
    assert not wrong and not any(counted.values()), (wrong, counted)
    return anew


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(chapters), st.sampled_from(CONFIGS))
def test_tables_that_are_dropped_are_begun_anew_and_no_record_is_twice_or_lost(
    story: list[tuple], last_config: str
) -> None:
    try:
        world = new_named_world(recreate=True)
        play(world, story)
        recover_without_empty_ones(world, last_config)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        anew = assert_once_from_where_it_was_begun(world)
        assert_ledger_says_so(world, dropped=anew)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@pytest.mark.parametrize("back", [False, True], ids=["gone for good", "back at once"])
@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "its record is lost"])
def test_dropped_at_any_moment_each_table_in_turn(back: bool, lost: bool) -> None:
    """The driver goes on after the drop, and is killed some moments later; its successor, too."""
    for moment in range(1, 400):
        world = new_named_world(recreate=True)
        play(world, [("produce", 0, 12), ("start", "one", [12]), ("finish", 0), ("produce", 0, 20)])
        play(world, [("start", "one", [20])])
        driver, dropped = world.drivers[-1], 2 + moment % len(NAMED)
        for _ in range(moment):
            driver.advance()
        ended = driver.ended
        play(world, [("drop", dropped), ("advance", 0, moment % 7), ("kill", 0)])
        if lost:
            world.lose_state()
        if back:
            play(world, [("start", "one", [4]), ("advance", 0, 9 + moment % 11), ("put back", dropped)])
        recover(world, "one")
        anew = assert_once_from_where_it_was_begun(world)
        assert anew.keys() <= {world.names[dropped]}
        assert_ledger_says_so(world, dropped=anew)
        if ended:
            return
    raise AssertionError("the driver never came to its end")


@pytest.mark.parametrize("step", ["before_dropped_tables", "after_dropped_tables", "after_claims"])
def test_killed_or_asleep_while_a_table_is_begun_anew(step: str) -> None:
    world = new_named_world(recreate=True)
    play(world, [("produce", 0, 40), ("start", "one", [40]), ("finish", 0), ("produce", 0, 40)])
    name = next(each for each in NAMED if each in world.tables)
    play(world, [("drop", world.names.index(name)), ("start", "one", [40])])
    sleeper = run_to(world.drivers[-1], f"step {step}")
    play(world, [("start", "one", [9]), ("finish", 0)])
    assert world.drivers[-1].error is None
    sleeper.finish()
    assert sleeper.error is not None
    anew = assert_once_from_where_it_was_begun(world)
    assert anew[name] == {TopicPartition(TOPIC, 0): 43}, "from behind what was landed while it was there"
    assert len(world.made) == len(set(world.made)) + 1


def test_other_tables_of_the_stream_are_not_begun_anew_by_themselves() -> None:
    world = new_named_world(recreate=True)
    play(world, [("produce", 0, 40), ("start", "one", [40]), ("finish", 0), ("drop", world.names.index(DEAD))])
    play(world, [("produce", 0, 9), ("start", "one", [40]), ("finish", 0)])
    assert f"table {DEAD} was dropped" in str(world.drivers[-1].error) and DEAD not in world.tables
    world.mend()
    recover(world, "one")
    assert_exactly_once(world)
