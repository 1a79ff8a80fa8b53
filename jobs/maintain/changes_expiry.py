"""Changes expiry, a step of a changelog's maintenance: old changes go by whole files, once all mirrors have them.

A file goes if all of its changes came to Kafka before `changes.keep`, and each mirror has merged them; if nothing that
is yet to come can be from before its changes: dead letters that wait, replays that landed since, another log of the
topic, and what the stream has not read or a mirror has not merged. A merge looks for deletions of the week before its
changes, so these stay. What is gone is known by offsets, in a property that the same commit sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

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
from jobs.commit.pyiceberg_commit import commit_once
from jobs.errors import FrazilError
from jobs.maintain.changelog_files import ChangesKeptError, landed_files, times_of
from jobs.maintain.expiring_files import Reads, expiring_files, old_files
from jobs.maintain.expiry_limits import expiry_limits, gone_topics, micros, mirrors_of
from jobs.maintain.plan import Step
from jobs.maintain.plan_changes import ChangesForecast
from jobs.maintain.results import StepResult
from jobs.maintain.table_context import TableContext
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
        held_by=found.held_by,
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
        held_by: What they wait for; empty where that is other changes of their files.
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
    """What goes by what the mirrors have merged.

    Args:
        reads: What was read before; it is filled.

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
        held_by = f"changes that a mirror lacks, or that are behind a waiting letter{where} ({_time(found.held[0])})"
    elif instant < micros(before):
        held_by = f"{why} ({_time(instant)})"
    ids = gone_topics(context, spec, table, {p.topic for p in found.offsets if p in holds.gone})
    ids |= {**(known.topics if known else {}), **{name: each for name, each in topics.items() if has_id(each)}}
    sequence = max(known.sequence if known else 0, found.sequence)
    offsets = pointwise_max([none, found.offsets])
    return _Due([each.file for each in going], offsets, sequence, rows, ids, held, len(files), held_by)


def _stream_of(context: TableContext) -> StreamSpec | None:
    """The stream whose changelog the table is, if it lets changes go."""
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
