"""Discarding: quarantined snapshots become dead letters, and main goes on without them.

Three commits happen, each once. The decision is recorded on main, and nothing of the branch is published from then on;
the dead letters are written; main is recorded to be past the snapshots. A kill in between loses and duplicates nothing:
the next discard finds the decision, and the dead letters by their first-seen time, and goes on.
"""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.records import whole_records
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.settings.settings import KafkaSettings, Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.quality.publishing.discard_decision import (
    DiscardResult,
    decision,
    discarded_interval,
    refuse_undiscardable,
)
from jobs.quality.publishing.discarded_letters import (
    DiscardedLetters,
    LetterCounts,
    NoRecords,
    RecordReader,
    counts_of,
    letters_of,
)
from jobs.quality.publishing.gate import Gate
from jobs.quality.publishing.gated import gate_state, holding_stamp, refuse_without_gate
from jobs.quality.publishing.interval import Interval
from jobs.quality.publishing.publishing import given_up, interval_of, publishing_session
from jobs.tables.commit.history.discards import DISCARDED_KEY, Discard, Discards
from jobs.tables.commit.history.publications import THROUGH, publication_id
from jobs.tables.commit.protocol.compare_and_swap import Backoff
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import ensure_replay_state_columns
from jobs.tables.write.target_writer import TargetWriter

OpenReader = Callable[[], AbstractContextManager[RecordReader]]


def discard(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    by: str,
    why: str,
    *,
    through: int | None = None,
    records: OpenReader | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> DiscardResult:
    """Make dead letters of the quarantined snapshots, and let main go on without them.

    Args:
        by: Author.
        why: Reason, which is recorded.
        through: Last discarded snapshot of the branch; None: all that is quarantined. Later snapshots are judged again.
        records: Opens a reader of the records; None: Kafka, by the settings.

    Raises:
        LeaseHeldError: Another process publishes the stream.
        FrazilError: Nothing is quarantined, or the rows lack their coordinates.
        KafkaUnavailableError: Kafka does not answer; the decision is recorded, and the next discard finishes it.
    """
    refuse_without_gate(spec)
    opened = records or (lambda: KafkaRecords(settings.kafka, f"frazil-discard-{spec.stream}"))
    with publishing_session(spec, settings, catalog, Backoff) as session:
        target = session.targets[spec.table.name]
        refuse_undiscardable(spec, target.table)
        letters = _letters_target(spec, catalog)
        decided, resumed = _decide(session, spec, by, why, through, now())
        step("discard_after_mark")
        found = discarded_interval(spec, target.table, decided)
        counts = _write_letters(session, spec, letters, found, decided, opened)
        step("discard_after_letters")
        finished = _finish(session, spec, replace(decided, letters=counts.letters), found)
        step("discard_after_commit")
        return DiscardResult(finished, found, counts, resumed, target.snapshot_id)


def _letters_target(spec: StreamSpec, catalog: Catalog) -> Target:
    try:
        ensure_replay_state_columns(catalog, spec.dead_letter_table)
        return Target(catalog, spec.dead_letter_table, publication_id(spec.stream))
    except NoSuchTableError:
        raise FrazilError(
            f"stream {spec.stream}: its dead-letter table, {spec.dead_letter_table}, does not exist.",
            fix=f"frazil run {spec.stream}",
        ) from None


def _decide(
    session: CommitSession, spec: StreamSpec, by: str, why: str, through: int | None, at: datetime
) -> tuple[Discard, bool]:
    """Record the decision on main, or find a recorded one. Nothing is published until it is finished."""
    target, name = session.targets[spec.table.name], uuid.uuid4().hex[:12]

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[tuple[Discard, bool]]:
        known = Discards.of(metadata.properties, spec.stream, spec.table.name)
        if known.unfinished is not None:
            return Proposal((known.unfinished, True))
        made, found = decision(spec, target.table, newest, by, why, through, at)
        made = replace(made, id=name)
        gate = Gate.of(metadata.properties, spec.stream, spec.table.name).discarding(
            f"{by} is discarding it ({why}): `frazil discard {spec.stream}` finishes that"
        )
        return Proposal(
            (made, False),
            Append(beside={found.branch: found.head}),
            holding_stamp(session, spec, newest, found),
            {DISCARDED_KEY: _text(made)},
            known.with_one(made).as_property() | gate_state(spec, gate),
        )

    return target.swap(propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec))


@dataclass(frozen=True, slots=True)
class _Written:
    """Files with the dead letters; nothing references them yet."""

    writer: TargetWriter
    files: list[DataFile]
    counts: LetterCounts
    schema_id: int
    spec_id: int

    def fits(self, metadata: TableMetadata) -> bool:
        """Whether the table can take them."""
        return (metadata.current_schema_id, metadata.default_spec_id) == (self.schema_id, self.spec_id)


def _write_letters(
    session: CommitSession, spec: StreamSpec, letters: Target, found: Interval, decided: Discard, records: OpenReader
) -> LetterCounts:
    """Commit the dead letters, all at once, unless they exist already."""
    source = session.targets[spec.table.name].table
    made: _Written | None = None

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[LetterCounts]:
        nonlocal made
        there = letters_of(letters.table, spec.stream, decided.at)
        if there.letters:
            if made is not None:
                made.writer.abort()
            return Proposal(there)
        if made is None or not made.fits(metadata):
            if made is not None:
                made.writer.abort()
            with records() as reader:
                made = _written(letters.table, DiscardedLetters(spec, source, found.files, decided, reader))
        step("discard_before_letters")
        return Proposal(made.counts, Append(made.files), None, {DISCARDED_KEY: _text(decided)})

    return letters.swap(propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec))


def _written(table: Table, letters: DiscardedLetters) -> _Written:
    writer = TargetWriter(table.metadata, table.io, file_prefix=f"discarded-{letters.discard.id}")
    counts = LetterCounts()
    try:
        for batch in letters.batches():
            counts += counts_of(batch)
            writer.write(batch)
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    return _Written(writer, files, counts, table.metadata.current_schema_id, table.metadata.default_spec_id)


def _finish(session: CommitSession, spec: StreamSpec, finished: Discard, whole: Interval) -> Discard:
    """Record on main that it is past the snapshots, and end the quarantine for later ones.

    Args:
        finished: The decision with its dead letters.
        whole: Discarded snapshots.
    """
    target = session.targets[spec.table.name]

    def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[Discard]:
        known = Discards.of(metadata.properties, spec.stream, spec.table.name)
        if known.unfinished is None or known.unfinished.id != finished.id:
            # Another process, which could not see this one's lease, has finished it.
            return Proposal(finished)
        found = interval_of(spec, target.table, newest, finished.until, unfinished=True)
        assert found is not None, "the branch had the rows a moment ago"
        stamp = holding_stamp(session, spec, newest, found)
        if found.after == finished.after:
            published = {**stamp.published, found.branch: finished.until}
            through_ms = whole.valid_through_ms or stamp.valid_through_ms
            # Main no longer waits for them, and gets no late row from them either.
            event_time = whole.event_time.bare() if whole.event_time else None
            stamp = replace(stamp, position={THROUGH: finished.until}, published=published)
            stamp = replace(stamp, valid_through_ms=through_ms, event_time=event_time, landed=whole.landed)
        # Otherwise main was rolled back meanwhile, and lacks earlier snapshots, which have to be published.
        gate = Gate.of(metadata.properties, spec.stream, spec.table.name).open()
        return Proposal(
            finished,
            Append(beside={found.branch: found.head}),
            replace(stamp, note=f"{finished.by}: {finished.why}"),
            {DISCARDED_KEY: _text(finished)},
            known.with_one(finished).as_property() | gate_state(spec, gate),
        )

    return target.swap(propose, epoch=session.epoch, check=session.lease.verify, given_up=partial(given_up, spec))


def _text(decided: Discard) -> str:
    return msgspec.json.encode({"v": 1, **decided.as_json()}).decode()


def without_records() -> AbstractContextManager[RecordReader]:
    """Open a reader without records, so that dead letters keep the rows."""
    return nullcontext(NoRecords())


_GAP = 2_000
"""Gap between two offsets beyond which a new seek is cheaper than reading on."""


class KafkaRecords:
    """Reader of records by their offsets; a context manager. Records that the log lost are left out.

    Args:
        settings: Brokers, security, isolation and timeout.
        name: Name of its group in the brokers' logs; nothing is committed to it.
    """

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self._log: KafkaLog = KafkaLog(settings)
        self._reader: TopicReader = TopicReader(settings, name)
        self._kept: dict[TopicPartition, OffsetRange] = {}
        self._open: contextlib.ExitStack = contextlib.ExitStack()

    def __enter__(self) -> KafkaRecords:
        self._open.enter_context(self._reader)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def read(self, partition: TopicPartition, offsets: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Records of a partition at these offsets and between them, in the columns of `WHOLE`.

        Args:
            partition: Partition of the topic; a missing one has no records.
            offsets: Offsets, ascending.

        Raises:
            KafkaUnavailableError: Kafka does not answer.
        """
        kept = self.kept(partition)
        there = offsets[(offsets >= kept.start) & (offsets < kept.end)]
        for run in np.split(there, np.flatnonzero(np.diff(there) > _GAP) + 1):
            if len(run):
                for messages in self._reader.read(partition, OffsetRange(int(run[0]), int(run[-1]) + 1)):
                    yield whole_records(messages)

    def kept(self, partition: TopicPartition) -> OffsetRange:
        """Offsets in the log of a partition; empty if it does not exist."""
        if partition not in self._kept:
            known = self._log.topics(Source(topics=(partition.topic,)))
            for number in known.get(partition.topic, ()):
                each = TopicPartition(partition.topic, number)
                self._kept[each] = OffsetRange(self._log.earliest([each])[each], self._log.latest([each])[each])
            self._kept.setdefault(partition, OffsetRange(0, 0))
        return self._kept[partition]
