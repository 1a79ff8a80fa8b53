"""Reports about a record: for stories of batches, topics of a pattern that come and go, and replays, what is so."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import And, EqualTo
from pyiceberg.types import LongType, StringType

from jobs.dead_letters.replay.session import BATCHES, replay_id
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.lookup.record_fate import sentence
from jobs.proof.lookup.record_lookup import RecordAnswer, look_up_record
from jobs.proof.lookup.snapshot_lookup import look_up_snapshot
from jobs.proof.lookup.stored_rows import count_rows, rows_at
from jobs.proof.lookup.stream_tables import load_stream_tables
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.expired_changes import EXPIRED_CHANGES, ExpiredChanges
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.real_stream import DEAD, SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, HOLE, ROW, TOMBSTONE

# A topic that stays, and two that a pattern finds, as one comes each day.
PLACES = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), TopicPartition("day-1", 0), TopicPartition("day-2", 0))
_TRUTH = {ROW: "row", FAILED: "dead_letter", TOMBSTONE: "tombstone", HOLE: "no_record"}
Event = tuple[Any, ...]


class Story:
    """A stream's tables, and beside them what became of each record."""

    def __init__(self, home: Path) -> None:
        self.stream: RealStream = RealStream(home, identity="id-payments")
        with self.stream.table(DEAD).update_schema() as update:
            update.add_column("state", StringType()).add_column("replay_snapshot_id", LongType())
        self.fates: dict[TopicPartition, list[str]] = {}
        self.replayed: dict[tuple[TopicPartition, int], int] = {}
        self.gone: set[str] = set()

    def read(self, place: TopicPartition, fates: Sequence[str]) -> None:
        if place.topic not in self.gone:
            self.stream.land(fates, place.partition, topic=place.topic)
            self.fates.setdefault(place, []).extend(fates)

    def retire(self, topic: str) -> None:
        """It was read to its end, and is there no more; the next batch says so."""
        for place in [each for each in self.fates if each.topic == topic and topic not in self.gone]:
            self.stream.retire(place.partition, topic)
            self.gone.add(topic)

    def replay(self, which: int) -> None:
        """A replay brings back one of the records that failed: their row, by a commit of its own, then the letter."""
        waiting = [
            (place, offset)
            for place, fates in self.fates.items()
            for offset, fate in enumerate(fates)
            if fate == FAILED and (place, offset) not in self.replayed
        ]
        if not waiting:
            return
        place, offset = waiting[which % len(waiting)]
        target, number = Target(self.stream.catalog(), SINK, replay_id("payments")), len(self.replayed)
        target.read()
        files = self.stream.files(target, self.stream.sink_rows(place, [offset]))
        start, position = {BATCHES: number}, {BATCHES: number + 1}
        config = self.stream.spec.config_hash
        stamp = Stamp(replay_id("payments"), "batch", number, 1, config, start=start, position=position)
        target.commit(Append(files), stamp)
        snapshot = self.stream.table().metadata.current_snapshot_id
        assert snapshot is not None
        letters = self.stream.table(DEAD)
        mine = EqualTo("offset", offset), EqualTo("topic", place.topic), EqualTo("partition", place.partition)
        rows = letters.scan(row_filter=And(*mine)).to_arrow()
        for name, value in (("state", "replayed"), ("replay_snapshot_id", snapshot)):
            index = rows.schema.get_field_index(name)
            told = rows.schema.field(index)
            rows = rows.set_column(index, told, pa.array([value] * len(rows), told.type))
        letters.overwrite(rows, overwrite_filter=And(*mine))
        self.replayed[place, offset] = snapshot

    def judge(self) -> None:
        """Ask for every record, and for the next one of each place."""
        tables = load_stream_tables(self.stream.spec, self.stream.settings, self.stream.catalog())
        for place in PLACES:
            fates = self.fates.get(place, [])
            for offset, fate in enumerate(fates):
                found = look_up_record(tables, place, offset)
                self._judge(found, place, offset, fate)
                if (snapshot := self.replayed.get((place, offset))) is not None:
                    (letter,) = found.letters
                    assert (letter["state"], letter["replay_snapshot_id"]) == ("replayed", snapshot)
                    came = look_up_snapshot(tables, snapshot)
                    assert (came.stream, came.kind) == (replay_id("payments"), "batch")
                    conditions = tables.sink.conditions("payments", *place, offset)
                    # The row is there from that snapshot on, and was not before.
                    before = tables.sink.metadata.snapshot_by_id(snapshot)
                    assert count_rows(tables.sink, conditions, snapshot) == 1
                    assert before is not None and before.parent_snapshot_id is not None
                    assert count_rows(tables.sink, conditions, before.parent_snapshot_id) == 0
                    where = f"_kafka_topic = '{place.topic}' and id = 'p-{place.partition}-{offset}'"
                    assert [(at, number) for at, number, _ in rows_at(tables, tables.sink, where, 2)] == [
                        (place, offset)
                    ]
            beyond = look_up_record(tables, place, len(fates))
            # Of a topic that is gone nothing more comes, and what was never met is not known.
            expected = {"never_read"} if not fates else {"not_read", "never_read", "gap"}
            assert beyond.fate.fate in expected and beyond.landing is None, (place, beyond.fate)

    def _judge(self, found: RecordAnswer, place: TopicPartition, offset: int, fate: str) -> None:
        truth = _TRUTH[fate]
        told = (place, offset, fate, found.fate)
        assert found.fate.fate == truth or (found.fate.fate == "undecided" and truth in found.fate.possible), told
        # What stands in a table is never left open.
        assert found.fate.fate == truth or fate not in (ROW, FAILED), told
        assert found.landing is not None and not found.others, told
        row = found.landing.row
        assert row.partition == place and row.range.start <= offset < row.range.end, told
        assert found.landing.passage.ended_by == ("retired" if place.topic in self.gone else None), told
        assert found.past == (place.topic not in self.gone), told


fates = st.lists(st.sampled_from([ROW, ROW, FAILED, FAILED, TOMBSTONE, HOLE]), min_size=1, max_size=4)
events = st.one_of(
    st.tuples(st.just("read"), st.sampled_from(PLACES), fates),
    st.tuples(st.just("replay"), st.integers(0, 9)),
    st.tuples(st.just("retire"), st.sampled_from(["day-1", "day-2"])),
    st.just(("fill",)),
)
BEGIN: Event = ("read", PLACES[0], [ROW, FAILED])
TOLD: list[Event] = [
    ("read", PLACES[2], [FAILED, TOMBSTONE, ROW]),
    ("replay", 1),
    ("retire", "day-1"),
    ("read", PLACES[3], [HOLE, FAILED]),
    ("fill",),
    ("replay", 0),
    ("replay", 0),
]


@settings(max_examples=4, deadline=None)
@example(TOLD)
@given(st.lists(events, min_size=2, max_size=7))
def test_every_record_is_told_as_it_went(story: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = Story(Path(folder))
        for name, *arguments in [BEGIN, *story, ("read", PLACES[1], [ROW])]:
            if name == "fill":
                fill_ledger(told.stream.catalog(), told.stream.settings, [told.stream.spec])
            else:
                getattr(told, name)(*arguments)
        told.judge()


PLACE = TopicPartition(TOPIC, 0)


def test_a_change_that_has_expired_was_not_deleted_by_somebody(tmp_path: Path) -> None:
    stream = RealStream(tmp_path, identity="id-payments")
    stream.land([ROW, ROW, ROW], 0)
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    table = stream.table()
    landed = table.metadata.current_snapshot_id
    assert landed is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        table.delete("_kafka_offset < 2")
    gone = ExpiredChanges("2026-01-01T00:00:00+00:00", 1, 1, {PLACE: 1})
    with table.transaction() as change:
        change.set_properties({EXPIRED_CHANGES: gone.to_json()})
    table.maintenance.expire_snapshots().by_id(landed).commit()

    def said(offset: int) -> str:
        tables = load_stream_tables(stream.spec, stream.settings, stream.catalog())
        found = look_up_record(tables, PLACE, offset)
        return sentence(found.fate, found.landing.passage if found.landing else None, found.position, found.first)

    assert said(0) == "became a row, a change that has expired since (changes.keep)"
    assert said(1) == "became a row, which was deleted since"
    assert said(2) == "is a row"
