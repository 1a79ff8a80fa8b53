"""Another log: topics of a changelog whose offsets begin anew, as they were made again or their logs were cut.

Offsets order the changes of a mirror where nothing else does, and say which of them are repeats, or belong to a former
generation of positions. A changelog that holds the changes of both logs cannot be folded by them any more.
"""

from __future__ import annotations

from pyiceberg.expressions import In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from jobs.commit.expired_changes import REPLACED, expired_changes, stream_topics
from jobs.commit.other_logs import other_logs
from jobs.mirror.errors import AnotherLogError
from jobs.mirror.merge_plan import MirrorState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec


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
    # A row says by itself which of its changes is the later one.
    by_row = spec.changes is not None and bool(spec.changes.order_by)
    gone = {partition.topic for partition in expired.offsets} if expired else set[str]()
    for each in other_logs(changelog.metadata, spec.stream, known.sequence if known else 0):
        # Which changes have expired is known by offsets, whatever orders the others.
        if each.topic not in gone and (by_row or (known and ordered_without_offsets(known.state, each.topic))):
            continue
        if known is None:
            of_topic = In(term=Reference(spec.kafka_columns.coordinates[0]), values={literal(each.topic)})
            if not any(changelog.scan(of_topic).plan_files()):
                continue
        raise AnotherLogError(spec.stream, mirror.table, spec.table.name, each.topic, each.said, each.sequence)


def ordered_without_offsets(state: MirrorState, topic: str) -> bool:
    """Whether later changes of a topic are known by their positions, whatever their offsets are.

    They are within one generation; of which generation a change is, its offset says. A topic without a change in the
    mirror has none that could be older.
    """
    of_topic = [each for partition, each in state.partitions.items() if partition.topic == topic]
    return all(each.position is not None and len(each.generations) == 1 for each in of_topic)
