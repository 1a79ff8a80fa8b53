"""What the ledger alone shows: gaps, overlaps, sums, operators' answers, ranges that nobody recorded."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from jobs.proof.audit.audit_ranges import BatchRange, RangeGroup
from jobs.proof.audit.expected_rows import expected_rows
from jobs.proof.audit.found_rows import FoundRows
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import NO_RANGE, WHOLE_TABLE
from jobs.tables.ledger.row_counter import WINDOW_OFFSETS
from tests.helpers.stream_history import DEAD, DEAD_TARGET, P0, P1, SINK, SINK_TARGET, Side, audited, ledger_row


def landed(count: int) -> Counts:
    return Counts(read=count, landed=count)


def batch(start: int, end: int, sequence: int, counts: Counts | None = None, partition=P0):
    said = landed(end - start) if counts is None else counts
    return ledger_row(SINK, "batch", partition, OffsetRange(start, end), sequence, counts=said)


def test_batches_one_after_another_leave_nothing_to_say():
    found = expected_rows(SINK_TARGET, [batch(5, 10, 1), batch(10, 12, 2), batch(0, 3, 2, partition=P1)])
    assert found.problems == []
    assert found.positions == {P0: 12, P1: 3}
    assert [(group.range, group.rows) for group in found.groups[P0]] == [((5, 10), 5), ((10, 12), 2)]


def test_a_gap_is_named_with_its_offsets():
    found = expected_rows(SINK_TARGET, [batch(0, 10, 1), batch(15, 20, 2)])
    assert [(each.kind, each.partition, each.range, each.records) for each in found.problems] == [
        ("gap", P0, (10, 15), 5)
    ]


def test_an_overlap_is_named_with_its_offsets():
    found = expected_rows(SINK_TARGET, [batch(0, 10, 1), batch(7, 20, 2)])
    assert [(each.kind, each.range) for each in found.problems] == [("overlap", (7, 10))]


def test_the_beginning_after_an_audit_is_judged_by_where_the_table_stood():
    found = expected_rows(SINK_TARGET, [batch(15, 20, 2)], begin={P0: 10})
    assert [(each.kind, each.range) for each in found.problems] == [("gap", (10, 15))]


@pytest.mark.parametrize(
    "counts", [Counts(read=10, landed=8, dead=1), Counts(read=5, landed=8), Counts(read=12, landed=12)]
)
def test_sums_that_do_not_add_up_are_problems(counts):
    found = expected_rows(SINK_TARGET, [batch(0, 10, 1, counts)])
    assert [each.kind for each in found.problems] == ["sum"]


def test_holes_between_the_ranges_of_dead_letters_are_none():
    rows = [
        ledger_row(DEAD, "batch", P0, OffsetRange(0, 5), 1, counts=Counts(read=1, dead=1)),
        ledger_row(DEAD, "batch", P0, OffsetRange(20, 25), 2, counts=Counts(read=2, dead=2)),
    ]
    assert expected_rows(DEAD_TARGET, rows).problems == []


def test_what_an_operator_passed_over_is_listed_and_no_gap():
    passed = ledger_row(SINK, "passed", P0, OffsetRange(10, 15), 2, answer="lost_offsets", note="ada: gone")
    found = expected_rows(SINK_TARGET, [batch(0, 10, 1), passed, batch(15, 20, 3)])
    assert found.problems == []
    assert [(each.kind, each.range, each.answer, each.note) for each in found.decisions] == [
        ("passed", (10, 15), "lost_offsets", "ada: gone")
    ]


def test_ranges_whose_stamps_had_expired_are_held_against_the_totals():
    side, dead = Side(SINK), Side(DEAD)
    side.ledger = [
        ledger_row(SINK, "unknown", P0, OffsetRange(0, 5), 4),
        ledger_row(SINK, "unknown", P1, OffsetRange(0, 4), 4),
        ledger_row(SINK, "unknown", WHOLE_TABLE, NO_RANGE, 4, counts=Counts(read=8, landed=7, tombstones=1)),
        batch(5, 8, 4),
    ]
    side.rows.update({(P0, offset): 1 for offset in range(8)} | {(P1, offset): 1 for offset in (0, 1)})
    found = audited(side, dead)
    assert found.problems == []
    assert found.tables[0].unknown == [(P0, (0, 5)), (P1, (0, 4))]
    del side.rows[P1, 0]
    (problem,) = audited(side, dead).problems
    assert (problem.kind, problem.partition, problem.records, problem.exact) == ("missing", None, 1, False)


def test_a_partition_that_was_moved_back_unseen_goes_on_where_it_was_moved_to():
    rows = [batch(0, 10, 1), ledger_row(SINK, "unknown", P0, OffsetRange(4, 10), 3), batch(4, 6, 3)]
    found = expected_rows(SINK_TARGET, rows)
    assert found.problems == []
    assert found.positions == {P0: 6}


def noted(table: str, sequence: int):
    return ledger_row(table, "noted", WHOLE_TABLE, NO_RANGE, sequence, answer="recreated_table", note="ada: dropped")


def letters(start: int, end: int, sequence: int, count: int):
    return ledger_row(DEAD, "batch", P0, OffsetRange(start, end), sequence, counts=Counts(read=count, dead=count))


def test_a_sink_that_began_anew_need_not_agree_with_dead_letters_of_before():
    side, dead = Side(SINK), Side(DEAD)
    side.ledger = [batch(0, 5, 1, Counts(5, 3, 2)), batch(5, 8, 2, Counts(3, 2, 1))]
    side.rows.update({(P0, offset): 1 for offset in (0, 1, 4, 5, 6)})
    dead.ledger = [letters(0, 5, 1, 1), noted(DEAD, 2), letters(5, 8, 3, 1)]
    dead.rows.update({(P0, 1): 1, (P0, 7): 1})
    found = audited(side, dead)
    assert found.problems == [] and found.pending == []
    dead.ledger[-1] = letters(5, 8, 3, 2)
    assert {problem.kind for problem in audited(side, dead).problems} == {"dead_letters", "missing"}


def test_what_fails_now_and_landed_before_the_sink_began_anew_is_no_dead_letter_again():
    side, dead = Side(SINK), Side(DEAD)
    side.ledger = [batch(0, 3, 1, Counts(3, 2, 1)), batch(3, 6, 2, Counts(3, 2, 1)), batch(6, 8, 3, Counts(2, 1, 1))]
    side.rows.update({(P0, offset): 1 for offset in (0, 1, 3, 4, 6)})
    dead.ledger = [letters(0, 1, 1, 1), noted(DEAD, 2), letters(6, 8, 3, 1)]
    dead.rows.update({(P0, 0): 1, (P0, 7): 1})
    found = audited(side, dead)
    assert found.problems == [] and found.pending == []


def test_dead_letters_that_began_anew_need_not_agree_with_what_failed_before():
    side, dead = Side(SINK), Side(DEAD)
    side.ledger = [batch(0, 5, 1, Counts(5, 4, 1)), noted(SINK, 2), batch(5, 8, 3, Counts(3, 2, 1))]
    side.rows.update({(P0, offset): 1 for offset in (0, 1, 2, 3, 5, 6)})
    dead.ledger = [letters(5, 8, 1, 1)]
    dead.rows[P0, 7] = 1
    found = audited(side, dead)
    assert found.problems == []
    assert [decision.answer for decision in found.decisions] == ["recreated_table"]


def test_dead_letters_that_a_quiet_partition_lost_are_not_waited_for():
    side, dead = Side(SINK), Side(DEAD)
    side.ledger = [batch(0, 5, 1, Counts(5, 3, 2))]
    side.rows.update({(P0, offset): 1 for offset in (0, 1, 4)})
    assert [len(audited(side, dead).pending), audited(side, dead).verdict] == [1, "undecided"]
    side.ledger.append(batch(0, 2, 2, partition=P1))
    side.rows.update({(P1, offset): 1 for offset in (0, 1)})
    found = audited(side, dead)
    assert [(each.kind, each.partition, each.range, each.records) for each in found.problems] == [
        ("dead_letters", P0, (0, 5), 2)
    ]
    assert (found.pending, found.verdict) == ([], "incomplete")


def retired(end: int, sequence: int):
    return ledger_row(SINK, "noted", P0, OffsetRange(0, end), sequence, answer="retired")


@pytest.mark.parametrize(("start", "end", "stands"), [(0, 4, 10), (6, 8, 10), (15, 20, 20)])
def test_a_topic_that_was_retired_and_came_back_begins_anywhere(start: int, end: int, stands: int):
    found = expected_rows(SINK_TARGET, [batch(0, 10, 1), retired(10, 2), batch(start, end, 3)])
    assert (found.problems, found.decisions, found.positions) == ([], [], {P0: stands})
    assert sum(group.rows or 0 for group in found.groups[P0]) == 10 + end - start
    assert not found.behind


@pytest.mark.parametrize("since", [None, {P0: 10}])
@pytest.mark.parametrize(
    ("start", "end", "kinds"),
    [(10, 14, []), (12, 14, [("gap", (10, 12))]), (6, 14, [("overlap", (6, 10))]), (0, 4, [("overlap", (0, 4))])],
)
def test_a_topic_that_was_retired_and_is_the_same_one_goes_on_where_it_ended(start, end, kinds, since):
    back = ledger_row(SINK, "noted", P0, OffsetRange(0, 10), 3, answer="returned")
    rows = [batch(0, 10, 1), retired(10, 2), back, batch(start, end, 3)]
    found = expected_rows(SINK_TARGET, rows if since is None else rows[2:], begin=since)
    assert [(each.kind, each.range) for each in found.problems] == kinds
    assert found.positions == {P0: max(end, 10)}


def test_the_same_topic_goes_on_where_it_ended_whatever_a_former_one_of_the_name_reached():
    back = ledger_row(SINK, "noted", P0, OffsetRange(0, 4), 5, answer="returned")
    rows = [batch(0, 10, 1), retired(10, 2), batch(0, 4, 3), retired(4, 4), back, batch(4, 6, 5), batch(7, 8, 6)]
    found = expected_rows(SINK_TARGET, rows)
    assert [(each.kind, each.range) for each in found.problems] == [("gap", (6, 7))]


def test_a_range_that_nobody_recorded_is_not_looked_at_offset_by_offset():
    range_ = OffsetRange(0, 10**8)
    found = FoundRows(RangeGroup(P0, range_, (BatchRange(range_, None, Counts(), 1, 1, stamped=False),)))
    # Takes no memory itself, however long it is.
    often = np.broadcast_to(np.uint8(2), WINDOW_OFFSETS)
    tracemalloc.start()
    try:
        found.add(often, often, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert (found.present, found.surplus, found.lacking) == (2 * WINDOW_OFFSETS, 0, 0)
