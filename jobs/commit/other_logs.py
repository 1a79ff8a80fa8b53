"""Other logs: topics of a changelog whose offsets begin anew by an operator's answer, as its snapshots say."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.lineage import ancestors
from jobs.commit.stamps import SUMMARY_KEY, Stamp

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
