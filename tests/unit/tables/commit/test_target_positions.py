from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import need, restart_positions, target_positions
from tests.unit.tables.commit.strategies import ranges

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
T, D = "a.t", "a.d"


def stamp(
    start: dict[TopicPartition, int],
    position: dict[TopicPartition, int],
    rows: dict[str, int] | None = None,
    config: str = "c1",
) -> Stamp:
    return Stamp("s", "batch", 0, 1, config, start=start, position=position, rows=rows or {})


def test_need_exhaustively_over_one_partition() -> None:
    for start, end, position in itertools.product(range(6), range(6), [None, *range(7)]):
        result = need({P0: OffsetRange(start, end)}, {} if position is None else {P0: position})
        wanted = {offset for offset in range(start, end) if position is None or offset >= position}
        floor = result.floors.get(P0, start)
        planned = set() if P0 in result.skip else {offset for offset in range(start, end) if offset >= floor}
        passed_over = position is not None and start < end and position < start
        assert bool(result.gaps) == passed_over, (start, end, position)
        assert planned == wanted, (start, end, position)
        assert result.nothing == (not wanted)
        if result.gaps:
            assert result.gaps[0].missing == OffsetRange(position or 0, start)
        if start < end:
            assert result.whole == (len(wanted) == end - start)


@given(ranges(), st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 12)))
def test_need_decides_each_partition_by_itself(batch: dict, position: dict) -> None:
    together = need(batch, position)
    alone = {partition: need({partition: range_}, position) for partition, range_ in batch.items()}
    assert together.skip == {p for each in alone.values() for p in each.skip}
    assert dict(together.floors) == {p: at for each in alone.values() for p, at in each.floors.items()}
    assert together.nothing == all(each.nothing for each in alone.values())
    assert len(together.gaps) == sum(len(each.gaps) for each in alone.values())


def test_same_part_ignores_how_it_came_about() -> None:
    batch = {P0: OffsetRange(3, 9), P1: OffsetRange(0, 4)}
    assert need(batch, {P0: 3}).same_part(need(batch, {}))
    assert not need(batch, {P0: 4}).same_part(need(batch, {}))
    assert not need(batch, {P1: 4}).same_part(need(batch, {}))


def test_a_start_on_any_target_proves_all_complete_up_to_it() -> None:
    stamps = {T: stamp({P0: 20}, {P0: 30}, {T: 9, D: 1}), D: stamp({P0: 0}, {P0: 10}, {D: 1})}
    assert target_positions(stamps, T) == {T: {P0: 30}, D: {P0: 20}}


def test_a_target_without_rows_in_the_anchors_batch_stands_where_the_anchor_does() -> None:
    assert target_positions({T: stamp({P0: 20}, {P0: 30}, {T: 10}), D: None}, T)[D] == {P0: 30}
    assert target_positions({T: stamp({P0: 20}, {P0: 30}, {T: 9, D: 1}), D: None}, T)[D] == {P0: 20}


def test_positions_without_any_stamp() -> None:
    assert target_positions({T: None, D: None}, T) == {T: {}, D: {}}
    assert restart_positions({T: {}, D: {}}) == {}
    assert half_committed({T: None, D: None}, T) is None


def test_restart_is_the_least_of_those_that_know_the_partition() -> None:
    assert restart_positions({T: {P0: 30, P1: 4}, D: {P0: 20}}) == {P0: 20, P1: 4}


def test_half_committed_anchor_first() -> None:
    stamps = {
        T: stamp({P0: 20, P1: 5}, {P0: 30, P1: 5}, {T: 9, D: 1}),
        D: stamp({P0: 0, P1: 0}, {P0: 10, P1: 5}, {D: 1}),
    }
    half = half_committed(stamps, T)
    assert half is not None
    assert (half.have, half.lack, half.config) == ((T,), (D,), "c1")
    assert dict(half.ranges) == {P0: OffsetRange(20, 30)}


def test_half_committed_when_a_target_is_ahead_of_the_anchor() -> None:
    half = half_committed({T: stamp({P0: 0}, {P0: 20}, {T: 1}), D: stamp({P0: 20}, {P0: 30}, {D: 1}, "c2")}, T)
    assert half is not None
    assert (half.have, half.lack, half.config) == ((D,), (T,), "c2")
    assert dict(half.ranges) == {P0: OffsetRange(20, 30)}


def test_whole_batches_are_not_taken_for_half() -> None:
    whole = {T: stamp({P0: 20}, {P0: 30}, {T: 9, D: 1}), D: stamp({P0: 20}, {P0: 30}, {T: 9, D: 1})}
    assert half_committed(whole, T) is None
    without_dead = {T: stamp({P0: 20}, {P0: 30}, {T: 10}), D: stamp({P0: 0}, {P0: 10}, {D: 1})}
    assert half_committed(without_dead, T) is None
    assert half_committed({name: each.claimed(2) for name, each in whole.items()}, T) is None


def test_a_table_of_the_former_configuration_is_asked_as_well() -> None:
    newest = stamp({P0: 20}, {P0: 30}, {T: 9, "a.former": 1})
    assert half_committed({T: newest, D: None, "a.former": newest}, T) is None
    half = half_committed({T: newest, D: None, "a.former": stamp({P0: 10}, {P0: 20}, {"a.former": 2})}, T)
    assert half is not None
    assert half.lack == ("a.former",)
