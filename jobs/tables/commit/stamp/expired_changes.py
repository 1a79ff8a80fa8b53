"""Expired changes of a changelog: what its table's property says of the changes that are gone."""

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
"""What is said of a topic whose offsets are not those that are known of what is gone."""

FORGOTTEN = "retired"
"""Stands for Kafka's id of a topic that the stream reads no more, where the id is forgotten: no topic has it."""


@dataclass(frozen=True, slots=True)
class ExpiredChanges:
    """The changes of a changelog that are gone.

    Attributes:
        before: Those that came to Kafka before this instant may be gone; ISO 8601.
        rows: How many are.
        sequence: A mirror has them if it has merged a snapshot of the changelog of this sequence number, or a later
            one.
        offsets: By partition, the first offset from which on all that was landed is there. What is left below
            counts no more.
        topics: Kafka's ids of their topics, as far as the changelog's stamps say them.
    """

    before: str
    rows: int
    sequence: int
    offsets: Positions
    topics: Mapping[str, str] = field(default_factory=dict)

    def replaced(self, topics: Mapping[str, str]) -> list[str]:
        """The topics that are others now, whose offsets say nothing of what is gone."""
        return sorted(topic for topic, before in self.topics.items() if another_topic(before, topics.get(topic)))

    def to_json(self) -> str:
        """As the property."""
        document = {"before": self.before, "rows": self.rows, "seq": self.sequence, "offsets": by_topic(self.offsets)}
        document |= {"topics": dict(self.topics)} if self.topics else {}
        return json.dumps(document, separators=(",", ":"))


def expired_changes(properties: Mapping[str, str], table: str) -> ExpiredChanges | None:
    """What a changelog's properties say; None as long as all changes are there."""
    try:
        text = whole_property(properties, EXPIRED_CHANGES)
        if text is None:
            return None
        said = json.loads(text)
        offsets, topics = from_topics(said["offsets"]), dict(said.get("topics", {}))
        return ExpiredChanges(said["before"], said["rows"], said["seq"], offsets, topics)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FrazilError(
            f"table {table}: its property {EXPIRED_CHANGES} cannot be read, so nobody knows which changes are gone: "
            f"{problem}.",
            fix="set the property to what the summary of the newest snapshot says that has an entry of its name",
        ) from None


def stream_topics(properties: Mapping[str, str], stream: str) -> Mapping[str, str]:
    """Kafka's ids of a stream's topics, as its newest stamp on a table says them; of the anchor's alone it does."""
    text = whole_property(properties, property_key(stream))
    return Stamp.from_json(text, properties).topics if text else {}
