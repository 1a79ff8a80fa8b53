"""Plan of a reset of offsets: its effects, as data for a person's decision."""

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
    """A rollback that could replace the reset: to a snapshot without anything that would be read again.

    Attributes:
        position: Position of the stream in that snapshot.
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
    """Effects of a reset, planned or done.

    Attributes:
        moves: Moves of all partitions in the request, also of those that stay.
        tables: Tables of the stream, the coordinator first, each with its rows from the ranges concerned.
        obstacle: Reason why it cannot be done now; None if it can.
        unfinished: Whether a batch was being committed when the last driver died; it is finished first.
        valid_through_ms: Time through which the stream is complete, before and after.
        rollback: Newest possible rollback, for a reset that only goes back.
        late_below_ms: Event time below which records read again are late, for a reset that goes back; None if they land
            among the timely rows. Milliseconds since 1970.
        late_table: Table of those late rows, with ``{table}`` in it if each table has one; None if they become dead
            letters.
        note: Note on the stamps, once it is done.
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
        """The stream's table with this role."""
        return next(table for table in self.tables if table.target.role == role)

    @property
    def names(self) -> str:
        """Names of the tables, as a sentence lists them."""
        return " and ".join(table.target.name for table in self.tables)

    @property
    def changed(self) -> tuple[ResetMove, ...]:
        """Moves of the partitions whose position changes."""
        return tuple(move for move in self.moves if move.before != move.after)

    @property
    def skipped(self) -> int:
        """Number of offsets that are passed over."""
        return sum(move.skipped for move in self.moves)

    @property
    def again(self) -> int:
        """Number of offsets that are read a second time."""
        return sum(move.again for move in self.moves)

    def command(self, reason: str | None = None) -> str:
        """Command that carries it out."""
        why = shlex.quote(reason) if reason else "TEXT"
        return f"frazil reset-offsets {self.stream} {self.request.arguments} --reason {why} --yes"

    @property
    def undo(self) -> str | None:
        """Command that undoes it, as long as the stream has not run since; None if there is none.

        The stream cannot go back to offsets that Kafka no longer keeps.
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
        newest: The coordinator's newest stamp before the reset.
        older: Earlier stamps of the coordinator that still exist, newest first.
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
    """The watermark, which a reset leaves unchanged, if the stream's late records do not land among the timely rows."""
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
    # From the oldest up to the first that is further. Later ones, after a reset, may hold the records nevertheless.
    for snapshot_id, stamp in reversed(stamps_along_main(anchor.table.metadata, anchor.stream)):
        at = {partition: stamp.position.get(partition, 0) for partition in back}
        if any(at[partition] > move.after for partition, move in back.items()):
            break
        # Landing again would begin there, so Kafka must still have it.
        if all(at[partition] >= move.kept.start for partition, move in back.items()):
            found = PlannedRollback(snapshot_id, stamp.position)
    return found
