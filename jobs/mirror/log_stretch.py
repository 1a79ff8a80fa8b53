"""Log stretch: what of a changelog is merged at once, where topics of it were made again, or their logs were cut.

Offsets of a topic's former log and of its new one overlap, so changes of both are never put in order together: what is
left of the former log is merged first, then the new one from its first offset on. What a replay lands later may be of
either log, so it is merged by itself, as changes that come late: their keys are folded again, by positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.commit.lineage import ancestors
from jobs.commit.offsets import Positions, TopicPartition
from jobs.commit.other_logs import AnotherLog, other_logs
from jobs.commit.stamps import PROPERTY_PREFIX, SUMMARY_KEY, Stamp
from jobs.mirror.another_log import ordered_by_row, refuse_mixed
from jobs.mirror.changelog_increment import ChangelogIncrement, changelog_increment, every_file, refuse_moved
from jobs.mirror.merge_plan import MergeCounts, MergeResult, MirrorState, PartitionState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.schema.long_properties import whole_property
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec

_EXPIRED = "snapshots of the changelog since its last merge have expired, so all of the changelog is read"
_BEHIND_ALL = 1 << 62
"""An offset that no change has: all of a replay is late."""


@dataclass(frozen=True, slots=True)
class LogStretch:
    """What is merged at once.

    Attributes:
        stream: The stream's id.
        found: The changes.
        known: What the mirror's stamp says, of a snapshot of the changelog right before them; None: it has nothing.
        last: Whether they reach up to the changelog's head.
        passed: Whether `known` is of a later snapshot than the stamp: another log begins in between.
        late: Whether all of them are of replays.
        logs: Topics of which a mirror without a stamp gets the changes of several logs, ordered by their rows.
    """

    stream: str
    found: ChangelogIncrement
    known: MirrorStamp | None
    last: bool = True
    passed: bool = False
    late: bool = False
    logs: frozenset[str] = frozenset()

    @property
    def state(self) -> MirrorState | None:
        """What the changes are put in order behind."""
        if self.known is None or not self.known.state.logs:
            return self.known.state if self.known else None
        state = self.known.state
        if self.late:
            found = {p: _from(each, _BEHIND_ALL, p, state.logs) for p, each in state.partitions.items()}
            return replace(state, partitions=found)
        before, now = (each.positions.get(self.stream, {}) for each in (self.known, self.found))
        return _with_other_partitions(state, before, now)

    def state_behind(self, state: MirrorState) -> MirrorState:
        """What the mirror knows once they are merged.

        Args:
            state: As the merge has it.
        """
        logs = self.known.state.logs if self.known else self.logs | state.logs
        logs &= {each.topic for each in state.partitions}
        return _placed(replace(state, logs=logs), self.found.positions.get(self.stream, {})) if logs else state


def next_stretch(spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None) -> LogStretch:
    """What a mirror lacks of its changelog, up to where another log begins, or a replay.

    Args:
        known: What the mirror's stamp says; None: it has nothing.

    Raises:
        AnotherLogError: Snapshots in between have expired, so what is of which log is not known.
        ChangelogMovedError, FrazilError, FileNotFoundError: As `changelog_increment`.
    """
    metadata, stream = changelog.metadata, spec.stream
    answers = other_logs(metadata, stream, 0)
    if known is None or not (answers or known.state.logs):
        found = changelog_increment(metadata, changelog.io, stream, mirror.table, known)
        logs = frozenset(each.topic for each in answers) if ordered_by_row(spec) else frozenset[str]()
        return LogStretch(stream, found, known, logs=logs)
    known, passed = replace(known, state=_of_earlier_release(known, stream, answers)), False
    expired = refuse_moved(metadata, stream, mirror.table, known)
    begun = expired and any(each.sequence > known.sequence for each in answers)
    while True:
        end, late = _end(metadata, stream, known, {each.sequence for each in answers})
        until = metadata if end is None else _as_of(metadata, stream, end)
        found = changelog_increment(until, changelog.io, stream, mirror.table, known)
        if begun or found.why:
            refuse_mixed(spec, mirror, known, answers)
        if begun and found.until is not None:
            # Which offsets have gone with the snapshots is not known where they begin anew.
            found = replace(found, files=every_file(until, changelog.io, stream), why=_EXPIRED)
        if found.files or end is None or found.until is None:
            return LogStretch(stream, found, known, end is None, passed, late)
        known, passed = _passed(known, stream, found, answers), True


def both_results(first: MergeResult, second: MergeResult | None) -> MergeResult:
    """What the merges of two stretches came to; None: there was nothing in the second one."""
    if second is None:
        return first
    counts = {name: number + getattr(second.counts, name) for name, number in asdict(first.counts).items()}
    return MergeResult(second.state, MergeCounts(**counts), (*first.snapshots, *second.snapshots))


def _passed(known: MirrorStamp, stream: str, found: ChangelogIncrement, answers: Sequence[AnotherLog]) -> MirrorStamp:
    """What a mirror knows behind snapshots without changes, the answers in them among it."""
    until = found.until
    assert until is not None, "it is behind something"
    sequence = until.sequence_number or 0
    begun = {each.topic for each in answers if known.sequence < each.sequence <= sequence}
    logs = known.state.logs | (begun & {each.topic for each in known.state.partitions})
    state = _placed(replace(known.state, logs=logs), found.positions.get(stream, {}))
    return replace(
        known,
        snapshot_id=until.snapshot_id,
        sequence=sequence,
        at_ms=until.timestamp_ms,
        positions=found.positions,
        state=state,
    )


def _of_earlier_release(known: MirrorStamp, stream: str, answers: Sequence[AnotherLog]) -> MirrorState:
    """The state of a stamp; one of an earlier release may have gone on by offsets of a former log."""
    state, positions = known.state, known.positions.get(stream, {})
    begun = {each.topic for each in answers if each.sequence <= known.sequence}
    ahead = {p.topic for p, each in state.partitions.items() if each.next_offset > positions.get(p, 0)}
    logs = state.logs | (begun & ahead)
    return _placed(replace(state, logs=logs), positions)


def _placed(state: MirrorState, positions: Positions) -> MirrorState:
    """The state, of topics with several logs with the offsets up to which the stream has landed the present one."""
    found = {p: _from(each, positions.get(p, 0), p, state.logs) for p, each in state.partitions.items()}
    return replace(state, partitions=found)


def _from(state: PartitionState, offset: int, partition: TopicPartition, logs: frozenset[str]) -> PartitionState:
    return replace(state, next_offset=offset) if partition.topic in logs else state


def _with_other_partitions(state: MirrorState, before: Positions, now: Positions) -> MirrorState:
    """The state of topics that were made again with other partitions, by which keys come to another one.

    What was sent again to one of these need not be what the mirror has, as another one may have been behind. So their
    first change has to have no lower position than all of the former log, whenever it happened.
    """
    found = dict(state.partitions)
    for topic in sorted(state.logs):
        former = {p: each for p, each in state.partitions.items() if p.topic == topic}
        there = {p for p in now if p.topic == topic}
        if there == {*former} or any(each.position is None for each in former.values()):
            continue
        greatest = max(former.values(), key=lambda each: each.position or "")
        for partition in {*former, *there}:
            if not before.get(partition, 0):
                own = former.get(partition, greatest)
                found[partition] = PartitionState(0, greatest.position, None, own.generations)
    return replace(state, partitions=found)


def _end(metadata: TableMetadata, stream: str, known: MirrorStamp, answers: set[int]) -> tuple[Snapshot | None, bool]:
    """The last snapshot of a stretch, None if it is the head, and whether its changes are of replays."""
    line = [each for each in ancestors(metadata) if (each.sequence_number or 0) > known.sequence]
    late: bool | None = None
    before: Snapshot | None = None
    for each in reversed(line):
        if each.sequence_number in answers:
            return (each if late is None else before), bool(late)
        if known.state.logs and (by := _landed_by(each)) is not None and by.partition("~")[0] == stream:
            replayed = by != stream
            if late is not None and replayed != late:
                return before, late
            late = replayed
        elif late is None and _landed_by(each) is not None:
            late = False
        before = each
    return None, bool(late)


def _landed_by(snapshot: Snapshot) -> str | None:
    """The id of what has landed rows by a snapshot; None if it has none."""
    summary = snapshot.summary
    if summary is None or summary.operation != Operation.APPEND or summary["added-data-files"] in (None, "0"):
        return None
    text = summary.additional_properties.get(SUMMARY_KEY)
    return Stamp.from_json(text).stream if text else None


def _as_of(metadata: TableMetadata, stream: str, end: Snapshot) -> TableMetadata:
    """A table's metadata with main at a former snapshot, as far as an increment goes by it."""
    main = metadata.refs[MAIN_BRANCH].model_copy(update={"snapshot_id": end.snapshot_id})
    sequence = end.sequence_number or 0
    kept = {k: v for k, v in metadata.properties.items() if not _is_later(metadata.properties, stream, k, sequence)}
    refs = {**metadata.refs, MAIN_BRANCH: main}
    return metadata.model_copy(update={"current_snapshot_id": end.snapshot_id, "refs": refs, "properties": kept})


def _is_later(properties: Mapping[str, str], stream: str, key: str, sequence: int) -> bool:
    """Whether a property is a stamp of the stream, or of a replay of it, of a later snapshot."""
    name = key.removeprefix(PROPERTY_PREFIX)
    if not key.startswith(PROPERTY_PREFIX) or name.partition("~")[0] != stream:
        return False
    text = whole_property(properties, key)
    return bool(text) and Stamp.from_json(text, properties).sequence > sequence
