"""The protocol under generated stories in which tables go back and operators answer, beside drivers that sleep.

A table is rolled back to an earlier snapshot, restored from older metadata, or loses its older snapshots to a foreign
expiry; Kafka's retention removes records. An operator answers, or resets offsets, at any moment.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.values.targets import TargetSpec
from jobs.streaming.driver.context.open_stream import OpenStream, known_targets
from jobs.streaming.operator import reset as reset_module
from jobs.streaming.operator.accept import with_restored_known
from jobs.streaming.operator.reset import move_positions
from jobs.streaming.operator.take_over import take_over
from jobs.tables.commit.history.lineage import LINE_PROPERTY, extended_line
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol import target as target_module
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.recovery import accept
from jobs.tables.commit.recovery.rollback import rollback, with_restored
from jobs.tables.commit.stamp.errors import NothingToAcceptError, OffsetsLostError, RolledBackError
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.target_positions import of_known_topics
from tests.unit.tables.commit.protocol_driver import Driver, EveryonesLease
from tests.unit.tables.commit.protocol_pauses import pause
from tests.unit.tables.commit.protocol_world import (
    TABLE,
    TARGETS,
    TOPIC,
    FakeSummary,
    FakeTable,
    Way,
    World,
)
from tests.unit.tables.commit.test_protocol import (
    WORLD,
    play,
    put_in_memory,
    target_in_memory,
)

Answer = Literal["keep", "reland"]


@pytest.fixture(autouse=True)
def _world_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_memory(monkeypatch)
    monkeypatch.setattr(reset_module, "step", lambda name: pause(f"step {name}"))
    monkeypatch.setattr(target_module, "STALE_SECONDS", 0.0)


@dataclass
class MovableTable(FakeTable):
    """A table whose main, or whose metadata, somebody moves back.

    Attributes:
        at: The head of main.
        held: The data files of each snapshot.
        versions: The table after each commit, as an older metadata file has it.
    """

    at: int | None = None
    held: dict[int, list[str]] = field(default_factory=dict)
    versions: list[MovableTable] = field(default_factory=list)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def head(self) -> int | None:
        return self.at

    @property
    def last_sequence(self) -> int:
        return max((each.sequence_number for each in self.snapshots), default=0)

    def add(self, summary: Mapping[str, str]) -> None:
        new = next(self.ids)
        line = extended_line(self.metadata(), new)
        self.snapshots.append(
            SimpleNamespace(
                snapshot_id=new,
                parent_snapshot_id=self.at,
                sequence_number=self.last_sequence + 1,
                summary=FakeSummary(dict(summary), len(self.files)),
            )
        )
        self.at, self.held[new] = new, list(self.files)
        self.properties |= {LINE_PROPERTY: line.text()} if line else {}

    def keep_version(self) -> None:
        """Note the table as it is, for a later restore."""
        kept = copy(self)
        kept.snapshots, kept.properties, kept.files = list(self.snapshots), dict(self.properties), list(self.files)
        self.versions.append(kept)

    def metadata(self) -> Any:
        made = super().metadata()
        last = self.last_sequence
        by_id = {each.snapshot_id: each for each in self.snapshots}
        made.refs = {"main": SimpleNamespace(snapshot_id=self.at, snapshot_ref_type="branch")} if self.at else {}
        made.next_sequence_number, made.last_sequence_number = (lambda: last + 1), last
        made.current_snapshot = lambda: by_id.get(self.at or 0)
        made.metadata_log = []
        return made

    def roll_back(self, number: int) -> None:
        """Move main to one of its ancestors."""
        by_id, along = {each.snapshot_id: each for each in self.snapshots}, list[int]()
        snapshot = by_id.get(self.at or 0)
        while snapshot is not None:
            along.append(snapshot.snapshot_id)
            snapshot = by_id.get(snapshot.parent_snapshot_id or 0)
        if len(along) > 1:
            self.at = along[1 + number % (len(along) - 1)]
            self.files = list(self.held[self.at])

    def restore(self, number: int) -> None:
        """Put older metadata in the place of the table's."""
        if self.versions:
            older = self.versions[number % len(self.versions)]
            self.snapshots, self.properties, self.at = list(older.snapshots), dict(older.properties), older.at
            self.files = list(older.files)

    def expire(self) -> None:
        """Another tool removes all snapshots but the head of main."""
        self.snapshots = [each for each in self.snapshots if each.snapshot_id == self.at]


class MovableWorld(World):
    """A world whose tables somebody moves back."""

    def __init__(self, targets: Sequence[TargetSpec]) -> None:
        super().__init__(targets)
        self.tables = {name: MovableTable(f"uuid of {name}") for name in self.names}
        self.first: dict[TopicPartition, int] = {}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.first.get(partition, 0) for partition in partitions}

    def commit_once(self, table: Any, *given: Any, **more: Any) -> int:
        landed = super().commit_once(table, *given, **more)
        self.movable(table.name()).keep_version()
        return landed

    def movable(self, name: str) -> MovableTable:
        found = self.tables[name]
        assert isinstance(found, MovableTable)
        return found


class Operator(Driver):
    """An operator's command, as a process of its own."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "one", [1])

    def _stream(self, targets: dict[str, Any]) -> OpenStream:
        world: Any = self.world
        settings: Any = SimpleNamespace(catalog=SimpleNamespace(name="test"))
        return OpenStream(
            *("payments", "one", EveryonesLease(world), targets),
            spec=with_named_tables(world.spec("one"), world),
            settings=settings,
            folder=StreamFolder(Path("nowhere"), world.store),
            log=world.state(None),
        )


class RollbackAnswer(Operator):
    """`frazil accept --rollback`, as `jobs.streaming.operator.accept` gives it.

    Attributes:
        removed: The records that it was about, by table.
        doubtful: It could not be shown whether records are missing.
    """

    def __init__(self, world: World, answer: Answer) -> None:
        self.answer: Answer = answer
        self.removed: dict[str, dict[Any, Any]] = {}
        self.doubtful: bool = False
        super().__init__(world)

    def _run(self) -> None:
        world: Any = self.world
        names = with_named_tables(world.spec("one"), world).target_names
        targets = {name: target_in_memory(world, name, "payments") for name in names}
        uuids = {name: target.uuid for name, target in targets.items()}

        def histories() -> tuple[dict[str, Any], tuple[str, ...]]:
            return with_restored({name: target.history() for name, target in targets.items()}, TABLE, uuids)

        rollback(histories()[0], TABLE, self.answer, "one")
        stream = self._stream(targets)
        with stream.held():
            if self.answer == "reland":
                for record in world.store.keys("pending-*.json"):
                    world.store.delete(record)
                    world.pending_was_lost = True
            past, restored = histories()
            new = rollback(past, TABLE, self.answer, "one")
            self.removed = {name: dict(each.removed) for name, each in past.items() if each.rolled_back}
            self.doubtful = any(each.doubt for each in past.values())
            if restored:
                new = with_restored_known(new, TABLE, past)
            stream.answer({name: stamp.naming_only(names) for name, stamp in new.items()}, "op: why")


class Reset(Operator):
    """`frazil reset-offsets`."""

    def __init__(self, world: World, wanted: Mapping[int, int]) -> None:
        self.wanted: Mapping[int, int] = wanted
        super().__init__(world)

    def _run(self) -> None:
        world: Any = self.world
        stream = self._stream(known_targets(with_named_tables(world.spec("one"), world), world, {}))
        older = [stamp for _, stamp in stamps_along_main(stream.anchor.table.metadata, "payments")]
        asked = {TopicPartition(TOPIC, number): at for number, at in self.wanted.items()}
        with stream.held():
            wanted = {p: min(at, world.log[p]) for p, at in asked.items() if p in world.log}
            move_positions(stream, world, wanted, "op: why", older)


class LostOffsets(Operator):
    """`frazil accept --lost-offsets`.

    Attributes:
        passed: The records that each table goes past, by table.
    """

    def __init__(self, world: World) -> None:
        self.passed: dict[str, Mapping[Any, Any]] = {}
        super().__init__(world)

    def _run(self) -> None:
        world: Any = self.world
        names = with_named_tables(world.spec("one"), world).target_names
        targets = {name: target_in_memory(world, name, "payments") for name in names}

        def decision() -> dict[str, Any]:
            stamps = of_known_topics({name: target.history().newest for name, target in targets.items()}, TABLE)
            log = world.state(None)
            return accept.lost_offsets(stamps, TABLE, log.earliest, log.topics)

        decision()
        stream = self._stream(targets)
        with stream.held():
            take_over(stream, world)
            new = decision()
            # A command that dies between two tables has passed over what it stamped.
            self.passed = {name: stamp.decision.passed for name, stamp in new.items()}
            stream.answer({name: stamp.naming_only(names) for name, stamp in new.items()}, "op: why")


which = st.integers(0, len(TARGETS) - 1)
produces = st.tuples(st.just("produce"), st.integers(0, 1), st.integers(1, 9))
starts = st.tuples(st.just("start"), st.just("one"), st.lists(st.integers(1, 5), min_size=1, max_size=3))
moves = st.tuples(st.just("advance"), st.sampled_from([0, 0, 0, 1, 1, 2]), st.integers(1, 45))
faults = st.one_of(
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("foreign commit"), which),
    st.tuples(st.just("write fails late"), st.just(0)),
    st.tuples(st.just("sends twice"), st.just(0)),
    st.tuples(st.just("copies arrive")),
)
loses_state = st.just(("lose state",))
goes_back = st.one_of(
    st.tuples(st.just("roll back"), which, st.integers(0, 20)),
    st.tuples(st.just("restore"), which, st.integers(0, 20)),
    st.tuples(st.just("expire"), which),
)
answers = st.just(("answer",))
retention = st.tuples(st.just("retention"), st.integers(0, 1), st.integers(0, 20), st.booleans())
resets = st.tuples(st.just("reset"), st.dictionaries(st.integers(0, 1), st.integers(0, 20), min_size=1))


def stories(*operators: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple]]:
    """What happens, in order: drivers live, faults strike, operators do something."""
    life = st.tuples(produces, starts, moves).map(list)
    event = st.one_of(life, st.lists(moves, min_size=1, max_size=3), faults.map(lambda fault: [fault]), *operators)
    return st.lists(event, min_size=3, max_size=14).map(lambda events: [("produce", 0, 5), *itertools.chain(*events)])


moved_back = st.tuples(goes_back, st.one_of(answers, moves), moves).map(list)


def tell(world: MovableWorld, story: list[tuple], answer: Answer) -> None:
    """Carry out a story, then let drivers and answers finish what it left."""
    for event in story:
        if event[0] in ("roll back", "restore", "expire"):
            table = world.movable(world.named(event[1]))
            getattr(table, event[0].replace(" ", "_"))(*event[2:])
        elif event[0] == "answer":
            world.drivers.append(RollbackAnswer(world, answer))
        elif event[0] == "retention":
            partition = TopicPartition(TOPIC, event[1])
            end = world.log.get(partition, 0)
            world.first[partition] = max(world.first.get(partition, 0), min(event[2], end))
            if event[3]:
                world.drivers.append(LostOffsets(world))
        elif event[0] == "reset":
            if world.tables[TABLE].snapshots:
                world.drivers.append(Reset(world, event[1]))
        else:
            play(world, [event])
    for driver in world.drivers:
        driver.kill()
    world.copies_arrive()
    for _ in range(8):
        last = Driver(world, "one", [5])
        world.drivers.append(last)
        last.finish()
        if not isinstance(last.error, (RolledBackError, OffsetsLostError)):
            break
        lost = isinstance(last.error, OffsetsLostError)
        given_answer = LostOffsets(world) if lost else RollbackAnswer(world, answer)
        world.drivers.append(given_answer)
        given_answer.finish()
        assert not isinstance(given_answer.error, NothingToAcceptError), (last.error, given_answer.error)
    for driver in world.drivers:
        note(f"{type(driver).__name__}: {driver.at}, {driver.error!r}")
    assert world.drivers[-1].error is None


def wrong_records(world: MovableWorld, wanted: Mapping[tuple[TopicPartition, int], int] | None = None) -> list[Any]:
    """The records that stand in a table more or less often than they were read.

    Args:
        wanted: How often each was read; None: once.
    """
    wrong: list[Any] = []
    counted = {name: world.counted(name) for name in world.names}
    for partition, end in world.log.items():
        for offset in range(end):
            into = world.destinations(partition, offset, Way("one", world.tables[TABLE].schema))
            times = 1 if wanted is None else wanted[partition, offset]
            wrong += [
                (name, partition, offset, times if name in into else 0, counted[name][partition, offset])
                for name in world.names
                if counted[name][partition, offset] != (times if name in into else 0)
            ]
    return wrong


def new_world(targets: int) -> MovableWorld:
    world = MovableWorld(TARGETS[:targets])
    WORLD[:] = [world]
    return world


some_targets = st.sampled_from([2, 2, 3, 5, len(TARGETS)])


RESTORED_AND_ROLLED_BACK: list[tuple] = [
    *(("produce", 0, 5), ("produce", 0, 1), ("start", "one", [1, 2]), ("advance", 0, 1), ("advance", 0, 13)),
    *(("advance", 0, 45), ("restore", 0, 2), ("answer",), ("advance", 0, 1), ("roll back", 0, 0), ("answer",)),
    ("advance", 0, 1),
]
"""The coordinator lacks the records of both."""
BEHIND_THE_COORDINATOR: list[tuple] = [
    *(("produce", 0, 5), ("produce", 0, 1), ("start", "one", [1]), ("advance", 0, 1), ("produce", 0, 1)),
    *(("start", "one", [1]), ("advance", 0, 30), ("produce", 0, 1), ("start", "one", [5]), ("advance", 0, 15)),
    *(("advance", 0, 14), ("produce", 0, 1), ("start", "one", [1]), ("advance", 0, 1), ("produce", 1, 1)),
    *(("start", "one", [1]), ("advance", 0, 1), ("roll back", 1, 0), ("answer",), ("advance", 0, 1)),
]
"""A table lacks a range that the coordinator is past."""
RESTORED_BEFORE_A_RECORD: list[tuple] = [
    *(("produce", 0, 5), ("advance", 0, 1), ("produce", 0, 1), ("start", "one", [5, 1]), ("advance", 0, 38)),
    *(("restore", 1, 0), ("answer",), ("advance", 0, 1)),
]
"""A table lost its part of the newest batch, and a pending record has the next one."""


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(moved_back), some_targets)
@example(RESTORED_AND_ROLLED_BACK, 2)
@example(BEHIND_THE_COORDINATOR, 2)
@example(RESTORED_BEFORE_A_RECORD, 2)
def test_what_went_back_lands_again_exactly_once(story: list[tuple], targets: int) -> None:
    try:
        tell(world := new_world(targets), story, "reland")
        if not any(getattr(driver, "doubtful", False) for driver in world.drivers):
            assert not wrong_records(world)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(moved_back), some_targets)
@example(RESTORED_AND_ROLLED_BACK, 2)
def test_only_what_an_answer_names_is_left_out(story: list[tuple], targets: int) -> None:
    try:
        tell(world := new_world(targets), story, "keep")
        left_out = {
            (name, partition, offset)
            for driver in world.drivers
            for name, ranges in getattr(driver, "removed", {}).items()
            for partition, (start, end) in ranges.items()
            for offset in range(start, end)
        }
        wrong = wrong_records(world)
        assert not [each for each in wrong if each[:3] not in left_out or each[4] > each[3]]
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(resets.map(lambda reset: [reset]), loses_state.map(lambda lost: [lost])), some_targets)
def test_records_stand_as_often_as_resets_had_them_read(story: list[tuple], targets: int) -> None:
    try:
        tell(world := new_world(targets), story, "reland")
        reads = Counter[tuple[TopicPartition, int]]()
        for _, stamp in stamps_along_main(world.tables[TABLE].metadata(), "payments"):
            if stamp.kind == "batch":
                for partition, part in stamp.parts.items():
                    reads.update((partition, offset) for offset in range(part.stood, stamp.position[partition]))
        assert not wrong_records(world, reads)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories(retention.map(lambda removed: [removed])), some_targets)
def test_only_what_retention_removed_is_passed_over(story: list[tuple], targets: int) -> None:
    try:
        tell(world := new_world(targets), story, "reland")
        passed = {
            (name, partition, offset)
            for driver in world.drivers
            for name, ranges in getattr(driver, "passed", {}).items()
            for partition, (start, end) in ranges.items()
            for offset in range(start, end)
        }
        # A partition that was not read before begins at the first record that is kept.
        begins: dict[TopicPartition, int] = {}
        for _, stamp in stamps_along_main(world.tables[TABLE].metadata(), "payments"):
            begins |= stamp.start
        wrong = [each for each in wrong_records(world) if each[2] >= begins.get(each[1], world.first.get(each[1], 0))]
        assert not [each for each in wrong if each[4] > each[3] or not {each[:3], (TABLE, *each[1:3])} & passed]
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()
