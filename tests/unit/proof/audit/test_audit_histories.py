"""Any history of a stream that went well audits as complete; any damage to its tables is found, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.proof.audit.expected_rows import expected_rows
from tests.helpers.stream_history import (
    DEAD,
    DEAD_TARGET,
    FAILED,
    HOLE,
    P0,
    P1,
    ROW,
    SINK,
    SINK_TARGET,
    TOMBSTONE,
    StreamHistory,
    audited,
)

fates = st.lists(st.sampled_from([ROW, ROW, ROW, TOMBSTONE, FAILED, HOLE]), min_size=1, max_size=40)
partitions = st.sampled_from([P0, P1])
events = st.one_of(
    st.tuples(st.just("batch"), st.integers(0, 12), st.integers(0, 12)),
    st.tuples(st.just("reset"), partitions, st.integers(0, 40)),
    st.tuples(st.just("lose"), partitions, st.integers(1, 8)),
    st.tuples(st.just("roll_back"), st.integers(1, 4), st.sampled_from(["rollback_keep", "rollback_reland"])),
    st.tuples(st.just("recreate_topic"), partitions, fates, st.integers(0, 5)),
)


def history_of(first: list[str], second: list[str], story: list[tuple[Any, ...]]) -> StreamHistory:
    history = StreamHistory({P0: first, P1: second})
    for name, *arguments in [("batch", 5, 5), *story, ("batch", 50, 50)]:
        if name == "batch":
            history.batch({P0: arguments[0], P1: arguments[1]})
        else:
            getattr(history, name)(*arguments)
    return history


@settings(max_examples=300)
@given(fates, fates, st.lists(events, max_size=8), st.integers(1, 60))
def test_a_history_that_went_well_is_complete(first, second, story, window):
    history = history_of(first, second, story)
    found = audited(history.sink, history.dead, window=window)
    assert found.problems == [] and found.pending == []
    assert found.verdict == "complete"


@settings(max_examples=300)
@given(fates, fates, st.lists(events, max_size=8), st.integers(1, 60), st.data())
def test_damage_is_found_and_nothing_else(first, second, story, window, data):
    history = history_of(first, second, story)
    side = data.draw(st.sampled_from([each for each in (history.sink, history.dead) if each.rows] or [None]))
    if side is None:
        return
    places = sorted(at for at, often in side.rows.items() if often)
    damage = data.draw(st.sampled_from(["drop", "double", "swap"]))
    gone = data.draw(st.sampled_from(places))
    twice = data.draw(st.sampled_from(places)) if damage == "swap" else gone
    if damage != "double":
        side.rows[gone] -= 1
    if damage != "drop":
        side.rows[twice] += 1
    found = audited(history.sink, history.dead, window=window)
    if damage == "swap" and (gone == twice or not found.problems):
        # Within a range that was read twice a row may stand for that of another record: both readings' sum is right.
        assert gone == twice or any(len(group.batches) > 1 for group in groups_of(history, side.name))
        assert found.problems == []
        return
    assert {problem.table for problem in found.problems} == {side.name}
    by_kind = {problem.kind: problem for problem in found.problems}
    plainly = {(each.kind, each.records) for each in found.problems}
    missing = [each for each in found.problems if each.kind == "missing"]
    more = [each for each in found.problems if each.kind in ("doubled", "unexpected")]
    if damage == "drop":
        assert plainly == {("missing", 1)}
    elif damage == "double":
        # Where a range was read twice, a row more may be one that the second reading could have made.
        assert plainly in ({("doubled", 1)}, {("unexpected", 1)})
    else:
        assert all(each.records == 1 for each in found.problems) and len(missing) <= 1 and len(more) <= 1
    for kind, (partition, offset) in (("missing", gone), ("doubled", twice)):
        if kind in by_kind:
            problem = by_kind[kind]
            assert problem.partition == partition
            assert any(start <= offset < end for start, end in problem.where)
            if problem.exact:
                assert sum(end - start for start, end in problem.where) == 1


def groups_of(history: StreamHistory, name: str):
    side, target = (history.sink, SINK_TARGET) if name == SINK else (history.dead, DEAD_TARGET)
    return list(expected_rows(target, side.ledger).all_groups())


@pytest.mark.parametrize("window", [3, 1000])
def test_a_missing_row_of_a_plain_topic_is_named_exactly(window):
    history = StreamHistory({P0: [ROW, ROW, FAILED, ROW, ROW, ROW], P1: []})
    history.batch({P0: 4})
    history.batch({P0: 4})
    del history.sink.rows[P0, 1]
    (problem,) = audited(history.sink, history.dead, window=window).problems
    assert (problem.kind, problem.records, problem.where, problem.exact) == ("missing", 1, ((1, 2),), True)


def test_a_missing_row_among_holes_is_one_of_them():
    history = StreamHistory({P0: [ROW, HOLE, TOMBSTONE, ROW, FAILED], P1: []})
    history.batch({P0: 5})
    del history.sink.rows[P0, 3]
    (problem,) = audited(history.sink, history.dead).problems
    assert (problem.records, problem.where, problem.exact) == (1, ((1, 4),), False)


def test_a_record_in_both_tables_is_found_though_the_sums_are_right():
    history = StreamHistory({P0: [ROW, FAILED, ROW, TOMBSTONE], P1: []})
    history.batch({P0: 4})
    del history.dead.rows[P0, 1]
    history.dead.rows[P0, 0] = 1
    found = audited(history.sink, history.dead)
    assert [(each.kind, each.table, each.where) for each in found.problems] == [("both", DEAD, ((0, 1),))]


def test_dead_letters_to_be_committed_yet_are_no_problem():
    history = StreamHistory({P0: [ROW, FAILED, ROW, FAILED], P1: []})
    history.batch({P0: 2})
    history.batch({P0: 2}, dead_too=False)
    found = audited(history.sink, history.dead)
    assert found.problems == []
    assert found.pending == ["1 dead letters of payments-0 [2, 4) are to be committed yet"]


def test_dead_letters_that_never_came_are_a_problem():
    history = StreamHistory({P0: [ROW, FAILED, ROW, FAILED], P1: []})
    history.batch({P0: 2}, dead_too=False)
    history.batch({P0: 2})
    (problem,) = audited(history.sink, history.dead).problems
    assert (problem.kind, problem.table, problem.range, problem.records) == ("dead_letters", DEAD, (0, 2), 1)
