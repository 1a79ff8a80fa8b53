"""Retired topics, read to their end and gone: what is kept of them in case they come back.

A cluster that has just started, or an authorizer that hiccups, may call topics unknown that are there. They are then
retired, and come back with the same id; without a memory of them they would be read from their first record again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from jobs.tables.commit.stamp.offsets import TopicPartition

# A topic that is reported gone by mistake is back within hours; a topic per day leaves seven behind.
KEPT_MS = 7 * 24 * 3_600_000
# Every snapshot carries them. What was retired at once is kept whole all the same.
MOST_PARTITIONS = 1_000


class Retired(NamedTuple):
    """A retired topic, one that is gone.

    Attributes:
        at_ms: When it was retired, milliseconds since 1970.
        positions: Where the stream stood, by partition; all of it had been read.
    """

    identity: str
    at_ms: int
    positions: Mapping[int, int]


def remembered_topics(
    before: Mapping[str, Retired], gone: Mapping[str, Retired], there: Container[str], now_ms: int
) -> dict[str, Retired]:
    """What the next stamp keeps of retired topics: the newest ones of a week, in a bounded number of partitions.

    Args:
        before: What the newest stamp keeps.
        gone: Those that are retired now.
        there: Topics that the stream reads, or would if its file named them.
        now_ms: Milliseconds since 1970.
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
    """Where retired topics go on that are back.

    However long they were gone: an id is given to one topic only, so what was landed of it is landed. A stream that
    commits nothing for more than `KEPT_MS` still has them in its newest stamp, and lands nothing twice.

    Args:
        before: What the newest stamp keeps.
        topics: The ids of the topics that are there.
    """
    return {
        TopicPartition(topic, number): at
        for topic, each in before.items()
        if topics.get(topic) == each.identity
        for number, at in each.positions.items()
    }
