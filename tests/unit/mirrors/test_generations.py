"""Many sources, one after the other: which stretch of the log a change is of, however it is cut and how long ago."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.fold.log_scan import LogScan
from jobs.mirrors.fold.order import Order, refuse_older
from jobs.mirrors.model.errors import UnknownGenerationError
from jobs.mirrors.model.merge_plan import MOST_GENERATIONS, MirrorState, TruncateFloor
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import MirrorWorld, change
from tests.unit.mirrors.order_reference import Change, Log
from tests.unit.mirrors.test_order import (
    P0,
    P1,
    P2,
    at,
    chunk,
    kept,
    ordered,
)

SECOND = 1_000_000


def failovers(count: int, first: int = 0) -> list[Change]:
    """So many changes, each of the other of two servers; one of them is far ahead of the other."""
    return [at(n, f"{n + 100 * (n % 2):08x}", f"s{n % 2}") for n in range(first, first + count)]


@pytest.mark.parametrize("at_once", [1, 5, 40])
def test_all_of_a_long_history_is_in_its_order(tmp_path: Path, at_once: int) -> None:
    log = [
        change("u", n, n + 100 * (n % 2), id=n // 2 % 5, name=f"n{n}", lineage=f"s{n % 2}") for n in range(40)
    ]  # fmt: skip
    world = MirrorWorld(tmp_path, None, SMALL, ["id"])
    for start in range(0, len(log), at_once):
        world.land(log[start : start + at_once])
        world.merged(by="process")
    assert {key: row["name"] for (key,), row in world.rows().items()} == {n: f"n{31 + 2 * n}" for n in range(5)}
    (known,) = world.state.partitions.values()
    assert [each.number for each in known.generations] == [*range(40 - MOST_GENERATIONS, 40)]


def merged(changes: list[Change], cuts: Sequence[int]) -> MirrorState:
    """What the stamp says after increments."""
    state = MirrorState()
    for start, end in pairwise([0, *sorted(min(each, len(changes)) for each in cuts), len(changes)]):
        if end > start:
            state = MirrorState.from_json(
                json.loads(json.dumps(ordered(state, {P0: changes[start:end]}).state.to_json()))
            )
    return state


@pytest.mark.parametrize(("count", "known"), [(MOST_GENERATIONS - 1, True), (MOST_GENERATIONS, False), (40, False)])
def test_changes_of_any_age_are_ordered_as_long_as_a_stamp_has_all_generations(count: int, known: bool) -> None:
    log = failovers(count)
    state = merged(log, [3, 11, 20])
    if known:
        refuse_older("shop", state, {})
        expected = Log()
        for each in log:
            expected.see(each)
        assert kept(Order(state, {}), {P0: log}) == {P0: expected.tokens}
        return
    first = state.partitions[P0].generations[0].since
    assert first == count - MOST_GENERATIONS
    with pytest.raises(
        UnknownGenerationError, match=rf"started again at offset {first} or before.*stays as it is and can be read"
    ):
        refuse_older("shop", state, {P0: first - 1} if first else {P0: -1})
    # What is older has expired.
    refuse_older("shop", state, {P0: first})


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_by_the_generations_of_a_stamp_no_change_is_lower(lineages: list[str], cuts: list[int]) -> None:
    """So a later change that has removed a row is found by them, too."""
    changes = [at(n, "5", lineage) for n, lineage in enumerate(lineages)]
    state = merged(changes, cuts)
    log = Log()
    for each in changes:
        log.see(each)
    stamped = kept(Order(state, {}), {P0: changes})[P0]
    since = state.partitions[P0].generations[0].since
    assert all(stamped[n] == log.tokens[n] if n >= since else stamped[n] >= log.tokens[n] for n in range(len(lineages)))


def test_a_late_truncate_of_a_former_timeline() -> None:
    known = merged(failovers(3), [])
    with pytest.raises(UnknownGenerationError, match="started again at offset 2 or before"):
        ordered(known, {P0: [at(1, "65", "s1", op="t")]})
    # One of the present timeline is no such.
    assert ordered(known, {P0: [at(3, "3", "s0", op="t")]}).state.floors
    state = merged(failovers(40), [])
    late = {P0: [at(3, "1", "s1", op="t")]}
    with pytest.raises(
        UnknownGenerationError,
        match=r"a truncate from there has come late, at offset 3\..*\n  Next: frazil mirror rebuild shop",
    ):
        ordered(state, late)
    # All of the log at once knows it.
    whole = [*failovers(3), *late[P0], *failovers(36, 4)]
    assert ordered(MirrorState(), {P0: whole}).state.floors["shop"].token == "0003.1.1.0000000000000003"


def test_a_truncate_of_an_older_generation_that_the_mirror_has() -> None:
    """It has expired."""
    log = failovers(36)
    log[3] = at(3, "1", "s1", op="t")
    state = merged(log, [10, 20, 30])
    assert state.floors == {"shop": TruncateFloor("0003.1.1.0000000000000003")}
    scans = {P0: LogScan.after(state.partitions[P0]).scanned(chunk([*log, *failovers(3, 36)]))}
    behind = Order.of("shop", ("id",), state, scans, "source", begins={P0: 4})
    assert behind.state.floors == state.floors
    assert [*kept(behind, {P0: failovers(3, 36)})[P0]] == [36, 37, 38]
    # It may be a letter that has come back.
    with pytest.raises(UnknownGenerationError, match="at offset 3"):
        Order.of("shop", ("id",), state, scans, "source")


def test_a_truncate_that_the_mirror_has_may_be_read_again() -> None:
    """So it is if snapshots of the changelog have expired, and all of it is read."""
    log = [at(0, "5"), at(1, "6", op="t"), at(2, "7"), at(3, "1", "b")]
    state = merged(log, [2, 3])
    again = ordered(state, {P0: [*log, at(4, "2", "b")]})
    assert again.state.floors == state.floors == {"shop": TruncateFloor("0000.6.1.0000000000000001")}
    assert [*kept(again, {P0: log})[P0]] == [2, 3]


@pytest.mark.parametrize(
    ("log", "letter", "offset"),
    [
        # The first timeline, one between two others, and one between two stretches of another.
        ([at(0, "5"), at(1, "1", "b")], 0, 0),
        ([at(0, "5"), at(1, "1", "b"), at(2, "3", "c")], 1, 1),
        ([at(0, "5"), at(1, "1", "b"), at(2, "6")], 1, 1),
        ([at(0, "5", op="t"), at(1, "1", "b")], 0, 0),
    ],
)
def test_a_late_change_of_a_timeline_that_was_not_seen(log: list[Change], letter: int, offset: int) -> None:
    """All of it that came were dead letters, so nothing says what its positions are older than."""
    state = merged([each for n, each in enumerate(log) if n != letter], [1])
    with pytest.raises(
        UnknownGenerationError,
        match=rf"a change from there has come late, at offset {offset}\..*\n.*frazil mirror rebuild shop",
    ):
        ordered(state, {P0: [log[letter]]})
    assert ordered(MirrorState(), {P0: log}).state.partitions[P0].generation == len(log) - 1
    # What has expired is left out.
    scans = {P0: LogScan.after(state.partitions[P0]).scanned(chunk([log[letter]]))}
    assert Order.of("shop", ("id",), state, scans, "source", begins={P0: offset + 1}).state.lineages == state.lineages


def test_a_truncate_that_comes_behind_later_changes_of_another_partition() -> None:
    """That partition came first, and the one that has the former source gave the present one a greater number."""
    first = {P0: [at(0, "08", "b", when=40 * SECOND), at(1, "0d", "b", when=90 * SECOND)]}
    then = {P2: [at(0, "02", "a", when=10 * SECOND), at(1, "07", "b", when=30 * SECOND)]}
    state = ordered(ordered(MirrorState(), first).state, then).state
    truncate = {P1: [at(0, "06", "b", when=20 * SECOND), at(1, "0c", "b", op="t", when=80 * SECOND)]}
    with pytest.raises(UnknownGenerationError, match=r"partition 1, have started again at offset 1 or before"):
        ordered(state, truncate)
    whole = first | then | truncate
    assert kept(ordered(MirrorState(), whole), whole) == {P0: {1: "0001.0d.1.0000000000000001"}, P1: {}, P2: {}}
    # What happened before the truncate it takes.
    assert ordered(state, {P1: [at(0, "0e", "b", op="t", when=91 * SECOND)]}).state.floors


def test_rows_of_a_first_snapshot_may_come_late() -> None:
    """MySQL's have the server id 0, so another lineage than the changes behind them."""
    log = [at(0, "5", "mysql/0", op="r"), at(1, "5", "mysql/0", op="r"), at(2, "5", "mysql/1"), at(3, "6", "mysql/1")]
    state = merged(log[2:], [])
    found = ordered(state, {P0: log[:2]})
    tokens = [*kept(found, {P0: log})[P0].values()]
    assert tokens == sorted(tokens) and len(tokens) == len(log)


def test_a_letter_that_was_the_first_change_behind_a_failover() -> None:
    log = [at(0, "900"), at(1, "901"), at(2, "100", "b"), at(3, "101", "b"), at(4, "102", "b"), at(5, "50", "c")]
    expected = kept(ordered(MirrorState(), {P0: log}), {P0: log})
    state = merged([log[0], log[1], log[4], log[5]], [])
    for letters in ([log[3], log[2]], [log[2], log[3]]):
        found = state
        for each in letters:
            found = MirrorState.from_json(ordered(found, {P0: [each]}).state.to_json())
        assert kept(Order(found, {}), {P0: log}) == expected
    # Both at once, in chunks of one; what is known already moves nothing.
    both = ordered(state, {P0: [log[2], log[3]]}, cut=1).state
    assert both == found == ordered(found, {P0: log}).state


def test_a_stamp_of_an_earlier_release_goes_on() -> None:
    """It has numbers of generations behind the token of a truncate, and as many generations of a partition."""
    packed = merged(failovers(40), []).to_json() | {"floors": {"shop": ["0014.00000020.1.0000000000000014", 4, 20]}}
    state = MirrorState.from_json(packed)
    assert state.floors == {"shop": TruncateFloor("0014.00000020.1.0000000000000014")}
    logs = {P0: [at(40, "1", "s0"), at(41, "2", "s1")]}
    assert [each[:4] for each in kept(ordered(state, logs), logs)[P0].values()] == ["0028", "0029"]
