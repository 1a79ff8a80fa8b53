"""Changes expiry, a step of a changelog's maintenance: old changes go by whole files, where bases stand for them.

A file goes if all of its changes came to Kafka before `changes.keep`, and it was landed before the newest base of each
mirror was made; if nothing that is yet to come can be from before its changes: dead letters that wait, replays that
landed since, and another log of the topic. What is gone is known by offsets, in a property that the same commit sets.
"""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.expressions import EqualTo
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
from jobs.commit.offsets import Positions, TopicPartition, pointwise_max
from jobs.commit.operations import ReplaceFiles
from jobs.commit.other_logs import other_logs
from jobs.commit.pyiceberg_commit import commit_once
from jobs.commit.stamp_history import history_of
from jobs.commit.stamps import PROPERTY_PREFIX, Stamp
from jobs.deadletter.reader import UnreadableDeadLettersError, read_dead_letters
from jobs.deadletter.tally import WAITING
from jobs.errors import FrazilError
from jobs.maintain.changelog_files import ChangesKeptError, LandedFile, all_before, ends_of, landed_files
from jobs.maintain.mirror_bases import MirrorBase, newest_base
from jobs.maintain.mirror_property import MIRROR_PART
from jobs.maintain.plan import Step
from jobs.maintain.plan_changes import ChangesForecast
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
from jobs.schema.long_properties import whole_property
from jobs.spark.jvm_calls import jvm_error_text
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
        found = _due(context, spec, table, before, {})
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
    # A stream that commits often would come first each time, were its old files read anew for each attempt.
    read: dict[str, Positions] = {}

    def attempt() -> StepResult:
        spec, table = _stream_of(context), context.load()
        if spec is None:
            raise FrazilError(f"no stream lands changes in table {context.name}.", fix="frazil validate")
        found = _due(context, spec, table, before, read)
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


def _due(context: TableContext, spec: StreamSpec, table: Table, before: datetime, read: dict[str, Positions]) -> _Due:
    """What goes by the bases that there are.

    Args:
        read: By path what files were found to reach up to; it is filled.

    Raises:
        ChangesKeptError: Nothing may go, whatever its age.
    """
    known = expired_changes(table.metadata.properties, context.name)
    files = landed_files(table)
    timestamp = spec.kafka_columns.instant_coordinates[3]
    old = [each for each in files if all_before(table, each.file, timestamp, before)]
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
    most = _least([*(base.next_offsets for base in bases), _position(spec, table)])
    waiting = _waiting_letters(context, spec)
    going: list[LandedFile] = []
    offsets, held = [none], 0
    for each in old:
        path = each.file.file_path
        if each.sequence <= covered and path not in read:
            read[path] = ends_of(table, each.file, spec.kafka_columns.coordinates)
        ends = read[path] if each.sequence <= covered else {}
        # What may come yet, and what a base lacks, is from behind all that goes.
        fits = ends and all(end <= most.get(p, 0) and end <= waiting.get(p, end) for p, end in ends.items())
        if fits:
            going.append(each)
            offsets.append(ends)
        else:
            held += each.file.record_count
    ids = {**(known.topics if known else {}), **{name: each for name, each in topics.items() if has_id(each)}}
    sequence = max([known.sequence if known else 0, *(each.sequence for each in going)])
    return _Due([each.file for each in going], pointwise_max(offsets), sequence, rows, ids, held, len(files))


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


def _position(spec: StreamSpec, table: Table) -> Positions:
    """Where the stream goes on: offsets from there on will land, also where they have begun anew."""
    text = whole_property(table.metadata.properties, f"{PROPERTY_PREFIX}{spec.stream}")
    return Stamp.from_json(text, table.metadata.properties).position if text else {}


def _least(positions: Iterable[Positions]) -> Positions:
    """The least offset of each partition, of those that all of them name."""
    first, *rest = positions
    return {p: min(at, *(each[p] for each in rest)) for p, at in first.items() if all(p in each for each in rest)}


def _waiting_letters(context: TableContext, spec: StreamSpec) -> Positions:
    """By partition the least offset of a dead letter that may be replayed."""
    table = find_table(context.catalog, spec.dead_letter_table)
    if table is None:
        return {}

    def refuse(problem: UnreadableDeadLettersError) -> None:
        raise ChangesKeptError(f"{problem.message} So all changes stay.", fix=problem.fix or "bring the file back")

    there = table.schema().column_names
    names = tuple(name for name in ("topic", "partition", "offset", "state") if name in there)
    found: dict[TopicPartition, int] = {}
    for batch in read_dead_letters(table, EqualTo("stream", spec.stream), names, refuse):
        for row in batch.to_pylist():
            if (row.get("state") or "new") in WAITING:
                partition = TopicPartition(row["topic"], row["partition"])
                offset: int = row["offset"]
                found[partition] = min(offset, found.get(partition, offset))
    return found


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
