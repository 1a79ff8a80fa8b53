"""From stamps to rows of the ledger: for any story of a table, the rows that stand say what is in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.values.targets import TargetSpec
from jobs.tables.commit.history.stamp_history import History
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision, PartitionCounts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_checkpoints import fill_checkpoints_of, fill_checkpoints_text
from jobs.tables.ledger.ledger_row import (
    NO_RANGE,
    WHOLE_TABLE,
    LedgerRow,
    effective_rows,
)
from jobs.tables.ledger.stamp_conversion import (
    FillCheckpoint,
    StampedSnapshot,
    StampedTable,
    ledger_rows,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITIONS = (P0, P1)
NAME = "a.t"
ANCHOR = StampedTable(TargetSpec(NAME, "rows", True), "uuid")
DEAD = StampedTable(TargetSpec("a.d", "dead_letters"), "uuid-d")
AT = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Story:
    """A stream's anchor: the stamps along main, what the table holds after each, and a ledger filled at times."""

    chain: list[tuple[Stamp, Counter[tuple[TopicPartition, int]]]] = field(default_factory=list)
    newest: Stamp = field(
        default_factory=lambda: Stamp(
            "s", "claim", -1, 1, "c", dict.fromkeys(PARTITIONS, 0), dict.fromkeys(PARTITIONS, 0)
        )
    )
    sequence: int = 0
    known: FillCheckpoint | None = None
    ledger: list[LedgerRow] = field(default_factory=list)

    def commit(self, stamp: Stamp, holds: Counter[tuple[TopicPartition, int]]) -> None:
        self.sequence += 1
        self.newest = replace(stamp, sequence=self.sequence)
        self.chain.append((self.newest, holds))

    @property
    def holds(self) -> Counter[tuple[TopicPartition, int]]:
        return self.chain[-1][1].copy() if self.chain else Counter()

    def batch(self, lengths: tuple[int, ...]) -> None:
        start = self.newest.position
        end = {p: start[p] + n for p, n in zip(PARTITIONS, lengths, strict=True)}
        parts = {p: PartitionCounts(start[p], Counts(n, n)) for p, n in zip(PARTITIONS, lengths, strict=True) if n}
        counts = sum((part.counts for part in parts.values()), Counts())
        holds = self.holds + Counter((p, offset) for p in end for offset in range(start[p], end[p]))
        stamp = replace(self.newest.decided(None), kind="batch", start=start, position=end, parts=parts, counts=counts)
        self.commit(replace(stamp, totals=self.newest.totals + counts), holds)

    def moved(self, to: tuple[int, ...]) -> None:
        position = self.newest.position
        after = dict(zip(PARTITIONS, to, strict=True))
        decision = Decision(
            "reset",
            passed={p: OffsetRange(position[p], at) for p, at in after.items() if at > position[p]},
            again={p: OffsetRange(at, position[p]) for p, at in after.items() if at < position[p]},
        )
        stamp = replace(self.newest.decided(decision), start=after, position=after)
        self.commit(signed_answer(stamp, 2, "me: why"), self.holds)

    def rolled_back(self, by: int, answer: str) -> None:
        kept = self.chain[: max(0, len(self.chain) - by)]
        ancestor = kept[-1][0] if kept else None
        past = History(self.newest, ancestor, {P0: OffsetRange(0, 1)}, rolled_back=True)
        (stamp,) = rollback({NAME: past}, NAME, "keep" if answer == "keep" else "reland", "c").values()
        self.chain = kept
        self.commit(signed_answer(stamp, 3, "me: why"), self.holds)

    def fill(self) -> None:
        for stamp, _ in self.chain:
            if self.known is None or stamp.sequence > self.known.sequence:
                text = Stamp.from_json(stamp.to_json())
                made, self.known = ledger_rows(
                    StampedSnapshot(text, stamp.sequence, stamp.sequence, AT), self.known, ANCHOR
                )
                self.ledger += made


lengths = st.tuples(st.integers(0, 4), st.integers(0, 4))
events = st.one_of(
    st.tuples(st.just("batch"), lengths),
    st.tuples(st.just("moved"), lengths),
    st.tuples(st.just("rolled back"), st.integers(1, 4), st.sampled_from(["keep", "reland"])),
    st.tuples(st.just("fill")),
)


@given(st.lists(events, max_size=14))
def test_what_stands_is_what_the_table_holds(story: list[tuple]) -> None:
    table = Story()
    for event in [*story, ("fill",)]:
        match event:
            case ("batch", size):
                table.batch(size)
            case ("moved", to):
                table.moved(to)
            case ("rolled back", by, answer):
                if table.chain:
                    table.rolled_back(by, answer)
            case _:
                table.fill()
    stands: dict[TopicPartition, int] = {}
    holds: Counter[tuple[TopicPartition, int]] = Counter()
    for row in effective_rows(table.ledger):
        assert row.kind != "unknown"
        if row.kind == "noted":
            continue
        if row.kind == "batch":
            assert stands.get(row.partition, row.range.start) == row.range.start
            assert row.counts == Counts(row.range.end - row.range.start, row.range.end - row.range.start)
            holds += Counter((row.partition, offset) for offset in range(*row.range))
        stands[row.partition] = row.range.start if row.kind == "again" else row.range.end
    assert holds == table.holds
    assert all(at == table.newest.position[partition] for partition, at in stands.items())


@given(st.lists(lengths, min_size=1, max_size=8), st.integers(0, 7), st.integers(0, 7))
def test_stamps_that_expired_leave_their_sums(batches: list[tuple[int, int]], first: int, count: int) -> None:
    table = Story()
    for each in batches:
        table.batch(each)
    table.chain = [
        each for n, each in enumerate(table.chain) if not first <= n < first + count or n == len(batches) - 1
    ]
    table.fill()
    total = sum((row.counts for row in table.ledger if row.counts), Counts())
    assert total == table.newest.totals, "nothing is lost from sight, and nothing is counted twice"
    stands = dict.fromkeys(PARTITIONS, 0)
    for row in table.ledger:
        if row.partition != WHOLE_TABLE:
            assert row.range.start == stands[row.partition]
            stands[row.partition] = row.range.end
    assert stands == table.newest.position


def stamped(stamp: Stamp, sequence: int) -> StampedSnapshot:
    return StampedSnapshot(stamp, sequence, sequence, AT)


OLD = Stamp("s", "batch", 1, 1, "c", {P0: 5, P1: 0}, {P0: 9, P1: 0}, rows={NAME: 3, "a.d": 1})
OLD = replace(OLD, counts=Counts(4, 3, 1), totals=Counts(4, 3, 1))


def test_stamps_of_earlier_versions_give_what_they_have() -> None:
    (row,), known = ledger_rows(stamped(OLD, 4), None, ANCHOR)
    assert (row.partition, row.range, row.counts) == (P0, OffsetRange(5, 9), Counts(4, 3, 1)), (
        "one partition, so all of it"
    )
    two = replace(OLD, start={P0: 9, P1: 0}, position={P0: 12, P1: 2}, totals=Counts(8, 6, 2))
    rows, known = ledger_rows(stamped(two, 5), known, ANCHOR)
    assert [(row.partition, row.range, row.counts) for row in rows] == [
        (P0, OffsetRange(9, 12), None),
        (P1, OffsetRange(0, 2), None),
        (WHOLE_TABLE, NO_RANGE, Counts(4, 3, 1)),
    ]
    (row,), _ = ledger_rows(stamped(OLD, 4), None, DEAD)
    assert row.counts == Counts(read=1, dead=1), "what they counted on the dead letters was the anchor's"
    answer = replace(two, kind="accept", note="me: why", position={P0: 20, P1: 1}, counts=Counts(), totals=known.totals)
    rows, _ = ledger_rows(stamped(answer, 6), known, ANCHOR)
    assert [(row.kind, row.partition, row.range, row.answer, row.note) for row in rows] == [
        ("passed", P0, OffsetRange(12, 20), None, "me: why"),
        ("again", P1, OffsetRange(1, 2), None, "me: why"),
    ]


def test_the_dead_letters_have_no_holes_where_none_came() -> None:
    def letters(start: int, end: int, rows: int, totals: int) -> Stamp:
        counts = Counts(read=rows, dead=rows)
        return replace(
            OLD, start={P0: start}, position={P0: end}, parts={P0: PartitionCounts(start, counts)}, counts=counts,
            totals=Counts(read=totals, dead=totals),
        )  # fmt: skip

    _, known = ledger_rows(stamped(letters(0, 5, 2, 2), 1), None, DEAD)
    rows, _ = ledger_rows(stamped(letters(20, 30, 1, 3), 2), known, DEAD)
    assert [row.kind for row in rows] == ["batch"]
    rows, _ = ledger_rows(stamped(letters(20, 30, 1, 7), 3), known, DEAD)
    assert [(row.kind, row.range, row.counts) for row in rows] == [
        ("unknown", OffsetRange(5, 20), Counts(read=4, dead=4)),
        ("batch", OffsetRange(20, 30), Counts(read=1, dead=1)),
    ]


def test_an_answer_without_a_range_is_noted() -> None:
    told = signed_answer(OLD.decided(Decision("recreated_table")), 3, "me: why")
    (row,), _ = ledger_rows(stamped(told, 9), FillCheckpoint(4, 4, OLD.position, OLD.totals), DEAD)
    assert (row.kind, row.partition, row.answer, row.note) == ("noted", WHOLE_TABLE, "recreated_table", "me: why")


@pytest.mark.parametrize(("since", "kinds"), [(4, []), (5, ["unknown"])])
def test_a_rollback_to_what_had_expired_unseen_is_told(since: int, kinds: list[str]) -> None:
    told = signed_answer(OLD.decided(Decision("rollback_keep", since=since)), 3, "me: why")
    rows, _ = ledger_rows(stamped(told, 9), FillCheckpoint(4, 4, OLD.position, OLD.totals), ANCHOR)
    assert [row.kind for row in rows] == [*kinds, "removed"]
    assert rows[-1].since == since


def test_a_rollback_that_was_taken_back_voids_nothing() -> None:
    def row(kind: str, sequence: int, since: int | None = None) -> LedgerRow:
        (made,), _ = ledger_rows(stamped(OLD, sequence), None, ANCHOR)
        return replace(made, kind=kind, since=since)  # type: ignore[arg-type]

    rows = [row("batch", 1), row("batch", 2), row("removed", 3, 1), row("batch", 4)]
    assert [each.sequence for each in effective_rows(rows)] == [1, 4]
    assert [each.sequence for each in effective_rows([*rows, row("removed", 5, 2)])] == [1, 2]
    other = replace(row("batch", 2), table_uuid="another")
    assert other in effective_rows([*rows, other])


def test_a_topic_that_left_the_stamps_is_noted_once_on_the_anchor() -> None:
    known = FillCheckpoint(4, 4, {P0: 9, P1: 3}, Counts(12, 12))
    counts = Counts(2, 2)
    left = replace(OLD, start={P1: 3}, position={P1: 5}, parts={P1: PartitionCounts(3, counts)}, counts=counts)
    left = replace(left, totals=known.totals + counts)
    rows, after = ledger_rows(stamped(left, 5), known, ANCHOR)
    assert [(row.kind, row.partition, row.range, row.answer, row.counts) for row in rows] == [
        ("noted", P0, OffsetRange(0, 9), "retired", None),
        ("batch", P1, OffsetRange(3, 5), None, counts),
    ]
    rows, _ = ledger_rows(stamped(replace(left, counts=Counts(), parts={}), 6), after, ANCHOR)
    assert "noted" not in {row.kind for row in rows}
    rows, _ = ledger_rows(stamped(left, 5), known, DEAD)
    assert "noted" not in {row.kind for row in rows}, "their stamps come seldom, and say nothing of it"


G0 = TopicPartition("gone", 0)
GONE = FillCheckpoint(5, 5, {P1: 5}, Counts(14, 14), {"gone": Retired("id", 0, {0: 9})})


def back_at(start: int, end: int, identity: str = "id") -> Stamp:
    """The batch in which topic `gone` is there again, from `start` on."""
    counts = Counts(end - start, end - start)
    stamp = replace(
        OLD, start={G0: start, P1: 5}, position={G0: end, P1: 5}, parts={G0: PartitionCounts(start, counts)}
    )
    return replace(stamp, counts=counts, totals=GONE.totals + counts, topics={"gone": identity, "t": "other"})


@pytest.mark.parametrize(
    ("known", "identity", "noted"),
    [
        (GONE, "id", True),
        (fill_checkpoints_of({"frazil.ledger.s": fill_checkpoints_text({"uuid": GONE})}, "s")["uuid"], "id", True),
        (GONE, "another", False),
        (replace(GONE, retired={}), "id", False),
        (replace(GONE, positions={P1: 5, G0: 9}), "id", False),
    ],
    ids=["same", "same, after the ledger was written", "another of the name", "earlier version", "never retired"],
)
def test_a_topic_that_is_back_with_the_same_id_is_noted_on_the_anchor(
    known: FillCheckpoint, identity: str, noted: bool
) -> None:
    rows, after = ledger_rows(stamped(back_at(9, 12, identity), 6), known, ANCHOR)
    expected = [("noted", G0, OffsetRange(0, 9), "returned")] if noted else []
    assert [(row.kind, row.partition, row.range, row.answer) for row in rows] == [
        *expected,
        ("batch", G0, OffsetRange(9, 12), None),
    ]
    assert (after.positions, after.retired) == ({G0: 12, P1: 5}, {})
    rows, _ = ledger_rows(stamped(replace(back_at(9, 12), targets={}), 6), known, DEAD)
    assert "returned" not in {row.answer for row in rows}


@pytest.mark.parametrize(("start", "hole"), [(11, (9, 11)), (4, (4, 9))])
def test_a_topic_that_is_back_elsewhere_is_no_less_unknown_than_any_other(start: int, hole: tuple[int, int]) -> None:
    rows, _ = ledger_rows(stamped(back_at(start, 12), 6), GONE, ANCHOR)
    assert [(row.kind, row.range) for row in sorted(rows, key=lambda row: row.place)] == [
        ("noted", (0, 9)),
        ("unknown", hole),
        ("batch", (start, 12)),
    ]


def test_what_an_earlier_version_filled_in_is_read_and_reads_on() -> None:
    text = fill_checkpoints_text({"uuid": GONE})
    assert fill_checkpoints_of({"frazil.ledger.s": text}, "s") == {"uuid": GONE}
    before = '{"v":1,"tables":{"uuid":[5,5,[14,14,0,0,0],{"t":{"1":5}}]}}'
    assert fill_checkpoints_of({"frazil.ledger.s": before}, "s") == {"uuid": replace(GONE, retired={})}
    assert fill_checkpoints_text({"uuid": replace(GONE, retired={})}) == before
    assert msgspec.json.decode(text)["tables"] == msgspec.json.decode(before)["tables"], "all that one looks at"


def test_rows_of_a_table_that_was_renamed_stand_in_the_order_of_its_commits() -> None:
    def row(name: str, sequence: int, kind: str = "batch", since: int | None = None) -> LedgerRow:
        (made,), _ = ledger_rows(stamped(OLD, sequence), None, replace(ANCHOR, target=TargetSpec(name, "rows", True)))
        return replace(made, kind=kind, since=since)  # type: ignore[arg-type]

    rows = [row("a.t", 1), row("a.t", 2), row("a.a", 3, "removed", 1), row("a.a", 4)]
    assert [each.sequence for each in effective_rows(rows)] == [1, 4]
