"""Another log: topics of a changelog whose offsets begin anew, as they were made again or their logs were cut.

Offsets order the changes of a mirror where nothing else does, and say which of them are repeats, or belong to a former
generation of positions. A changelog that holds the changes of both logs cannot be folded by them any more. Where
positions go on from one log to the other, in one generation, and each is that of one change, nothing else is needed.
Everything else stops the mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyiceberg.expressions import In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.expired_changes import REPLACED, expired_changes, stream_topics
from jobs.commit.offsets import Positions, TopicPartition
from jobs.commit.other_logs import AnotherLog, other_logs
from jobs.increment.arrow_rows import table_batches
from jobs.mirror.changelog_increment import ChangelogIncrement
from jobs.mirror.errors import AnotherLogError, RestoredSourceError
from jobs.mirror.merge_plan import MergeResult, MirrorState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec

_EARLIER = "was made again, or was cut"
_ONE_CHANGE = "postgresql/"
"""Begins the lineages of the source whose positions are those of single changes, and not of commits or events."""


def refuse_another_log(
    spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None, base: MirrorStamp | None = None
) -> None:
    """Refuse to merge changes of a topic's new log behind those of the former one, where offsets have to order them.

    Args:
        known: Of the mirror; None: all of the changelog is merged.
        base: Of the base that the mirror is made anew of beside the changes that are left; None without one.

    Raises:
        AnotherLogError: The changelog holds such an answer, or a topic is another one than when its changes expired.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    for topic in expired.replaced(stream_topics(changelog.metadata.properties, spec.stream)) if expired else ():
        raise AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, REPLACED, None)
    for topic, log in base.state.logs.items() if base else ():
        if log.mixed:
            raise AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, _EARLIER, None)
    known = known or base
    gone = {partition.topic for partition in expired.offsets} if expired else set[str]()
    for each in other_logs(changelog.metadata, spec.stream, known.sequence if known else 0):
        # Which changes have expired is known by offsets, whatever orders the others.
        if known is not None and each.topic not in gone and ordered_without_offsets(known.state, each.topic):
            continue
        if known is None and not _has_changes(spec, changelog, each.topic):
            continue
        raise AnotherLogError(spec.stream, mirror.table, spec.table.name, each.topic, each.said, each.sequence)


def refuse_mixed(
    spec: StreamSpec,
    mirror: Mirror,
    changelog: Table,
    known: MirrorStamp,
    answers: Sequence[AnotherLog],
    found: ChangelogIncrement,
) -> None:
    """Refuse to merge all of a changelog at once, as snapshots have expired, that may have changes of both logs.

    Args:
        known: Of the mirror.
        answers: Of the changelog.
        found: What would be merged.

    Raises:
        AnotherLogError: It may.
    """
    replayed = {p.topic for name, each in found.positions.items() if name != spec.stream for p in each}
    for each in answers:
        log = known.state.logs.get(each.topic)
        mixed = log is not None and (log.mixed or each.topic in replayed)
        if mixed or (each.sequence > known.sequence and _has_changes(spec, changelog, each.topic)):
            why = "snapshots that say which change is of which log have expired since the mirror's last merge"
            raise AnotherLogError(spec.stream, mirror.table, spec.table.name, each.topic, each.said, each.sequence, why)


def refuse_other_partitions(spec: StreamSpec, mirror: Mirror, known: MirrorStamp, now: Positions) -> None:
    """Refuse a new log with other partitions than the former one had, before each of them has come past that.

    Keys come to another partition then, so a change that was sent again need not be one that the mirror has.

    Args:
        known: Of the mirror.
        now: Where the stream stands in all partitions of its topics.

    Raises:
        AnotherLogError: It has.
    """
    for topic, log in sorted(known.state.logs.items()):
        there = sum(each.topic == topic for each in now)
        if log.behind and log.partitions and there not in (0, log.partitions):
            why = f"it has {there} partitions and had {log.partitions}, so keys have come to other ones"
            raise AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, _EARLIER, None, why)


def refuse_letters(
    spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp, files: Sequence[DataFile]
) -> None:
    """Refuse changes of a replay that may be of a former log, where positions do not order them.

    Args:
        known: Of the mirror.
        files: Of replays alone.

    Raises:
        AnotherLogError: There are such changes.
        UnreadableFileError: A file cannot be read.
    """
    if not known.state.logs:
        return
    names = spec.kafka_columns.coordinates
    least: dict[TopicPartition, int] = {}
    for file in files:
        for batch in table_batches(changelog.io, file, changelog.schema(), {*names}):
            for topic, number, offset in zip(*(batch[name].to_pylist() for name in names), strict=True):
                partition = TopicPartition(topic, number)
                least[partition] = min(offset, least.get(partition, offset))
    for partition, offset in sorted(least.items()):
        log = known.state.logs.get(partition.topic)
        there = partition in known.state.partitions and ordered_without_offsets(known.state, partition.topic)
        if log is not None and not there and log.may_have(partition.partition, offset):
            why = (
                f"the change at offset {offset} of partition {partition.partition}, which was a dead letter and came "
                "back, may be of either log"
            )
            raise AnotherLogError(spec.stream, mirror.table, spec.table.name, partition.topic, _EARLIER, None, why)


def ordered_without_offsets(state: MirrorState, topic: str) -> bool:
    """Whether later changes of a topic are known by their positions, whatever their offsets are.

    They are within one generation, as of which one a change is, its offset says; and no two have the same position. A
    topic without a change in the mirror has none that could be older.
    """
    of_topic = [each for partition, each in state.partitions.items() if partition.topic == topic]
    return all(
        each.position is not None and len(each.generations) == 1 and (each.lineage or "").startswith(_ONE_CHANGE)
        for each in of_topic
    )


def merged_behind_logs(
    spec: StreamSpec, mirror: Mirror, before: MirrorState, merge: Callable[[], MergeResult]
) -> MergeResult:
    """Merge changes into a mirror that may have those of a former log, as long as positions go on.

    Args:
        before: What the mirror knows.
        merge: Makes the merge.

    Raises:
        AnotherLogError: They do not: offsets would have to tell what is of which generation.
        FrazilError: As `merge`.
    """

    def stopped(topic: str, why: str) -> AnotherLogError:
        return AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, _EARLIER, None, why)

    try:
        result = merge()
    except RestoredSourceError as problem:
        topic = problem.partition.topic
        if (log := before.logs.get(topic)) is None or not log.mixed:
            raise
        raise stopped(
            topic,
            f"positions do not go on, by which changes of both logs are told apart: the one at offset {problem.offset} "
            f"of partition {problem.partition.partition} has {problem.position}, after {problem.greatest}. The "
            "connector has read the source anew, or has sent changes twice, or the source was restored",
        ) from problem
    for topic, log in sorted(before.logs.items()):
        if log.mixed and ordered_without_offsets(before, topic) and not ordered_without_offsets(result.state, topic):
            raise stopped(
                topic, "positions begin anew with another source, by which changes of both logs are told apart"
            )
    return result


def _has_changes(spec: StreamSpec, changelog: Table, topic: str) -> bool:
    of_topic = In(term=Reference(spec.kafka_columns.coordinates[0]), values={literal(topic)})
    return any(changelog.scan(of_topic).plan_files())
