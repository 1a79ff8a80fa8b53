"""The whole protocol under generated stories of crashes, sleeps, take-overs, lost state and changed configurations.

The project's own code runs, from the claim to the removal of the pending record; `protocol_world.py` says what is not.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.config.values.targets import TargetSpec
from jobs.streaming.driver.batch import batch as batch_module
from jobs.streaming.driver.batch import batch_commit as batch_commit_module
from jobs.streaming.driver.batch import tasks as batch_tasks_module
from jobs.streaming.driver.context import open_stream as open_stream_module
from jobs.streaming.driver.context.commit_pool import commit_each
from jobs.streaming.driver.opening import takeover as takeover_module
from jobs.streaming.driver.tables import gone_tables as gone_tables_module
from jobs.streaming.driver.tables import new_tables as new_tables_module
from jobs.streaming.driver.tables import parked_tables as parked_tables_module
from jobs.tables.commit.protocol import parked_target as parked_target_module
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import FencedError, HalfCommittedError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.unit.tables.commit.protocol_driver import Driver
from tests.unit.tables.commit.protocol_pauses import pause
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    PAIR,
    TARGETS,
    TOPIC,
    WAYS,
    Way,
    World,
    assert_ledger_says_so,
)

CONFIGS = ("one", "two")
HOT_SPOTS = ("before write", "after write", "verifies", "before an append", "after an append", "before remove", "asks")


@pytest.fixture(autouse=True)
def _world_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_memory(monkeypatch)


def put_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the code that runs find the world's tables, pause at its steps, and commit to tables in any order."""
    monkeypatch.setattr(batch_tasks_module, "task_metadata", lambda metadata: "{}")
    for module in (
        *(batch_module, batch_commit_module, takeover_module, new_tables_module, gone_tables_module),
        parked_tables_module,
    ):
        monkeypatch.setattr(module, "step", lambda name: pause(f"step {name}"))
    for module in (takeover_module, new_tables_module, open_stream_module, parked_tables_module):
        monkeypatch.setattr(module, "Target", target_in_memory)
    monkeypatch.setattr(parked_target_module, "ParkedTarget", parked_in_memory)
    monkeypatch.setattr(new_tables_module, "existing_table", lambda world, name: world.existing(name))
    monkeypatch.setattr(new_tables_module, "ensure_routed_table", lambda spec, world, name: world.ensure(name))
    for module in (batch_commit_module, takeover_module):
        monkeypatch.setattr(module, "commit_each", commit_in_any_order)


def target_in_memory(world: Any, name: str, stream: str, **more: Any) -> Target:
    """As the code that runs makes it."""
    return Target(world, name, stream, commit_once=world.commit_once, **more)


def parked_in_memory(world: Any, *given: str) -> ParkedTarget:
    """As the code that runs makes it."""
    return ParkedTarget(world, *given, commit_once=world.commit_once)


def commit_in_any_order(names: Sequence[str], commit: Callable[[str], Any], most: int) -> dict[str, Any]:
    """As the pool does, in the driver's own thread: whatever order a pool gives, some number of them has landed."""
    order = sorted(names, key=lambda name: (zlib.crc32(f"{name} {len(WORLD[0].files)}".encode()), name))
    return commit_each(order, commit, most=1)


WORLD: list[World] = []


@pytest.fixture
def world() -> World:
    return new_world()


def new_world(targets: Sequence[TargetSpec] = PAIR) -> World:
    WORLD[:] = [World(targets)]
    return WORLD[0]


def run_to(driver: Driver, at: str, *, times: int = 1) -> Driver:
    """Advance a driver until it pauses at a point for the given time."""
    while times:
        driver.advance()
        assert not driver.ended, f"ended before {at}: {driver.error}"
        times -= driver.at == at
    return driver


def recover(world: World, config: str) -> None:
    """Let a last driver drain the log, under the configuration that a half committed batch asks for if there is one."""
    for driver in world.drivers:
        driver.kill()
    last = Driver(world, config, [5])
    last.finish()
    if isinstance(last.error, HalfCommittedError):
        assert world.pending_was_lost, f"stopped although no pending record was lost: {last.error}"
        assert len(world.configs | {config}) > 1, f"stopped although the configuration never changed: {last.error}"
        last = Driver(world, "two" if config == "one" else "one", [4])
        last.finish()
    if last.error:
        raise last.error


def assert_exactly_once(world: World) -> None:
    counted = {name: world.counted(name) for name in world.names}
    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            there = Counter({name: each.pop((partition, offset), 0) for name, each in counted.items()})
            # As one configuration, one schema, one mapping and one state of the registry have it, on all targets alike.
            if +there not in [Counter(world.destinations(partition, offset, way)) for way in WAYS]:
                wrong.append(f"{partition} {offset}: {dict(+there)}")
    assert not wrong and not any(counted.values()), (wrong, counted)
    assert_ledger_says_so(world)


some_steps = st.sampled_from(range(40))
which_table = st.integers(0, len(TARGETS) - 1)
starts = st.tuples(st.just("start"), st.sampled_from(CONFIGS), st.lists(st.integers(1, 5), min_size=1, max_size=3))
produces = st.tuples(st.just("produce"), st.integers(0, 1), st.integers(1, 9))
moves = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from([0, 0, 0, 1, 1, 2]), some_steps),
    st.tuples(st.just("to"), st.sampled_from([0, 0, 0, 1, 1, 2]), st.sampled_from(HOT_SPOTS)),
)
incidents = st.one_of(
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("lose state")),
    st.tuples(st.just("foreign commit"), which_table),
    st.tuples(st.just("alter"), which_table),
    st.tuples(st.just("map names")),
    st.tuples(st.just("registry learns")),
    st.tuples(st.just("write fails late"), st.just(0)),
    st.tuples(st.just("sends twice"), st.just(0)),
    st.tuples(st.just("copies arrive")),
    produces,
)
# A chapter is a driver's life until the next one takes over, while those before it sleep and wake up.
chapters = st.tuples(produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(incidents, max_size=2))


@st.composite
def stories(draw: st.DrawFn, chapters: st.SearchStrategy[Any] = chapters) -> list[tuple]:
    """What happens, in order; the incidents of a chapter at any of its moments."""
    story: list[tuple] = []
    for produced, started, moved, incident in draw(st.lists(chapters, min_size=1, max_size=4)):
        chapter: list[tuple] = [*moved]
        for each in incident:
            chapter.insert(draw(st.integers(0, len(chapter))), each)
        story += [produced, started, *chapter]
    return story


def play(world: World, story: list[tuple]) -> None:
    """Carry out a story; drivers are counted from the newest."""
    for action, *arguments in story:
        if action == "start":
            config, sizes = arguments
            world.configs.add(config)
            world.drivers.append(Driver(world, config, sizes))
        elif action == "produce":
            partition = TopicPartition(TOPIC, arguments[0])
            world.log[partition] = world.log.get(partition, 0) + arguments[1]
        elif action == "lose state":
            world.lose_state()
        elif action == "copies arrive":
            world.copies_arrive()
        elif action == "foreign commit":
            if (name := world.named(arguments[0])) in world.tables:
                world.tables[name].add({})
        elif action == "map names":
            world.map_names()
        elif action == "registry learns":
            world.registry_knows = True
        elif action == "drop":
            world.drop(world.named(arguments[0]))
        elif action == "put back":
            world.put_back(world.named(arguments[0]))
        elif action == "unpark":
            world.unpark(world.named(arguments[0]))
        elif action == "refuse":
            world.refusing ^= {world.named(arguments[0])}
        elif action == "misfit":
            world.misfits ^= {world.named(arguments[0])}
        elif action == "forbid":
            world.forbid(world.named(arguments[0]))
        elif action == "alter":
            world.alter(world.named(arguments[0]))
        elif arguments[0] < len(world.drivers):
            driver = world.drivers[-1 - arguments[0]]
            if action == "kill":
                driver.kill()
            elif action == "write fails late":
                driver.write_fails_late = True
            elif action == "sends twice":
                driver.sends_twice = True
            elif action == "finish":
                driver.finish()
            elif action == "advance":
                for _ in range(arguments[1]):
                    driver.advance()
            else:
                driver.advance()
                while not driver.ended and not driver.at.startswith(arguments[1]):
                    driver.advance()


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(), st.sampled_from(CONFIGS), st.sampled_from([2, 2, 1, 3, 4, 5, len(TARGETS)]))
def test_every_record_lands_exactly_once_whatever_happens(story: list[tuple], last_config: str, targets: int) -> None:
    try:
        world = new_world(TARGETS[:targets])
        play(world, story)
        recover(world, last_config)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        assert_exactly_once(world)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


REMEMBERED: dict[str, list[tuple]] = {
    # The sleeper's record is found by the third driver, after the second has landed part of its range in other batches.
    "a stale pending record": [
        ("produce", 0, 1),
        ("start", "one", [4]),
        ("to", 0, "before write"),
        ("start", "one", [1]),
        ("to", 0, "step before_spark_notes"),
        ("to", 0, "before Spark notes"),
        ("advance", 1, 1),
    ],
    # The same, with a configuration between that lands what the sleeper's record holds as failed.
    "a stale pending record of another configuration": [
        ("produce", 0, 9),
        ("start", "one", [9]),
        ("to", 0, "before write"),
        ("start", "two", [4]),
        ("to", 0, "before Spark notes"),
        ("to", 0, "before Spark notes"),
        ("advance", 1, 1),
    ],
    # The successor has committed a longer range to the table and not yet to the dead letters.
    "a stale pending record beside a half committed batch": [
        ("produce", 0, 9),
        ("start", "one", [9]),
        ("to", 0, "before write"),
        ("start", "two", [12]),
        ("to", 0, "step after_anchor_commit"),
        ("advance", 1, 1),
    ],
    # Its record goes through, the call hangs, a successor commits from the record, and then the call raises.
    "a late error from the write of a record": [
        ("produce", 0, 9),
        ("start", "one", [9]),
        ("write fails late", 0),
        ("to", 0, "after write"),
        ("start", "one", [4]),
        ("finish", 0),
        ("finish", 1),
    ],
    # The first driver finds that its files do not fit, the table is put back, and a successor commits them.
    "files that did not fit are committed by a successor": [
        ("produce", 0, 9),
        ("start", "one", [12]),
        ("to", 0, "verifies"),
        ("alter", 1),
        ("to", 0, "before remove"),
        ("alter", 1),
        ("start", "one", [4]),
        ("to", 0, "step after_recovery_commit"),
        ("finish", 1),
    ],
    # A proxy sends a commit twice: one copy is refused, and the other lands while its driver is about to try again.
    "a copy of a refused commit that lands": [
        ("produce", 0, 9),
        ("start", "one", [4]),
        ("to", 0, "verifies"),
        ("sends twice", 0),
        ("to", 0, "before an append"),
        ("advance", 0, 2),
        ("copies arrive",),
        ("finish", 0),
    ],
    # The driver dies after the refusal, and the copy lands between two claims of its successor.
    "a copy of a commit whose driver is gone": [
        ("produce", 0, 9),
        ("start", "one", [4]),
        ("to", 0, "verifies"),
        ("sends twice", 0),
        ("to", 0, "before an append"),
        ("advance", 0, 1),
        ("kill", 0),
        ("start", "two", [9]),
        ("to", 0, "after an append"),
        ("copies arrive",),
        ("finish", 0),
    ],
    # The table is ahead of the batch that runs again for the dead letters, and commits a partition that is new.
    "a new partition while a half committed batch runs again": [
        ("start", "two", [3]),
        ("to", 0, "step after_anchor_commit"),
        ("lose state",),
        ("produce", 1, 1),
        ("start", "two", [1]),
        ("to", 0, "before Spark notes"),
    ],
}


# A batch is in its table and not in the dead letters, its record is lost, and what its records failed for is mended.
MENDED = [("produce", 0, 30), ("start", "one", [40]), ("to", 0, "step after_anchor_commit"), ("kill", 0)]


@pytest.mark.parametrize("mended", [[("map names",)], [("registry learns",)], [("map names",), ("registry learns",)]])
@pytest.mark.parametrize("before", [[], [("map names",)]])
def test_a_second_run_decides_as_the_first_one_did(world: World, before: list[tuple], mended: list[tuple]) -> None:
    play(world, [*before, *MENDED, ("lose state",), *mended, ("produce", 0, 30), ("start", "one", [40]), ("finish", 0)])
    assert world.drivers[-1].error is None
    first, named = TopicPartition(TOPIC, 0), bool(before)
    later = Way("one", 0, named != (("map names",) in mended), ("registry learns",) in mended)
    found = {name: world.counted(name) for name in world.names}
    for offset in range(60):
        there = {name for name in world.names if found[name][first, offset]}
        assert there == world.destinations(first, offset, Way("one", 0, named) if offset < 33 else later), offset
    assert_exactly_once(world)


@pytest.mark.parametrize("name", REMEMBERED)
@pytest.mark.parametrize("last_config", CONFIGS)
@pytest.mark.parametrize("targets", [2, len(TARGETS)])
def test_stories_that_once_went_wrong(name: str, last_config: str, targets: int) -> None:
    world = new_world(TARGETS[:targets])
    play(world, REMEMBERED[name])
    recover(world, last_config)
    assert_exactly_once(world)


def test_a_sleeper_cannot_commit_once_it_was_taken_over(world: World) -> None:
    play(world, [("produce", 0, 5), ("start", "one", [2]), ("to", 0, "before an append")])
    sleeper = world.drivers[0]
    run_to(sleeper, "step before_commit")
    play(world, [("start", "one", [3]), ("finish", 0)])
    sleeper.finish()
    assert isinstance(sleeper.error, FencedError)
    assert_exactly_once(world)


def test_a_half_committed_batch_without_its_record_stops_only_another_configuration(world: World) -> None:
    play(world, [("start", "two", [3]), ("to", 0, "step after_anchor_commit"), ("kill", 0), ("lose state",)])
    other = Driver(world, "one", [3])
    other.finish()
    assert isinstance(other.error, HalfCommittedError)
    assert f"{TOPIC}-0 [0, 3)" in str(other.error)
    same = Driver(world, "two", [1])
    same.finish()
    assert same.error is None
    assert_exactly_once(world)


def test_with_its_record_a_batch_ends_under_the_configuration_it_began_with(world: World) -> None:
    play(world, [("start", "two", [3]), ("to", 0, "step after_anchor_commit"), ("kill", 0)])
    play(world, [("start", "one", [3]), ("finish", 0)])
    assert world.drivers[-1].error is None
    assert world.counted(DEAD) == {(TopicPartition(TOPIC, 0), 2): 1}, "offset 2 fails under 'two' and lands under 'one'"
    assert not world.store.documents
    assert_exactly_once(world)
