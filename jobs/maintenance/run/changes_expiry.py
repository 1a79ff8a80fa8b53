"""Expiry of old changes, a step of a changelog's maintenance: whole files go, once all mirrors have them.

A file goes if all of its changes arrived in Kafka before `changes.keep`, and each mirror has merged them. Nothing that
is yet to come may be older than its changes: waiting dead letters, replays that landed since, a new incarnation of the
topic, and records that the stream has not read or a mirror has not merged. Nothing goes while a mirror has to be
rebuilt, which takes all changes. A merge looks for deletions of the week before its changes, so these stay. A property,
set in the same commit, has the offsets of the removed changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.clients.state_store.mirror_problem import noted_problem
from jobs.config.stream.changes import DELETION_MEMORY
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.plan_expiry import ChangesForecast
from jobs.maintenance.plan.results import StepResult
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run.changelog_files import ChangesKeptError, landed_files, times_of
from jobs.maintenance.run.expiring_files import (
    Reads,
    WaitingLetters,
    expiring_files,
    old_files,
    waiting_letters,
)
from jobs.maintenance.run.pending_files import read_pending_files
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.mirror_merges import newest_merge, other_writes
from jobs.tables.commit.history.other_logs import other_logs
from jobs.tables.commit.history.stamp_history import history_of
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import ReplaceFiles
from jobs.tables.commit.stamp.expired_changes import (
    EXPIRED_CHANGES,
    FORGOTTEN,
    REPLACED,
    ExpiredChanges,
    expired_changes,
    stream_topics,
)
from jobs.tables.commit.stamp.log_state import has_id
from jobs.tables.commit.stamp.offsets import Positions, from_topics, pointwise_max
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX, Stamp, property_key
from jobs.tables.commit.stamp.table_properties import MIRROR_PART


@dataclass(frozen=True, slots=True)
class ExpiryLimits:
    """Limits of an expiry of changes.

    Attributes:
        limits: First offset of changes that stay, by partition.
        gone: The same for topics that the stream no longer reads.
        until: Changes of this Kafka time or a later one stay, in µs since 1970.
        why: Origin of `until`, in words.
        covered: Least sequence number of the changelog's snapshots that the mirrors have merged.
    """

    limits: Positions
    gone: Positions
    until: int
    why: str
    covered: int


def expiry_limits(
    context: TableContext, spec: StreamSpec, table: Table, known: ExpiredChanges | None, reads: Reads
) -> ExpiryLimits:
    """Present limits of an expiry of a changelog's changes.

    Args:
        known: Changes that have expired.
        reads: Cache of earlier reads; it is filled.

    Raises:
        ChangesKeptError: Nothing may go, whatever its age.
    """
    _refuse_other_streams(context, spec, table)
    stamps = [_merged(context, spec, mirror.table, table, known) for _, mirror in mirrors_of(context, spec)]
    covered = min(stamp["seq"] for stamp in stamps)
    _refuse_later_replays(spec, table, covered)
    for log in other_logs(table.metadata, spec.stream, covered):
        raise ChangesKeptError(
            f"Topic {log.topic} {log.said} since the mirrors were merged, so all changes stay.",
            fix=f"frazil mirror run {spec.stream}",
        )
    _refuse_pending(context, spec, table)
    limits, gone, until, why = _limits(context, spec, table, stamps, reads)
    return ExpiryLimits(limits, gone, until, why, covered)


def gone_topics(context: TableContext, spec: StreamSpec, table: Table, topics: Collection[str]) -> dict[str, str]:
    """Kafka's ids of topics that are no longer read; a placeholder for a forgotten one.

    Raises:
        ChangesKeptError: The table's stamps have no ids, so a recreated topic of such a name could not be detected.
    """
    if not topics:
        return {}
    stamp = _newest(spec, table)
    retired, named = (stamp.retired, stamp.topics) if stamp else ({}, {})
    if not named:
        raise ChangesKeptError(
            f"Stream {spec.stream} does not read topic {min(topics)} any more, of which {context.name} has changes. "
            "Another topic of that name could not be recognised, so all changes stay.",
            fix="land a new snapshot of the source in another changelog, and make other mirrors of that",
        )
    return {topic: retired[topic].identity if topic in retired else FORGOTTEN for topic in topics}


def mirrors_of(context: TableContext, spec: StreamSpec) -> list[tuple[str, Any]]:
    """Mirrors of a stream that are made from the table, each after the table's name."""
    return [each for each in spec.mirrored if each[0] == context.name]


def micros(at: datetime) -> int:
    """An instant in µs since 1970."""
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def _refuse_other_streams(context: TableContext, spec: StreamSpec, table: Table) -> None:
    """Raise for another stream: the age of its records is unknown, and its mirrors are not checked."""
    for other in context.specs:
        if other.stream != spec.stream and mirrors_of(context, other):
            raise ChangesKeptError(
                f"Streams {spec.stream} and {other.stream} have mirrors of {context.name}, so all of its changes stay.",
                fix="a changelog for each of them",
            )
    for key in sorted(table.metadata.properties):
        name = key.removeprefix(PROPERTY_PREFIX).partition("~")[0]
        if key.startswith(PROPERTY_PREFIX) and name != spec.stream:
            raise ChangesKeptError(
                f"Streams {spec.stream} and {name} land in {context.name}, so all of its changes stay: what may come "
                "yet of the other one is not known.",
                fix="a changelog for each of them",
            )


def _merged(
    context: TableContext, spec: StreamSpec, mirror: str, changelog: Table, known: ExpiredChanges | None
) -> Mapping[str, Any]:
    """Stamp of a mirror (`jobs.mirrors.model.mirror_stamp`) that has all removed changes.

    Raises:
        ChangesKeptError: The mirror lacks changes, or may be wrong.
    """
    table, stamped_as = find_table(context.catalog, mirror), f"{spec.stream}{MIRROR_PART}{mirror}"
    past = history_of(table, stamped_as) if table is not None else None
    stamped = past.newest.mirror if past and past.newest and not past.rolled_back else {}
    other = stamped.get("changelog") != str(changelog.metadata.table_uuid)
    if table is None or other or (known and stamped["seq"] < known.sequence):
        raise ChangesKeptError(
            f"Mirror {mirror} has not merged the changes of {context.name}, so all of them stay.",
            fix=f"frazil mirror run {spec.stream} --table {mirror}",
        )
    _refuse_unsound(context, spec, mirror, table.metadata, stamped_as, stamped)
    return stamped


def _refuse_unsound(
    context: TableContext,
    spec: StreamSpec,
    mirror: str,
    metadata: TableMetadata,
    stamped_as: str,
    stamped: Mapping[str, Any],
) -> None:
    """Raise while a mirror may be wrong: only the changes can repair it.

    Args:
        metadata: Metadata of the mirror.
        stamped_as: Id under which the mirror is stamped.
        stamped: Its stamp.

    Raises:
        ChangesKeptError: Its rows lack values, somebody else has changed them, or its newest merge is missing.
    """
    rebuild = f"frazil mirror rebuild {spec.stream} --table {mirror}"
    if rows := stamped.get("state", {}).get("waiting"):
        raise ChangesKeptError(
            f"{len(rows):,} rows of mirror {mirror} lack values of their former keys, so all changes stay.", fix=rebuild
        )
    if others := other_writes(metadata, stamped_as, tuple(stamped.get("others", ()))):
        raise ChangesKeptError(
            f"Somebody else has changed rows of mirror {mirror}, last in snapshot {others[-1]}, so all changes stay: a "
            "rebuild needs them.",
            fix=rebuild,
        )
    noted, merged = noted_problem(context.settings, spec.stream, mirror), newest_merge(metadata, stamped_as)
    if noted is not None and (merged is None or noted.at >= merged.timestamp_ms / 1000):
        raise ChangesKeptError(
            f"The newest merge into mirror {mirror} was not made, so all changes stay: {noted.problem}",
            fix=noted.fix or f"frazil mirror run {spec.stream} --table {mirror}",
        )


def _merged_by_all(spec: StreamSpec, stamps: Sequence[Mapping[str, Any]]) -> Positions:
    """Offset up to which all mirrors have the changes, for partitions that all of them know."""
    found = list[Positions]()
    for stamped in stamps:
        partitions: Mapping[str, Mapping[str, list[Any]]] = stamped.get("state", {}).get("partitions", {})
        seen = from_topics({topic: {n: each[0] for n, each in of.items()} for topic, of in partitions.items()})
        # If offsets have begun again, those of the log count.
        stood = from_topics(stamped.get("of", {}).get(spec.stream, {}))
        found.append({partition: min(at, stood.get(partition, at)) for partition, at in seen.items()})
    first, *rest = found
    return {p: min([at, *(each[p] for each in rest)]) for p, at in first.items() if all(p in each for each in rest)}


def _refuse_later_replays(spec: StreamSpec, table: Table, covered: int) -> None:
    """Raise if a replay, or a Connect queue, has landed changes that no mirror has merged; they may be older."""
    for name, at in _replays(spec, table):
        if at > covered:
            raise ChangesKeptError(
                f"{name} has landed changes since the mirrors were merged, so all changes stay.",
                fix=f"frazil mirror run {spec.stream}",
            )


def _replays(spec: StreamSpec, table: Table) -> list[tuple[str, int]]:
    """The stream's replays and queues, and the sequence numbers at which they landed something last."""
    found: list[tuple[str, int]] = []
    for key in sorted(table.metadata.properties):
        name = key.removeprefix(PROPERTY_PREFIX)
        if not key.startswith(PROPERTY_PREFIX) or name.partition("~")[0] != spec.stream or "~" not in name:
            continue
        text = whole_property(table.metadata.properties, key)
        stamp = Stamp.from_json(text, table.metadata.properties) if text else None
        if stamp:
            # A claim of an earlier version does not record when it landed something before.
            found.append((name, stamp.sequence if stamp.last_move is None else stamp.last_move))
    return found


def _newest(spec: StreamSpec, table: Table) -> Stamp | None:
    text = whole_property(table.metadata.properties, property_key(spec.stream))
    return Stamp.from_json(text, table.metadata.properties) if text else None


def _refuse_pending(context: TableContext, spec: StreamSpec, table: Table) -> None:
    """Raise while a batch is under way: it may be merged, and its dead letters are committed last.

    The time of the batch's record does not matter, as its clock is not that of the merge.
    """
    for each in read_pending_files(context.settings):
        concerned = each.concerns(context.name, str(table.metadata.table_uuid))
        if each.stream == spec.stream and concerned:
            raise ChangesKeptError(
                f"A batch of stream {spec.stream} is not committed to all of its tables ({each.place}), so its dead "
                "letters are not known, and all changes stay.",
                fix=each.command,
            )


def _limits(
    context: TableContext, spec: StreamSpec, table: Table, stamps: Sequence[Mapping[str, Any]], reads: Reads
) -> tuple[Positions, Positions, int, str]:
    """Limits by what mirrors lack, and by what may still come.

    Returns:
        First offset of changes that stay, by partition; the same for topics that the stream no longer reads; the time
        from which they stay, in µs since 1970, and its origin.

    Raises:
        ChangesKeptError: It is unknown through when the stream is complete.
    """
    stamp = _newest(spec, table)
    if stamp is None or stamp.valid_through_ms is None:
        raise ChangesKeptError(
            f"Stream {spec.stream} does not know through when it is complete, as it has not read each partition to its "
            "end yet, or not since an answer to `frazil accept`, so all changes stay.",
            fix=f"frazil status {spec.stream}",
        )
    # Later offsets will land, even after they have begun again.
    position = stamp.position
    letters = _letters(context, spec, reads)
    merged = _merged_by_all(spec, stamps)
    waiting = {p: min(at, letters.offsets.get(p, at)) for p, at in merged.items()}
    limits = {p: min(at, position[p]) for p, at in waiting.items() if p in position}
    read_yet, topics = {p.topic for p in position}, {p.topic for p in merged}
    gone = {p: at for p, at in waiting.items() if p.topic not in read_yet}
    until = [
        (came, f"a waiting dead letter of topic {topic}") for topic, came in letters.times.items() if topic in topics
    ]
    # An older change may still come, and a merge then needs later deletions of its row.
    awaited = stamp.valid_through_ms * 1000 - DELETION_MEMORY // timedelta(microseconds=1)
    return limits, gone, *min([*until, (awaited, "a week before the time through which the stream is complete")])


def _letters(context: TableContext, spec: StreamSpec, reads: Reads) -> WaitingLetters:
    table = find_table(context.catalog, spec.dead_letter_table)
    if table is None:
        return WaitingLetters()
    head = table.metadata.current_snapshot_id
    if head not in reads.letters:
        reads.letters[head] = waiting_letters(table, spec.stream)
    return reads.letters[head]


def changes_forecast(context: TableContext, table: Table, now: datetime) -> ChangesForecast | None:
    """Changes of a table that would expire; None for a table that keeps all of them.

    Args:
        table: The present table.
    """
    spec = _stream_of(context)
    if spec is None or spec.changes is None or (keep := spec.changes.keep) is None:
        return None
    before = _day(now - keep)
    try:
        found = _due(context, spec, table, before, Reads())
    except ChangesKeptError as problem:
        return ChangesForecast(keep, before, refused=f"{problem.message} Next: {problem.fix}")
    except FrazilError as problem:
        return ChangesForecast(keep, before, refused=str(problem))
    except Exception as problem:
        # The other actions are planned nevertheless.
        said = jvm_error_text(context.settings, problem)
        return ChangesForecast(keep, before, refused=f"No change can expire: {said}")
    return ChangesForecast(
        keep,
        before,
        len(found.files),
        sum(each.record_count for each in found.files),
        sum(each.file_size_in_bytes for each in found.files),
        found.held_rows,
        found.all_files,
        held_by=found.held_by,
    )


def expire_changes(context: TableContext, step: Step) -> StepResult:
    """Remove due changes in one commit.

    Raises:
        FrazilError: They have to stay, or others committed during every attempt.
    """
    before = datetime.fromisoformat(str(step.detail["before"]))
    reads = Reads()

    def attempt() -> StepResult:
        spec, table = _stream_of(context), context.load()
        if spec is None:
            raise FrazilError(f"no stream lands changes in table {context.name}.", fix="frazil validate")
        found = _due(context, spec, table, before, reads)
        detail: dict[str, str | int | float] = {"before": before.isoformat()}
        if found.held_rows:
            detail["held_changes"] = found.held_rows
        if not found.files:
            return StepResult(step, found.all_files, found.all_files, detail=detail, done=False)
        said = found.expired(before).to_json()
        files = [*found.files]
        commit_once(table, ReplaceFiles(files), summary={EXPIRED_CHANGES: said}, properties={EXPIRED_CHANGES: said})
        rows, size = sum(each.record_count for each in files), sum(each.file_size_in_bytes for each in files)
        detail |= {"expired_changes": rows, "expired_bytes": size}
        return StepResult(step, found.all_files, found.all_files - len(files), detail=detail)

    def given_up(said: str) -> FrazilError:
        return FrazilError(f"{said}; so no change expires.", fix=f"frazil maintain {context.name}")

    return compare_and_swap(context.name, attempt, given_up)


@dataclass(frozen=True, slots=True)
class _Due:
    """Changes to remove.

    Attributes:
        files: The data files.
        offsets: Offset behind the greatest one in them, and in those removed before, by partition.
        sequence: Greatest sequence number of any of them, and of those removed before.
        rows: Number of rows removed before.
        topics: Kafka's ids of the topics, as far as known.
        held_rows: Number of older changes that stay.
        all_files: Number of the changelog's data files.
        held_by: What they wait for; empty if it is only other changes in their files.
    """

    files: Sequence[DataFile]
    offsets: Positions
    sequence: int
    rows: int
    topics: Mapping[str, str]
    held_rows: int
    all_files: int
    held_by: str = ""

    def expired(self, before: datetime) -> ExpiredChanges:
        rows = self.rows + sum(each.record_count for each in self.files)
        topics = {each.topic for each in self.offsets}
        ids = {topic: identity for topic, identity in sorted(self.topics.items()) if topic in topics}
        return ExpiredChanges(before.isoformat(), rows, self.sequence, self.offsets, ids)


def _due(context: TableContext, spec: StreamSpec, table: Table, before: datetime, reads: Reads) -> _Due:
    """Changes to remove, by what the mirrors have merged.

    Args:
        reads: Cache of earlier reads; it is filled.

    Raises:
        ChangesKeptError: Nothing may go, whatever its age.
    """
    known = expired_changes(table.metadata.properties, context.name)
    files = landed_files(table, reads.manifests)
    columns = spec.kafka_columns.instant_coordinates
    old = old_files(table, files, columns[3], micros(before))
    rows, none = known.rows if known else 0, {} if known is None else known.offsets
    if not old:
        return _Due((), none, known.sequence if known else 0, rows, {}, 0, len(files))
    topics = stream_topics(table.metadata.properties, spec.stream)
    for topic in known.replaced(topics) if known else ():
        raise ChangesKeptError(
            f"Topic {topic} {REPLACED}, so all changes stay: offsets say nothing of its changes any more.",
            fix="land a new snapshot of the source in another changelog, and make other mirrors of that",
        )
    holds = expiry_limits(context, spec, table, known, reads)
    until, why = holds.until, holds.why
    timed = (times_of(table, each.file, columns[3]) for each in files if each.sequence > holds.covered)
    unmerged = [times[0] for times in timed if times is not None]
    if unmerged and (since := min(unmerged) - DELETION_MEMORY // timedelta(microseconds=1)) < until:
        until, why = since, "a week before changes that a mirror has not merged"
    instant = min(micros(before), until)
    found = expiring_files(
        table, files, columns, instant, holds.limits, gone=holds.gone, covered=holds.covered, reads=reads
    )
    going = found.files
    held = sum(each.file.record_count for each in old) - sum(each.file.record_count for each in going)
    held_by = ""
    if found.held is not None:
        where = f", at {found.held[1]}" if found.held[1] else ""
        held_by = (
            f"changes that a mirror lacks, or that are behind a waiting dead letter{where} ({_time(found.held[0])})"
        )
    elif instant < micros(before):
        held_by = f"{why} ({_time(instant)})"
    ids = gone_topics(context, spec, table, {p.topic for p in found.offsets if p in holds.gone})
    ids |= {**(known.topics if known else {}), **{name: each for name, each in topics.items() if has_id(each)}}
    sequence = max(known.sequence if known else 0, found.sequence)
    offsets = pointwise_max([none, found.offsets])
    return _Due([each.file for each in going], offsets, sequence, rows, ids, held, len(files), held_by)


def _stream_of(context: TableContext) -> StreamSpec | None:
    """Stream whose changelog the table is, if its changes expire."""
    for spec in context.specs:
        if spec.changes is not None and spec.changes.keep is not None and mirrors_of(context, spec):
            return spec
    return None


def _time(instant: int) -> str:
    try:
        return f"{datetime.fromtimestamp(0, UTC) + timedelta(microseconds=instant):%Y-%m-%d %H:%M}"
    except OverflowError:
        return f"{instant:,} µs since 1970"


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
