"""What a stream notes beside its lease of how far its letters are published.

The position that counts is the group's in Kafka, which is committed with the letters. But Kafka forgets the position of
a group some days after its last commit (`offsets.retention.minutes`) and with the topic, and before the first commit
there is none: then this file says where to go on.
"""

from __future__ import annotations

import msgspec

from jobs.deadletter.outbox.position import Published
from jobs.errors import FrazilError
from jobs.state.store import StateStore

KEY = "published.json"


class Note(msgspec.Struct, frozen=True):
    """The note.

    Attributes:
        topic, servers: Where the letters go; another topic or other servers are begun anew.
        offset, metadata: The position, as in the group.
    """

    topic: str
    servers: str
    offset: int
    metadata: str


class Notes:
    """The note of one stream for one topic.

    Args:
        store: The stream's part of the state store.
        topic: Where the letters go.
        servers: The cluster, as it was written down by whoever configured it; empty for the local broker.
        table: The dead-letter table.
    """

    def __init__(self, store: StateStore, topic: str, servers: str, table: str) -> None:
        self._store: StateStore = store
        self._topic: str = topic
        self._servers: str = servers
        self._table: str = table
        self._last: Published | None = None

    def begin(self, first: Published) -> Published:
        """Where the note stands; the first time for this topic it is made, and says `first`."""
        self._last = self.read()
        if self._last is None:
            self.keep(first)
            return first
        return self._last

    def keep(self, published: Published) -> None:
        """Note that everything up to here is published."""
        if published == self._last:
            return
        note = Note(self._topic, self._servers, published.offset, published.metadata(self._table))
        self._store.put(KEY, msgspec.json.encode(note))
        self._last = published

    def read(self) -> Published | None:
        """Where the note stands; None if there is none for this topic."""
        try:
            note = msgspec.json.decode(self._store.get(KEY) or b"", type=Note)
            position = Published.from_group(note.offset, note.metadata)
        except (msgspec.DecodeError, FrazilError):
            # One that was spoilt says no more than none: what counts is the group's.
            return None
        return position if (note.topic, note.servers) == (self._topic, self._servers) else None
