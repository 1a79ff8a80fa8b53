"""Topic incarnations of a changelog: topics whose offsets begin again after an operator's answer.

The answer is in the snapshot that it was committed with. A property of the table has it too, as snapshots expire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.table.metadata import TableMetadata

from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp

OTHER_LOGS_PREFIX = "frazil.other-logs."
"""Prefix of a table property, followed by the stream: the newest such answer by topic, and its sequence number."""
_ANSWERS = {"recreated_topic": "was deleted and made again", "cut_topic": "has lost records that had landed"}


@dataclass(frozen=True, slots=True)
class AnotherLog:
    """An operator's answer after which offsets of a topic begin again.

    Attributes:
        said: What had happened to the topic, to follow its name in a sentence.
        sequence: Sequence number of the changelog's snapshot with the answer.
    """

    topic: str
    said: str
    sequence: int


def other_logs(metadata: TableMetadata, stream: str, sequence: int) -> list[AnotherLog]:
    """Topics whose records came again after an operator's answer, newest first.

    Args:
        sequence: Only snapshots with greater sequence numbers count.
    """
    line = list(ancestors(metadata))
    found: dict[tuple[str, int], AnotherLog] = {}
    for snapshot in takewhile(lambda each: (each.sequence_number or 0) > sequence, line):
        text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
        # Most stamps need no parsing: the name of the answer is in the text.
        if not text or not any(answer in text for answer in _ANSWERS):
            continue
        stamp = Stamp.from_json(text)
        if stamp.stream == stream:
            number = snapshot.sequence_number or 0
            found |= {(topic, number): AnotherLog(topic, _ANSWERS[name], number) for topic, name in _begun(stamp)}
    # If a snapshot exists but is not on main, a rollback has undone its answer. Numbers before main's oldest remaining
    # ancestor prove nothing: the snapshots between may have expired.
    first = line[-1].sequence_number or 0 if line else 0
    on_main = {each.sequence_number for each in line}
    undone = {number for each in metadata.snapshots if (number := each.sequence_number or 0) > first} - on_main
    for topic, (answer, number) in _remembered(metadata.properties, stream).items():
        if number > sequence and number not in undone and answer in _ANSWERS:
            found.setdefault((topic, number), AnotherLog(topic, _ANSWERS[answer], number))
    return sorted(found.values(), key=lambda each: (-each.sequence, each.topic))


def other_logs_property(stamp: Stamp, properties: Mapping[str, str]) -> dict[str, str]:
    """Table property that keeps an answer beyond its snapshot; empty for all other stamps."""
    begun = {topic: (answer, stamp.sequence) for topic, answer in _begun(stamp)}
    if not begun:
        return {}
    kept = _remembered(properties, stamp.stream) | begun
    return {OTHER_LOGS_PREFIX + stamp.stream: json.dumps(kept, separators=(",", ":"))}


def _begun(stamp: Stamp) -> list[tuple[str, str]]:
    """Topics whose offsets begin again with a stamp, each with the answer."""
    if stamp.kind != "accept" or stamp.decision is None or (answer := stamp.decision.answer) not in _ANSWERS:
        return []
    topics = {each.topic for each, range_ in stamp.decision.again.items() if range_.start < range_.end}
    return [(topic, answer) for topic in sorted(topics)]


def _remembered(properties: Mapping[str, str], stream: str) -> dict[str, tuple[str, int]]:
    text = whole_property(properties, OTHER_LOGS_PREFIX + stream)
    return {topic: (each[0], each[1]) for topic, each in json.loads(text).items()} if text else {}
