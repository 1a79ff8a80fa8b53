"""Expired changes of a changelog: the property of its table that records removed changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.base.errors import FrazilError
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.stamp.log_state import another_topic
from jobs.tables.commit.stamp.offsets import Positions, by_topic, from_topics
from jobs.tables.commit.stamp.stamps import Stamp, property_key

EXPIRED_CHANGES = "frazil.changes-expired"
"""Property of a changelog, and entry of the summaries of snapshots that take changes out."""
REPLACED = "is another one than when changes of it expired"
"""Text about a topic whose offsets are not those recorded with the removed changes."""

FORGOTTEN = "retired"
"""Placeholder for the forgotten Kafka id of a topic that the stream no longer reads; no topic has it."""


@dataclass(frozen=True, slots=True)
class ExpiredChanges:
    """The removed changes of a changelog.

    Attributes:
        before: Changes that arrived in Kafka before this instant may be removed; ISO 8601.
        rows: Number of removed changes.
        sequence: A mirror has them if it has merged a snapshot of the changelog with this sequence number, or a later
            one.
        offsets: By partition, the first offset from which on all landed changes exist. Rows left below do not count.
        topics: Kafka's ids of the topics, as far as the changelog's stamps have them.
    """

    before: str
    rows: int
    sequence: int
    offsets: Positions
    topics: Mapping[str, str] = field(default_factory=dict)

    def replaced(self, topics: Mapping[str, str]) -> list[str]:
        """Topics that were recreated since, so that the recorded offsets no longer apply to them."""
        return sorted(topic for topic, before in self.topics.items() if another_topic(before, topics.get(topic)))

    def to_json(self) -> str:
        """Text of the property."""
        document = {"before": self.before, "rows": self.rows, "seq": self.sequence, "offsets": by_topic(self.offsets)}
        document |= {"topics": dict(self.topics)} if self.topics else {}
        return json.dumps(document, separators=(",", ":"))


def expired_changes(properties: Mapping[str, str], table: str) -> ExpiredChanges | None:
    """Removed changes by a changelog's properties; None if all changes exist."""
    try:
        text = whole_property(properties, EXPIRED_CHANGES)
        if text is None:
            return None
        said = json.loads(text)
        offsets, topics = from_topics(said["offsets"]), dict(said.get("topics", {}))
        return ExpiredChanges(said["before"], said["rows"], said["seq"], offsets, topics)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FrazilError(
            f"table {table}: its property {EXPIRED_CHANGES} cannot be read, so it is unknown which changes have "
            f"expired: {problem}.",
            fix="set the property to the entry of the same name in the summary of the newest snapshot that has one",
        ) from None


def stream_topics(properties: Mapping[str, str], stream: str) -> Mapping[str, str]:
    """Kafka's ids of a stream's topics, by its newest stamp in a table; only a coordinator's stamp has them."""
    text = whole_property(properties, property_key(stream))
    return Stamp.from_json(text, properties).topics if text else {}
