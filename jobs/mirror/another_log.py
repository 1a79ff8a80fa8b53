"""Another log: topics of a changelog whose offsets begin anew, as they were made again or their logs were cut.

Offsets order the changes of a mirror where nothing else does, and say which of them are repeats, or belong to a former
generation of positions. A changelog that holds the changes of both logs cannot be folded by them any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.expressions import In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.expired_changes import expired_changes
from jobs.commit.lineage import ancestors
from jobs.commit.stamps import SUMMARY_KEY, Stamp
from jobs.mirror.errors import AnotherLogError
from jobs.mirror.merge_plan import MirrorState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec

_ANSWERS = {"recreated_topic": "was deleted and made again", "cut_topic": "has lost records that had landed"}


@dataclass(frozen=True, slots=True)
class AnotherLog:
    """An answer of an operator behind which offsets of a topic begin anew.

    Attributes:
        topic: Its name.
        said: What had happened to it, after its name.
        snapshot_id: Of the changelog, with the answer.
    """

    topic: str
    said: str
    snapshot_id: int


def refuse_another_log(spec: StreamSpec, mirror: Mirror, changelog: Table, known: MirrorStamp | None) -> None:
    """Refuse to merge changes of a topic's new log behind those of the former one, where offsets have to order them.

    Args:
        known: Of the mirror; None: all of the changelog is merged.

    Raises:
        AnotherLogError: The changelog, as far as its snapshots are kept, holds such an answer.
    """
    expired = expired_changes(changelog.metadata.properties, spec.table.name)
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
        raise AnotherLogError(spec.stream, mirror.table, spec.table.name, each.topic, each.said, each.snapshot_id)


def other_logs(metadata: TableMetadata, stream: str, sequence: int) -> list[AnotherLog]:
    """The topics with records that came again after an operator's answer, newest first.

    Args:
        metadata: The changelog's.
        stream: The stream's id.
        sequence: Snapshots after this sequence number are looked at.
    """
    found: list[AnotherLog] = []
    for snapshot in takewhile(lambda each: (each.sequence_number or 0) > sequence, ancestors(metadata)):
        text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
        # Most stamps need no parsing: the answer stands in the text.
        if not text or not any(answer in text for answer in _ANSWERS):
            continue
        stamp = Stamp.from_json(text)
        if stamp.stream != stream or stamp.kind != "accept" or stamp.decision is None:
            continue
        topics = sorted({each.topic for each, range_ in stamp.decision.again.items() if range_.start < range_.end})
        if said := _ANSWERS.get(stamp.decision.answer):
            found += [AnotherLog(topic, said, snapshot.snapshot_id) for topic in topics]
    return found


def ordered_without_offsets(state: MirrorState, topic: str) -> bool:
    """Whether later changes of a topic are known by their positions, whatever their offsets are.

    They are within one generation; of which generation a change is, its offset says. A topic without a change in the
    mirror has none that could be older.
    """
    of_topic = [each for partition, each in state.partitions.items() if partition.topic == topic]
    return all(each.position is not None and len(each.generations) == 1 for each in of_topic)
