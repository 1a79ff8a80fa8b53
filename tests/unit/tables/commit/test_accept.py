from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.tables.commit.history.stamp_history import History
from jobs.tables.commit.recovery.accept import (
    lost_offsets,
    lost_topic,
    recreated_table,
    recreated_topic,
    signed_answer,
)
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.errors import NothingToAcceptError
from jobs.tables.commit.stamp.event_times import EventTimes, PartitionTime
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import (
    Counts,
    Decision,
    LastRead,
    PartitionCounts,
)
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
T, D = "a.t", "a.d"
NEWEST = Stamp("s", "batch", 1, 1, "c", start={P0: 40, P1: 5}, position={P0: 50, P1: 5}, rows={T: 9, D: 1})
WHOLE = History(NEWEST, NEWEST, {}, rolled_back=False)


def rolled_to(kept: dict[TopicPartition, int] | None) -> History:
    ancestor = replace(NEWEST, start=kept, position=kept) if kept is not None else None
    removed = {p: OffsetRange((kept or {}).get(p, 0), end) for p, end in NEWEST.position.items()}
    return History(NEWEST, ancestor, {p: r for p, r in removed.items() if r.end > r.start}, rolled_back=True)


@pytest.mark.parametrize(
    ("kept", "begins"), [({P0: 20, P1: 5}, {P0: 20, P1: 5}), ({P0: 20}, {P0: 20, P1: 0}), (None, {P0: 0, P1: 0})]
)
def test_landing_again_begins_where_the_rolled_back_table_stands(
    kept: dict[TopicPartition, int] | None, begins: dict[TopicPartition, int]
) -> None:
    new = rollback({T: rolled_to(kept), D: WHOLE}, T, "reland", "c2")
    positions = target_positions(new, T)
    assert restart_positions(positions) == begins
    assert positions[D] == NEWEST.position, "the dead letters receive nothing twice"
    half = half_committed(new, T)
    assert half is None or half.config == "c2", "the stream is not stopped again"


@pytest.mark.parametrize(
    ("sink", "dead", "answered"),
    [
        (30, None, 30),
        (None, 20, 20),
        (None, 90, 70),
        (30, 20, 20),
        (20, 30, 20),
        ("silent", None, None),
        (30, "silent", None),
        ("none left", None, None),
        (30, "none left", None),
        ("stands before it", None, None),
    ],
)
def test_until_it_is_landed_again_the_stream_is_as_complete_as_the_kept_stamps_say(
    sink: int | str | None, dead: int | str | None, answered: int | None
) -> None:
    def past(kept: int | str | None) -> History:
        if kept is None:
            return replace(WHOLE, newest=replace(NEWEST, valid_through_ms=70))
        said = kept if isinstance(kept, int) else None if kept == "silent" else 30
        ancestor = replace(NEWEST, position={P0: 20, P1: 5}, valid_through_ms=said)
        start = 10 if kept == "stands before it" else 20
        newest = replace(NEWEST, valid_through_ms=70)
        left = None if kept == "none left" else ancestor
        return History(newest, left, {P0: OffsetRange(start, 50)}, rolled_back=True)

    histories = {T: past(sink), D: past(dead)}
    again = rollback(histories, T, "reland", "c2")[T]
    assert again.valid_through_ms == answered
    assert again.claimed(9).valid_through_ms == answered
    for name, stamp in rollback(histories, T, "keep", "c2").items():
        assert stamp.valid_through_ms == 70, f"what stays out of {name} is none of the stream's"


def test_what_is_landed_again_is_judged_by_the_watermark_that_was_then() -> None:
    """By the later one all of it would be late, and its letters could not be written, since those are there."""
    then = EventTimes("at", 40, 30, {P0: PartitionTime(50, 1)}, 5)
    now = EventTimes("at", 90, 80, {P0: PartitionTime(99, 2)}, 5)
    past = rolled_to({P0: 20, P1: 5})
    ancestor = past.stamped_ancestor
    assert ancestor is not None
    rolled = replace(past, newest=replace(NEWEST, event_time=now), stamped_ancestor=replace(ancestor, event_time=then))
    assert rollback({T: rolled, D: WHOLE}, T, "reland", "c")[T].event_time == then
    assert rollback({T: rolled, D: WHOLE}, T, "keep", "c")[T].event_time == now
    nothing_left = replace(rolled_to(None), newest=replace(NEWEST, event_time=now))
    assert rollback({T: nothing_left, D: WHOLE}, T, "reland", "c")[T].event_time is None
    # Only the dead letters were rolled back: the table goes on where it is.
    whole = replace(WHOLE, newest=replace(NEWEST, event_time=now))
    assert rollback({T: whole, D: rolled_to({P0: 20, P1: 5})}, T, "reland", "c")[T].event_time == now


def test_another_topic_of_the_name_leaves_the_watermark_and_forgets_its_partitions() -> None:
    times = EventTimes("at", 90, 80, {P0: PartitionTime(99, 2), TopicPartition("u", 0): PartitionTime(95, 2)}, 5)
    before = replace(NEWEST, topics={"t": "old"}, event_time=times)
    new = recreated_topic({T: before, D: NEWEST}, T, "t", "new", {P0: 0, P1: 0})
    assert new[T].event_time == replace(times, partitions={TopicPartition("u", 0): PartitionTime(95, 2)})
    assert new[D].event_time is None


def test_keeping_leaves_everything_where_it_was() -> None:
    new = rollback({T: rolled_to({P0: 20, P1: 5}), D: WHOLE}, T, "keep", "c2")
    assert restart_positions(target_positions({T: new[T], D: NEWEST}, T)) == NEWEST.position


def test_without_a_rollback_there_is_nothing_to_answer() -> None:
    with pytest.raises(NothingToAcceptError):
        rollback({T: WHOLE, D: WHOLE}, T, "keep", "c")


def test_the_stop_stands_until_the_last_stamp() -> None:
    new = rollback({T: WHOLE, D: rolled_to({P0: 20, P1: 5})}, T, "reland", "c2")
    assert list(new) == [T, D], "the rolled back table last, or a crash in between would hide the rollback"
    both = rollback({T: rolled_to({P0: 20, P1: 5}), D: rolled_to({P0: 20, P1: 5})}, T, "reland", "c2")
    assert list(both) == [T, D]


def test_lost_offsets_are_those_of_the_target_that_stands_behind() -> None:
    behind = replace(NEWEST, start={P0: 10, P1: 5}, position={P0: 10, P1: 5})
    anchor = replace(NEWEST, start={P0: 10, P1: 5})
    new = lost_offsets({T: anchor, D: behind}, T, {P0: 25, P1: 0})
    assert restart_positions(target_positions({D: behind, **new}, T)) == {P0: 25, P1: 5}
    assert new[T].position == NEWEST.position
    with pytest.raises(NothingToAcceptError):
        lost_offsets({T: anchor, D: behind}, T, {P0: 10, P1: 0})


def test_a_topic_that_is_the_same_is_not_landed_again() -> None:
    anchor = replace(NEWEST, topics={"t": "id"}, last_reads={P0: LastRead(50, 50, 2), P1: LastRead(5, 5, 2)})
    with pytest.raises(NothingToAcceptError, match="topic t is the one that the stream has read"):
        recreated_topic({T: anchor, D: NEWEST}, T, "t", "id", {P0: 50, P1: 9})
    cut = recreated_topic({T: anchor, D: NEWEST}, T, "t", "id", {P0: 30, P1: 9})
    assert {name: stamp.position for name, stamp in cut.items()} == {D: {P0: 30, P1: 5}, T: {P0: 30, P1: 5}}
    assert cut[T].last_reads == {P1: LastRead(5, 5, 2)}
    anew = recreated_topic({T: anchor, D: NEWEST}, T, "t", "other", {P0: 30, P1: 9})
    assert {stamp.valid_through_ms for stamp in anew.values()} == {None}
    assert anew[T].position == {} and anew[T].topics == {"t": "other"}


@pytest.mark.parametrize(
    ("latest", "departs", "stands", "again"),
    [
        (90, 20, 20, OffsetRange(20, 50)),
        (30, 20, 20, OffsetRange(20, 50)),
        (30, 30, 30, OffsetRange(30, 50)),
        (90, 0, 0, OffsetRange(0, 50)),
        (90, 60, 50, None),
    ],
    ids=[
        "filled again past the position",
        "filled again, not so far",
        "cut only",
        "nothing is left of it",
        "retention has removed more since than was read",
    ],
)
def test_a_log_that_was_cut_is_read_from_where_it_departs(
    latest: int, departs: int, stands: int, again: OffsetRange | None
) -> None:
    marks = {P0: LastRead(50, 48, 2), P1: LastRead(5, 5, 2)}
    whole = replace(NEWEST, valid_through_ms=70)
    both: dict[str, Stamp | None] = {T: replace(whole, topics={"t": "id"}, last_reads=marks), D: whole}
    cut = recreated_topic(both, T, "t", "id", {P0: latest, P1: 9}, {P0: departs})
    assert list(cut) == [D, T], "the anchor's last"
    for name, stamp in cut.items():
        assert (stamp.position, stamp.decision) == (
            {P0: stands, P1: 5},
            Decision("cut_topic", again={P0: again} if again else {}),
        ), name
        assert stamp.valid_through_ms is None, "the log may hold records of any time"
    assert restart_positions(target_positions({**both, **cut}, T)) == {P0: stands, P1: 5}
    assert Stamp.from_json(cut[T].to_json()).last_reads == {P1: LastRead(5, 5, 2)}, "or it would stop for ever"


def test_each_answer_says_which_ranges_it_is_about() -> None:
    anchor = replace(NEWEST, topics={"t": "id"}, ends={P0: 60, P1: 8}, targets={T: "u", D: "v"})
    both: dict[str, Stamp | None] = {T: anchor, D: NEWEST}

    def said(new: dict[str, Stamp]) -> dict[str, Decision | None]:
        return {name: stamp.decision for name, stamp in new.items()}

    assert said(lost_offsets(both, T, {P0: 57, P1: 0})) == {
        T: Decision("lost_offsets", passed={P0: OffsetRange(50, 57)})
    }
    assert said(lost_topic(both, T, "t")) == {
        T: Decision("lost_topic", passed={P0: OffsetRange(50, 60), P1: OffsetRange(5, 8)})
    }
    anew = Decision("recreated_topic", again={P0: OffsetRange(0, 50), P1: OffsetRange(0, 5)})
    assert said(recreated_topic(both, T, "t", "other", {})) == {T: anew, D: anew}
    cut = Decision("cut_topic", again={P0: OffsetRange(30, 50)})
    assert said(recreated_topic(both, T, "t", "id", {P0: 30, P1: 9})) == {T: cut, D: cut}
    assert said(recreated_table(both, T, T, "c")) == {D: Decision("recreated_table")}
    assert said(recreated_table(both, T, D, "c")) == {T: Decision("recreated_table")}


def test_what_the_dead_letters_alone_lack_is_passed_over_on_them() -> None:
    behind = replace(NEWEST, start={P0: 10, P1: 5}, position={P0: 10, P1: 5})
    anchor = replace(NEWEST, start={P0: 10, P1: 5}, ends={P0: 60})
    new = lost_offsets({T: anchor, D: behind}, T, {P0: 25, P1: 0})
    assert list(new) == [D, T], "the anchor's last"
    assert new[D].decision == Decision("lost_offsets", passed={P0: OffsetRange(10, 25)})
    assert new[T].decision == Decision("lost_offsets"), "it has them"
    # Between the two commits, and beyond what the anchor has: no target is taken for ahead of the anchor.
    further = lost_offsets({T: anchor, D: behind}, T, {P0: 55, P1: 0})
    assert further[D].position[P0] == 50
    assert half_committed({T: anchor, D: further[D]}, T) is None
    assert restart_positions(target_positions({T: anchor, D: further[D]}, T)) == {P0: 50, P1: 5}
    assert restart_positions(target_positions({**further}, T)) == {P0: 55, P1: 5}
    gone = lost_topic({T: anchor, D: behind}, T, "t")
    assert gone[D].decision == Decision("lost_topic", passed={P0: OffsetRange(10, 50)})
    assert gone[T].decision == Decision("lost_topic", passed={P0: OffsetRange(50, 60)})
    assert half_committed({**gone}, T) is None


def test_a_rollback_says_what_it_took_and_since_when() -> None:
    past = rolled_to({P0: 20, P1: 5})
    ancestor = past.stamped_ancestor
    assert ancestor is not None
    past = replace(past, stamped_ancestor=replace(ancestor, sequence=7))
    removed = {P0: OffsetRange(20, 50)}
    kept = rollback({T: past, D: WHOLE}, T, "keep", "c2")
    assert kept[T].decision == Decision("rollback_keep", passed=removed, removed=removed, since=7)
    again = rollback({T: past, D: WHOLE}, T, "reland", "c2")
    assert again[T].decision == Decision("rollback_reland", again=removed, removed=removed, since=7)
    assert again[D].decision == Decision("rollback_reland")
    (before,) = rollback({T: rolled_to(None)}, T, "keep", "c2").values()
    assert before.decision is not None and before.decision.since == 0


def test_rolled_back_over_a_reset() -> None:
    # It stood at 50, was moved back to 20, landed up to 30 again, and was rolled back to where it stood at 50.
    ancestor = replace(NEWEST, position={P0: 50, P1: 5}, sequence=7)
    past = History(replace(NEWEST, position={P0: 30, P1: 5}), ancestor, {P0: OffsetRange(0, 30)}, rolled_back=True)
    kept = rollback({T: past}, T, "keep", "c")[T]
    assert kept.position[P0] == 30
    assert kept.decision is not None and dict(kept.decision.again) == {P0: OffsetRange(30, 50)}
    again = rollback({T: past}, T, "reland", "c")[T]
    assert again.position[P0] == 50
    assert again.decision is not None and not again.decision.again and not again.decision.passed


def test_an_answer_counts_nothing() -> None:
    stamp = signed_answer(
        replace(NEWEST, counts=Counts(9, 9), parts={P0: PartitionCounts(40, Counts(9, 9))}), 3, "me: why"
    )
    assert (stamp.counts, stamp.parts, stamp.note) == (Counts(), {}, "me: why")
