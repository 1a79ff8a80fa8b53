from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.tables.commit.recovery.recovery import lacking_targets
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
T, D = "a.t", "a.d"


@dataclass(frozen=True)
class Plan:
    position: Positions
    stamp: Stamp


BEFORE = Stamp("s", "batch", 3, 1, "c1", start={P0: 0}, position={P0: 10}, rows={T: 10})
BATCH = {P0: OffsetRange(10, 20)}
COMMITTED = Stamp("s", "batch", 4, 1, "c1", start={P0: 10}, position={P0: 20}, rows={T: 9, D: 1})
RECORD = {T: Plan({P0: 10}, COMMITTED), D: Plan({P0: 10}, COMMITTED)}


def test_nothing_was_committed() -> None:
    assert lacking_targets(BATCH, RECORD, {T: BEFORE.claimed(2), D: None}, T) == (T, D)


def test_the_anchor_was_committed() -> None:
    assert lacking_targets(BATCH, RECORD, {T: COMMITTED, D: None}, T) == (D,)
    assert lacking_targets(BATCH, RECORD, {T: COMMITTED.under(5).claimed(6), D: BEFORE.claimed(6)}, T) == (D,)


def test_all_was_committed() -> None:
    assert lacking_targets(BATCH, RECORD, {T: COMMITTED, D: COMMITTED}, T) == ()


def test_a_successor_has_read_another_range() -> None:
    later = replace(COMMITTED, epoch=2, position={P0: 15})
    assert lacking_targets(BATCH, RECORD, {T: later, D: None}, T) is None


def test_a_successor_has_read_the_range_under_another_configuration() -> None:
    assert lacking_targets(BATCH, RECORD, {T: replace(COMMITTED, config="c2"), D: None}, T) is None
    beyond = replace(COMMITTED, config="c2", position={P0: 25})
    assert lacking_targets(BATCH, RECORD, {T: beyond, D: None}, T) is None


def test_an_anchor_that_was_ahead_of_the_batch_before_it_is_still_known() -> None:
    batch = {P0: OffsetRange(10, 12), P1: OffsetRange(0, 2)}
    stamp = replace(COMMITTED, start={P0: 10, P1: 0}, position={P0: 12, P1: 2}, rows={T: 2, D: 1})
    record = {T: Plan({P0: 20}, stamp), D: Plan({P0: 10}, stamp)}
    now = replace(stamp, position={P0: 20, P1: 2}, rows={T: 2, D: 1, "a.other": 1})
    assert lacking_targets(batch, record, {T: now, D: None}, T) == (D,)


def test_a_record_for_the_dead_letters_alone() -> None:
    record = {D: Plan({P0: 10}, COMMITTED)}
    assert lacking_targets(BATCH, record, {T: COMMITTED, D: None}, T) == (D,)
    partly = replace(COMMITTED, position={P0: 15})
    assert lacking_targets(BATCH, record, {T: COMMITTED, D: partly}, T) is None
