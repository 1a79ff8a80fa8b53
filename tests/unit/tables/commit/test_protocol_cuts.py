"""The protocol on logs that are cut and filled again, at any moment, beside all else that happens in its stories.

What is asked of the end: every record that the log holds stands in one place, once, also where another record stood at
its offset before; what was read and cut off stands in one place, once, or nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jobs.clients.kafka.metadata import KafkaUnavailableError, LogEnds
from jobs.config.values.targets import TargetSpec
from jobs.streaming.driver.context.continuity import log_departures
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import recreated_topic, signed_answer
from jobs.tables.commit.stamp.errors import HalfCommittedError, TopicRecreatedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import LastReads
from tests.unit.tables.commit.protocol_driver import Driver
from tests.unit.tables.commit.protocol_pauses import pause
from tests.unit.tables.commit.protocol_world import (
    PAIR,
    TABLE,
    TARGETS,
    TOPIC,
    WAYS,
    World,
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
    starts,
)

__all__ = ["_world_in_memory"]

_LAST_SIZES = ([5], [4], [9])


class CutWorld(World):
    """A world whose partitions change their leaders, with losses and without."""

    def __init__(self, targets: Sequence[TargetSpec] = PAIR) -> None:
        super().__init__(targets)
        self.leaders: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, list[int]] = {}

    def epochs(self, partition: TopicPartition) -> list[int]:
        """The epoch of each record of the log; what came since the last look was taken by the present leader."""
        known = self._epochs.setdefault(partition, [])
        known += [self.leaders.get(partition, 0)] * (self.log[partition] - len(known))
        return known

    def elect(self, number: int, keeps: int) -> None:
        """Another leader, whose log holds so many records at most."""
        partition = TopicPartition(TOPIC, number)
        if partition in self.log:
            epochs = self.epochs(partition)
            del epochs[keeps:]
            self.log[partition] = len(epochs)
            self.leaders[partition] = self.leaders.get(partition, 0) + 1

    def state(self, source: object) -> LogState:
        at = dict(self.log)
        leaders = {partition: self.leaders.get(partition, 0) for partition in at}
        return LogState({TOPIC: "topic-id"}, self.earliest(at), at, at, leaders)

    def ends(self, partitions: object) -> LogEnds:
        pause("asks for the log's end")
        at = dict(self.log)
        return LogEnds(at, at, {partition: self.leaders.get(partition, 0) for partition in at})

    def departures(self, marks: LastReads) -> dict[TopicPartition, int]:
        pause("asks for epochs")
        ends = {p: sum(epoch <= mark.epoch for epoch in self.epochs(p)) for p, mark in marks.items()}
        return {p: ends[p] for p, mark in marks.items() if ends[p] < mark.after}

    def record(self, partition: TopicPartition, offset: int) -> tuple:
        epochs = self.epochs(partition)
        if offset >= len(epochs):
            raise KafkaUnavailableError(f"the log does not have offset {offset}")
        return partition, offset, epochs[offset]

    def last_of(self, range_: OffsetRange, partition: TopicPartition) -> dict[str, Any]:
        if range_.end == range_.start:
            return {}
        return {"after": range_.end, "leader_epoch": self.record(partition, range_.end - 1)[2]}


def answer(world: CutWorld) -> None:
    """What `frazil accept --recreated-topic` does, once nobody holds the lease."""
    if world.store.documents:
        world.pending_was_lost = True
        world.store.documents.clear()
    targets = {name: Target(world, name, "payments", commit_once=world.commit_once) for name in world.names}  # type: ignore[arg-type]
    stamps = {name: target.history().newest for name, target in targets.items()}
    log, kafka = world.state(None), world
    where = log_departures(stamps[TABLE], log, kafka)  # type: ignore[arg-type]
    new = recreated_topic(stamps, TABLE, TOPIC, "topic-id", log.latest, where)
    world.lease_epoch = 1 + max(world.lease_epoch, *(target.greatest_epoch() for target in targets.values()))
    for name, stamp in new.items():
        targets[name].restamp(signed_answer(stamp, world.lease_epoch, "ada: go on"))


def recover(world: CutWorld, config: str) -> None:
    """Last drivers drain the log, and an operator answers what stops them."""
    for driver in world.drivers:
        driver.kill()
    for attempt in range(12):
        last = Driver(world, config, _LAST_SIZES[attempt % 3])
        last.finish()
        note(f"last driver under {config}: {last.at}, {last.error!r}")
        if last.error is None:
            return
        if isinstance(last.error, HalfCommittedError):
            assert world.pending_was_lost, f"stopped although no pending record was lost: {last.error}"
            config = "two" if config == "one" else "one"
        elif isinstance(last.error, TopicRecreatedError):
            answer(world)
        else:
            raise last.error
    raise AssertionError("the stream does not come to its end")


def assert_every_record_of_the_log_once(world: CutWorld) -> None:
    counted = {name: world.counted(name) for name in world.names}
    everywhere = sum(counted.values(), start=Counter[tuple]())
    assert [each for there in counted.values() for each, times in there.items() if times != 1] == []
    if len(world.targets) == len(PAIR):
        assert [each for each, times in everywhere.items() if times != 1] == []
    for (partition, offset, epoch), times in everywhere.items():
        # Of a record that was cut off some tables may have it, and others have what came after.
        ways = [world.destinations(partition, offset, way) for way in WAYS]
        there = {name for name, each in counted.items() if (partition, offset, epoch) in each}
        assert any(there <= way for way in ways) and len(there) == times, (partition, offset, epoch, there)
    for partition, end in world.log.items():
        for offset, epoch in zip(range(end), world.epochs(partition), strict=True):
            there = {name for name, each in counted.items() if each[partition, offset, epoch]}
            ways = [world.destinations(partition, offset, way) for way in WAYS]
            assert there in ways, (partition, offset, epoch, there)
    assert_ledger_says_so(world)


elections = st.tuples(
    st.just("elect"), st.sampled_from([0, 0, 1]), st.just(99) | st.integers(0, 12), st.just(0) | st.integers(1, 12)
)
chapters = st.tuples(
    produces, starts, st.lists(moves, min_size=1, max_size=6), st.lists(incidents | elections | elections, max_size=4)
)


@st.composite
def stories(draw: st.DrawFn) -> list[tuple]:
    """As those of the protocol, with elections at any moment, and records behind them."""
    story: list[tuple] = []
    for produced, started, moved, incident in draw(st.lists(chapters, min_size=1, max_size=4)):
        chapter: list[tuple] = [*moved]
        for each in incident:
            chapter.insert(draw(st.integers(0, len(chapter))), each)
        story += [produced, started, *chapter]
    return story


def play_with_elections(world: CutWorld, story: list[tuple]) -> None:
    for each in story:
        if each[0] == "elect":
            _, number, keeps, more = each
            world.elect(number, keeps)
            if more and TopicPartition(TOPIC, number) in world.log:
                play(world, [("produce", number, more)])
        else:
            if each[0] == "produce" and (partition := TopicPartition(TOPIC, each[1])) in world.log:
                world.epochs(partition)
            play(world, [each])


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(), st.sampled_from(CONFIGS), st.sampled_from([2, 2, 3, 5, len(TARGETS)]))
def test_every_record_of_the_log_lands_exactly_once(story: list[tuple], last_config: str, targets: int) -> None:
    try:
        world = CutWorld(TARGETS[:targets])
        WORLD[:] = [world]
        play_with_elections(world, story)
        for driver in world.drivers:
            note(f"driver {driver.config}: {driver.at}, {driver.error!r}")
        recover(world, last_config)
        assert_every_record_of_the_log_once(world)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()
