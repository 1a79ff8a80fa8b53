"""The whole protocol under generated stories of crashes, sleeps, take-overs, lost state and changed configurations.

The project's own code runs, from the claim to the removal of the pending record; `protocol_world.py` says what is not.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.commit import target as target_module
from jobs.commit.errors import FencedError, HalfCommittedError
from jobs.commit.offsets import TopicPartition
from jobs.runtime import batch as batch_module
from jobs.runtime import durable
from jobs.runtime import opening as opening_module
from jobs.runtime.durable import remove_durably, write_durably
from tests.unit.commit.protocol_world import DEAD, TABLE, TOPIC, Driver, World, fate, pause, paused_around

CONFIGS = ("one", "two")
HOT_SPOTS = ("before write", "after write", "verifies", "before an append", "after an append", "before remove", "asks")


@pytest.fixture(autouse=True)
def _world_in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(durable.os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(target_module, "append_once", lambda table, *a, **k: WORLD[0].append_once(table, *a, **k))
    monkeypatch.setattr(batch_module, "task_metadata", lambda metadata: "{}")
    monkeypatch.setattr(batch_module, "write_durably", paused_around(write_durably, "write"))
    for module in (batch_module, opening_module):
        monkeypatch.setattr(module, "remove_durably", paused_around(remove_durably, "remove"))
        monkeypatch.setattr(module, "step", lambda name: pause(f"step {name}"))
    yield


WORLD: list[World] = []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return new_world(tmp_path)


def new_world(folder: Path) -> World:
    WORLD[:] = [World(folder)]
    return WORLD[0]


def run_to(driver: Driver, at: str, *, times: int = 1) -> Driver:
    """Advance a driver until it pauses at a point for the given time."""
    while times:
        driver.advance()
        assert not driver.ended, f"ended before {at}: {driver.error}"
        times -= driver.at == at
    return driver


def recover(world: World, config: str) -> None:
    """Let a last driver drain the log, under the configuration that a half committed batch asks for, if there is one."""
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
    landed, dead = world.counted(TABLE), world.counted(DEAD)
    wrong: list[str] = []
    for partition, end in world.log.items():
        for offset in range(end):
            in_table, in_dead = landed.pop((partition, offset), 0), dead.pop((partition, offset), 0)
            wanted = 0 if fate(partition, offset, "one") == "tombstone" else 1
            if in_table + in_dead != wanted:
                wrong.append(f"{partition} {offset}: {in_table} in the table, {in_dead} dead, should be {wanted}")
    assert not wrong and not landed and not dead, (wrong, landed, dead)


some_steps = st.sampled_from(range(40))
which_table = st.sampled_from([TABLE, DEAD])
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
    produces,
)
# A chapter is a driver's life until the next one takes over, while those before it sleep and wake up.
chapters = st.tuples(produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(incidents, max_size=2))


@st.composite
def stories(draw: st.DrawFn) -> list[tuple]:
    """What happens, in order; the incidents of a chapter at any of its moments."""
    story: list[tuple] = []
    for produced, started, moved, incident in draw(st.lists(chapters, min_size=1, max_size=4)):
        chapter = [*moved]
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
        elif action == "foreign commit":
            world.tables[arguments[0]].add({})
        elif action == "alter":
            world.alter(arguments[0])
        elif arguments[0] < len(world.drivers):
            driver = world.drivers[-1 - arguments[0]]
            if action == "kill":
                driver.kill()
            elif action == "finish":
                driver.finish()
            elif action == "advance":
                for _ in range(arguments[1]):
                    driver.advance()
            else:
                driver.advance()
                while not driver.ended and not driver.at.startswith(arguments[1]):
                    driver.advance()


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(), st.sampled_from(CONFIGS))
def test_every_record_lands_exactly_once_whatever_happens(story: list[tuple], last_config: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        world = new_world(folder)
        play(world, story)
        recover(world, last_config)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        assert_exactly_once(world)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()
        shutil.rmtree(folder)
