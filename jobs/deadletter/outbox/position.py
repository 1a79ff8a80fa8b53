"""Position up to which a stream's dead letters are published: a number and a text, as Kafka keeps them for a group.

Letters are published in the order of `(epoch, batch, topic, partition, offset)`. Epochs and batches only grow, and a
batch's letters are committed to the table at once and never again, so in this order nothing ever appears before a place
that was published, whoever rewrites the table's files.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, LessThan, LessThanOrEqual, Or

from jobs.errors import FrazilError
from jobs.state.documents import DAMAGED
from jobs.state.store import StateStore
from jobs.system.typed_json import decode_json

KEY = "published.json"
ORDER = ("epoch", "batch_id", "topic", "partition", "offset")
_BATCHES = 2**32

Key = tuple[int, int, str, int, int]


@dataclass(frozen=True, slots=True)
class OutboxPosition:
    """A place in the order of a stream's letters.

    Attributes:
        epoch, batch: All batches before this one are published.
        after: Of this batch, the letters up to the record `(topic, partition, offset)`; None for all of them.
        table_uuid: The table whose letters are meant; None in positions of earlier versions, and before any was read.
    """

    epoch: int
    batch: int
    after: tuple[str, int, int] | None = None
    table_uuid: str | None = None

    @staticmethod
    def before_epoch(epoch: int) -> OutboxPosition:
        """Everything of earlier epochs counts as published."""
        return OutboxPosition(epoch - 1, _BATCHES - 1)

    @staticmethod
    def through(key: Key) -> OutboxPosition:
        """The letter with this key was the last one."""
        return OutboxPosition(key[0], key[1], (key[2], key[3], key[4]))

    def in_table(self, uuid: str) -> OutboxPosition:
        """The place in the table with this id: of one that was begun anew since, nothing is published."""
        if self.table_uuid in (None, uuid):
            return replace(self, table_uuid=uuid)
        return replace(OutboxPosition.before_epoch(1), table_uuid=uuid)

    @property
    def offset(self) -> int:
        """The number that the group keeps: `epoch · 2³² + batch`."""
        return self.epoch * _BATCHES + self.batch

    def metadata(self, table: str) -> str:
        """The text that the group keeps beside the number, for programs and for whoever lists the group."""
        document: dict[str, Any] = {
            "v": 1,
            "means": "offset = epoch * 2^32 + batch: dead letters up to here are in the topic, of this batch those up "
            "to 'after'",
            "table": table,
            "table_uuid": self.table_uuid,
            "epoch": self.epoch,
            "batch": self.batch,
            "after": self.after,
        }
        return msgspec.json.encode(document).decode()

    @staticmethod
    def from_group(offset: int, metadata: str | None) -> OutboxPosition:
        """The inverse of `offset` and `metadata`.

        Raises:
            FrazilError: Somebody else has committed to the group.
        """
        epoch, batch = divmod(offset, _BATCHES)
        try:
            document: dict[str, Any] = msgspec.json.decode(metadata or "")
            if document["v"] != 1 or (document["epoch"], document["batch"]) != (epoch, batch):
                raise ValueError
            after, uuid = document["after"], document.get("table_uuid")
            return OutboxPosition(
                epoch,
                batch,
                None if after is None else (str(after[0]), int(after[1]), int(after[2])),
                None if uuid is None else str(uuid),
            )
        except (msgspec.DecodeError, KeyError, ValueError, TypeError, IndexError):
            raise FrazilError(
                f"offset {offset} with the text {metadata!r} is no position of dead letters: somebody else has "
                "committed to the group.",
                fix="delete the group's offset; frazil then goes on after its own note of what is published",
            ) from None

    def rows_after(self, stream: str, through: Key | None = None) -> BooleanExpression:
        """The letters of `stream` behind this place, as a filter of a scan; up to `through`, if it is given."""
        later: BooleanExpression = GreaterThan("epoch", self.epoch)
        within: BooleanExpression = GreaterThan("batch_id", self.batch)
        if self.after is not None:
            within = Or(within, And(EqualTo("batch_id", self.batch), _beyond(self.after)))
        rows = And(EqualTo("stream", stream), Or(later, And(EqualTo("epoch", self.epoch), within)))
        return rows if through is None else And(rows, _up_to(through))


def _beyond(after: tuple[str, int, int]) -> BooleanExpression:
    topic, partition, offset = after
    same_topic = Or(
        GreaterThan("partition", partition), And(EqualTo("partition", partition), GreaterThan("offset", offset))
    )
    return Or(GreaterThan("topic", topic), And(EqualTo("topic", topic), same_topic))


def _up_to(key: Key) -> BooleanExpression:
    epoch, batch, topic, partition, offset = key
    same_partition = LessThanOrEqual("offset", offset)
    same_topic = Or(LessThan("partition", partition), And(EqualTo("partition", partition), same_partition))
    same_batch = Or(LessThan("topic", topic), And(EqualTo("topic", topic), same_topic))
    same_epoch = Or(LessThan("batch_id", batch), And(EqualTo("batch_id", batch), same_batch))
    return Or(LessThan("epoch", epoch), And(EqualTo("epoch", epoch), same_epoch))


class PositionDocument(msgspec.Struct, frozen=True):
    """The position as the stream keeps it itself, under `KEY`.

    Attributes:
        topic, servers: Where the letters go; another topic or other servers are begun anew.
        offset, metadata: The position, as in the group.
    """

    topic: str
    servers: str
    offset: int
    metadata: str


class PositionStore:
    """The stream's own record of its position in one topic, beside its lease.

    The position that counts is the group's in Kafka, which is committed with the letters. But Kafka forgets it some
    days after the group's last commit (`offsets.retention.minutes`) and with the topic, and before the first commit
    there is none: then this record says where to go on.

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
        self._last: OutboxPosition | None = None

    def begin(self, first: OutboxPosition) -> OutboxPosition:
        """The position; the first time for this topic it is `first`, which is kept."""
        self._last = self.read()
        if self._last is None:
            self.keep(first)
            return first
        return self._last

    def keep(self, published: OutboxPosition) -> None:
        """Record that everything up to here is published."""
        if published == self._last:
            return
        document = PositionDocument(self._topic, self._servers, published.offset, published.metadata(self._table))
        self._store.put(KEY, msgspec.json.encode(document))
        self._last = published

    def read(self) -> OutboxPosition | None:
        """The position; None if there is none for this topic."""
        try:
            document = decode_json(self._store.get(KEY) or b"", PositionDocument)
            position = OutboxPosition.from_group(document.offset, document.metadata)
        except (*DAMAGED, FrazilError):
            # A damaged one says no more than none: what counts is the group's.
            return None
        return position if (document.topic, document.servers) == (self._topic, self._servers) else None
