"""Rows that wait for changes of their former keys: which a merge folds again, and how keys stand in a stamp."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.mirror.merge_plan import MirrorState
from jobs.mirror.waiting_rows import (
    MOST_FOR_LONG,
    MOST_WAITING,
    WaitingRow,
    above,
    aged,
    joined,
    keys_of,
    met,
    named_keys,
    texts_of,
    with_first,
)

A = WaitingRow("01", ("2", "p"), (("1", "p"),))
B = WaitingRow("02", ("4", "p"), (("3", "p"), ("3", "q")), 7)
DAY_MS = 86_400_000


def test_a_row_is_folded_again_by_a_change_of_its_own_or_of_any_former_key() -> None:
    assert met([A, B], {("1", "p")}) == ((A,), (B,))
    assert met([A, B], {("3", "q")}) == ((B,), (A,))
    assert met([A, B], {("1", "p"), ("4", "p")}) == ((A, B), ())
    assert met([A, B], {A.key}) == ((A,), (B,))
    # Another key is none of theirs.
    assert met([A, B], {("1", "q")}) == ((), (A, B))
    assert named_keys([A, B]) == [("1", "p"), ("2", "p"), ("3", "p"), ("3", "q"), ("4", "p")]


def test_a_row_that_a_truncate_took_waits_no_more() -> None:
    assert above([A, B], []) == above([A, B], ["01"]) == (A, B)
    assert above([A, B], ["02", "00"]) == (B,)
    assert above([A, B], ["03"]) == ()


def test_the_week_does_not_begin_anew_where_a_row_is_folded_again_and_still_waits() -> None:
    row = WaitingRow("01", ("2",), (("1",),), 7)
    again, days = replace(row, since_ms=0), list[int]()
    waiting = (row,)
    for day in range(1, 12):
        come, still = met(waiting, {("1",)})
        assert still == ()
        waiting = aged(joined(still, [again] if come else [], waiting), 7 + day * DAY_MS)
        days += [day] if waiting else []
    assert days == [1, 2, 3, 4, 5, 6]


def test_they_are_bounded_in_number_and_in_time() -> None:
    again = WaitingRow("09", B.key, (("5", "p"),))
    assert joined([A, B], [again]) == (A, WaitingRow("09", B.key, (("5", "p"),), 7))
    assert joined([A], [again], [B]) == (A, WaitingRow("09", B.key, (("5", "p"),), 7))
    assert joined([A], [], [A, B]) == (A,)
    many = [WaitingRow(f"{n:06}", (str(n),), ((str(-n),),)) for n in range(MOST_WAITING + 5)]
    assert joined(many[:10], many[10:]) == tuple(many[5:])
    dated = aged([A, B], 6 * DAY_MS)
    assert [each.since_ms for each in dated] == [6 * DAY_MS, 7]
    assert [each.key for each in aged(dated, 8 * DAY_MS)] == [A.key]
    few = many[: MOST_FOR_LONG + 5]
    soon = aged(few, DAY_MS)
    assert [each.key for each in aged(soon, DAY_MS + 3_599_999)] == [each.key for each in few]
    assert [each.key for each in aged(soon, DAY_MS + 3_600_000)] == [each.key for each in few[5:]]
    assert len(aged([*soon, *aged(many[-MOST_FOR_LONG:], 2 * DAY_MS)], 2 * DAY_MS)) == 2 * MOST_FOR_LONG


def test_they_stand_in_the_state_of_a_stamp() -> None:
    state = MirrorState(waiting=(A, B))
    assert MirrorState.from_json(state.to_json()) == state
    assert "waiting" not in MirrorState().to_json()
    assert A.to_json() == ["01", 0, ["2", "p"], ["1", "p"]]
    # An earlier release has names of columns there.
    assert WaitingRow.from_json([["02", "note", "photo"], 7, ["4", "p"], ["3", "p"], ["3", "q"]]) == B


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int32(), -5),
        (pa.int64(), 2**62),
        (pa.string(), "ä, \x00"),
        (pa.decimal128(12, 2), Decimal("1.20")),
        (pa.date32(), date(2026, 3, 1)),
        (pa.timestamp("us", "UTC"), datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)),
        (pa.timestamp("us"), datetime(2026, 3, 1, 12)),
        (pa.bool_(), True),
        (pa.float64(), 0.1),
        (pa.binary(), b"\xff\x00"),
        (pa.binary(2), b"\xff\x00"),
    ],
)
def test_keys_come_back_from_their_texts(kind: pa.DataType, value: Any) -> None:
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    rows = pa.table([pa.array([value, value], kind), pa.array([1, 2])], schema=schema)
    texts = texts_of(rows, ("k", "n"))
    assert keys_of(texts, schema) == rows
    assert with_first(rows, "k", texts[:1]) == rows
