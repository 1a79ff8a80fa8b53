"""Plan of a reset of offsets: what it does, as data that a person decides on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import Role, TargetSpec
from jobs.streaming.operator.reset_request import ResetRequest, explicit_offsets
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.reset import ResetMove, valid_through_after
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.row_counter import RowsInRanges, rows_in_ranges

Counting = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PlannedRollback:
    """A rollback that would do in place of the reset: to a snapshot with nothing of what would be read again.

    Attributes:
        position: Where the stream stood then.
    """

    snapshot_id: int
    position: Positions


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table of the stream in a reset's plan, with its rows from some ranges."""

    target: TargetSpec
    rows: RowsInRanges


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset does, or did.

    Attributes:
        moves: Of every partition that the request concerns, also of those that stay.
        tables: The stream's tables, the coordinator first, each with its rows from the ranges concerned.
        obstacle: Why it cannot be done now; None if it can.
        unfinished: A batch was being committed when the last driver died; it is finished first.
        valid_through_ms: What the stream is complete through, before and after.
        rollback: The newest one that serves, of a reset that only goes back.
        late_below_ms: Of a reset that goes back, where what is read again and is of an earlier event time is late;
            None where it lands among the timely rows. Milliseconds since 1970.
        late_table: Where that goes, with ``{table}`` in it where each table has one; None where it becomes a letter.
        note: What the stamps say, once it is done.
    """

    stream: str
    tables: tuple[PlannedTable, ...]
    request: ResetRequest
    moves: tuple[ResetMove, ...]
    obstacle: FrazilError | None
    unfinished: bool
    valid_through_ms: tuple[int | None, int | None]
    rollback: PlannedRollback | None = None
    note: str = ""
    late_below_ms: int | None = None
    late_table: str | None = None

    def table(self, role: Role) -> PlannedTable:
        """The stream's table of this role."""
        return next(table for table in self.tables if table.target.role == role)

    @property
    def names(self) -> str:
        """The names of the tables, as a sentence lists them."""
        return " and ".join(table.target.name for table in self.tables)

    @property
    def changed(self) -> tuple[ResetMove, ...]:
        """The partitions whose position moves."""
        return tuple(move for move in self.moves if move.before != move.after)

    @property
    def skipped(self) -> int:
        """Offsets that are passed over."""
        return sum(move.skipped for move in self.moves)

    @property
    def again(self) -> int:
        """Offsets that are read a second time."""
        return sum(move.again for move in self.moves)

    def command(self, reason: str | None = None) -> str:
        """The command that does it."""
        why = shlex.quote(reason) if reason else "TEXT"
        return f"frazil reset-offsets {self.stream} {self.request.arguments} --reason {why} --yes"

    @property
    def undo(self) -> str | None:
        """The command that takes it back, as long as the stream has not run since; None if there is none.

        Positions that Kafka no longer keeps cannot be gone back to.
        """
        before = {m.partition: m.before for m in self.changed if m.kept.start <= m.before <= m.kept.end}
        if not before:
            return None
        return f"frazil reset-offsets {self.stream} --to {explicit_offsets(before)} --reason 'undo the reset' --yes"


def describe_reset(
    spec: StreamSpec,
    request: ResetRequest,
    targets: Mapping[str, Target],
    made: tuple[ResetMove, ...],
    newest: Stamp | None,
    older: Sequence[Stamp],
    *,
    on_count: Counting,
    obstacle: FrazilError | None = None,
    unfinished: bool = False,
    note: str = "",
) -> ResetPlan:
    """A plan of `made`, with the rows of its ranges counted.

    Args:
        newest: The anchor's newest stamp before the reset.
        older: The anchor's stamps before the reset that are still kept, newest first.
    """
    ranges = {move.partition: move.range for move in made}
    return ResetPlan(
        spec.stream,
        tuple(
            PlannedTable(each, _counted(spec.stream, each, targets[each.name], ranges, on_count))
            for each in spec.targets
        ),
        request,
        made,
        obstacle,
        unfinished,
        (newest.valid_through_ms, valid_through_after(newest, older, made)) if newest else (None, None),
        _rollback(targets[spec.coordinator], made),
        note,
        _late_below(spec, newest) if any(move.again for move in made) else None,
        late.given.pattern if (late := spec.late_tables) and late.route else spec.late_table,
    )


def _late_below(spec: StreamSpec, newest: Stamp | None) -> int | None:
    """The watermark, which a reset leaves where it is, of a stream whose late records do not land among the timely."""
    if spec.event_time is None or spec.event_time.late == "land" or newest is None or newest.event_time is None:
        return None
    return newest.event_time.watermark_ms


def _counted(
    stream: str, target: TargetSpec, table: Target, ranges: Mapping[TopicPartition, OffsetRange], on_count: Counting
) -> RowsInRanges:
    only = stream if target.role == "dead_letters" else None
    return rows_in_ranges(table.table, target.coordinates, ranges, stream=only, on_progress=on_count)


def _rollback(anchor: Target, made: tuple[ResetMove, ...]) -> PlannedRollback | None:
    back = {move.partition: move for move in made if move.again}
    if not back or any(move.skipped for move in made):
        return None
    found: PlannedRollback | None = None
    # From the oldest on, up to the first that stood further: later ones, of a reset, may hold the records all the same.
    for snapshot_id, stamp in reversed(stamps_along_main(anchor.table.metadata, anchor.stream)):
        at = {partition: stamp.position.get(partition, 0) for partition in back}
        if any(at[partition] > move.after for partition, move in back.items()):
            break
        # Landing again would begin there, so Kafka must have it.
        if all(at[partition] >= move.kept.start for partition, move in back.items()):
            found = PlannedRollback(snapshot_id, stamp.position)
    return found
