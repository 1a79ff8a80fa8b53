"""Plan of a takeover: pure decisions on what Kafka, the control topic and the tables say of a sink.

The sink's worker commits source offsets and the announcement of its files in one Kafka transaction. So the group's
offsets, and all announced files, are exactly what the sink has taken. A file is committed if its announcement lies
below its table's floor. The takeover commits the others, and the stream starts at the group's offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.base.errors import FrazilError
from jobs.migration.sink_protocol.control_events import Announcement, ControlEvent, Progress
from jobs.migration.sink_protocol.sink_floor import ControlOffsets, SinkFloor
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition

PassedOver = Literal["complete", "leave"]

# Events below the floors that are read as well: they show how far the workers had read.
LOOK_BACK = 2_000
_NAMED = 5
ONE_COMMIT = "start the connector, wait until it has committed once, stop it, then run this again"


class TakeoverRefusedError(FrazilError):
    """A stream cannot take over from a sink, or not now.

    Safe: The stream's position is as it was. Files of the sink that were committed stay, and are committed once.
    Next: the command that the message names; then `frazil takeover S --from-connect NAME` again
    """


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a stream starts in one partition.

    Attributes:
        committed: Offset that the sink's group has committed; None if it has none, and the partition holds no record.
        announced: Next offset by the newest answer of a worker on the control topic; None if none was read.
        kept: Offsets that Kafka keeps.
        start: First offset that frazil reads.
    """

    partition: TopicPartition
    committed: int | None
    announced: int | None
    kept: OffsetRange
    start: int


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    """A data file as a worker announced it, with the place of the announcement."""

    control_partition: int
    control_offset: int
    table_uuid: str | None
    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Location of the file."""
        return self.fields["file_path"]

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return self.fields["record_count"]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Announced files that are in no table, and of which it is not certain that they belong there.

    Attributes:
        why: The reason, as a sentence's end.
        completable: Whether they can be committed if a person says so.
    """

    table: str
    why: str
    files: tuple[AnnouncedFile, ...]
    completable: bool

    @property
    def sentence(self) -> str:
        """What they are."""
        rows = sum(file.rows for file in self.files)
        where = ", ".join(f"{file.control_partition}:{file.control_offset}" for file in self.files[:_NAMED])
        more = f" and {len(self.files) - _NAMED} more" if len(self.files) > _NAMED else ""
        return (
            f"{len(self.files)} announced files of table {self.table} with {rows:,} rows (control topic at "
            f"{where}{more}) {self.why}"
        )


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table says of a sink.

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


@dataclass(frozen=True, slots=True)
class TableCompletion:
    """What a table receives before the stream starts.

    Attributes:
        files: Announced files that no snapshot has.
        left: Announced files that a person chose to leave out.
        floor: Where the table stood in the control topic.
    """

    table: str
    files: tuple[AnnouncedFile, ...]
    floor: SinkFloor
    left: tuple[AnnouncedFile, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files that it receives."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class ControlFacts:
    """What a control topic says of a sink.

    Attributes:
        log: The topic as Kafka keeps it.
        coordinator: Offsets through which the sink's coordinator has committed all tables.
        announcements: Announcements of the sink, with their places, in order.
        progress: Next offset of each source partition by the workers' newest answers.
    """

    log: ControlLog
    coordinator: ControlOffsets
    announcements: tuple[tuple[int, int, Announcement], ...]
    progress: Positions

    def files_of(self, table: str, floor: SinkFloor) -> tuple[AnnouncedFile, ...]:
        """Files announced for a table at or above its floor, each path once, without empty ones."""
        found: dict[str, AnnouncedFile] = {}
        for partition, offset, said in self.announcements:
            if said.table != table or offset < self.first_open(floor, partition):
                continue
            for fields in said.data_files:
                if fields["record_count"] > 0:
                    file = AnnouncedFile(partition, offset, said.table_uuid, fields)
                    found.setdefault(file.path, file)
        return tuple(found.values())

    def first_open(self, floor: SinkFloor, partition: int) -> int:
        """Offset of the control topic from which on announcements may be in no snapshot."""
        return floor.of(partition) if floor.known else self.coordinator.get(partition, 0)

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that files were announced for."""
        return tuple(dict.fromkeys(said.table for _, _, said in self.announcements))


def control_facts(
    sink: Sink, log: ControlLog, coordinator: ControlOffsets, events: Iterable[ControlEvent]
) -> ControlFacts:
    """Collect what a sink's own events say."""
    announcements: list[tuple[int, int, Announcement]] = []
    newest: dict[int, dict[TopicPartition, int]] = {}
    for event in events:
        if event.group != sink.event_group:
            continue
        if isinstance(event.payload, Announcement):
            announcements.append((event.partition, event.offset, event.payload))
        elif isinstance(event.payload, Progress):
            newest.setdefault(event.partition, {}).update(event.payload.offsets)
    progress: dict[TopicPartition, int] = {}
    for offsets in newest.values():
        for partition, at in offsets.items():
            # A partition that went to another task is answered for on another control partition since.
            progress[partition] = max(at, progress.get(partition, 0))
    return ControlFacts(log, coordinator, tuple(announcements), progress)


def ranges_to_read(log: ControlLog, coordinator: ControlOffsets, floors: Sequence[SinkFloor]) -> dict[int, OffsetRange]:
    """Offsets of the control topic that decide a takeover, and some before them."""
    found: dict[int, OffsetRange] = {}
    for partition, end in log.end.items():
        known = [coordinator.get(partition, 0), *(floor.of(partition) for floor in floors if floor.known)]
        start = max(log.earliest[partition], min(known) - LOOK_BACK)
        found[partition] = OffsetRange(min(start, end), end)
    return found


def check_control_log(
    sink: Sink, log: ControlLog, coordinator: ControlOffsets, floors: Mapping[str, SinkFloor]
) -> None:
    """Refuse a control topic that is not the one which the tables know, or lacks events that count.

    Raises:
        TakeoverRefusedError: It was recreated, or retention has removed announcements that may be in no table.
    """
    topic = sink.control_topic
    for what, offsets in [
        *((f"table {name}", floor.offsets or {}) for name, floor in floors.items()),
        (f"group {sink.coordinator_group}", coordinator),
    ]:
        beyond = {p: at for p, at in offsets.items() if at > log.end.get(p, 0)}
        if beyond:
            partition, at = next(iter(sorted(beyond.items())))
            raise TakeoverRefusedError(
                f"control topic {topic} ends at {log.end.get(partition, 0)} in partition {partition}, and {what} has "
                f"applied it up to {at}: the topic was deleted and created again, or it is another one.",
                fix="name the topic that the sink writes with --control-topic; if it was created again, give the sink "
                "another control topic, let it commit once, stop it, then run this again",
            )
    for partition, earliest in log.earliest.items():
        if coordinator.get(partition, 0) >= earliest:
            continue
        if not earliest:
            continue
        short = next((name for name, floor in floors.items() if floor.of(partition) < earliest), None)
        if short is not None or sink.dynamic:
            known = f", and table {short} has applied it up to {floors[short].of(partition)}" if short else ""
            raise TakeoverRefusedError(
                f"control topic {topic} keeps partition {partition} from offset {earliest} on{known}: files that were "
                "announced before may be in no table.",
                fix=ONE_COMMIT,
            )


def plan_tables(
    sink: Sink, facts: ControlFacts, tables: Mapping[str, TableFacts], passed_over: PassedOver | None
) -> tuple[TableCompletion, ...]:
    """Decide which announced files each table receives.

    Args:
        tables: Every table that files were announced for, and every table of the stream.
        passed_over: A person's answer on files that the sink has gone past.

    Raises:
        TakeoverRefusedError: Files are in no table, and cannot be committed, or may not belong there.
    """
    completions: list[TableCompletion] = []
    unplaced: list[Unplaced] = []
    for name, table in tables.items():
        files = [file for file in facts.files_of(name, table.floor) if file.path not in table.live]
        _refuse_deletes(facts, name, table)
        sure, doubtful = _sorted_out(facts, table, files)
        left: list[AnnouncedFile] = []
        for each in doubtful:
            if passed_over == "leave":
                left += each.files
            elif passed_over == "complete" and each.completable:
                sure += each.files
            else:
                unplaced.append(each)
        completions.append(TableCompletion(name, tuple(sure), table.floor, tuple(left)))
    if unplaced:
        raise TakeoverRefusedError(
            f"{sink.described}: " + "; ".join(each.sentence for each in unplaced) + ".",
            fix=f"{ONE_COMMIT}; or decide: --passed-over leave goes on without them"
            + (", --passed-over complete commits them" if all(each.completable for each in unplaced) else ""),
        )
    return tuple(completions)


def _refuse_deletes(facts: ControlFacts, name: str, table: TableFacts) -> None:
    for partition, offset, said in facts.announcements:
        if said.table == name and said.delete_files and offset >= facts.first_open(table.floor, partition):
            raise TakeoverRefusedError(
                f"the sink announced {said.delete_files} delete files for table {name} (control topic at "
                f"{partition}:{offset}) and has not committed them: it upserts, and frazil does not commit these.",
                fix=ONE_COMMIT,
            )


def _sorted_out(
    facts: ControlFacts, table: TableFacts, files: Sequence[AnnouncedFile]
) -> tuple[list[AnnouncedFile], list[Unplaced]]:
    """Files that belong to the table for certain, and the others by the reason."""
    sure: list[AnnouncedFile] = []
    doubtful: dict[tuple[str, bool], list[AnnouncedFile]] = {}
    for file in files:
        doubt = _doubt(facts, table, file)
        if doubt is None:
            sure.append(file)
        else:
            doubtful.setdefault(doubt, []).append(file)
    return sure, [Unplaced(table.name, why, tuple(each), can) for (why, can), each in doubtful.items()]


def _doubt(facts: ControlFacts, table: TableFacts, file: AnnouncedFile) -> tuple[str, bool] | None:
    if not table.exists:
        return "have no table any more", False
    if file.table_uuid is not None and file.table_uuid != table.uuid:
        return "were written for a table of that name that was dropped since", False
    if misfit := table.misfits.get(file.path):
        return misfit, False
    if not table.floor.known:
        return "may have been committed: the snapshots that tell have expired", False
    if table.floor.elsewhere:
        return "were taken out by a rollback, or the table was replaced", True
    if file.control_offset < facts.coordinator.get(file.control_partition, 0):
        return "were passed over by the sink's coordinator: it holds them for committed, and no snapshot has them", True
    return None


def plan_partitions(
    sink: Sink, log: LogState, committed: Positions, progress: Positions, *, trust_group: bool
) -> tuple[PartitionStart, ...]:
    """Decide where the stream starts.

    Args:
        log: The stream's topics.
        committed: Offsets of the sink's group.
        progress: Next offsets by the workers' answers on the control topic.
        trust_group: A person has said that the group is right where the two disagree.

    Raises:
        TakeoverRefusedError: The group has no offsets, Kafka does not keep them, or the answers disagree.
    """
    group = sink.offset_group
    if not any(partition in committed for partition in log.earliest):
        raise TakeoverRefusedError(
            f"group {group} has no offsets of {', '.join(sorted(log.topics)) or 'the stream'}: the sink has committed "
            "nothing, the group has expired, or it is another one.",
            fix=f"{ONE_COMMIT}; if the sink has never landed anything, there is nothing to take over: frazil run",
        )
    found: list[PartitionStart] = []
    different: list[str] = []
    for partition in sorted(log.earliest):
        at, said = committed.get(partition), progress.get(partition)
        kept = OffsetRange(log.earliest[partition], log.watermarks.get(partition, log.latest[partition]))
        if at is None and (said is not None or kept.start < kept.end):
            raise TakeoverRefusedError(
                f"group {group} has no offset of {partition}, which holds records {kept}"
                + (f"; the sink's workers answered that they had read up to {said}." if said is not None else "."),
                fix=ONE_COMMIT,
            )
        if at is not None:
            _refuse_lost(group, partition, at, kept, log.latest[partition])
            if said is not None and said != at:
                different.append(f"{partition}: {at} in the group, {said} on the control topic")
        found.append(PartitionStart(partition, at, said, kept, kept.start if at is None else at))
    if different and not trust_group:
        raise TakeoverRefusedError(
            f"the offsets of group {group} are not those that {sink.control_topic} says: "
            f"{'; '.join(different[:_NAMED])}. Somebody has reset one of them.",
            fix=f"{ONE_COMMIT}; if the group was reset on purpose, --trust-group starts at its offsets",
        )
    return tuple(found)


def _refuse_lost(group: str, partition: TopicPartition, at: int, kept: OffsetRange, decided: int) -> None:
    if at > kept.end:
        raise TakeoverRefusedError(
            f"group {group} stands at {at} in {partition}, which ends at {kept.end}: the topic was recreated, or it is "
            "on other brokers.",
            fix="check that the stream reads the sink's topic; if it was recreated, let the sink commit once",
        )
    if at > decided:
        raise TakeoverRefusedError(
            f"group {group} stands at {at} in {partition}, where a transaction is open from {decided} on: the sink has "
            "read records of which it is not decided whether they count.",
            fix="run this again once the transaction has ended",
        )
    if at < kept.start:
        raise TakeoverRefusedError(
            f"group {group} stands at {at} in {partition}, of which Kafka keeps {kept}: records were removed before "
            "the sink had read them.",
            fix=f"if they may be lost, set the group to {kept.start} there (kafka-consumer-groups.sh --reset-offsets), "
            "and run this again with --trust-group",
        )
