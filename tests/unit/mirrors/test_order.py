"""The order of changes: against one change at a time, and what is decided across partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.fold.log_scan import SCANNED, LogScan
from jobs.mirrors.fold.order import Order
from jobs.mirrors.model.errors import (
    BelowTruncateError,
    NullKeyError,
    RestoredSourceError,
    SharedTruncateError,
    TooManyGenerationsError,
    UnorderedTruncateError,
)
from jobs.mirrors.model.merge_plan import (
    LAST_GENERATION,
    Generation,
    MirrorState,
    PartitionState,
    Scope,
)
from jobs.mirrors.model.order_token import least_position
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.unit.mirrors.order_reference import Change, Log

P0, P1, P2 = (TopicPartition("shop", number) for number in range(3))
Logs = dict[TopicPartition, list[Change]]


def chunk(changes: Sequence[Change]) -> pa.Table:
    rows = [
        {"offset": c.offset, "op": c.op, "at": c.at, "position": c.position, "lineage": c.lineage, "null_key": False}
        for c in changes
    ]
    return pa.Table.from_pylist(rows, SCANNED)


def ordered(state: MirrorState, logs: Logs, *, cut: int = 1000, scope: Scope = "source") -> Order:
    """The order of an increment, whose partitions are scanned in chunks of so many changes."""
    scans = {}
    for partition, changes in logs.items():
        scan = LogScan.after(state.partitions.get(partition), scope, state.breaks.get(partition, ()))
        for start in range(0, len(changes), cut):
            scan = scan.scanned(chunk(changes[start : start + cut]))
        scans[partition] = scan
    return Order.of("shop", ("id",), state, scans, scope)


def kept(order: Order, logs: Logs) -> dict[TopicPartition, dict[int, str]]:
    """Tokens of the changes that count, by partition and offset."""
    rows = [(partition, change) for partition, changes in logs.items() for change in changes]
    if not rows:
        return {}
    found = order.of_rows(
        pa.array([partition.topic for partition, _ in rows]),
        pa.array([partition.partition for partition, _ in rows], pa.int32()),
        pa.array([change.offset for _, change in rows], pa.int64()),
        pa.array([change.op for _, change in rows]),
        pa.array([change.position for _, change in rows], pa.string()),
    )
    tokens: dict[TopicPartition, dict[int, str]] = {partition: {} for partition in logs}
    for (partition, change), token, dropped in zip(rows, found.tokens.to_pylist(), found.dropped, strict=True):
        if not dropped:
            tokens[partition][change.offset] = token
    return tokens


@st.composite
def logs(draw: st.DrawFn) -> list[Change]:
    offsets = sorted(draw(st.sets(st.integers(0, 40), max_size=14)))
    changes, lineage = [], "a"
    for offset in offsets:
        lineage = draw(st.sampled_from([lineage, lineage, lineage, "a", "b"]))
        position = draw(st.none() | st.sampled_from(["1", "2", "3", "4"]))
        at = draw(st.none() | st.sampled_from([0, 500_000, 2_000_000]))
        op = draw(st.sampled_from(["u", "u", "u", "r", "t"]))
        changes.append(Change(offset, op, at, position, lineage if position else None))
    return changes


@given(logs(), st.integers(1, 5), st.lists(st.integers(0, 14), max_size=3))
def test_one_partition_is_ordered_as_one_change_at_a_time(changes: list[Change], chunks: int, cuts: list[int]) -> None:
    log = Log()
    for change in changes:
        log.see(change)
    state, found = MirrorState(), dict[int, str]()
    bounds = [0, *sorted(min(cut, len(changes)) for cut in cuts), len(changes)]
    for start, end in pairwise(bounds):
        part = {P0: changes[start:end]} if end > start else {}
        if log.restored and end > start and log.restored[0] <= changes[end - 1].offset:
            with pytest.raises(RestoredSourceError) as caught:
                ordered(state, part, cut=chunks)
            assert log.restored[:3] == (caught.value.offset, caught.value.position, caught.value.greatest)
            assert log.restored[3] == ("happened later" in str(caught.value))
            return
        order = ordered(state, part, cut=chunks)
        found |= kept(order, part).get(P0, {})
        state = MirrorState.from_json(order.state.to_json())
    assert log.restored is None
    floor = state.floors["shop"].token if state.floors else ""
    assert floor == log.floor
    # What was kept in an earlier increment goes by the floor of a later one.
    assert {offset: token for offset, token in found.items() if token >= floor} == log.kept(changes)
    if changes:
        mine = state.partitions[P0]
        assert (mine.next_offset, mine.generation, mine.lineage) == (
            changes[-1].offset + 1,
            log.generation,
            log.lineage,
        )
        assert (mine.position, mine.at) == (log.position, log.at)


def at(offset: int, position: str | None = None, lineage: str | None = "a", op: str = "u", when: int = 0) -> Change:
    return Change(offset, op, when, position, lineage if position else None)


def test_a_lineage_has_one_number_in_all_partitions() -> None:
    order = ordered(
        MirrorState(),
        {P0: [at(0, "5"), at(1, "1", "b")], P1: [at(0, "7"), at(4, "2", "b")], P2: [at(0, "3", "b")]},
    )
    assert {p: each.generation for p, each in order.state.partitions.items()} == {P0: 1, P1: 1, P2: 1}
    assert order.state.partitions[P1].generations == (Generation(0, 0, "a"), Generation(1, 4, "b"))
    later = ordered(order.state, {P2: [at(1, "9", "c")]})
    assert later.state.partitions[P2].generation == 2
    assert later.state.partitions[P0] == order.state.partitions[P0]


def test_where_a_lineage_comes_back_a_partition_that_saw_no_other_follows() -> None:
    first = ordered(MirrorState(), {P0: [at(0, "5")], P1: [at(0, "6")]}).state
    logs = {P0: [at(1, "1", "b"), at(2, "8")], P1: [at(1, "7")]}
    order = ordered(first, logs)
    assert kept(order, logs)[P1] == {1: "0002.7.1.0000000000000001"}
    assert order.state.partitions[P1].generations == (Generation(0, 0, "a"), Generation(2, 1, "a"))
    # Its position goes on: what is sent twice is known.
    again = {P1: [at(2, "6"), at(3, "8")]}
    assert kept(ordered(order.state, again), again) == {P1: {3: "0002.8.1.0000000000000003"}}


def test_within_one_place_of_a_binlog_offsets_order_the_changes() -> None:
    """All events of a compressed transaction have one place, and the rows of each are counted from 0."""
    places = [(4, 0), *((9, row) for _ in range(3) for row in range(3)), (7, 1), (9, 2), (9, 0)]
    texts = [f"00000001/{place:016x}/{row:08x}" for place, row in places]
    # An earlier release has told the row in the stamp.
    state = MirrorState({P0: PartitionState(0, f"00000001/{3:016x}/{5:08x}", 0, (Generation(0, 0, "mysql/n/b/1"),))})
    logs = {P0: [at(offset, text, "mysql/n/b/1") for offset, text in enumerate(texts)]}
    order = ordered(state, logs, cut=4)
    found = kept(order, logs)[P0]
    # Only what stands at a lower place was sent before.
    assert [*found] == [offset for offset in range(13) if offset != 10]
    assert [*found.values()] == sorted(found.values())
    assert order.state.partitions[P0].position == f"00000001/{9:016x}/ffffffff"
    assert least_position(f"00000001/{9:016x}/ffffffff") <= min(text for text in texts if f"/{9:016x}/" in text)
    # A token of an earlier release, with the row, is not above those of later changes at its place.
    assert f"0000.{texts[3]}.1.{3:016x}" < found[3] < found[4]


def test_without_positions_a_partition_that_comes_later_has_the_newer_changes() -> None:
    first = ordered(MirrorState(), {P0: [at(7)], P1: [at(3)]}).state
    assert [each.generation for each in first.partitions.values()] == [0, 0]
    logs = {P0: [at(8)], P2: [at(0)]}
    assert kept(ordered(first, logs), logs) == {
        P0: {8: "0000.-.1.0000000000000008"},
        P2: {0: "0001.-.1.0000000000000000"},
    }


def test_a_truncate_takes_what_is_older_in_every_partition_and_whenever_it_comes() -> None:
    logs = {P0: [at(0, "1"), at(1, "5", op="t"), at(2, "6")], P1: [at(0, "4"), at(1, "7")]}
    order = ordered(MirrorState(), logs)
    assert {p: [*tokens] for p, tokens in kept(order, logs).items()} == {P0: [2], P1: [1]}
    late = {P2: [at(0, "4"), at(1, "9")]}
    assert kept(ordered(order.state, late), late) == {P2: {1: "0000.9.1.0000000000000001"}}


SECOND = 1_000_000


def test_a_source_that_takes_over_again_behind_a_truncate_of_another() -> None:
    """A partition that saw nothing of the other one: its changes would be taken for those before the truncate."""
    state = ordered(MirrorState(), {P0: [at(0, "0100")], P1: [at(0, "0101", when=SECOND)]}).state
    other = [at(1, "0050", "b", when=100 * SECOND), at(2, "0051", "b", op="t", when=101 * SECOND)]
    state = MirrorState.from_json(ordered(state, {P0: other}).state.to_json())
    # What the former source sent before is gone, also where it is read later.
    behind = {P1: [at(1, "0102", when=99 * SECOND)], P2: [at(0, "0103", when=2 * SECOND)]}
    assert kept(ordered(state, behind), behind) == {P1: {}, P2: {}}
    back = {P1: [at(1, "0200", when=200 * SECOND)]}
    with pytest.raises(
        BelowTruncateError, match=r"partition 1, from offset 1 on.*of 1970-01-01 00:01:41 UTC"
    ) as stopped:
        ordered(state, back)
    assert str(stopped.value.fix).endswith("frazil mirror accept shop --new-generation --at shop:1:OFFSET")
    accepted = state.accepted({P1: 1})
    done = ordered(accepted, back)
    assert [*kept(done, back)[P1]] == [1]
    more = {P0: [at(3, "0201", when=201 * SECOND)], P1: [at(2, "0202", when=202 * SECOND)]}
    after = MirrorState.from_json(done.state.to_json())
    assert {each: [*found] for each, found in kept(ordered(after, more), more).items()} == {P0: [3], P1: [2]}
    # Where both are in one increment the first one has to be looked up; made anew, it is the same.
    both = {P1: [*behind[P1], at(2, "0200", when=200 * SECOND)]}
    whole = {P0: [at(0, "0100"), *other], P1: [at(0, "0101", when=SECOND), *both[P1]]}
    for known, logs in ((state, both), (MirrorState(), whole)):
        with pytest.raises(BelowTruncateError, match=r"look up the offset .* --at shop:1:OFFSET"):
            ordered(known, logs)
        again = known.accepted({P1: 2})
        assert [*kept(ordered(again, logs), logs)[P1]] == [2]


def test_a_truncate_of_one_topic_beside_others_stops_the_mirror() -> None:
    other = TopicPartition("shop2", 0)
    logs = {P0: [at(0, "1")], other: [at(0, "8"), at(1, "9", op="t")]}
    with pytest.raises(SharedTruncateError, match=r"offset 1 of topic shop2, partition 0, .* of others, too: shop\."):
        ordered(MirrorState(), logs)
    # So it is where the others have come before, or come later.
    first = ordered(MirrorState(), {P0: logs[P0]}).state
    with pytest.raises(SharedTruncateError):
        ordered(first, {other: logs[other]})
    alone = ordered(MirrorState(), {other: logs[other]}).state
    both = ordered(alone, {P0: logs[P0]})
    assert kept(both, {P0: logs[P0]})[P0].keys() == {0}
    with pytest.raises(SharedTruncateError):
        ordered(both.state, {other: [at(2, "9", op="t")]})


def test_a_truncate_without_a_position_needs_one_partition() -> None:
    assert kept(ordered(MirrorState(), alone := {P0: [at(0), at(1, op="t"), at(2)]}), alone)[P0].keys() == {2}
    with pytest.raises(UnorderedTruncateError, match=r"offset 1 of topic shop, partition 0"):
        ordered(MirrorState(), {P0: [at(1, op="t")], P1: [at(0)]})


def test_what_comes_behind_later_changes_is_late_and_moves_nothing() -> None:
    first = ordered(MirrorState(), {P0: [at(0, "1"), at(9, "5")]}).state
    logs = {P0: [at(4, "3"), at(10, "6")]}
    order = ordered(first, logs)
    found = order.of_rows(*(pa.array(each) for each in (["shop"] * 2, [0, 0], [4, 10], ["u"] * 2, ["3", "6"])))
    assert (found.late.tolist(), found.dropped.tolist()) == ([True, False], [False, False])
    only = ordered(first, {P0: [at(4, "3")]})
    assert only.state == first


def test_versions_of_rows_are_not_held_against_those_of_other_rows() -> None:
    logs = {P0: [at(0, "9"), at(1, "1", when=10_000_000)]}
    assert kept(ordered(MirrorState(), logs, scope="key"), logs)[P0].keys() == {0, 1}
    without = {P0: [Change(0, position="9"), Change(1, position="1", at=10_000_000)]}
    assert kept(ordered(MirrorState(), without), without) == {
        P0: {0: "0000.9.1.0000000000000000", 1: "0000.1.1.0000000000000001"}
    }


def test_a_restored_source_stops_the_mirror_until_it_is_accepted() -> None:
    first = ordered(MirrorState(), {P0: [at(0, "5")]}).state
    logs = {P0: [at(1, "2", when=5_000_000)]}
    with pytest.raises(RestoredSourceError, match=r"2 after 5.*\n  Next: frazil mirror accept shop --new-generation"):
        ordered(first, logs)
    assert kept(ordered(first.accepted(), logs), logs) == {P0: {1: "0001.2.1.0000000000000001"}}


def test_what_may_be_a_restored_source_stops_the_mirror_where_times_are_not_known() -> None:
    first = ordered(MirrorState(), {P0: [at(0, "5")]}).state
    with pytest.raises(RestoredSourceError, match=r"2 after 5. It was sent twice, or the source was restored"):
        ordered(first, {P0: [Change(1, at=None, position="2", lineage="a")]})
    unknown = ordered(MirrorState(), {P0: [Change(0, at=None, position="5", lineage="a")]}).state
    with pytest.raises(RestoredSourceError, match="or an earlier change, has no time"):
        ordered(unknown, {P0: [at(1, "2")]})


def test_a_repeat_is_held_against_the_latest_time_and_not_that_of_the_greatest_position() -> None:
    # Positions of commits, times of changes: the transaction that was committed last had begun long before.
    seen = [at(0, "5", when=60_000_000), at(1, "6", when=1_000_000)]
    first = ordered(MirrorState(), {P0: seen}).state
    assert (first.partitions[P0].position, first.partitions[P0].at) == ("6", 60_000_000)
    again = {P0: [at(2, "5", when=60_000_000), at(3, "6", when=1_000_000), at(4, "7", when=61_000_000)]}
    assert kept(ordered(first, again), again)[P0].keys() == {3, 4}
    # Another generation begins without a time.
    other = ordered(first, {P0: [at(2, "3", "b", when=2_000_000)]}).state
    assert other.partitions[P0].at == 2_000_000


def test_sources_that_come_by_turns_stop_the_mirror() -> None:
    state = MirrorState({P0: PartitionState(1, "5", 0, (Generation(LAST_GENERATION - 1, 0, "a"),))}, {"a": 999})
    order = ordered(state, last := {P0: [at(1, "1", "b")]})
    assert kept(order, last)[P0] == {1: "03e8.1.1.0000000000000001"}
    with pytest.raises(TooManyGenerationsError, match=r"1,000 times, by turns of a, b .*stays as it is"):
        ordered(order.state, {P0: [at(2, "1", "a")]})
    with pytest.raises(TooManyGenerationsError):
        ordered(order.state.accepted({P0: 2}), {P0: [at(2, "0", "b", when=9_000_000)]})


def test_what_came_before_the_restore_and_stands_in_the_same_increment() -> None:
    first = ordered(MirrorState(), {P0: [at(0, "5")], P1: [at(0, "6")]}).state
    logs = {
        P0: [at(1, "6"), at(2, "2", when=5_000_000), at(3, "3", when=5_000_000)],
        P1: [at(1, "7"), at(2, "1", when=6_000_000)],
    }
    with pytest.raises(RestoredSourceError) as stopped:
        ordered(first, logs)
    assert stopped.value.fix == "frazil mirror accept shop --new-generation --at shop:0:2 --at shop:1:2"
    accepted = first.accepted(stopped.value.breaks)
    expected = {
        P0: {1: "0000.6.1.0000000000000001", 2: "0001.2.1.0000000000000002", 3: "0001.3.1.0000000000000003"},
        P1: {1: "0000.7.1.0000000000000001", 2: "0001.1.1.0000000000000002"},
    }
    for cut in (1, 2, 1000):
        done = ordered(accepted, logs, cut=cut)
        assert kept(done, logs) == expected
    # Whatever is sent twice behind it is known, and a new one joins.
    later = {P0: [at(4, "2", when=5_000_000), at(5, "4", when=6_000_000)], P2: [at(0, "5", when=6_000_000)]}
    assert kept(ordered(done.state, later), later) == {
        P0: {5: "0001.4.1.0000000000000005"},
        P2: {0: "0001.5.1.0000000000000000"},
    }
    # Made anew, it is the same.
    whole = {P0: [at(0, "5"), *logs[P0]], P1: [at(0, "6"), *logs[P1]]}
    anew = ordered(MirrorState(breaks=done.state.breaks), whole)
    assert anew.state == done.state
    assert {p: {o: t for o, t in each.items() if o} for p, each in kept(anew, whole).items()} == expected


def test_a_second_restore_is_told_apart_from_the_first() -> None:
    logs = {P0: [at(0, "5"), at(1, "2", when=5_000_000), at(2, "1", when=9_000_000)]}
    state = MirrorState()
    for _ in range(2):
        with pytest.raises(RestoredSourceError) as stopped:
            ordered(state, logs)
        state = state.accepted(stopped.value.breaks)
    assert [each[:4] for each in kept(ordered(state, logs), logs)[P0].values()] == ["0000", "0001", "0002"]


def test_a_null_in_the_key_is_named() -> None:
    rows = chunk([at(3), at(4), at(5, op="t")]).set_column(5, "null_key", pa.array([False, True, True]))
    with pytest.raises(NullKeyError, match=r"1 changes have a null in the mirror's key \(id\), the first at offset 4"):
        Order.of("shop", ("id",), MirrorState(), {P0: LogScan().scanned(rows)}, "source")


def test_many_changes_are_scanned_side_by_side() -> None:
    count = 300_000
    rows = pa.table(
        {
            "offset": range(count),
            "op": ["u"] * count,
            "at": range(count),
            "position": [f"{n:016x}/{n:016x}" for n in range(count)],
            "lineage": ["a"] * count,
            "null_key": [False] * count,
        },
        schema=SCANNED,
    )
    scan = LogScan().scanned(rows)
    assert (scan.rows, scan.next_offset, scan.repeats, scan.lineages) == (count, count, (), ((0, "a"),))
