"""Other logs: topics of a changelog whose offsets begin anew by an operator's answer, as its table remembers.

An answer stands in the snapshot that it was committed with, and in a property of the table, as snapshots expire.
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
"""Begins the property of a table, by stream: by topic the newest such answer, and its sequence number."""
_ANSWERS = {"recreated_topic": "was deleted and made again", "cut_topic": "has lost records that had landed"}


@dataclass(frozen=True, slots=True)
class AnotherLog:
    """An answer of an operator behind which offsets of a topic begin anew.

    Attributes:
        said: What had happened to it, after its name.
        sequence: Of the changelog's snapshot with the answer.
    """

    topic: str
    said: str
    sequence: int


def other_logs(metadata: TableMetadata, stream: str, sequence: int) -> list[AnotherLog]:
    """The topics with records that came again after an operator's answer, newest first.

    Args:
        sequence: Snapshots after this sequence number are looked at.
    """
    line = list(ancestors(metadata))
    found: dict[tuple[str, int], AnotherLog] = {}
    for snapshot in takewhile(lambda each: (each.sequence_number or 0) > sequence, line):
        text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
        # Most stamps need no parsing: the answer stands in the text.
        if not text or not any(answer in text for answer in _ANSWERS):
            continue
        stamp = Stamp.from_json(text)
        if stamp.stream == stream:
            number = snapshot.sequence_number or 0
            found |= {(topic, number): AnotherLog(topic, _ANSWERS[name], number) for topic, name in _begun(stamp)}
    # A rollback of the table has undone the answer of a snapshot that is there beside main. One from before the oldest
    # that main stands on may be of main as well, as those between have expired.
    first = line[-1].sequence_number or 0 if line else 0
    on_main = {each.sequence_number for each in line}
    undone = {number for each in metadata.snapshots if (number := each.sequence_number or 0) > first} - on_main
    for topic, (answer, number) in _remembered(metadata.properties, stream).items():
        if number > sequence and number not in undone and answer in _ANSWERS:
            found.setdefault((topic, number), AnotherLog(topic, _ANSWERS[answer], number))
    return sorted(found.values(), key=lambda each: (-each.sequence, each.topic))


def other_logs_property(stamp: Stamp, properties: Mapping[str, str]) -> dict[str, str]:
    """What a table is to remember of an answer beyond its snapshot; nothing of all other stamps."""
    begun = {topic: (answer, stamp.sequence) for topic, answer in _begun(stamp)}
    if not begun:
        return {}
    kept = _remembered(properties, stamp.stream) | begun
    return {OTHER_LOGS_PREFIX + stamp.stream: json.dumps(kept, separators=(",", ":"))}


def _begun(stamp: Stamp) -> list[tuple[str, str]]:
    """The topics whose offsets begin anew by a stamp, each with the answer."""
    if stamp.kind != "accept" or stamp.decision is None or (answer := stamp.decision.answer) not in _ANSWERS:
        return []
    topics = {each.topic for each, range_ in stamp.decision.again.items() if range_.start < range_.end}
    return [(topic, answer) for topic in sorted(topics)]


def _remembered(properties: Mapping[str, str], stream: str) -> dict[str, tuple[str, int]]:
    text = whole_property(properties, OTHER_LOGS_PREFIX + stream)
    return {topic: (each[0], each[1]) for topic, each in json.loads(text).items()} if text else {}
