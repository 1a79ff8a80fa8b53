"""Retired topics, which were read to their end and dropped: their positions, in case they return.

A cluster that has just started, or a failing authorizer, may report existing topics as unknown. They are then retired,
and return with the same id. Without their positions they would be read from their first record again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from jobs.tables.commit.stamp.offsets import TopicPartition

# A topic that is missing by mistake returns within hours. A new topic each day leaves seven retired ones behind.
KEPT_MS = 7 * 24 * 3_600_000
# Every snapshot carries them. Topics that were retired together are kept completely nevertheless.
MOST_PARTITIONS = 1_000


class Retired(NamedTuple):
    """A retired topic.

    Attributes:
        at_ms: When it was retired, milliseconds since 1970.
        positions: Position of the stream by partition; everything before had been read.
    """

    identity: str
    at_ms: int
    positions: Mapping[int, int]


def remembered_topics(
    before: Mapping[str, Retired], gone: Mapping[str, Retired], there: Container[str], now_ms: int
) -> dict[str, Retired]:
    """Retired topics for the next stamp: the newest ones of a week, in a bounded number of partitions.

    Args:
        before: Retired topics of the newest stamp.
        gone: Topics that are retired now.
        there: Topics that exist and that the stream reads, or would if its file named them.
        now_ms: Current time, milliseconds since 1970.
    """
    kept: dict[str, Retired] = {}
    partitions, last_ms = 0, None
    for topic, each in sorted({**before, **gone}.items(), key=lambda item: (-item[1].at_ms, item[0])):
        if topic in there or now_ms - each.at_ms > KEPT_MS:
            continue
        last_ms = each.at_ms if last_ms is None else last_ms
        partitions += len(each.positions)
        if partitions > MOST_PARTITIONS and each.at_ms != last_ms:
            break
        kept[topic] = each
    return kept


def returned_topics(before: Mapping[str, Retired], topics: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Positions of retired topics that exist again.

    The time in between does not matter: an id belongs to one topic only, so its landed records stay landed. A stream
    that commits nothing for more than `KEPT_MS` still has them in its newest stamp, and lands nothing twice.

    Args:
        before: Retired topics of the newest stamp.
        topics: Ids of the existing topics.
    """
    return {
        TopicPartition(topic, number): at
        for topic, each in before.items()
        if topics.get(topic) == each.identity
        for number, at in each.positions.items()
    }
