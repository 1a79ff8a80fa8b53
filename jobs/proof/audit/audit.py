"""The audit of a stream: fills and follows its ledger, and compares it with the rows of its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.dead_letters.connect_queue.opening import queue_id
from jobs.proof.audit.audit_ranges import compared_ranges, range_windows
from jobs.proof.audit.audit_result import MainAudit, StreamAudit
from jobs.proof.audit.audit_totals import (
    AuditTotals,
    LandedRecords,
    compare_summaries,
    counts_every_row,
)
from jobs.proof.audit.audited_tables import AuditedTable, dead_letters_expired_before, load_audited_tables
from jobs.proof.audit.earlier_rows import earlier_rows
from jobs.proof.audit.expected_rows import DeadLetterAgreement
from jobs.proof.audit.former_targets import former_targets
from jobs.proof.audit.found_rows import compare_rows
from jobs.proof.audit.other_writers import with_foreign_changes
from jobs.proof.audit.parked_rows import ParkedRows
from jobs.proof.audit.published_rows import checkpoint_key, published_rows
from jobs.proof.audit.replayed_rows import DiscardedRows, ReplayedRows
from jobs.proof.audit.routed_rows import judge_routes
from jobs.proof.audit.stop_checks import (
    await_commits,
    half_committed_batch,
    half_sentence,
    restored_problems,
    unanswered_stops,
)
from jobs.streaming.driver.context.source_topics import coordinator_stamp, readable_table
from jobs.streaming.operator.backfill_stream import as_backfill, backfill_id, backfilled_stream
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.offsets import PartitionRange, Ranges, pointwise_max
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_checkpoints import AuditCheckpoint, audit_checkpoints, record_audited
from jobs.tables.ledger.ledger_table import former_ends, ledger_tables, read_ledger
from jobs.tables.ledger.row_counter import WINDOW_OFFSETS

# Called with offsets audited so far, all offsets to audit, and rows read so far.
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
    """Audit whether every record of a stream is in its right place, exactly once.

    Args:
        table: Only this table of the stream; None for all.
        full: Whether to repeat what was audited before.
        since: Repeats what was audited before, if it was committed from this time on.
        kafka: Connects to Kafka, which shows whether the stream can go on; None: Kafka is not asked.
        window: Number of offsets counted at a time; each takes a byte per table.

    Raises:
        FrazilError: The stream has no such table, or the table cannot be read.
    """
    began, spec = time.monotonic(), with_named_tables(spec, catalog)
    # A backfill is audited as a stream of its own, whose dead letters are the stream's.
    of = backfilled_stream(spec.stream)
    former = former_targets(spec, catalog, ledger_tables(catalog, settings, spec.stream))
    targets = [*spec.targets, *former]
    if table is not None and table not in (names := [target.name for target in targets]):
        raise FrazilError(
            f"{table} is no table of stream {spec.stream}", fix=f"name {' or '.join(names)}, or none for all"
        )
    found = StreamAudit(spec.stream, full, since)
    await_commits(spec, settings, lambda: _metadata_of(spec, catalog))
    audited = load_audited_tables(
        spec, settings, catalog, [target for target in targets if table in (None, target.name)], found
    )
    stops, notes = unanswered_stops(spec, settings, lambda: _metadata_of(spec, catalog), kafka)
    found.problems += stops
    found.notes += notes
    now = _metadata_of(spec, catalog)
    half = half_committed_batch(spec, now)
    if half is not None:
        found.pending.append(half_sentence(spec.stream, half))
    found.problems += restored_problems(spec, now)
    found.queue = _from_queues(spec, catalog) if spec.stream == of else None
    found.tables = [each.facts for each in audited]
    totals = AuditTotals(found)
    for each in audited:
        if each.table is not None and each.target.role == "rows":
            each.facts.earlier = earlier_rows(each.table, each.target)
        found.decisions += each.expected.decisions
        found.backfilled += [landed for landed in each.expected.backfilled if landed.sequence > each.after]
        totals.add_expected(each.expected, each.after)
    undecided = half.ranges if half is not None else {}
    _count(spec, settings, catalog, audited, totals, on_progress, window, None if table is not None else undecided)
    if full and spec.stream == of:
        there = [(each.target, each.table) for each in audited if each.table is not None]
        judge_routes(spec, settings, catalog, there, frozenset(target.name for target in targets), found)
    for each in audited:
        if each.table is not None and each.facts.method == "rows":
            mine = [problem for problem in found.problems if problem.table == each.name]
            others = [problem for problem in found.problems if problem.table != each.name]
            found.problems = others + with_foreign_changes(mine, each.table, each.columns, each.rows_of(spec.stream))
    main = _hold_main(spec, settings, catalog, audited, found, window) if spec.stream == of else {}
    found.add_up()
    if spec.stream == of and table is None:
        _add_backfills(spec, settings, catalog, found, full=full, since=since, window=window)
    if table is None:
        _record_audited(audited, main, found, settings, catalog)
    found.seconds = time.monotonic() - began
    return found


def _add_backfills(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    found: StreamAudit,
    *,
    full: bool,
    since: datetime | None,
    window: int,
) -> None:
    """Audit the landed rows of the stream's backfills, and add their problems."""
    table = existing_table(catalog, spec.coordinator, spec.branch_of(spec.coordinator))
    if table is None or history(table.metadata, backfill_id(spec.stream)).newest is None:
        return
    made = audit(as_backfill(spec), settings, catalog, full=full, since=since, window=window)
    found.problems += [replace(each, sentence=_of_backfill(each.sentence, spec.stream)) for each in made.problems]
    found.pending += [_of_backfill(each, spec.stream) for each in made.pending]
    # A backfill moves its own positions to what it lands, by stamps of a reset: the ranges say what that was for.
    found.decisions += [each for each in made.decisions if each.answer != "reset"] + made.backfilled
    found.scanned += made.scanned
    found.recorded += made.recorded
    tables = {each.table: each for each in found.tables}
    for each in made.tables:
        known = tables[each.table]
        known.missing += each.missing
        known.doubled += each.doubled
        known.unchecked += each.unchecked
        known.unknown += each.unknown
    coordinator = next(each for each in made.tables if each.target.coordinator)
    found.backfill = sum((each.counts for each in coordinator.partitions), Counts())


def _of_backfill(sentence: str, stream: str) -> str:
    """A sentence about a backfill with the command that resumes it, as no other backfill takes its id."""
    name = backfill_id(stream)
    for command in (f"frazil accept {name} --rollback keep, or reland", f"frazil run {name}"):
        sentence = sentence.replace(command, f"frazil backfill {stream}, with the same range")
    return sentence


def _metadata_of(spec: StreamSpec, catalog: Catalog) -> dict[str, TableMetadata]:
    tables = {name: readable_table(spec, catalog, name, spec.branch_of(name)) for name in spec.target_names}
    return {name: table.metadata for name, table in tables.items() if table is not None}


def _from_queues(spec: StreamSpec, catalog: Catalog) -> Counts | None:
    table = existing_table(catalog, spec.table.name, spec.branch_of(spec.table.name))
    newest = history(table.metadata, queue_id(spec.stream)).newest if table is not None else None
    return newest.totals if newest is not None and newest.totals != Counts() else None


def _count(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    audited: list[AuditedTable],
    totals: AuditTotals,
    on_progress: Progress,
    window: int,
    undecided: Ranges | None,
) -> None:
    """Count the rows of the tables.

    Args:
        undecided: Ranges of a batch that some tables still lack; None if not all tables are audited.
    """
    rows_read = 0

    def on_rows(rows: int) -> None:
        nonlocal rows_read
        rows_read += rows
        on_progress(done, total, rows_read)

    anchor = next((each for each in audited if each.target.coordinator), None)
    sink = next((each for each in audited if each.target.role == "rows"), None)
    dead = next((each for each in audited if each.target.role == "dead_letters"), None)
    base = spec.model_copy(update={"stream": backfilled_stream(spec.stream)})
    counters = {each.name: each.counter(base.stream, on_rows) for each in audited}
    for each in audited:
        if each.table is None:
            continue
        if counters[each.name] is None:
            compare_summaries(each.table, each.expected, each.after, totals)
            each.facts.method = "summaries"
        else:
            each.facts.method = "rows"
    counting = {each.target: counter for each in audited if (counter := counters[each.name]) is not None}
    groups = {each.target: each.expected.groups for each in audited if each.target in counting}
    agreement = None
    if anchor and dead and anchor is not dead and anchor.table is not None:
        agreement = DeadLetterAgreement(anchor.expected, dead.expected)
        problems, pending = agreement.judge()
        totals.audit.problems += problems
        # A batch that some tables still lack was reported with all of them already.
        totals.audit.pending += [] if undecided else pending
    # Needed even if only the sink is audited: dead letters explain its rows of replays.
    dead_letters = dead.table if dead else existing_table(catalog, spec.dead_letter_table)
    begins = pointwise_max(each.begins for each in audited)
    replays = ReplayedRows(base.stream, _with_replays(spec, catalog, sink), dead_letters, begins)
    totals.audit.pending += [replays.pending] if replays.pending else []
    # Replays land by the route of their time, so possibly in tables that the file no longer names.
    known = dict.fromkeys([*spec.targets, *(each.target for each in audited)])
    of_rows = [each for each in known if each.role == "rows"]
    main = existing_table(catalog, spec.table.name)
    discarded = None
    if sink and sink.table is not None and main is not None and sink.target in counting:
        discarded = DiscardedRows(base, main, sink.table, dead_letters)
    totals.expired = dead_letters_expired_before(dead_letters) if dead_letters is not None else None
    ledger = partial(read_ledger, catalog, settings, base.stream)
    parked = ParkedRows(base, dead_letters, coordinator_stamp(base, catalog), audited, ledger)
    every = list(compared_ranges(groups, {each.target: each.after for each in audited}))
    done, total = 0, sum(each.range.end - each.range.start for each in every)

    def count(ranges: Sequence[PartitionRange]) -> tuple[dict[TargetSpec, list[np.ndarray]], list[np.ndarray]]:
        nonlocal done
        there = {
            target: parked.of_batches(target.name, ranges, counter.count(ranges))
            for target, counter in counting.items()
        }
        done += sum(each.range.end - each.range.start for each in ranges)
        on_progress(done, total, rows_read)
        if sink and sink.target in there:
            if discarded is not None:
                there = {**there, sink.target: discarded.landed_once(ranges, there[sink.target])}
            return there, replays.count(ranges, [there.get(each) for each in of_rows])
        return there, [np.zeros(each.range.end - each.range.start, np.uint8) for each in ranges]

    landed = None
    if anchor is not None and undecided is not None and counts_every_row(audited) and not parked.any:
        uuids = [str(each.table.metadata.table_uuid) for each in audited if each.table is not None]
        former = former_ends(catalog, settings, spec.stream, uuids)
        landed = LandedRecords(anchor, totals.audit.decisions, former, undecided, begins)
    on_progress(0, total, 0)
    apart = agreement.covers if agreement else lambda compared: False
    for comparison in compare_rows(range_windows(every, window), list(counting), count, apart):
        totals.add_comparison(comparison, landed)
    totals.audit.scanned += rows_read
    totals.audit.problems += replays.problems
    totals.audit.problems += parked.problems()
    totals.audit.notes += parked.notes
    if discarded is not None:
        totals.audit.problems += discarded.problems()
        totals.audit.notes += discarded.notes()
    if totals.came_back:
        rows = "1 row" if totals.came_back == 1 else f"{totals.came_back:,} rows"
        totals.audit.notes.append(
            f"table {spec.table.name} has {rows} that no batch landed: as many dead letters of those batches, which "
            "have expired, may have come back"
        )
    for each in audited:
        if each.facts.method == "rows":
            totals.judge_totals(each.expected, each.after)


def _with_replays(spec: StreamSpec, catalog: Catalog, sink: AuditedTable | None) -> Table | None:
    """The main table, which knows every replay; others know those that brought them rows."""
    if sink is None or sink.name == spec.table.name:
        return sink.table if sink else None
    return existing_table(catalog, spec.table.name, spec.branch_of(spec.table.name)) or sink.table


def _hold_main(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    audited: list[AuditedTable],
    found: StreamAudit,
    window: int,
) -> dict[str, AuditCheckpoint]:
    """Compare main with the published part of the stream's branch; returns checkpoints by key."""
    sink = next((each for each in audited if each.target.role == "rows" and each.table is not None), None)
    if sink is None or sink.table is None:
        return {}
    key = checkpoint_key(sink.table)
    before = None if found.full else audit_checkpoints(catalog, settings, spec.stream).get(key)
    if before is not None and found.since is not None:
        before = replace(before, sequence=min(before.sequence, sink.after))

    def on_rows(rows: int) -> None:
        found.scanned += rows

    made = published_rows(spec, settings, catalog, sink.table, before, window=window, on_rows=on_rows)
    if made is None:
        return {}
    found.problems += made.problems
    found.notes += made.notes
    found.main = MainAudit(made.rows, made.waiting.rows if made.waiting else None, made.left_out)
    same = made.checkpoint is None or (before is not None and before.sequence == made.checkpoint.sequence)
    return {} if same or made.checkpoint is None else {key: made.checkpoint}


def _record_audited(
    audited: list[AuditedTable],
    main: Mapping[str, AuditCheckpoint],
    found: StreamAudit,
    settings: Settings,
    catalog: Catalog,
) -> None:
    """Record how far the tables are audited, so that the next audit counts only what is new.

    All tables are recorded or none, as the next audit compares the new rows of one with those of the other.
    """
    if found.pending or any(not problem.explained for problem in found.problems):
        return
    known = all(each.table is None or each.audited_through == each.expected.sequence for each in audited)
    checkpoints: dict[str, AuditCheckpoint] = dict(main)
    for each in audited if not known or found.since is not None else ():
        snapshot = each.table.current_snapshot() if each.table is not None else None
        if each.table is None or snapshot is None:
            continue
        checkpoints[str(each.table.metadata.table_uuid)] = AuditCheckpoint(
            each.expected.sequence,
            # Each audit reports others' changes until all rows are counted again.
            each.counted_in or snapshot.snapshot_id,
            datetime.now(UTC),
            complete=True,
            # Without positions the next audit follows the whole ledger, as the next records were read before.
            positions={} if each.expected.behind else each.expected.positions,
        )
    if checkpoints:
        record_audited(catalog, settings, found.stream, checkpoints)
