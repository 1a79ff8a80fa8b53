from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.commit.accept import NothingToAcceptError, lost_offsets, recreated_topic, rollback
from jobs.commit.decide import half_committed, restart_positions, target_positions
from jobs.commit.history import History
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.stamps import Stamp

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
    anchor = replace(NEWEST, topics={"t": "id"})
    with pytest.raises(NothingToAcceptError, match="topic t is the one that the stream has read"):
        recreated_topic({T: anchor, D: NEWEST}, T, "t", "id", {P0: 50, P1: 9})
    cut = recreated_topic({T: anchor, D: NEWEST}, T, "t", "id", {P0: 30, P1: 9})
    assert {name: stamp.position for name, stamp in cut.items()} == {D: {P0: 30, P1: 5}, T: {P0: 30, P1: 5}}
    anew = recreated_topic({T: anchor, D: NEWEST}, T, "t", "other", {P0: 30, P1: 9})
    assert anew[T].position == {} and anew[T].topics == {"t": "other"}
