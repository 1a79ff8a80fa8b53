"""Log stretch: what of a changelog is merged at once, where topics of it were made again, or their logs were cut.

Offsets of a topic's former log and of its new one overlap, so changes of both are never put in order together: what is
left of the former log is merged first, then the new one from its first offset on. What a replay lands later may be of
either log, so it is merged by itself, as changes that come late: their keys are folded again, by positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.commit.lineage import ancestors
from jobs.commit.offsets import Positions, TopicPartition
from jobs.commit.other_logs import AnotherLog, other_logs
from jobs.commit.stamps import PROPERTY_PREFIX, SUMMARY_KEY, Stamp
from jobs.mirror.another_log import ordered_without_offsets, refuse_letters, refuse_mixed, refuse_other_partitions
from jobs.mirror.changelog_increment import ChangelogIncrement, changelog_increment, refuse_moved
from jobs.mirror.former_log import FormerLog
from jobs.mirror.merge_plan import MergeCounts, MergeResult, MirrorState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.schema.long_properties import whole_property
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec

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
        answered: Whether offsets of a topic have ever begun anew in the changelog.
    """

    stream: str
    found: ChangelogIncrement
    known: MirrorStamp | None
    last: bool = True
    passed: bool = False
    late: bool = False
    answered: bool = False

    @property
    def state(self) -> MirrorState | None:
        """What the changes are put in order behind."""
        if self.known is None or not self.late:
            return self.known.state if self.known else None
        return _placed(self.known.state, self.known.state.logs, _BEHIND_ALL)

    def state_behind(self, state: MirrorState) -> MirrorState:
        """What the mirror knows once they are merged.

        Args:
            state: As the merge has it.
        """
        if self.known is None or not self.known.state.logs:
            return state
        before = self.known.state
        if self.late:
            # Of a partition without a change, what the stream has landed there has been seen.
            own = {**self.known.positions.get(self.stream, {}), **before.next_offsets}
            state = _placed(state, before.logs, own)
        return replace(state, logs={topic: _come_on(topic, log, before, state) for topic, log in before.logs.items()})


def next_stretch(spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None) -> LogStretch:
    """What a mirror lacks of its changelog, up to where another log begins, or a replay.

    Args:
        known: What the mirror's stamp says; None: it has nothing.

    Raises:
        AnotherLogError: What is of which log is not known, or the new log has other partitions.
        ChangelogMovedError, FrazilError, FileNotFoundError: As `changelog_increment`.
    """
    metadata, stream = changelog.metadata, spec.stream
    answers = other_logs(metadata, stream, 0)
    if known is None or not (answers or known.state.logs):
        found = changelog_increment(metadata, changelog.io, stream, mirror.table, known)
        return LogStretch(stream, found, known, answered=bool(answers))
    known, passed = replace(known, state=_of_earlier_release(known, stream, answers)), False
    if refuse_moved(metadata, stream, mirror.table, known):
        # All of the changelog is merged at once.
        found = changelog_increment(metadata, changelog.io, stream, mirror.table, known)
        refuse_mixed(spec, mirror, changelog, known, answers, found)
        return LogStretch(stream, found, known, answered=bool(answers))
    while True:
        end, late = _end(metadata, stream, known, {each.sequence for each in answers})
        until = metadata if end is None else _as_of(metadata, stream, end)
        found = changelog_increment(until, changelog.io, stream, mirror.table, known)
        if found.files or end is None or found.until is None:
            refuse_other_partitions(spec, mirror, known, found.positions.get(stream, {}))
            if late:
                refuse_letters(spec, mirror, changelog, known, found.files)
            return LogStretch(stream, found, known, end is None, passed, late, bool(answers))
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
    before, now = (each.positions.get(stream, {}) for each in (known, found))
    logs = dict(known.state.logs)
    for topic in sorted(begun):
        own = frozenset(each.partition for each in known.state.partitions if each.topic == topic)
        ends = _ends(until, topic)
        there = {each.partition for each in before if each.topic == topic} | {*(ends or ())}
        log = FormerLog(bool(own), max(there, default=-1) + 1, own, ends)
        logs[topic] = logs[topic].with_later(log) if topic in logs else log
    return replace(
        known,
        snapshot_id=until.snapshot_id,
        sequence=sequence,
        at_ms=until.timestamp_ms,
        positions=found.positions,
        state=replace(_placed(known.state, begun, now), logs=logs),
    )


def _ends(answered: Snapshot, topic: str) -> dict[int, int] | None:
    """Up to which offsets a topic's former log was read, by partition; None where its answer is of another snapshot."""
    text = answered.summary.additional_properties.get(SUMMARY_KEY) if answered.summary else None
    decision = Stamp.from_json(text).decision if text else None
    found = {p.partition: each.end for p, each in decision.again.items() if p.topic == topic} if decision else {}
    return found or None


def _of_earlier_release(known: MirrorStamp, stream: str, answers: Sequence[AnotherLog]) -> MirrorState:
    """The state of a stamp; one of an earlier release says nothing of other logs, and may have gone on by offsets of a
    former one.
    """
    state, positions = known.state, known.positions.get(stream, {})
    begun = {each.topic for each in answers if each.sequence <= known.sequence} - {*state.logs}
    there = {each.topic for each in state.partitions}
    ahead = {p.topic for p, each in state.partitions.items() if each.next_offset > positions.get(p, 0)}
    # Of one without an order by positions, whose offsets have been caught up, the mirror had no change before.
    logs = {each: FormerLog(each in there) for each in begun if each in ahead or ordered_without_offsets(state, each)}
    return replace(_placed(state, logs, positions), logs={**state.logs, **logs})


def _placed(state: MirrorState, topics: Collection[str], offsets: Positions | int) -> MirrorState:
    """The state, of some topics with other offsets up to which changes were seen; 0 where none is given."""
    at = offsets if isinstance(offsets, Mapping) else dict.fromkeys(state.partitions, offsets)
    own = {p: replace(each, next_offset=at.get(p, 0)) for p, each in state.partitions.items() if p.topic in topics}
    return replace(state, partitions={**state.partitions, **own})


def _come_on(topic: str, log: FormerLog, before: MirrorState, now: MirrorState) -> FormerLog:
    """What is remembered of a former log once changes are merged."""
    places = {n: TopicPartition(topic, n) for n in log.behind}
    behind = {n for n, p in places.items() if now.partitions[p].position == before.partitions[p].position}
    return replace(log, behind=frozenset(behind))


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
