"""What became of a record, decided on counts and on what the tables have."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from jobs.commit.offsets import OffsetRange
from jobs.commit.stamp_fields import Counts
from jobs.time_travel.record_fate import (
    Found,
    OffsetHistory,
    RecordFate,
    batch_fate,
    offset_history,
    sentence,
    unlanded_fate,
)
from tests.helpers.stream_history import P0, SINK, ledger_row

ALL = Counts(4, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("counts", "span", "found", "expected"),
    [
        (ALL, 4, Found(rows=1, letters=0), RecordFate("row")),
        (ALL, 4, Found(rows=0, letters=1), RecordFate("dead_letter")),
        # Brought back by a replay: a letter of its batch, and a row now.
        (ALL, 4, Found(rows=1, letters=1, exact=False), RecordFate("dead_letter")),
        (ALL, 4, Found(rows=0, letters=0), RecordFate("undecided", ("tombstone", "filtered"))),
        (ALL, 5, Found(rows=0, letters=0), RecordFate("undecided", ("tombstone", "filtered", "no_record"))),
        (Counts(4, 3, 0, 1), 4, Found(rows=0, letters=0), RecordFate("tombstone")),
        (Counts(4, 3, 0, 0, 1), 4, Found(rows=0, letters=0), RecordFate("filtered")),
        (Counts(3, 3), 4, Found(rows=0, letters=0), RecordFate("no_record")),
        # Rows without coordinates: the counts alone tell.
        (Counts(4, 4), 4, Found(rows=None, letters=0), RecordFate("row")),
        (Counts(4, 3, 1), 4, Found(rows=None, letters=0), RecordFate("row")),
        (Counts(4, 3, 0, 1), 4, Found(rows=None, letters=0), RecordFate("undecided", ("row", "tombstone"))),
        (Counts(4, 3, 1), 4, Found(rows=None, letters=None), RecordFate("undecided", ("row", "dead_letter"))),
        # Counted, and not there any more.
        (Counts(4, 4), 4, Found(rows=0, letters=0, exact=False), RecordFate("row", deleted=True)),
        (Counts(4, 4), 4, Found(rows=0, letters=0), RecordFate("row", ("row",), deleted=True)),
        (Counts(4, 3, 1), 4, Found(rows=0, letters=0, letters_gone=True), RecordFate("dead_letter", deleted=True)),
        (Counts(4, 3, 1), 4, Found(rows=0, letters=0), RecordFate("undecided", ("row", "dead_letter"), deleted=True)),
        (None, 4, Found(rows=0, letters=0), RecordFate("undecided", ("tombstone", "filtered", "no_record"))),
    ],
)
def test_the_fate_of_a_record_of_a_batch(counts, span, found, expected):
    assert batch_fate(counts, span, found) == expected


def test_never_anything_that_the_counts_or_the_tables_exclude():
    for landed, dead, tombstones, filtered, holes in product((0, 2), repeat=5):
        counts = Counts(landed + dead + tombstones + filtered, landed, dead, tombstones, filtered)
        span = counts.read + holes
        for rows, letters, exact, gone in product((None, 0, 1), (None, 0, 1), (True, False), (True, False)):
            if not span or (rows and not landed) or (letters and not dead):
                continue
            made = batch_fate(counts, span, Found(rows, letters, exact, gone))
            told = set(made.possible or (made.fate,))
            assert told <= {
                *(["row"] if landed else []),
                *(["dead_letter"] if dead else []),
                *(["tombstone"] if tombstones else []),
                *(["filtered"] if filtered else []),
                *(["no_record"] if holes else []),
                *(["undecided"] if made.deleted else []),
            }
            if not made.deleted:
                assert not ("row" in told and rows == 0 and exact)
                assert not ("dead_letter" in told and letters == 0 and not gone)


def history(*entries: tuple[Any, ...]) -> OffsetHistory:
    rows = [
        ledger_row(SINK, kind, P0, OffsetRange(start, end), number + 1, **more)
        for number, (kind, start, end, more) in enumerate(entries)
    ]
    return offset_history(rows, P0, 5)


@pytest.mark.parametrize(
    ("entries", "first", "position", "fate", "words"),
    [
        ([], None, None, "never_read", "is of a partition that the stream never read"),
        ([], None, 5, "not_read", "is not read yet; the stream stands at 5"),
        ([], None, 9, "before_beginning", "lies before the stream's beginning, 9"),
        ([], 7, 9, "before_beginning", "lies before the stream's beginning, 7"),
        ([], 0, 5, "not_read", "is not read yet; the stream stands at 5"),
        ([], 0, 6, "gap", "was read by no batch, though the stream stands behind it"),
        ([("batch", 0, 9, {})], 0, 9, None, None),
        ([("unknown", 0, 9, {})], 0, 9, "unknown", None),
        (
            [("passed", 0, 9, {"answer": "lost_offsets", "note": "ada: gone"})],
            0,
            9,
            "passed_over",
            "was passed over by an operator's answer: lost offsets, ada: gone",
        ),
        ([("batch", 0, 9, {}), ("again", 0, 9, {"answer": "recreated_topic"})], 0, None, "former", None),
        ([("batch", 0, 9, {}), ("again", 4, 9, {"answer": "cut_topic"})], 0, 4, "former", None),
        # Read whole, and gone: it is the record that has the coordinates.
        ([("batch", 0, 9, {}), ("noted", 0, 9, {"answer": "retired"})], 0, None, None, None),
        (
            [
                ("batch", 0, 9, {}),
                ("removed", 0, 9, {"since": 0}),
                ("again", 0, 9, {"answer": "rollback_reland"}),
            ],
            0,
            0,
            "removed",
            "was landed, and taken out of the table by a rollback",
        ),
    ],
)
def test_the_fate_of_a_record_that_no_batch_took(entries, first, position, fate, words):
    found = history(*entries)
    made = unlanded_fate(found, 5, first, position)
    assert made == fate
    if words and made:
        assert sentence(RecordFate(made), found.landing, position, first) == words
