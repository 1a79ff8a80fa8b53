"""Changes expiry, a step of a changelog's maintenance: old changes go by whole files, where bases stand for them.

A file goes if all of its changes came to Kafka before `changes.keep`, and it was landed before the newest base of each
mirror was made; if nothing that is yet to come can be from before its changes: dead letters that wait, replays that
landed since, another log of the topic, and what the stream has not read. What is gone is known by offsets, in a
property that the same commit sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.catalog import find_table
from jobs.commit.compare_and_swap import compare_and_swap
from jobs.commit.expired_changes import (
    EXPIRED_CHANGES,
    REPLACED,
    ExpiredChanges,
    expired_changes,
    stream_topics,
)
from jobs.commit.log_state import has_id
from jobs.commit.offsets import Positions, pointwise_max
from jobs.commit.operations import ReplaceFiles
from jobs.commit.other_logs import other_logs
from jobs.commit.pyiceberg_commit import commit_once
from jobs.commit.stamp_history import history_of
from jobs.commit.stamps import PROPERTY_PREFIX, Stamp, property_key
from jobs.errors import FrazilError
from jobs.maintain.changelog_files import ChangesKeptError, landed_files
from jobs.maintain.expiring_files import Reads, expiring_files, old_files
from jobs.maintain.mirror_bases import MirrorBase, merged_by_all, newest_base
from jobs.maintain.mirror_property import MIRROR_PART
from jobs.maintain.pending_files import read_pending_files
from jobs.maintain.plan import Step
from jobs.maintain.plan_changes import ChangesForecast
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
from jobs.maintain.waiting_letters import WaitingLetters, waiting_letters
from jobs.schema.long_properties import whole_property
from jobs.spark.jvm_calls import jvm_error_text
from jobs.spec.changes import DELETION_MEMORY
from jobs.spec.models import StreamSpec


def changes_forecast(context: TableContext, table: Table, now: datetime) -> ChangesForecast | None:
    """Which changes of a table would go; None of one that keeps all it has.

    Args:
        table: As it is now.
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
        # The other actions are planned all the same.
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
    )


def expire_changes(context: TableContext, step: Step) -> StepResult:
    """Take the changes out that are due, in one commit.

    Raises:
        FrazilError: They have to stay, or others committed each time.
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
    """What goes.

    Attributes:
        files: The data files.
        offsets: By partition, behind the greatest offset in them, and in those that went before.
        sequence: The greatest of any of them, and of those that went before.
        rows: That went before.
        topics: Kafka's ids of the topics, as far as they are known.
        held_rows: Older changes that stay.
        all_files: Of the changelog.
    """

    files: Sequence[DataFile]
    offsets: Positions
    sequence: int
    rows: int
    topics: Mapping[str, str]
    held_rows: int
    all_files: int

    def expired(self, before: datetime) -> ExpiredChanges:
        rows = self.rows + sum(each.record_count for each in self.files)
        topics = {each.topic for each in self.offsets}
        ids = {topic: identity for topic, identity in sorted(self.topics.items()) if topic in topics}
        return ExpiredChanges(before.isoformat(), rows, self.sequence, self.offsets, ids)


def _due(context: TableContext, spec: StreamSpec, table: Table, before: datetime, reads: Reads) -> _Due:
    """What goes by the bases that there are.

    Args:
        reads: What was read before; it is filled.

    Raises:
        ChangesKeptError: Nothing may go, whatever its age.
    """
    known = expired_changes(table.metadata.properties, context.name)
    files = landed_files(table, reads.manifests)
    columns = spec.kafka_columns.instant_coordinates
    old = old_files(table, files, columns[3], _micros(before))
    rows, none = known.rows if known else 0, {} if known is None else known.offsets
    if not old:
        return _Due((), none, known.sequence if known else 0, rows, {}, 0, len(files))
    topics = stream_topics(table.metadata.properties, spec.stream)
    for topic in known.replaced(topics) if known else ():
        raise ChangesKeptError(
            f"Topic {topic} {REPLACED}, so all changes stay: offsets say nothing of its changes any more.",
            fix="land a new snapshot of the source in another changelog, and make other mirrors of that",
        )
    _refuse_other_mirrors(context, spec)
    bases = [_base_of(context, spec, mirror.table, table, known) for _, mirror in _mirrors(context, spec)]
    covered = min(base.sequence for base in bases)
    _refuse_later_replays(spec, table, covered)
    for log in other_logs(table.metadata, spec.stream, covered):
        raise ChangesKeptError(
            f"Topic {log.topic} {log.said} since the bases of the mirrors were made, so all changes stay until there "
            "are newer ones.",
            fix=f"frazil mirror run {spec.stream}; bases are made each day",
        )
    _refuse_pending(context, spec, table, max(base.at for base in bases))
    limits, gone, until = _limits(context, spec, table, bases, reads)
    instant = min(_micros(before), until)
    found = expiring_files(table, files, columns, instant, limits, gone=gone, covered=covered, reads=reads)
    going = found.files
    held = sum(each.file.record_count for each in old) - sum(each.file.record_count for each in going)
    ids = {**(known.topics if known else {}), **{name: each for name, each in topics.items() if has_id(each)}}
    sequence = max(known.sequence if known else 0, found.sequence)
    offsets = pointwise_max([none, found.offsets])
    return _Due([each.file for each in going], offsets, sequence, rows, ids, held, len(files))


def _stream_of(context: TableContext) -> StreamSpec | None:
    """The stream whose changelog the table is, if it lets changes go."""
    for spec in context.specs:
        if spec.changes is not None and spec.changes.keep is not None and _mirrors(context, spec):
            return spec
    return None


def _mirrors(context: TableContext, spec: StreamSpec) -> list[tuple[str, Any]]:
    return [each for each in spec.mirrored if each[0] == context.name]


def _refuse_other_mirrors(context: TableContext, spec: StreamSpec) -> None:
    """Bases are asked of one stream's mirrors: another's would be made of the same changes, by places of its own."""
    for other in context.specs:
        if other.stream != spec.stream and _mirrors(context, other):
            raise ChangesKeptError(
                f"Streams {spec.stream} and {other.stream} have mirrors of {context.name}, so all of its changes stay.",
                fix="a changelog for each of them",
            )


def _base_of(
    context: TableContext, spec: StreamSpec, mirror: str, changelog: Table, known: ExpiredChanges | None
) -> MirrorBase:
    table, mirror_id = find_table(context.catalog, mirror), f"{spec.stream}{MIRROR_PART}{mirror}"
    past = history_of(table, mirror_id) if table is not None else None
    stamped = past.newest.mirror if past and past.newest and not past.rolled_back else {}
    base = newest_base(table.metadata, mirror_id, known, stamped) if table is not None and stamped else None
    if base is None or base.stamped["changelog"] != str(changelog.metadata.table_uuid):
        raise ChangesKeptError(
            f"Mirror {mirror} has no base, so all changes of {context.name} stay.",
            fix=f"frazil maintain {mirror} --only base",
        )
    return base


def _refuse_later_replays(spec: StreamSpec, table: Table, covered: int) -> None:
    """What a replay, or a queue of Connect, has landed since the bases were made may be from before what goes."""
    for key in sorted(table.metadata.properties):
        name = key.removeprefix(PROPERTY_PREFIX)
        if not key.startswith(PROPERTY_PREFIX) or name.partition("~")[0] != spec.stream or "~" not in name:
            continue
        text = whole_property(table.metadata.properties, key)
        stamp = Stamp.from_json(text, table.metadata.properties) if text else None
        # A claim of an earlier version does not say when it landed something before.
        if stamp and (stamp.sequence if stamp.last_move is None else stamp.last_move) > covered:
            raise ChangesKeptError(
                f"{name} has landed changes since the bases of the mirrors were made, so all changes stay until there "
                "are newer ones.",
                fix=f"frazil mirror run {spec.stream}; bases are made each day",
            )


def _refuse_pending(context: TableContext, spec: StreamSpec, table: Table, newest: datetime) -> None:
    """A batch that is there, and has been merged, may be without its dead letters yet: they are committed last."""
    for each in read_pending_files(context.settings):
        concerned = each.concerns(context.name, str(table.metadata.table_uuid))
        if each.stream == spec.stream and concerned and each.written <= newest:
            raise ChangesKeptError(
                f"A batch of stream {spec.stream} was not committed to all of its tables before the bases of the "
                f"mirrors were made ({each.place}), so its dead letters are not known, and all changes stay.",
                fix=each.command,
            )


def _limits(
    context: TableContext, spec: StreamSpec, table: Table, bases: Sequence[MirrorBase], reads: Reads
) -> tuple[Positions, Positions, int]:
    """What bases lack, and what may come yet.

    Returns:
        By partition the offset from which on changes stay; the same of topics that the stream does not read any more;
        the time from which on they stay, in µs since 1970.
    """
    text = whole_property(table.metadata.properties, property_key(spec.stream))
    stamp = Stamp.from_json(text, table.metadata.properties) if text else None
    # Offsets from there on will land, also where they have begun anew.
    position = stamp.position if stamp else {}
    letters = _letters(context, spec, reads)
    merged = merged_by_all(bases)
    waiting = {p: min(at, letters.offsets.get(p, at)) for p, at in merged.items()}
    limits = {p: min(at, position[p]) for p, at in waiting.items() if p in position}
    read_yet, topics = {p.topic for p in position}, {p.topic for p in merged}
    gone = {p: at for p, at in waiting.items() if p.topic not in read_yet}
    until = [came for topic, came in letters.times.items() if topic in topics]
    if stamp is not None and stamp.valid_through_ms is not None:
        # An older change may yet come, and a merge asks for later deletions of its row.
        until.append(stamp.valid_through_ms * 1000 - DELETION_MEMORY // timedelta(microseconds=1))
    return limits, gone, min(until, default=_micros(datetime.max.replace(tzinfo=UTC)))


def _letters(context: TableContext, spec: StreamSpec, reads: Reads) -> WaitingLetters:
    table = find_table(context.catalog, spec.dead_letter_table)
    if table is None:
        return WaitingLetters()
    head = table.metadata.current_snapshot_id
    if head not in reads.letters:
        reads.letters[head] = waiting_letters(table, spec.stream)
    return reads.letters[head]


def _micros(at: datetime) -> int:
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
