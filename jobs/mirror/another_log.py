"""Another log: topics of a changelog whose offsets begin anew, as they were made again or their logs were cut.

Offsets order the changes of a mirror where nothing else does, and say which of them are repeats, or belong to a former
generation of positions. A changelog that holds the changes of both logs cannot be folded by them any more. Where
positions go on from one log to the other, in one generation, nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyiceberg.expressions import In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from jobs.commit.expired_changes import REPLACED, expired_changes, stream_topics
from jobs.commit.other_logs import AnotherLog, other_logs
from jobs.mirror.errors import AnotherLogError, RestoredSourceError
from jobs.mirror.merge_plan import MergeResult, MirrorState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec

_EARLIER = "was made again, or was cut"


def refuse_another_log(spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None) -> None:
    """Refuse to merge changes of a topic's new log behind those of the former one, where offsets have to order them.

    Args:
        known: Of the mirror; None: all of the changelog is merged.

    Raises:
        AnotherLogError: The changelog holds such an answer, or a topic is another one than when its changes expired.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
    for topic in expired.replaced(stream_topics(changelog.metadata.properties, spec.stream)) if expired else ():
        raise AnotherLogError(spec.stream, mirror.table, spec.table.name, topic, REPLACED, None)
    gone = {partition.topic for partition in expired.offsets} if expired else set[str]()
    for each in other_logs(changelog.metadata, spec.stream, known.sequence if known else 0):
        # Which changes have expired is known by offsets, whatever orders the others.
        ordered = ordered_by_row(spec) or (known and ordered_without_offsets(known.state, each.topic))
        if each.topic not in gone and ordered:
            continue
        if known is None:
            of_topic = In(term=Reference(spec.kafka_columns.coordinates[0]), values={literal(each.topic)})
            if not any(changelog.scan(of_topic).plan_files()):
                continue
        raise AnotherLogError(spec.stream, mirror.table, spec.table.name, each.topic, each.said, each.sequence)


def refuse_mixed(spec: StreamSpec, mirror: Mirror, known: MirrorStamp, answers: Sequence[AnotherLog]) -> None:
    """Refuse to merge all of a changelog at once that has changes of both logs of a topic.

    Args:
        answers: Of the changelog.

    Raises:
        AnotherLogError: It has, and rows do not say by themselves which change is the later one.
    """
    there = {each.topic for each in known.state.partitions}
    for each in answers if not ordered_by_row(spec) else ():
        if each.topic in known.state.logs or (each.sequence > known.sequence and each.topic in there):
            why = "snapshots that say which change is of which log have expired since the mirror's last merge"
            raise AnotherLogError(spec.stream, mirror.table, spec.table.name, each.topic, each.said, each.sequence, why)


def ordered_without_offsets(state: MirrorState, topic: str) -> bool:
    """Whether later changes of a topic are known by their positions, whatever their offsets are.

    They are within one generation; of which generation a change is, its offset says. A topic without a change in the
    mirror has none that could be older.
    """
    of_topic = [each for partition, each in state.partitions.items() if partition.topic == topic]
    return all(each.position is not None and len(each.generations) == 1 for each in of_topic)


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
        if (topic := problem.partition.topic) not in before.logs:
            raise
        raise stopped(
            topic,
            f"positions do not go on, by which changes of both logs are told apart: the one at offset {problem.offset} "
            f"of partition {problem.partition.partition} has {problem.position}, after {problem.greatest}. The "
            "connector has read the source anew, or has sent changes twice, or the source was restored",
        ) from problem
    for topic in sorted(before.logs):
        if ordered_without_offsets(before, topic) and not ordered_without_offsets(result.state, topic):
            raise stopped(
                topic, "positions begin anew with another source, by which changes of both logs are told apart"
            )
    return result


def ordered_by_row(spec: StreamSpec) -> bool:
    """Whether a row says by itself which of its changes is the later one."""
    return spec.changes is not None and bool(spec.changes.order_by)
