"""What became of a record, decided on counts and on what the tables have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.proof.lookup.record_fate import (
    Found,
    OffsetHistory,
    RecordFate,
    batch_fate,
    offset_history,
    sentence,
    unlanded_fate,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import LedgerRow
from tests.helpers.stream_history import DEAD, FAILED, HOLE, P0, P1, ROW, SINK, TOMBSTONE, At, StreamHistory, ledger_row

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


# One more topic, of which there is a new one each day.
DAY1, DAY2 = TopicPartition("day-1", 0), TopicPartition("day-2", 0)
PARTITIONS = (P0, P1, DAY1, DAY2)
Copies = dict[At, list[tuple[int, int]]]


class WitnessedHistory(StreamHistory):
    """Looks at the tables after each commit: whose rows came with it, and of which life of their topic."""

    def __init__(self, fates: dict[TopicPartition, Sequence[str]]) -> None:
        super().__init__(fates)
        self.copies: dict[str, Copies] = {SINK: {}, DEAD: {}}
        self.kept: dict[str, dict[int, Copies]] = {SINK: {0: {}}, DEAD: {0: {}}}
        self.lives: Counter[TopicPartition] = Counter()
        self.gone: dict[TopicPartition, int] = {}

    def look(self) -> None:
        for side in (self.sink, self.dead):
            copies, sequence = self.copies[side.name], side.sequence
            for at, often in side.rows.items():
                came = copies.setdefault(at, [])
                came += [(sequence, self.lives[at[0]])] * (often - len(came))
            self.kept[side.name][sequence] = {at: list(came) for at, came in copies.items()}

    def act(self, name: str, *arguments: Any) -> None:
        before = self.sink.sequence
        getattr(self, name)(*arguments)
        if name == "roll_back" and self.sink.sequence > before:
            since = self.sink.ledger[-1].since
            if since is None:
                since = next(row.since for row in reversed(self.sink.ledger) if row.since is not None)
            self.copies[SINK] = {at: list(came) for at, came in self.kept[SINK][since].items()}
        self.look()

    def recreate_topic(self, partition: TopicPartition, fates: Sequence[str], begin: int) -> None:
        if partition in self.sink.position:
            super().recreate_topic(partition, fates, begin)
            self.lives[partition] += 1

    def retire(self, partition: TopicPartition) -> None:
        """The topic was read to its end and is gone: the next batch says so."""
        self.batch({partition: len(self.fates[partition])})
        self.look()
        if partition in self.sink.position:
            at = self.sink.position.pop(partition)
            self.dead.position.pop(partition, None)
            self.gone[partition] = at
            self.sink.commit([("noted", partition, OffsetRange(0, at), {"answer": "retired"})])
            self.floor = self.sink.sequence

    def come_back(self, partition: TopicPartition, fates: Sequence[str], *, same: bool) -> None:
        """A topic of the name is there: the same, with more records, or another one."""
        at = self.gone.pop(partition, None)
        if at is None:
            return
        if same:
            self.fates[partition] += fates
            self.sink.position[partition] = at
            self.sink.commit([("noted", partition, OffsetRange(0, at), {"answer": "returned"})])
        else:
            self.fates[partition] = list(fates)
            self.begin[partition] = 0
            self.lives[partition] += 1
        self.floor = self.sink.sequence


fates = st.lists(st.sampled_from([ROW, ROW, ROW, TOMBSTONE, FAILED, HOLE]), min_size=1, max_size=25)
partitions = st.sampled_from(PARTITIONS)
events = st.one_of(
    st.tuples(st.just("batch"), st.dictionaries(partitions, st.integers(0, 12), min_size=1)),
    st.tuples(st.just("reset"), partitions, st.integers(0, 25)),
    st.tuples(st.just("lose"), partitions, st.integers(1, 8)),
    st.tuples(st.just("roll_back"), st.integers(1, 4), st.sampled_from(["rollback_keep", "rollback_reland"])),
    st.tuples(st.just("recreate_topic"), partitions, fates, st.just(0)),
    st.tuples(st.just("retire"), partitions),
    st.tuples(st.just("back"), partitions, fates, st.booleans()),
)


def lived(first: dict[TopicPartition, list[str]], story: list[tuple[Any, ...]]) -> WitnessedHistory:
    history = WitnessedHistory(dict(first))
    for name, *arguments in [("batch", dict.fromkeys(PARTITIONS, 5)), *story]:
        if name == "back":
            partition, more, same = arguments
            history.come_back(partition, more, same=same)
            history.look()
        elif name == "batch":
            history.act("batch", {p: size for p, size in arguments[0].items() if p not in history.gone})
        else:
            if arguments[0] not in history.gone:
                history.act(name, *arguments)
    return history


def reduced(rows: list[LedgerRow], partition: TopicPartition, offset: int) -> list[LedgerRow]:
    """As the ledger is asked: batches that do not hold the offset are left out."""
    return [
        row
        for row in rows
        if row.kind != "batch" or (row.partition == partition and row.range.start <= offset < row.range.end)
    ]


@settings(max_examples=500, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(PARTITIONS, fates)), st.lists(events, max_size=10))
def test_every_offset_is_where_the_tables_had_it(first, story):
    history = lived(first, story)
    for side in (history.sink, history.dead):
        copies = history.copies[side.name]
        for partition in PARTITIONS:
            for offset in range(max(map(len, history.fates.values())) + 30):
                known = reduced(side.ledger, partition, offset)
                found = offset_history(known, partition, offset)
                assert found == offset_history(side.ledger, partition, offset)
                expected = copies.get((partition, offset), [])
                stand = [each for each in found.passages if each.removed_by is None and each.row.kind == "batch"]
                took = {each.row.sequence for each in stand}
                assert {sequence for sequence, _ in expected} <= took, (side.name, partition, offset)
                if side is history.sink:
                    judge_sink(history, found, partition, offset, expected)


def judge_sink(
    history: WitnessedHistory,
    found: OffsetHistory,
    partition: TopicPartition,
    offset: int,
    expected: list[tuple[int, int]],
) -> None:
    assert found.past == (offset < history.sink.position.get(partition, 0)), (partition, offset)
    if not expected:
        return
    by_life: dict[int, list[int]] = defaultdict(list)
    for sequence, life in expected:
        by_life[life].append(sequence)
    newest = max(by_life)
    landing = found.landing
    assert landing is not None
    # A former topic's rows stand at coordinates that the present one may have, too, and lack a row there.
    lives = {each.row.sequence: each for each in found.passages if each.removed_by is None}
    for life, sequences in by_life.items():
        ended = {lives[sequence].ended_by for sequence in sequences}
        if life < history.lives[partition]:
            assert ended <= {"recreated_topic", "retired"} and len(ended) == 1
        else:
            assert ended == ({"retired"} if partition in history.gone else {None})
    if landing.life == lives[by_life[newest][0]].life:
        assert landing.row.sequence == min(by_life[newest])


def history_of(*entries: tuple[Any, ...]) -> OffsetHistory:
    """Of offset 5, by entries of `(kind, start, end, more)`, a commit each."""
    rows = [
        ledger_row(SINK, kind, P0, OffsetRange(start, end), number + 1, **more)
        for number, (kind, start, end, more) in enumerate(entries)
    ]
    return offset_history(rows, P0, 5)


RESET: Any = {"answer": "reset"}
BATCH: Any = {"counts": Counts(read=10, landed=10)}


@pytest.mark.parametrize(
    ("entries", "passages", "landing", "past"),
    [
        ([], [], None, False),
        ([("batch", 0, 5, BATCH)], [], None, False),
        ([("batch", 0, 5, BATCH), ("batch", 5, 9, BATCH)], [(2, None, None)], 2, True),
        # Reset back: both copies stand, the first is the landing.
        (
            [("batch", 0, 9, BATCH), ("again", 3, 9, {"answer": "reset"}), ("batch", 3, 12, BATCH)],
            [(1, None, None), (3, None, None)],
            1,
            True,
        ),
        ([("batch", 0, 9, BATCH), ("again", 3, 9, {"answer": "reset"})], [(1, None, None)], 1, False),
        ([("batch", 0, 9, BATCH), ("again", 7, 9, {"answer": "reset"})], [(1, None, None)], 1, True),
        # Passed over, then read after a reset: the batch is the landing.
        (
            [
                ("passed", 0, 9, {"answer": "lost_offsets"}),
                ("again", 0, 9, {"answer": "reset"}),
                ("batch", 0, 9, BATCH),
            ],
            [(1, None, None), (3, None, None)],
            3,
            True,
        ),
        # The log was cut: before the offset it is another record, behind it the same.
        (
            [("batch", 0, 9, BATCH), ("again", 4, 9, {"answer": "cut_topic"}), ("batch", 4, 9, BATCH)],
            [(1, None, "cut_topic"), (3, None, None)],
            3,
            True,
        ),
        (
            [("batch", 0, 9, BATCH), ("again", 6, 9, {"answer": "cut_topic"}), ("batch", 6, 9, BATCH)],
            [(1, None, None)],
            1,
            True,
        ),
        # The stamps that would tell have expired: forwards, and back.
        ([("unknown", 0, 9, {})], [(1, None, None)], 1, True),
        ([("batch", 0, 9, BATCH), ("unknown", 3, 9, {})], [(1, None, None)], 1, False),
        # Retired and back; retired and another one.
        (
            [
                ("batch", 0, 9, BATCH),
                ("noted", 0, 9, {"answer": "retired"}),
                ("noted", 0, 9, {"answer": "returned"}),
            ],
            [(1, None, None)],
            1,
            True,
        ),
        (
            [("batch", 0, 9, BATCH), ("noted", 0, 9, {"answer": "retired"}), ("batch", 0, 7, BATCH)],
            [(1, None, "retired"), (3, None, None)],
            3,
            True,
        ),
        ([("batch", 0, 9, BATCH), ("noted", 0, 9, {"answer": "retired"})], [(1, None, "retired")], 1, False),
        # Rolled back, kept out and landed again; then rolled back to before the rollback.
        (
            [
                ("batch", 0, 4, BATCH),
                ("batch", 4, 9, BATCH),
                ("removed", 4, 9, {"since": 1, "answer": "rollback_reland"}),
                ("again", 4, 9, {"answer": "rollback_reland"}),
                ("batch", 4, 9, BATCH),
            ],
            [(2, 3, None), (5, None, None)],
            5,
            True,
        ),
    ],
)
def test_what_is_said_of_an_offset(entries, passages, landing, past):
    found = history_of(*entries)
    told = [(each.row.sequence, each.removed_by and each.removed_by.sequence, each.ended_by) for each in found.passages]
    assert (told, found.landing and found.landing.row.sequence, found.past) == (passages, landing, past)


def test_other_partitions_and_other_topics_say_nothing_of_it():
    rows = [
        ledger_row(SINK, "batch", P0, OffsetRange(0, 9), 1, **BATCH),
        ledger_row(SINK, "batch", P1, OffsetRange(0, 9), 2, **BATCH),
        ledger_row(SINK, "again", P1, OffsetRange(0, 9), 3, answer="recreated_topic"),
        replace(ledger_row(SINK, "noted", TopicPartition("", -1), OffsetRange(0, 0), 4), answer="recreated_topic"),
    ]
    found = offset_history(rows, P0, 5)
    assert [each.row.sequence for each in found.passages] == [1] and found.past
