"""Moving a stream's position: the pure decisions, and the whole protocol in memory with kills in the middle of it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.operator import reset as operator_reset
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery import reset as reset_module
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.recovery.reset import (
    ResetMove,
    ResetRefusedError,
    complete_positions,
    reset_moves,
    reset_stamps,
    valid_through_after,
)
from jobs.tables.commit.stamp.event_times import EventTimes, PartitionTime
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions
from tests.unit.tables.commit.protocol_driver import Driver, EveryonesLease
from tests.unit.tables.commit.protocol_world import (
    DEAD,
    PAIR,
    TABLE,
    TARGETS,
    TOPIC,
    Way,
    World,
    assert_ledger_says_so,
)
from tests.unit.tables.commit.test_protocol import (
    CONFIGS,
    HOT_SPOTS,
    WORLD,
    new_world,
    play,
    put_in_memory,
    recover,
)

P0, P1, P2 = (TopicPartition(TOPIC, number) for number in range(3))
LOG = LogState({TOPIC: "id"}, {P0: 10, P1: 0, P2: 3}, {P0: 100, P1: 60, P2: 9})
_BOTH = Stamp(
    "s",
    "batch",
    4,
    2,
    "c",
    {P0: 40, P1: 5},
    {P0: 50, P1: 30},
    rows={TABLE: 9, DEAD: 1},
    totals=Counts(80, 70, 4, 6),
    topics={TOPIC: "id"},
)
# The last batch had rows for both, the dead letters' stamp is as new as the table's.
BOTH: dict[str, Stamp | None] = {TABLE: _BOTH, DEAD: _BOTH}
# It had none for the dead letters, whose stamp is older.
ONE: dict[str, Stamp | None] = {
    TABLE: replace(_BOTH, rows={TABLE: 9}),
    DEAD: replace(_BOTH, start={P0: 7, P1: 5}, position={P0: 22, P1: 6}),
}
# Two more: one that has had no row for long, and one that never had any.
FOUR: dict[str, Stamp | None] = {**ONE, "orders.seldom": ONE[DEAD], "orders.copies": None}
KNOWN = {P0: 50, P1: 30}
COUNTS = (2, 5, len(TARGETS))


def in_force(stamps: dict[str, Stamp | None]) -> dict[TopicPartition, int]:
    """Where the stream goes on, if all its targets stand there and none is taken for half committed."""
    assert half_committed(stamps, TABLE) is None
    positions = target_positions(stamps, TABLE)
    assert all(each == positions[TABLE] for each in positions.values()), positions
    return restart_positions(positions)


@pytest.mark.parametrize("stamps", [BOTH, ONE, FOUR], ids=["both", "one", "four"])
@pytest.mark.parametrize(
    "wanted", [{P0: 20}, {P0: 100}, {P0: 20, P1: 60}, {P0: 44, P1: 6, P2: 9}, {P2: 5}, {P0: 10, P1: 0, P2: 3}]
)
def test_only_the_last_commit_moves_the_stream_and_moves_it_whole(
    stamps: dict[str, Stamp | None], wanted: dict[TopicPartition, int]
) -> None:
    assert complete_positions("s", stamps, TABLE) == KNOWN
    made = reset_moves("s", KNOWN, LOG, wanted)
    known = {name: stamp for name, stamp in stamps.items() if stamp}
    commits = reset_stamps(known, TABLE, KNOWN, made, LOG, valid_through_ms=7, note="me: why", epoch=3)
    assert [name for name, _ in commits] == [TABLE, *(name for name in known if name != TABLE), TABLE]
    now = dict(stamps)
    for name, stamp in commits:
        assert in_force(now) == KNOWN
        now[name] = stamp
    assert in_force(now) == {**KNOWN, **wanted}
    last = commits[-1][1]
    assert (last.kind, last.epoch, last.note, last.valid_through_ms) == ("accept", 3, "me: why", 7)
    assert last.ends == {p: end for p, end in LOG.latest.items() if p in in_force(now) and in_force(now)[p] < end}
    assert last.totals == known[TABLE].totals
    decided = last.decision
    assert decided is not None and decided.answer == "reset"
    assert dict(decided.again) == {p: (at, KNOWN[p]) for p, at in wanted.items() if at < KNOWN.get(p, 3)}
    assert dict(decided.passed) == {p: (KNOWN.get(p, 3), at) for p, at in wanted.items() if at > KNOWN.get(p, 3)}
    others = [stamp.decision for name, stamp in commits if name != TABLE]
    assert others and all(each and each.again == decided.again and not each.passed for each in others)
    assert last.counts == Counts()


@pytest.mark.parametrize("lacks", [DEAD, "orders.seldom", "orders.copies"])
def test_a_batch_on_some_tables_only_has_to_be_completed_first(lacks: str) -> None:
    rows = replace(_BOTH, rows={TABLE: 9, lacks: 1})
    half = {**FOUR, TABLE: rows, **({} if lacks == "orders.copies" else {lacks: ONE[DEAD]})}
    with pytest.raises(ResetRefusedError, match="not all at the same position") as refused:
        complete_positions("s", half, TABLE)
    assert (refused.value.fix or "").startswith("frazil run s")
    with pytest.raises(ResetRefusedError, match="has never run"):
        complete_positions("s", dict.fromkeys(FOUR), TABLE)


def test_what_kafka_does_not_keep_is_refused_with_its_bounds() -> None:
    with pytest.raises(
        ResetRefusedError, match=r"payments-0 at 9, where Kafka keeps offsets 10 to 100; payments-1 at 61"
    ):
        reset_moves("s", KNOWN, LOG, {P0: 9, P1: 61})
    with pytest.raises(ResetRefusedError, match=r"reads no such partition: other-0"):
        reset_moves("s", KNOWN, LOG, {TopicPartition("other", 0): 9})
    behind, new = reset_moves("s", {P0: 4}, LOG, {P0: 12, P2: 9})
    assert (behind.skipped, behind.gone, behind.again) == (8, 6, 0)
    assert (new.before, new.skipped, new.gone) == (3, 6, 0), "an unknown partition would begin at its first record"


def test_going_back_lowers_what_the_stream_is_complete_through() -> None:
    def at(offset: int, through: int | None) -> Stamp:
        return Stamp("s", "batch", 1, 1, "c", {P0: offset}, {P0: offset}, valid_through_ms=through)

    older = [at(50, 900), at(30, 700), at(20, 500), at(0, 100)]

    def move(after: int) -> list[ResetMove]:
        return [ResetMove(P0, 50, after, OffsetRange(0, 99))]

    assert valid_through_after(older[0], older, move(29)) == 500
    assert valid_through_after(older[0], older, move(30)) == 700
    assert valid_through_after(older[0], older[:2], move(29)) is None, "the stamp that would say so has expired"
    assert valid_through_after(older[0], older, move(80)) == 900, "what is passed over is not the stream's any more"


class Resetter(Driver):
    """Somebody who resets the offsets, as a thread that can be killed wherever it pauses."""

    def __init__(self, world: World, wanted: dict[TopicPartition, int], *, killed: bool) -> None:
        self.wanted = wanted
        self.planned: tuple[ResetMove, ...] | None = None
        self.killed = killed
        super().__init__(world, "one", [])

    def _run(self) -> None:
        world: Any = self.world
        spec: Any = world.spec("one")
        targets = {name: Target(world, name, "payments", commit_once=world.commit_once) for name in world.names}
        for target in targets.values():
            target.read()
        if targets[TABLE].newest is None:
            return
        folder = StreamFolder(Path("nowhere"), world.store)
        settings: Any = SimpleNamespace(catalog=SimpleNamespace(name="test"))
        given = ("payments", "one", EveryonesLease(world), targets)
        stream = OpenStream(*given, spec=spec, settings=settings, folder=folder, log=world.state(None))
        older = [stamp for _, stamp in stamps_along_main(stream.anchor.table.metadata, "payments")]
        with stream.held():
            operator_reset.move_positions(stream, world, self.wanted, "tester: why", older)


@pytest.fixture(autouse=True)
def _world_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def noting(stamps: Any, anchor: str, known: Any, made: Any, *rest: Any, **named: Any) -> Any:
        resetter: Any = threading.current_thread().driver  # type: ignore[attr-defined]
        resetter.planned = made
        return reset_module.reset_stamps(stamps, anchor, known, made, *rest, **named)

    monkeypatch.setattr(operator_reset, "reset_stamps", noting)
    put_in_memory(monkeypatch)


def stands(world: World) -> dict[str, dict[TopicPartition, int]]:
    newest = {name: history(world.tables[name].metadata(), "payments").newest for name in world.names}
    return target_positions(newest, TABLE)


def ended(world: World, resetter: Resetter, expected: Counter[tuple[TopicPartition, int]]) -> None:
    """After a reset came to its end, however: the old positions are in force or the new ones, on all tables."""
    if resetter.error is not None:
        assert isinstance(resetter.error, ResetRefusedError) and world.pending_was_lost, resetter.error
    if resetter.planned is None:
        return
    made = resetter.planned
    now = stands(world)
    at = {move.partition: now[TABLE].get(move.partition, 0) for move in made}
    for name in world.names:
        assert at == {move.partition: now[name].get(move.partition, 0) for move in made}, name
    before, after = {m.partition: m.before for m in made}, {m.partition: m.after for m in made}
    assert at in (before, after), (before, after, at)
    assert at == after or resetter.killed
    if at == after:
        for move in made:
            for offset in range(*move.range):
                expected[move.partition, offset] += 1 if move.again else -1


def act(world: World, story: list[tuple]) -> Counter[tuple[TopicPartition, int]]:
    """Carry out a story; returns how much more often than once each record is expected."""
    expected: Counter[tuple[TopicPartition, int]] = Counter()
    for action in story:
        if action[0] != "reset":
            play(world, [action])
            continue
        _, shares, until, moving = action
        wanted = {p: int(end * shares[p.partition]) for p, end in world.log.items()}
        resetter = Resetter(world, wanted, killed=until is not None)
        for step in range(until if until is not None else 10_000):
            if step in moving and world.drivers:
                world.drivers[-1].advance()
            resetter.advance()
            if resetter.ended:
                break
        resetter.kill()
        ended(world, resetter, expected)
    return expected


def assert_as_often_as_wanted(world: World, expected: Counter[tuple[TopicPartition, int]]) -> None:
    """Each record, as often; where there are more than two targets, in each of those that it belongs to."""
    if len(world.targets) <= len(PAIR):
        counted = {"": sum((world.counted(name) for name in world.names), start=Counter[tuple]())}
    else:
        counted = {name: world.counted(name) for name in world.names}
    for partition, end in world.log.items():
        for offset in range(end):
            named = world.destinations(partition, offset, Way("one"))
            for name, there in counted.items():
                wanted = 1 + expected[partition, offset] if (name in named if name else named) else 0
                assert there.pop((partition, offset), 0) == wanted, (name, partition, offset, wanted)
    assert not any(counted.values())
    assert_ledger_says_so(world)


def of_one_configuration(story: list[tuple]) -> list[tuple]:
    """With more than two targets a record may have several rows, and as many as the configuration says."""
    return [("start", "one", *action[2:]) if action[0] == "start" else action for action in story]


shares = st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0])] * 2)
resets = st.tuples(
    st.just("reset"),
    shares,
    st.one_of(st.none(), st.integers(1, 40)),
    st.sets(st.integers(0, 30), max_size=4),
)
starts = st.tuples(st.just("start"), st.sampled_from(CONFIGS), st.lists(st.integers(1, 5), min_size=1, max_size=3))
produces = st.tuples(st.just("produce"), st.integers(0, 1), st.integers(1, 9))
drives = st.one_of(
    st.tuples(st.just("advance"), st.just(0), st.integers(0, 40)),
    st.tuples(st.just("to"), st.sampled_from([0, 0, 1]), st.sampled_from(HOT_SPOTS)),
    st.tuples(st.just("finish"), st.just(0)),
    st.tuples(st.just("foreign commit"), st.sampled_from([0, 1])),
)
chapters = st.tuples(produces, starts, st.lists(drives, min_size=1, max_size=3), st.lists(resets, max_size=2))

# A driver that was taken over removes its pending record between the reset's look at the folder and at the record.
WOKEN_UP_TO_CLEAR_AWAY: list[tuple] = [
    (("produce", 0, 1), ("start", "one", [1]), [("to", 0, "before remove")], [("reset", (0.0, 0.0), None, {12})])
]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(chapters, min_size=1, max_size=4), st.sampled_from(CONFIGS), st.sampled_from([2, 2, 3, 5, 12]))
@example(WOKEN_UP_TO_CLEAR_AWAY, "one", 2)
def test_records_land_as_often_as_the_resets_in_force_say(
    chapters: list[tuple], last_config: str, targets: int
) -> None:
    try:
        world = new_world(TARGETS[:targets])
        story = [
            action for produced, started, driven, reset in chapters for action in (produced, started, *driven, *reset)
        ]
        if targets > len(PAIR):
            story, last_config = of_one_configuration(story), "one"
        expected = act(world, story)
        recover(world, last_config)
        assert_as_often_as_wanted(world, expected)
    finally:
        for driver in WORLD[0].drivers:
            driver.kill()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("targets", COUNTS)
def test_killed_at_any_moment_and_given_again(share: float, targets: int) -> None:
    for until in range(1, 250):
        world = new_world(TARGETS[:targets])
        story: list[tuple] = [
            ("produce", 0, 9),
            ("produce", 1, 6),
            ("start", "one", [5]),
            ("finish", 0),
            ("produce", 0, 4),
        ]
        expected = act(world, [*story, ("reset", (share, 0.5), until, set())])
        again = act(world, [("reset", (share, 0.5), None, set())])
        assert stands(world)[TABLE] == {P0: int(16 * share), P1: 3}
        if expected:
            assert not again, "what was in force already is not moved again"
        recover(world, "one")
        assert_as_often_as_wanted(world, expected or again)
        for driver in world.drivers:
            driver.kill()
        if expected:
            return
    raise AssertionError("the reset never came to its end")


@pytest.mark.parametrize("targets", COUNTS)
def test_a_pending_record_is_committed_before_anything_moves(targets: int) -> None:
    world = new_world(TARGETS[:targets])
    story: list[tuple] = [("produce", 0, 9), ("start", "one", [12]), ("to", 0, "step after_anchor_commit"), ("kill", 0)]
    expected = act(world, [*story, ("reset", (0.0, 0.0), None, set())])
    assert not world.store.documents
    assert sum(expected.values()) == 12
    recover(world, "one")
    assert_as_often_as_wanted(world, expected)


@pytest.mark.parametrize("targets", COUNTS)
def test_a_record_that_a_sleeper_writes_after_the_reset_is_dropped(targets: int) -> None:
    world = new_world(TARGETS[:targets])
    story: list[tuple] = [("produce", 0, 9), ("start", "one", [6]), ("to", 0, "before Spark notes")]
    expected = act(world, [*story, ("to", 0, "before write"), ("reset", (0.25, 0.0), None, set()), ("advance", 0, 1)])
    assert world.store.documents, "the sleeper wrote what it was about to commit before the reset"
    recover(world, "one")
    assert_as_often_as_wanted(world, expected)


def test_a_reset_leaves_the_watermark_where_it_is() -> None:
    times = EventTimes("at", 90, 80, {P0: PartitionTime(99, 2)}, 5)
    stamps = {"a.t": replace(_BOTH, event_time=times), "a.d": _BOTH}
    made = (ResetMove(P0, 50, 20, OffsetRange(10, 100)),)
    done = reset_stamps(stamps, "a.t", _BOTH.position, made, LOG, valid_through_ms=None, note="n", epoch=9)
    assert [stamp.event_time for name, stamp in done if name == "a.t"] == [times, times]
    assert [stamp.event_time for name, stamp in done if name == "a.d"] == [None]
