"""Plan of a table's completion: pure decisions on which announced files of a sink the table receives.

A file is committed if its announcement lies below its table's floor. The takeover commits the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobs.migration.sink_protocol.sink_floor import SinkFloor
from jobs.migration.takeover.control_topic import AnnouncedFile, ControlFacts
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.takeover_refusal import ONE_COMMIT, TakeoverRefusedError

PassedOver = Literal["complete", "leave"]

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Announced files that are in no table, and that may not belong there.

    Attributes:
        reason: Why, as a sentence's end.
        completable: Whether they can be committed if an operator says so.
    """

    table: str
    reason: str
    files: tuple[AnnouncedFile, ...]
    completable: bool

    @property
    def sentence(self) -> str:
        """The files, where they were announced, and the reason."""
        rows = sum(file.rows for file in self.files)
        offsets = ", ".join(f"{file.control_partition}:{file.control_offset}" for file in self.files[:_NAMED])
        more = f" and {len(self.files) - _NAMED} more" if len(self.files) > _NAMED else ""
        return (
            f"{len(self.files)} announced files of table {self.table} with {rows:,} rows (control topic at "
            f"{offsets}{more}) {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class TableFacts:
    """State of a table as the plan needs it.

    Attributes:
        exists: Whether the catalog has it.
        uuid: UUID of the table.
        floor: See `SinkFloor`.
        live: Paths of candidate files that are in the table's head.
        misfits: Paths of candidate files that cannot be committed, with the reason.
    """

    name: str
    exists: bool
    uuid: str = ""
    floor: SinkFloor = field(default_factory=lambda: SinkFloor(None))
    live: frozenset[str] = frozenset()
    misfits: Mapping[str, str] = field(default_factory=dict)

    def has_uuid(self, uuid: str | None) -> bool:
        """Whether an announcement with this UUID is for this table, and not for an earlier one of its name."""
        return self.exists and uuid in (None, self.uuid)


@dataclass(frozen=True, slots=True)
class TableCompletion:
    """Files that a table receives before the stream starts.

    Attributes:
        files: Announced files that no snapshot has.
        left_out: Announced files that an operator chose to leave out.
        floor: Floor of the table before it receives them.
    """

    table: str
    files: tuple[AnnouncedFile, ...]
    floor: SinkFloor
    left_out: tuple[AnnouncedFile, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files that it receives."""
        return sum(file.rows for file in self.files)


def plan_tables(
    sink: Sink, facts: ControlFacts, tables: Mapping[str, TableFacts], passed_over: PassedOver | None
) -> tuple[TableCompletion, ...]:
    """Decide which announced files each table receives.

    Args:
        tables: Every table that files were announced for, and every table of the stream.
        passed_over: An operator's answer on files that the sink has gone past.

    Raises:
        TakeoverRefusedError: Files are in no table, and cannot be committed, or may not belong there.
    """
    completions: list[TableCompletion] = []
    unplaced: list[Unplaced] = []
    for name, table in tables.items():
        candidates = [
            file
            for file in facts.files_of(name, table.floor)
            if file.path not in table.live
            and not _went_to_dropped_table(facts, table, file.control_partition, file.control_offset, file.table_uuid)
        ]
        _refuse_deletes(facts, name, table)
        files, doubtful = _separate_doubtful(facts, table, candidates)
        left_out: list[AnnouncedFile] = []
        for group in doubtful:
            if passed_over == "leave":
                left_out += group.files
            elif passed_over == "complete" and group.completable:
                files += group.files
            else:
                unplaced.append(group)
        completions.append(TableCompletion(name, tuple(files), table.floor, tuple(left_out)))
    if unplaced:
        raise TakeoverRefusedError(
            f"{sink.described}: " + "; ".join(group.sentence for group in unplaced) + ".",
            fix=f"{ONE_COMMIT}; or decide: --passed-over leave goes on without them"
            + (", --passed-over complete commits them" if all(group.completable for group in unplaced) else ""),
        )
    return tuple(completions)


def _went_to_dropped_table(
    facts: ControlFacts, table: TableFacts, partition: int, offset: int, uuid: str | None
) -> bool:
    """Whether an announcement was committed to a table of that name that was dropped since."""
    return not table.has_uuid(uuid) and offset < facts.coordinator.get(partition, 0)


def _refuse_deletes(facts: ControlFacts, name: str, table: TableFacts) -> None:
    for partition, offset, announcement in facts.announcements:
        if (
            announcement.table != name
            or not announcement.delete_files
            or offset < facts.first_open(table.floor, partition)
        ):
            continue
        if not _went_to_dropped_table(facts, table, partition, offset, announcement.table_uuid):
            raise TakeoverRefusedError(
                f"the sink announced {announcement.delete_files} delete files for table {name} (control topic at "
                f"{partition}:{offset}) and has not committed them: it upserts, and frazil does not commit these.",
                fix=ONE_COMMIT,
            )


def _separate_doubtful(
    facts: ControlFacts, table: TableFacts, candidates: Sequence[AnnouncedFile]
) -> tuple[list[AnnouncedFile], list[Unplaced]]:
    """Files that certainly belong to the table, and the others grouped by the reason."""
    certain: list[AnnouncedFile] = []
    doubtful: dict[tuple[str, bool], list[AnnouncedFile]] = {}
    for file in candidates:
        doubt = _doubt(facts, table, file)
        if doubt is None:
            certain.append(file)
        else:
            doubtful.setdefault(doubt, []).append(file)
    groups = [
        Unplaced(table.name, reason, tuple(files), completable) for (reason, completable), files in doubtful.items()
    ]
    return certain, groups


def _doubt(facts: ControlFacts, table: TableFacts, file: AnnouncedFile) -> tuple[str, bool] | None:
    """Why a file may not belong to the table, and whether it can be committed all the same; None if it belongs."""
    if not table.exists:
        return "have no table any more", False
    if not table.has_uuid(file.table_uuid):
        return "were written for a table of that name that was dropped since", False
    if misfit := table.misfits.get(file.path):
        return misfit, False
    if not table.floor.knows(file.control_partition):
        return "may have been committed: the snapshots that would show it have expired", False
    if table.floor.elsewhere:
        return "were taken out by a rollback, or the table was replaced", True
    if file.control_offset < facts.coordinator.get(file.control_partition, 0):
        return "were passed over by the sink's coordinator: it counts them as committed, and no snapshot has them", True
    return None
