"""Plan of a backfill: which of the asked offsets are landed, and why the others are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import IsNull
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.offset_backfill.offset_sets import OffsetSet, count, offset_set, within, without
from jobs.proof.audit.audit_ranges import OffsetRanges
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.operator.backfill_stream import as_backfill, backfill_id
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import history, history_of
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.log_state import check_identity
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_row import LedgerRow, effective_rows
from jobs.tables.ledger.ledger_table import read_ledger
from jobs.tables.ledger.row_counter import WINDOW_OFFSETS, RowCounter, missing_column

MOST_RANGES = 100
"""Ranges of one partition that one backfill lands: each is begun by commits of its own on every table."""

End: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""Where a backfill begins or ends: an offset, a time, or an end of the log."""
Reason: TypeAlias = Literal["gone", "read", "ahead", "backfilled", "rows"]
REASONS: Mapping[Reason, str] = {
    "gone": "Kafka does not keep them",
    "read": "the stream has read them",
    "ahead": "the stream will read them: they are at its position or behind it",
    "backfilled": "an earlier backfill has landed them",
    "rows": "a table has rows or dead letters of them",
}
"""Why asked offsets are left out, in the order in which it is looked at."""


class BackfillRefusedError(FrazilError):
    """A topic was recreated or cut, so the ledger does not show which of its present records have landed.

    Safe: Nothing was changed.
    Next: `frazil reset-offsets S --to WHERE`, which reads the records again
    """


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What a backfill is asked for.

    Attributes:
        start: Where it begins; an offset counts in every partition.
        end: Where it ends, exclusive.
        only: Topics, or partitions as `topic:3`; empty for all that the stream reads.
    """

    start: End
    end: End
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a backfill does, or did.

    Attributes:
        asked: Offsets that are asked for, by partition.
        left_out: Offsets of these that are left out, by reason and partition.
        ranges: Offsets that are landed, by partition; without partitions that have none.
        unlocated: Rows of the main table without coordinates, such as a sink's: whose they are nobody can tell. None if
            no row of it has any.
        unfinished: Whether an earlier backfill was interrupted within a batch, which is finished first.
        rolled_back: Tables out of which a rollback has taken backfilled rows, and nobody has answered: the backfill
            stamps that it stays so.
        coordinator: The stream's coordinator table: offsets that a rollback has taken out of it are landed again.
    """

    stream: str
    asked: Mapping[TopicPartition, OffsetRange]
    left_out: Mapping[Reason, Mapping[TopicPartition, OffsetSet]]
    ranges: Mapping[TopicPartition, OffsetSet]
    unlocated: int | None = 0
    unfinished: bool = False
    rolled_back: tuple[str, ...] = ()
    coordinator: str = ""

    @property
    def offsets(self) -> int:
        """How many offsets are landed."""
        return sum(map(count, self.ranges.values()))


@dataclass(slots=True)
class _Known:
    """What is known of the offsets of one partition."""

    position: int | None
    read: OffsetSet = ()
    backfilled: OffsetSet = ()
    rows: OffsetSet = field(default=())


def plan_backfill(
    spec: StreamSpec, settings: Settings, catalog: Catalog, kafka: KafkaLog, request: BackfillRequest
) -> BackfillPlan:
    """Find out what a backfill would land; nothing but the ledger is written.

    Raises:
        FrazilError: The stream has never run, a table is rolled back or suspended, or what is asked for cannot be
            landed beside the stream.
    """
    spec = with_named_tables(spec, catalog)
    newest = refuse_unfit(spec, catalog)
    log = kafka.state(spec.source)
    check_identity(spec.stream, newest.topics, log.topics)
    asked = _asked(spec, request, log.earliest, log.latest, kafka)
    fill_ledger(catalog, settings, [spec, as_backfill(spec)])
    read = _covered(spec, spec.stream, settings, catalog, asked)
    backfilled = _covered(spec, backfill_id(spec.stream), settings, catalog, asked)
    left_out: dict[Reason, dict[TopicPartition, OffsetSet]] = {name: {} for name in REASONS}
    ranges: dict[TopicPartition, OffsetSet] = {}
    for partition, range_ in asked.items():
        kept = OffsetRange(log.earliest[partition], log.latest[partition])
        position = newest.position.get(partition)
        known: dict[Reason, OffsetSet] = {
            "gone": without((range_,), (kept,)),
            "read": read.get(partition, ()),
            "ahead": (OffsetRange(position or 0, max(range_.end, position or 0)),),
            "backfilled": backfilled.get(partition, ()),
        }
        left = offset_set([range_])
        for reason, offsets in known.items():
            if out := within(left, offsets):
                left_out[reason][partition] = out
                left = without(left, offsets)
        if left:
            ranges[partition] = left
    for partition, rows in _with_rows(spec, catalog, ranges).items():
        left_out["rows"][partition] = rows
        ranges[partition] = without(ranges[partition], rows)
    ranges = {partition: each for partition, each in ranges.items() if each}
    _refuse_scattered(spec, ranges)
    return BackfillPlan(
        spec.stream,
        asked,
        {reason: each for reason, each in left_out.items() if each},
        ranges,
        _unlocated(spec, catalog),
        rolled_back=tables_rolled_back(spec, catalog),
        coordinator=spec.coordinator,
    )


def tables_rolled_back(spec: StreamSpec, catalog: Catalog) -> tuple[str, ...]:
    """The tables out of which a rollback has taken rows of the stream's backfills, and nobody has answered."""
    filled = backfill_id(spec.stream)
    return tuple(
        name for name in spec.target_names if history_of(stream_table(catalog, spec, name), filled).rolled_back
    )


def refuse_unfit(spec: StreamSpec, catalog: Catalog) -> Stamp:
    """Check that the stream can be backfilled; returns its coordinator's newest stamp.

    Raises:
        FrazilError: It has never run, has tables of which the rest is not handled, or waits for an answer.
    """
    if spec.own_columns or spec.changes is not None:
        what = "tables with columns of their own" if spec.own_columns else "changes of a source"
        raise FrazilError(
            f"stream {spec.stream} has {what}, which a backfill does not land. Nothing was changed.",
            fix=f"frazil reset-offsets {spec.stream} --to WHERE, which reads the records again",
        )
    newest = coordinator_stamp(spec, catalog)
    if newest is None:
        raise FrazilError(
            f"stream {spec.stream} has never run, so it is unknown which records it will read itself.",
            fix=f"frazil run {spec.stream}, or source.start in its file",
        )
    if newest.parked:
        name = min(newest.parked)
        raise FrazilError(
            f"stream {spec.stream}: table {name} is suspended, and a backfill lands in all tables at once.",
            fix=f"frazil accept {spec.stream} --unpark {name}; then run this again",
        )
    for name in spec.target_names:
        if not catalog.table_exists(name):
            raise FrazilError(f"stream {spec.stream}: table {name} does not exist.", fix=f"frazil run {spec.stream}")
        if history(stream_table(catalog, spec, name).metadata, spec.stream).rolled_back:
            raise FrazilError(
                f"stream {spec.stream}: table {name} was rolled back, and what the stream does about it is not "
                "answered yet. Nothing was changed.",
                fix=f"frazil accept {spec.stream} --rollback keep, or reland; then run this again",
            )
    return newest


def _asked(
    spec: StreamSpec, request: BackfillRequest, earliest: Positions, latest: Positions, kafka: KafkaLog
) -> dict[TopicPartition, OffsetRange]:
    concerned = [
        each
        for each in sorted(earliest)
        if not request.only or each.topic in request.only or f"{each.topic}:{each.partition}" in request.only
    ]
    known = {each.topic for each in earliest} | {f"{each.topic}:{each.partition}" for each in earliest}
    if unknown := [each for each in request.only if each not in known]:
        raise FrazilError(
            f"stream {spec.stream} reads no {', '.join(unknown)}.",
            fix=f"name one of {', '.join(sorted({each.topic for each in earliest}))}",
        )

    def at(end: End) -> Positions:
        match end:
            case datetime():
                return kafka.at_time(concerned, int(end.timestamp() * 1_000))
            case "earliest":
                return earliest
            case "latest":
                return latest
            case _:
                return dict.fromkeys(concerned, end)

    starts, ends = at(request.start), at(request.end)
    found = {each: OffsetRange(starts[each], ends[each]) for each in concerned if starts[each] < ends[each]}
    if not found:
        raise FrazilError(
            f"stream {spec.stream}: there is no offset from {request.start} to {request.end}.",
            fix="name an end that is after the beginning; --to is exclusive",
        )
    return found


def _covered(
    spec: StreamSpec,
    stream: str,
    settings: Settings,
    catalog: Catalog,
    asked: Mapping[TopicPartition, OffsetRange],
) -> dict[TopicPartition, OffsetSet]:
    """By partition, the offsets that the ledger knows to be read by a stream on the coordinator as it is.

    Also on tables whose rows do not say which records they are of: those may stand where the coordinator was rolled
    back.
    """
    names = [
        each.name
        for each in spec.targets
        if each.coordinator
        or (each.role == "rows" and missing_column(stream_table(catalog, spec, each.name), each.coordinates))
    ]
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for name in names:
        table = stream_table(catalog, spec, name)
        uuid, past = str(table.metadata.table_uuid), history_of(table, stream)
        rows = [row for row in read_ledger(catalog, settings, stream, name, None, uuid) if row.table_uuid == uuid]
        if past.rolled_back:
            # As the ledger has it once the rollback is answered.
            since = past.stamped_ancestor.sequence if past.stamped_ancestor else 0
            rows = [row for row in rows if row.sequence <= since]
        _refuse_other_logs(spec, rows, asked)
        for row in effective_rows(rows):
            # What nobody knows any more may have landed.
            if row.kind in ("batch", "unknown") and row.partition in asked:
                found.setdefault(row.partition, []).append(row.range)
    return {partition: offset_set(each) for partition, each in found.items()}


def _refuse_other_logs(spec: StreamSpec, rows: list[LedgerRow], asked: Mapping[TopicPartition, OffsetRange]) -> None:
    topics = {each.topic for each in asked}
    for row in rows:
        if row.answer in ("recreated_topic", "cut_topic", "retired") and (row.partition.topic or "") in topics | {""}:
            raise BackfillRefusedError(
                f"stream {spec.stream}: topic {row.partition.topic} was recreated or cut, so its offsets are of two "
                "logs, and the ledger does not show what has landed of the present one. Nothing was changed.",
                fix=f"frazil reset-offsets {spec.stream} --to WHERE, which reads the records again",
            )


def _with_rows(
    spec: StreamSpec, catalog: Catalog, ranges: Mapping[TopicPartition, OffsetSet]
) -> dict[TopicPartition, OffsetSet]:
    """By partition, the offsets that rows or dead letters say they are of: a queue's, or a sink's with coordinates."""
    found: dict[TopicPartition, OffsetSet] = {}
    counters = [counter for name in spec.target_names if (counter := _counter(spec, catalog, name)) is not None]
    for each in _windows(ranges):
        taken = np.zeros(each.range.end - each.range.start, bool)
        for counter in counters:
            (counts,) = counter.count([each])
            taken |= counts > 0
        if not taken.any():
            continue
        offsets = OffsetRanges(limit=MOST_RANGES)
        offsets.add(np.flatnonzero(taken), each.range.start)
        if offsets.more:
            raise FrazilError(
                f"stream {spec.stream}: rows of {each.partition} stand between the offsets {each.range} in more than "
                f"{MOST_RANGES} places. Nothing was changed.",
                fix="name narrower ranges by --from and --to",
            )
        found[each.partition] = offset_set([*found.get(each.partition, ()), *offsets.kept])
    return found


def _windows(ranges: Mapping[TopicPartition, OffsetSet]) -> Iterator[PartitionRange]:
    for partition, offsets in ranges.items():
        for start, end in offsets:
            for first in range(start, end, WINDOW_OFFSETS):
                yield PartitionRange(partition, OffsetRange(first, min(end, first + WINDOW_OFFSETS)))


def _counter(spec: StreamSpec, catalog: Catalog, name: str) -> RowCounter | None:
    """Counts the rows of one of the stream's tables; None if they do not say which records they are of."""
    target = next(each for each in spec.targets if each.name == name)
    table = stream_table(catalog, spec, name)
    if missing_column(table, target.coordinates):
        return None
    return RowCounter(table, target.coordinates, stream=spec.stream if target.role == "dead_letters" else None)


def _unlocated(spec: StreamSpec, catalog: Catalog) -> int | None:
    target = next(each for each in spec.targets if each.name == spec.table.name)
    table: Table = stream_table(catalog, spec, target.name)
    if table.current_snapshot() is None:
        return 0
    if missing_column(table, target.coordinates):
        return None if table.scan(limit=1).to_arrow().num_rows else 0
    return table.scan(row_filter=IsNull(target.coordinates[2])).count()  # pyright: ignore[reportCallIssue]


def _refuse_scattered(spec: StreamSpec, ranges: Mapping[TopicPartition, OffsetSet]) -> None:
    for partition, offsets in ranges.items():
        if len(offsets) > MOST_RANGES:
            raise FrazilError(
                f"stream {spec.stream}: what is left of {partition} are {len(offsets):,} ranges, and a backfill lands "
                f"{MOST_RANGES} at most. Nothing was changed.",
                fix="name narrower ranges by --from and --to",
            )
