"""Operators' answers on streams with many tables, whatever each of them has had: all combinations of a few states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from jobs.tables.commit.history.stamp_history import History
from jobs.tables.commit.recovery.accept import (
    NewStamps,
    lost_offsets,
    lost_topic,
    recreated_table,
    recreated_topic,
)
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.errors import NothingToAcceptError
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
T, OTHERS = "a.t", ("a.d", "a.x", "a.y", "a.z")
TARGETS = (T, *OTHERS)
STATES = ("has rows", "no rows since", "never had any", "lacks the batch")
START, END = {P0: 40, P1: 5}, {P0: 50, P1: 9}
OLD = Stamp("s", "batch", 0, 1, "c", {P0: 10, P1: 0}, {P0: 20, P1: 5})


def stream(states: tuple[str, ...]) -> dict[str, Stamp | None]:
    """The newest stamps of a stream whose other tables are in these states."""
    of = dict(zip(OTHERS, states, strict=True))
    rows = {name: 1 for name, state in of.items() if state in ("has rows", "lacks the batch")}
    uuids = {name: f"uuid of {name}" for name in TARGETS}
    anchored = Stamp("s", "batch", 1, 1, "c", START, END, rows=rows, failed=1, targets=uuids, topics={"t": "id"})
    before = {"no rows since": OLD, "never had any": None, "lacks the batch": replace(OLD, position=START)}
    landed = Stamp("s", "batch", 1, 1, "c", START, END)
    return {T: anchored, **{name: before.get(state, landed) for name, state in of.items()}}


def streams(*states: str) -> Iterator[dict[str, Stamp | None]]:
    for each in product(states, repeat=len(OTHERS)):
        yield stream(each)


def prefixes(stamps: dict[str, Stamp | None], new: NewStamps) -> Iterator[dict[str, Stamp | None]]:
    """What a crash between the commits of an answer leaves."""
    names = list(new)
    for count in range(len(names) + 1):
        yield {**stamps, **{name: new[name] for name in names[:count]}}


def test_a_table_that_was_rolled_back_gets_its_records_again_and_no_other_does() -> None:
    kept = {P0: 20, P1: 5}
    for stamps in streams("has rows", "no rows since", "never had any"):
        stands = target_positions(stamps, T)
        for chosen in product((False, True), repeat=len(TARGETS)):
            rolled = [name for name, is_ in zip(TARGETS, chosen, strict=True) if is_ and stamps[name]]
            if not rolled:
                continue
            histories = {}
            for name, stamp in stamps.items():
                back = replace(stamp, start=kept, position=kept) if stamp and name in rolled else stamp
                at = stamp.position if stamp else {}
                removed = {p: OffsetRange(kept[p], end) for p, end in at.items() if end > kept[p]}
                lost = removed if name in rolled else {}
                histories[name] = History(stamp, back, lost, rolled_back=name in rolled)
            new = rollback(histories, T, "reland", "c2")
            now = target_positions({**stamps, **new}, T)
            assert restart_positions(now) == kept, (stamps, rolled)
            for name in TARGETS:
                own = stamps[name]
                if name in rolled:
                    assert now[name] == kept, (stamps, rolled, name)
                elif T not in rolled:
                    assert now[name] == stands[name], (stamps, rolled, name)
                elif own:
                    # What it has landed lies before its own newest stamp.
                    assert all(now[name][p] >= own.position[p] for p in own.position), (stamps, rolled, name)
            half = half_committed(new, T)
            assert half is None or half.config == "c2", "the stream is not stopped again"
            assert {*list(new)[-len(rolled) :]} == {*rolled}, "the stop stands until the last of them is stamped"
            assert new[T].failed is None, "what failed of the newest batch says nothing of all that is landed again"
            left_out = rollback(histories, T, "keep", "c2")
            assert set(left_out) == set(rolled)
            assert target_positions({**stamps, **left_out}, T) == stands


def test_what_is_lost_is_passed_on_every_table_that_lacks_it_and_nothing_else_moves() -> None:
    for stamps in streams(*STATES):
        before = target_positions(stamps, T)
        for earliest in ({P0: 30, P1: 0}, {P0: 45, P1: 0}, {P0: 60, P1: 7}):
            if not any(at < earliest[p] for each in before.values() for p, at in each.items()):
                with pytest.raises(NothingToAcceptError):
                    lost_offsets(stamps, T, earliest)
                continue
            new = lost_offsets(stamps, T, earliest)
            assert list(new)[-1] == T, "the anchor's last"
            after = target_positions({**stamps, **new}, T)
            lost = {p: at for p, at in earliest.items() if any(each[p] < at for each in before.values())}
            for name in TARGETS:
                # The anchor's `start` says all complete up to what is lost, wherever they stood.
                expected = {p: max(at, lost.get(p, at)) for p, at in before[name].items()}
                assert after[name] == expected, (stamps, earliest, name)
            for there in prefixes(stamps, new):
                half = half_committed(there, T)
                assert half is None or T not in half.lack, (there, half)


def test_a_topic_that_is_gone_is_passed_on_every_table() -> None:
    for stamps in streams(*STATES):
        anchored = stamps[T]
        assert anchored is not None
        with_ends: dict[str, Stamp | None] = {**stamps, T: replace(anchored, ends={P0: 60})}
        before = target_positions(with_ends, T)
        new = lost_topic(with_ends, T, "t")
        for there in prefixes(with_ends, new):
            half = half_committed(there, T)
            assert half is None or T not in half.lack, (there, half)
        after = target_positions({**with_ends, **new}, T)
        for name in TARGETS:
            assert all(after[name][p] >= at for p, at in before[name].items())
        known = restart_positions(after)
        lacking = {name for name, each in after.items() if each != after[T]}
        # A table without any stamp takes its position from the others; it is no table that a batch is known to lack.
        assert lacking <= {name for name in OTHERS if stamps[name] is None}, (stamps, after)
        assert known[P0] >= min(before[name][P0] for name in TARGETS)


def test_another_topic_is_read_from_its_beginning_into_every_table() -> None:
    for stamps in streams(*STATES):
        new = recreated_topic(stamps, T, "t", "other", {P0: 9, P1: 9})
        assert list(new)[-1] == T
        after = target_positions({**stamps, **new}, T)
        assert not any(after.values()), "no table says a word of the topic that was"
        assert half_committed({**stamps, **new}, T) is None
        for there in prefixes(stamps, new):
            if there[T] == stamps[T]:
                anchored = there[T]
                assert anchored is not None and anchored.topics == {"t": "id"}, "the stop stands"


def test_a_log_that_was_cut_is_read_again_into_every_table_that_was_past_the_cut() -> None:
    for stamps in streams(*STATES):
        before = target_positions(stamps, T)
        new = recreated_topic(stamps, T, "t", "id", {P0: 30, P1: 9}, {P0: 30})
        after = target_positions({**stamps, **new}, T)
        for name in TARGETS:
            assert after[name][P0] == min(before[name][P0], 30), (stamps, name)
            assert after[name][P1] == before[name][P1], (stamps, name)


def test_a_table_that_is_begun_anew_gets_what_comes_and_the_others_what_they_lack() -> None:
    for stamps in streams(*STATES):
        before = target_positions(stamps, T)
        for name in OTHERS:
            new = recreated_table(stamps, T, name, "c2")
            assert list(new) == [T] and name not in new[T].targets
            now: dict[str, Stamp | None] = {**stamps, **new, name: None}
            after = target_positions(now, T)
            assert after[name] == END, (stamps, name)
            others = {each: at for each, at in after.items() if each != name}
            assert others == {each: at for each, at in before.items() if each != name}
        anew = recreated_table(stamps, T, T, "c2")
        assert set(anew) == {name for name in OTHERS if stamps[name]}
