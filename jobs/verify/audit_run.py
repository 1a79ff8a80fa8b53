"""Auditing a stream: fill its ledger, follow what it says, and hold it against the rows of its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.history import history
from jobs.commit.offsets import PartitionRange
from jobs.commit.stamp_parts import Counts
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from jobs.replay.connect.opening import queue_id
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.targets import TargetSpec
from jobs.verify import ledger
from jobs.verify.audit import Agreement
from jobs.verify.audit_changes import with_changes
from jobs.verify.audit_count import Block, blocks, counted, windows
from jobs.verify.audit_facts import StreamAudit
from jobs.verify.audit_questions import standing
from jobs.verify.audit_replays import Replays
from jobs.verify.audit_report import Book
from jobs.verify.audit_summaries import by_summaries
from jobs.verify.audit_tables import Audited, letters_expired, load, looked_at
from jobs.verify.ledger_marks import AuditMark
from jobs.verify.table_rows import WINDOW_OFFSETS

# Offsets looked at so far, all that are to be looked at, rows read so far.
Progress = Callable[[int, int, int], None]


def audit(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    *,
    table: str | None = None,
    full: bool = False,
    since: datetime | None = None,
    kafka: Callable[[], KafkaLog] | None = None,
    on_progress: Progress = lambda done, total, rows: None,
    window: int = WINDOW_OFFSETS,
) -> StreamAudit:
    """Whether every record of a stream stands where it belongs, exactly once.

    Args:
        table: Only this one of the stream's tables.
        full: Also what was audited before.
        since: Also what was audited before, if it was committed from then on.
        kafka: Connects to Kafka, which is asked whether the stream can go on where it stands; None: it is not asked.
        window: Offsets that are counted at a time; each takes a byte per table.

    Raises:
        FrazilError: The stream has no such table, or it cannot be read.
    """
    began = time.monotonic()
    if table is not None and table not in spec.target_names:
        raise FrazilError(
            f"{table} is no table of stream {spec.stream}",
            fix=f"name {' or '.join(spec.target_names)}, or none for all",
        )
    found = StreamAudit(spec.stream, full, since)
    looked = looked_at(
        spec, settings, catalog, [target for target in spec.targets if table in (None, target.name)], found
    )
    questions, notes = standing(spec, settings, lambda: _metadata_of(spec, catalog), kafka)
    found.problems += questions
    found.notes += notes
    found.queue = _from_queues(spec, catalog)
    book = Book(spec.stream, found, {each.name: each.facts for each in looked})
    for each in looked:
        found.tables.append(each.facts)
        found.decisions += each.expected.decisions
        book.note_expected(each.expected, each.after)
    _count(spec, catalog, looked, book, on_progress, window)
    for each in looked:
        if each.table is not None and each.facts.method == "rows":
            mine = [problem for problem in found.problems if problem.table == each.name]
            others = [problem for problem in found.problems if problem.table != each.name]
            found.problems = others + with_changes(mine, each.table, each.columns, each.rows_of(spec.stream))
    found.add_up()
    if table is None:
        _mark(looked, found, settings, catalog)
    found.seconds = time.monotonic() - began
    return found


def _metadata_of(spec: StreamSpec, catalog: Catalog) -> dict[str, TableMetadata]:
    tables = {name: load(catalog, name) for name in spec.target_names}
    return {name: table.metadata for name, table in tables.items() if table is not None}


def _from_queues(spec: StreamSpec, catalog: Catalog) -> Counts | None:
    table = load(catalog, spec.table.name)
    newest = history(table.metadata, queue_id(spec.stream)).newest if table is not None else None
    return newest.totals if newest is not None and newest.totals != Counts() else None


def _count(
    spec: StreamSpec, catalog: Catalog, looked: list[Audited], book: Book, on_progress: Progress, window: int
) -> None:
    rows_read = 0

    def on_rows(rows: int) -> None:
        nonlocal rows_read
        rows_read += rows
        on_progress(done, total, rows_read)

    anchor = next((each for each in looked if each.target.coordinator), None)
    sink = next((each for each in looked if each.target.role == "rows"), None)
    dead = next((each for each in looked if each.target.role == "dead_letters"), None)
    counters = {each.name: each.counter(spec.stream, on_rows) for each in looked}
    for each in looked:
        if each.table is None:
            continue
        if counters[each.name] is None:
            by_summaries(each.table, each.expected, each.after, book)
            each.facts.method = "summaries"
        else:
            each.facts.method = "rows"
    counting = {each.target: counter for each in looked if (counter := counters[each.name]) is not None}
    of_counted = {each.target: each.expected for each in looked if each.target in counting}
    agreement = None
    if anchor and dead and anchor is not dead and anchor.table is not None:
        agreement = Agreement(anchor.expected, dead.expected)
        problems, pending = agreement.judge()
        book.audit.problems += problems
        book.audit.pending += pending
    # Also where only the sink is audited: its rows of replays are explained by letters.
    letters = dead.table if dead else load(catalog, spec.dead_letter_table)
    replays = Replays(spec.stream, sink.table if sink else None, letters)
    book.audit.pending += [replays.pending] if replays.pending else []
    book.expired = letters_expired(letters) if letters is not None else None
    every = list(blocks(of_counted, {each.target: each.after for each in looked}))
    done, total = 0, sum(block.range.end - block.range.start for block in every)

    def count(pieces: Sequence[PartitionRange]) -> tuple[dict[TargetSpec, list[np.ndarray]], list[np.ndarray]]:
        nonlocal done
        there = {target: counter.count(pieces) for target, counter in counting.items()}
        done += sum(piece.range.end - piece.range.start for piece in pieces)
        on_progress(done, total, rows_read)
        if sink and sink.target in there:
            return there, replays.count(pieces, there[sink.target])
        return there, [np.zeros(piece.range.end - piece.range.start, np.uint8) for piece in pieces]

    on_progress(0, total, 0)

    def apart(block: Block) -> bool:
        if agreement is None or anchor is None or dead is None:
            return False
        read = [block.readings(each.target) for each in (anchor, dead)]
        return agreement.holds(block.partition, block.range, *read)

    for block in counted(windows(every, window), list(counting), count, apart):
        book.note_counted(block)
    book.audit.scanned += rows_read
    book.audit.problems += replays.problems
    if book.came_back:
        rows = "1 row" if book.came_back == 1 else f"{book.came_back:,} rows"
        said = "that no batch landed: as many dead letters of those batches, which have expired, may have come back"
        book.audit.notes.append(f"table {spec.table.name} has {rows} {said}")
    for each in looked:
        if each.facts.method == "rows":
            book.judge_totals(each.expected, each.after)


def _mark(looked: list[Audited], found: StreamAudit, settings: Settings, catalog: Catalog) -> None:
    """Remember how far the tables are audited, so that the next audit counts only what is new.

    All of them or none: the next audit holds what is new on the one against what is new on the other.
    """
    if found.pending or any(not problem.explained for problem in found.problems):
        return
    known = all(each.table is None or each.marked == each.expected.sequence for each in looked)
    if known and found.since is None:
        return
    marks: dict[str, AuditMark] = {}
    for each in looked:
        snapshot = each.table.current_snapshot() if each.table is not None else None
        if each.table is None or snapshot is None:
            continue
        marks[str(each.table.metadata.table_uuid)] = AuditMark(
            each.expected.sequence,
            # Until all is counted again, what others changed is said by each audit.
            each.counted_in or snapshot.snapshot_id,
            datetime.now(UTC),
            complete=True,
            # Without them the whole ledger is followed again, for what comes next was read before.
            positions={} if each.expected.behind else each.expected.positions,
        )
    if marks:
        ledger.mark_audited(catalog, settings, found.stream, marks)
