"""Position up to which a stream's dead letters are published, and the dead letters behind it.

Dead letters are published in the order of `(epoch, batch, topic, partition, offset)`. Epochs and batches only grow, and
a batch's dead letters are committed to the table once and together. So nothing ever appears before a published
position, even if the table's files are rewritten. Kafka keeps the position as a group's offset and metadata text.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThan, LessThan, LessThanOrEqual, Or
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.records.formats.columns.text_values import within_years

KEY = "published.json"
ORDER = ("epoch", "batch_id", "topic", "partition", "offset")
_BATCHES = 2**32

Key = tuple[int, int, str, int, int]

WINDOW_LETTERS = 50_000
MOST_LETTERS = 5_000
_FIRST_LETTERS = 200
_GROWTH = 4
CHUNK_BYTES = 16 * 2**20
# Columns of a published record; tables of earlier versions have no `masked`.
COLUMNS = (
    *("stream", "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    *("stage", "error_class", "message", "field", "config_hash", "batch_id", "epoch", "first_seen"),
)
_MASKED = "masked"
_SORTING: list[tuple[str, str]] = [(name, "ascending") for name in ORDER]


@dataclass(frozen=True, slots=True)
class OutboxPosition:
    """A position in the order of a stream's dead letters.

    Attributes:
        epoch, batch: All batches before this one are published.
        after: The last published record `(topic, partition, offset)` of this batch; None for the whole batch.
        table_uuid: Table of the dead letters; None in positions of earlier versions, and before any was read.
    """

    epoch: int
    batch: int
    after: tuple[str, int, int] | None = None
    table_uuid: str | None = None

    @staticmethod
    def before_epoch(epoch: int) -> OutboxPosition:
        """Position at which everything of earlier epochs counts as published."""
        return OutboxPosition(epoch - 1, _BATCHES - 1)

    @staticmethod
    def through(key: Key) -> OutboxPosition:
        """Position after the dead letter with this key."""
        return OutboxPosition(key[0], key[1], (key[2], key[3], key[4]))

    def in_table(self, uuid: str) -> OutboxPosition:
        """The position in the table with this uuid; the beginning if the table was recreated since."""
        if self.table_uuid in (None, uuid):
            return replace(self, table_uuid=uuid)
        return replace(OutboxPosition.before_epoch(1), table_uuid=uuid)

    @property
    def offset(self) -> int:
        """The group's offset: `epoch · 2³² + batch`."""
        return self.epoch * _BATCHES + self.batch

    def metadata(self, table: str) -> str:
        """The group's metadata text, for programs and for people who list the group."""
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
            FrazilError: Another program has committed to the group.
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
        """Row filter for the dead letters of `stream` behind this position; up to `through`, if it is given."""
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
    """The position as the stream stores it, under `KEY`.

    Attributes:
        topic, servers: Destination of the dead letters; for another topic or other servers, publishing begins again.
        offset, metadata: The position, as in Kafka's group.
    """

    topic: str
    servers: str
    offset: int
    metadata: str


class PositionStore:
    """The stream's own copy of its position in one topic, stored beside its lease.

    The group's position in Kafka counts, which is committed with the dead letters. But Kafka forgets it some days after
    the group's last commit (`offsets.retention.minutes`), or when the topic is deleted, and has none before the first
    commit. Then this copy counts.

    Args:
        store: The stream's part of the state store.
        servers: The cluster, as written in the configuration; empty for the local broker.
    """

    def __init__(self, store: StateStore, topic: str, servers: str, table: str) -> None:
        self._store: StateStore = store
        self._topic: str = topic
        self._servers: str = servers
        self._table: str = table
        self._last: OutboxPosition | None = None

    def begin(self, first: OutboxPosition) -> OutboxPosition:
        """The position; the first time for this topic, `first` is stored and returned."""
        self._last = self.read()
        if self._last is None:
            self.keep(first)
            return first
        return self._last

    def keep(self, published: OutboxPosition) -> None:
        """Store that everything up to here is published."""
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
            # A damaged copy counts as none; the group's position counts.
            return None
        return position if (document.topic, document.servers) == (self._topic, self._servers) else None


@dataclass(frozen=True, slots=True)
class LetterWindow:
    """The next dead letters to publish, behind a position.

    Attributes:
        total: Number of all dead letters behind it, also beyond the window.
        keys: Columns `ORDER` of the first ones, in order.
    """

    total: int
    keys: pa.Table

    def key(self, index: int) -> Key:
        """Key of the dead letter with this index."""
        epoch, batch, topic, partition, offset = (self.keys.column(name)[index].as_py() for name in ORDER)
        return (epoch, batch, topic, partition, offset)


def refuse_altered(table: Table, name: str) -> None:
    """Check that the table has the columns of a published record.

    Raises:
        FrazilError: Columns are missing.
    """
    missing = sorted(set(COLUMNS) - set(table.schema().column_names))
    if missing:
        raise FrazilError(
            f"dead-letter table {name} has no column {', '.join(missing)}: it was altered, and its dead letters "
            "cannot be published.",
            fix=f"put the columns of {name} back: rename them, or roll the table's schema back",
        )


def count_unpublished(table: Table, stream: str, position: OutboxPosition) -> int:
    """Number of the stream's dead letters behind a position."""
    return table.scan(row_filter=position.rows_after(stream), selected_fields=("epoch",)).count()


def next_window(table: Table, stream: str, position: OutboxPosition, most: int = WINDOW_LETTERS) -> LetterWindow:
    """Keys of the next dead letters. Reads the key columns of all that are behind, and returns `most` of them."""
    reader = table.scan(row_filter=position.rows_after(stream), selected_fields=ORDER).to_arrow_batch_reader()
    kept: list[pa.Table] = []
    total = rows = 0
    for batch in reader:
        total += batch.num_rows
        rows += batch.num_rows
        kept.append(pa.table(batch).select(list(ORDER)))
        if rows > 4 * most:
            kept = [_first(kept, most)]
            rows = most
    return LetterWindow(total, _first(kept or [reader.schema.empty_table()], most))


def _first(tables: list[pa.Table], most: int) -> pa.Table:
    return pa.concat_tables(tables).sort_by(_SORTING).slice(0, most).combine_chunks()


def letter_chunks(
    table: Table,
    stream: str,
    position: OutboxPosition,
    window: LetterWindow,
    *,
    most: int = MOST_LETTERS,
    most_bytes: int = CHUNK_BYTES,
) -> Iterator[tuple[Key, pa.Table]]:
    """Read the dead letters of a window in chunks, each with the key of its last one.

    The size of a chunk follows from the records before, as the size of unread ones is unknown.

    Raises:
        FrazilError: The table's files no longer hold the dead letters of the window.
    """
    count, done = min(_FIRST_LETTERS, most), 0
    columns = (*COLUMNS, *({_MASKED} & set(table.schema().column_names)))
    while done < window.keys.num_rows:
        size = min(count, window.keys.num_rows - done)
        last = window.key(done + size - 1)
        letters = table.scan(row_filter=position.rows_after(stream, last), selected_fields=columns).to_arrow()
        if letters.num_rows != size:
            raise FrazilError(
                f"dead letters of stream {stream}: {size} were found, and {letters.num_rows} were read, up to "
                f"{last[2]}-{last[3]} offset {last[4]} of batch {last[1]}, epoch {last[0]}.",
                fix="see whether something else writes files of the dead-letter table",
            )
        # Earlier versions kept any time that a producer set.
        at = letters.schema.get_field_index("timestamp")
        times = within_years(letters.column(at).combine_chunks())
        yield last, letters.set_column(at, letters.schema.field(at), times).sort_by(_SORTING)
        average = max(1, letters.nbytes // size)
        count = max(1, min(most, size * _GROWTH, most_bytes // average))
        done += size
        position = OutboxPosition.through(last)
