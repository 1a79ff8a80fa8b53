"""Many sources, one after the other: which stretch of the log a change is of, however it is cut and how long ago."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirror.errors import UnknownGenerationError
from jobs.mirror.log_scan import LogScan
from jobs.mirror.merge_plan import MOST_GENERATIONS, Break, MirrorState, TruncateFloor
from jobs.mirror.older_generations import known_since, with_older
from jobs.mirror.order import Order
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import MirrorWorld, change
from tests.unit.mirror.order_reference import Change, Log
from tests.unit.mirror.test_order import P0, P1, Logs, at, chunk, kept, ordered


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


def whole_order(state: MirrorState, logs: Logs) -> Order:
    """The order of all changes, by what a stamp says and what is older in the changelog."""
    scans = {
        partition: LogScan.after(None, "key", state.breaks.get(partition, ())).scanned(
            chunk([each for each in logs[partition] if each.offset < since])
        )
        for partition, since in known_since(state).items()
    }
    return Order(with_older("shop", state, scans), {})


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_older_generations_have_the_numbers_that_they_had(lineages: list[str], cuts: list[int]) -> None:
    changes = [at(n, "5", lineage) for n, lineage in enumerate(lineages)]
    log = Log()
    for each in changes:
        log.see(each)
    found = kept(whole_order(merged(changes, cuts), {P0: changes}), {P0: changes})
    assert found == {P0: log.tokens}


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_by_the_generations_of_a_stamp_no_change_is_lower(lineages: list[str], cuts: list[int]) -> None:
    """So a later change that has removed a row is found by them, too."""
    logs = {P0: [at(n, "5", lineage) for n, lineage in enumerate(lineages)]}
    state = merged(logs[P0], cuts)
    whole, stamped = kept(whole_order(state, logs), logs)[P0], kept(Order(state, {}), logs)[P0]
    since = state.partitions[P0].generations[0].since
    assert all(stamped[n] == whole[n] if n >= since else stamped[n] >= whole[n] for n in range(len(lineages)))


def test_changes_of_two_partitions_are_each_in_their_order() -> None:
    logs = {P0: failovers(41), P1: failovers(30, 1)}
    state = MirrorState()
    for start in range(0, 41, 7):
        part = {each: log[start : start + 7] for each, log in logs.items() if log[start : start + 7]}
        state = MirrorState.from_json(ordered(state, part).state.to_json())
    tokens = kept(whole_order(state, logs), logs)
    for each, log in logs.items():
        assert [*tokens[each]] == [change.offset for change in log]
        assert [*tokens[each].values()] == sorted(tokens[each].values())


def test_where_an_operator_has_told_that_positions_begin_anew() -> None:
    log = [at(n, f"{100 - n:04x}", "a", when=n * 9_000_000) for n in range(40)]
    state = MirrorState(breaks={P0: tuple(Break(n, n) for n in range(1, 40))})
    state = MirrorState.from_json(ordered(state, {P0: log}).state.to_json())
    tokens = kept(whole_order(state, {P0: log}), {P0: log})[P0]
    assert [each[:4] for each in tokens.values()] == [f"{n:04x}" for n in range(40)]


def test_a_late_truncate_of_an_older_generation() -> None:
    state = merged(failovers(40), [])
    late = {P0: [at(3, "1", "s1", op="t")]}
    with pytest.raises(UnknownGenerationError, match=r"before offset 3, .*\n  Next: frazil mirror rebuild shop"):
        ordered(state, late)
    # Behind a later one it takes nothing that is there.
    truncated = ordered(state, {P0: [at(40, "900", "s1", op="t")]}).state
    assert ordered(truncated, late).state.floors == truncated.floors
    # All of the log at once knows it.
    whole = [*failovers(3), *late[P0], *failovers(36, 4)]
    assert ordered(MirrorState(), {P0: whole}).state.floors["shop"].token == "0003.1.1.0000000000000003"


def test_a_truncate_of_an_older_generation_that_the_mirror_has() -> None:
    """Snapshots of the changelog have expired, so all of it is read; or the mirror is made anew of a base."""
    log = failovers(36)
    log[2], log[3] = at(2, "1", "s0", op="t"), at(3, "1", "s1", op="t")
    state = merged(log, [10, 20, 30])
    more = {P0: [*log, *failovers(3, 36)]}
    order = ordered(state, more)
    assert order.state.floors == state.floors == {"shop": TruncateFloor("0003.1.1.0000000000000003")}
    assert [*kept(order, {P0: more[P0][36:]})[P0]] == [36, 37, 38]
    # One behind it may be a letter that has come back.
    with pytest.raises(UnknownGenerationError, match="before offset 4"):
        ordered(state, {P0: [*log[:4], at(4, "1", "s0", op="t")]})
    # A later one, in the same increment, stands above both.
    newest = ordered(state, {P0: [at(4, "1", "s0", op="t"), at(36, "900", "s0", op="t")]}).state.floors
    assert newest == {"shop": TruncateFloor("0024.900.1.0000000000000024")}


def test_a_truncate_of_an_older_generation_in_one_of_several_partitions() -> None:
    logs = {P0: failovers(36), P1: failovers(36)}
    logs[P0][3], logs[P1][1] = at(3, "9", "s1", op="t"), at(1, "3", "s1", op="t")
    state = MirrorState()
    for n in range(36):
        part = {each: log[n : n + 1] for each, log in logs.items()}
        state = MirrorState.from_json(ordered(state, part).state.to_json())
    assert state.floors["shop"].token == "0003.9.1.0000000000000003"
    assert ordered(state, {P0: logs[P0]}).state.floors == state.floors
    with pytest.raises(UnknownGenerationError, match="partition 1"):
        ordered(state, logs)
    # All that comes late is what the mirror has, or a base stands for it.
    scans = {each: LogScan.after(state.partitions[each]).scanned(chunk(log)) for each, log in logs.items()}
    again = Order.of("shop", ("id",), state, scans, "source", late=False)
    assert again.state.floors == state.floors
    behind = Order.of("shop", ("id",), state, scans, "source", begins={P1: 2})
    assert behind.state.floors == state.floors


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


def test_more_older_stretches_than_there_were() -> None:
    """Letters that came back are of a source of which nothing else has come."""
    log = [at(n, "5", "a") for n in range(9)] + failovers(MOST_GENERATIONS, 9)
    state = merged(log, [])
    back = {P0: [*log[:3], at(3, "1", "x"), at(4, "1", "y"), *log[5:]]}
    with pytest.raises(UnknownGenerationError, match="partition 0"):
        whole_order(state, back)


def test_a_stamp_of_an_earlier_release_goes_on() -> None:
    """It has numbers of generations behind the token of a truncate, and as many generations of a partition."""
    packed = merged(failovers(40), []).to_json() | {"floors": {"shop": ["0014.00000020.1.0000000000000014", 4, 20]}}
    state = MirrorState.from_json(packed)
    assert state.floors == {"shop": TruncateFloor("0014.00000020.1.0000000000000014")}
    logs = {P0: [at(40, "1", "s0"), at(41, "2", "s1")]}
    assert [each[:4] for each in kept(ordered(state, logs), logs)[P0].values()] == ["0028", "0029"]
    # What is older than the truncate is gone, of whichever generation.
    assert {*kept(whole_order(state, {P0: failovers(40)}), {P0: failovers(40)})[P0]} == {*range(21, 40)}
