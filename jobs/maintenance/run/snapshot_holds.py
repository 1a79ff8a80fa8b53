"""Snapshot holds: who still needs a table's snapshots, by its properties, the ledger, state and streams' files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.lease import stream_lease
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.plan.snapshot_retention import SnapshotHold, head_time_at, snapshot_time
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.pending_files import read_pending_files
from jobs.proof.audit import ledger_fill
from jobs.quality.publishing.main_freshness import branches_ahead
from jobs.tables.commit.history.branch import existing_table, seen_on
from jobs.tables.commit.history.sink_record import SINK_OFFSETS, commits_since_takeover, takeover_record
from jobs.tables.commit.history.stamp_history import as_written, stamps_along_main, written_branch
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX, SUMMARY_KEY
from jobs.tables.commit.stamp.table_properties import READER_PREFIX
from jobs.tables.ledger.ledger_checkpoints import valid_fill_checkpoints
from jobs.tables.ledger.ledger_table import find_ledger

CEILING = timedelta(days=7)
"""Longest hold of something that does not say what it needs."""

log = logging.getLogger(__name__)

# A record is written before its commit, and a snapshot's time may be ahead of its clock.
_BEFORE_RECORD = timedelta(minutes=5)
_JOBS = {"replay": "a replay of its dead letters", "connect": "a queue of Kafka Connect that it takes over"}


def streams_writing_to(specs: Sequence[StreamSpec], table: str) -> list[StreamSpec]:
    """Streams whose table, or dead letters, this is."""
    return [spec for spec in specs if table in spec.target_names]


def holds(context: TableContext, table: Table, now: datetime, *, to_be_filled: bool = False) -> list[SnapshotHold]:
    """Everybody who needs snapshots of the table.

    Args:
        table: The present table, after `fill_ledger_or_hold`.
        to_be_filled: Whether the ledger will be filled first, because a plan is made.

    Raises:
        FrazilError: A pending record cannot be read.
    """
    return [
        *reader_holds(table.metadata, now),
        *_unrecorded(context, table, now, to_be_filled=to_be_filled),
        *_pending(context, table, now),
        *_at_work(context, table, now),
        *_unpublished(context, table, now),
        *_windows(context, now),
        *_restarted_sinks(context, table),
    ]


def fill_ledger_or_hold(context: TableContext) -> str | None:
    """Write the table's stamps to the ledger; returns the reason of a failure, which then holds their snapshots."""
    concerned = streams_writing_to(context.specs, context.name)
    if not concerned:
        return None
    try:
        ledger_fill.fill_ledger(context.catalog, context.settings, concerned)
    except Exception as problem:
        said = problem.message if isinstance(problem, FrazilError) else f"{type(problem).__name__}: {problem}"
        told = redacted(context.settings, first_line(said))
        log.warning("the ledger could not be filled for table %s: %s", context.name, told)
        return told
    return None


def _unrecorded(context: TableContext, table: Table, now: datetime, *, to_be_filled: bool) -> Iterator[SnapshotHold]:
    """Stamps that the ledger lacks; it never has the stamps of replays and queues."""
    streams = [stream for stream in streams_of(table.metadata) if "~" not in stream]
    found = find_ledger(context.catalog, context.settings) if streams else None
    has_file = {spec.stream for spec in streams_writing_to(context.specs, context.name)}
    uuid = str(table.metadata.table_uuid)
    for stream in streams:
        if to_be_filled and stream in has_file:
            continue
        known = (valid_fill_checkpoints(found.metadata, stream) if found else None) or {}
        after = known[uuid].sequence if uuid in known else -1
        lacking = [
            key
            for key, stamp in stamps_along_main(as_written(table.metadata, stream), stream, after)
            if stamp.kind != "claim"
        ]
        oldest = table.metadata.snapshot_by_id(lacking[-1]) if lacking else None
        if oldest is None:
            continue
        if stream in has_file:
            ledger = context.settings.ledger.table
            why = f"{len(lacking):,} stamps of stream {stream} are not in the ledger {ledger} yet"
            yield SnapshotHold("ledger", snapshot_time(oldest), why, warn=True)
        else:
            why = f"{len(lacking):,} stamps of stream {stream}, which no file names any more, are not in the ledger"
            yield SnapshotHold("ledger", max(snapshot_time(oldest), now - CEILING), why, warn=True)


def _pending(context: TableContext, table: Table, now: datetime) -> Iterator[SnapshotHold]:
    """Snapshots that show whether a batch landed, for as long as its pending record exists."""
    for pending in read_pending_files(context.settings):
        if pending.concerns(context.name, str(table.metadata.table_uuid)):
            old = now - pending.written > CEILING
            why = f"the batch of {pending.name} of stream {pending.stream} is not finished: {pending.command}"
            yield SnapshotHold("pending record", pending.written - _BEFORE_RECORD, why, warn=old)


def _unpublished(context: TableContext, table: Table, now: datetime) -> Iterator[SnapshotHold]:
    """Snapshots that separate a stream's unpublished rows on a branch from other rows.

    If a stream without write-audit-publish has never published a branch, perhaps nobody means to publish it.
    """
    for spec in streams_writing_to(context.specs, context.name):
        # Streams with several tables publish nothing.
        own = spec.table.name == context.name and spec.route is None
        found = branches_ahead(table.metadata, spec.stream) if own else []
        for ahead in found:
            if ahead.kept_from is None or not (ahead.snapshots or ahead.others):
                continue
            meant = ahead.published or (spec.publish is not None and ahead.branch == spec.publish.branch)
            since = ahead.kept_from if meant else max(ahead.kept_from, now - CEILING)
            what = f"{ahead.rows:,} rows" if ahead.snapshots else "rows of other streams"
            why = f"{what} on branch {ahead.branch} are not published: frazil publish {spec.stream}"
            yield SnapshotHold(f"publishing {spec.stream}", since, why, warn=now - ahead.kept_from > CEILING)


def _at_work(context: TableContext, table: Table, now: datetime) -> Iterator[SnapshotHold]:
    """Snapshot of dead letters that replays read; no lease records its age."""
    named = {spec.stream for spec in streams_writing_to(context.specs, context.name)}
    for stream in sorted(named | {stream.partition("~")[0] for stream in streams_of(table.metadata)}):
        for part, what in _JOBS.items():
            if _is_held(context.settings, stream, part):
                yield SnapshotHold(f"{part} of {stream}", now - CEILING, f"{what} is at work")


def _is_held(settings: Settings, stream: str, part: str) -> bool:
    try:
        record = stream_lease(settings, f"{stream}~{part}").read()
    except FrazilError:
        # A lease that cannot be read may be held.
        return True
    return record is not None and record.held()


def _windows(context: TableContext, now: datetime) -> Iterator[SnapshotHold]:
    """Stamps from which a starting driver counts the failures of its window."""
    for spec in context.specs:
        limit = spec.errors.stop_above
        if spec.table.name == context.name and limit is not None and limit.window is not None:
            why = f"stream {spec.stream} counts the failures of that time (errors.stop_above.window)"
            yield SnapshotHold("errors.stop_above.window", now - limit.window.of, why)


def _restarted_sinks(context: TableContext, table: Table) -> Iterator[SnapshotHold]:
    """Commits of a connector since a stream took over from it, with the snapshot before: the stream may look later."""
    if not any(key.startswith(SINK_OFFSETS) for each in table.metadata.snapshots for key in _summary(each)):
        return
    for spec in streams_writing_to(context.specs, context.name):
        own = spec.coordinator == context.name
        coordinator = table if own else existing_table(context.catalog, spec.coordinator)
        record = takeover_record(coordinator.metadata, spec.stream) if coordinator is not None else None
        metadata = seen_on(table.metadata, spec.branch_of(context.name))
        commits = commits_since_takeover(metadata, record) if record is not None else []
        if record is not None and commits:
            before = metadata.snapshot_by_id(commits[0].parent_snapshot_id or -1)
            why = f"connector {record.connector} was started again after stream {spec.stream} took over from it"
            yield SnapshotHold(f"takeover of {spec.stream}", snapshot_time(before or commits[0]), why, warn=True)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def written_branches(context: TableContext, metadata: TableMetadata) -> set[str]:
    """Branches that streams write: by their files, and by the newest stamps."""
    named = {spec.branch_of(context.name) for spec in streams_writing_to(context.specs, context.name)}
    return named | {branch for stream in streams_of(metadata) if (branch := written_branch(metadata, stream))}


class _Named(msgspec.Struct):
    stream: str


def streams_of(metadata: TableMetadata) -> list[str]:
    """Streams that may hold snapshots: all that stamped the table, by its properties and its snapshots.

    Raises:
        ValueError: A stamp is invalid.
    """
    found = {key.removeprefix(PROPERTY_PREFIX) for key in metadata.properties if key.startswith(PROPERTY_PREFIX)}
    for snapshot in metadata.snapshots:
        text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
        if text:
            found.add(decode_json(text, _Named).stream)
    return sorted(found)


def reader_holds(metadata: TableMetadata, now: datetime) -> Iterator[SnapshotHold]:
    """Holds of a table's readers, by its properties; none on anything older than `CEILING`."""
    for key, text in sorted(metadata.properties.items()):
        if not key.startswith(READER_PREFIX):
            continue
        what = f"reader {key.removeprefix(READER_PREFIX)}"
        since = _position(metadata, text.strip())
        floor = now - CEILING
        if isinstance(since, str):
            yield SnapshotHold(
                what, floor, f"{key} = {text!r} {since}; it keeps the last {CEILING.days} days", warn=True
            )
        elif since is None:
            yield SnapshotHold(
                what, now, f"{key} = {text} is no snapshot of the table any more; it keeps nothing", warn=True
            )
        elif since < floor and text.strip() in {str(ref.snapshot_id) for ref in metadata.refs.values()}:
            yield SnapshotHold(what, floor, "it is at the newest snapshot of its branch")
        elif since < floor:
            said = f"it stands at {since:%Y-%m-%d %H:%M}, and nothing keeps snapshots older than {CEILING.days} days"
            yield SnapshotHold(what, floor, said, warn=True)
        else:
            yield SnapshotHold(what, since, f"it goes on from {since:%Y-%m-%d %H:%M:%S} UTC")


def _position(metadata: TableMetadata, text: str) -> datetime | str | None:
    """Position of a reader; None for an expired snapshot, and the reason if the text is invalid."""
    if text.isdigit():
        snapshot = metadata.snapshot_by_id(int(text))
        return snapshot_time(snapshot) if snapshot else None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return "is neither a snapshot's id nor an instant such as 2026-01-31T10:00:00Z"
    return head_time_at(metadata, at.replace(tzinfo=UTC) if at.tzinfo is None else at)
