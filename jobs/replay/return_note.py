"""What a return of letters to a topic notes before each batch: which letters, and under which number Kafka decides."""

from __future__ import annotations

from typing import Self

import msgspec
import pyarrow as pa

from jobs.errors import FrazilError
from jobs.replay.changes import as_parquet, from_parquet
from jobs.state.store import StateStore

RETURNED_TO = "returned to topic "
_BATCHES = 2**32


class ReturnNote(msgspec.Struct, frozen=True):
    """The note of one batch. Each replay has a file of its own, so that none overwrites its successor's.

    Attributes:
        number: The position of the group once the batch is in the topic: `epoch · 2³² + batch`.
    """

    topic: str
    number: int
    letters: int

    @staticmethod
    def numbered(topic: str, epoch: int, batch: int, letters: int) -> ReturnNote:
        """The note of a replay's batch."""
        return ReturnNote(topic, epoch * _BATCHES + batch, letters)

    @classmethod
    def read(cls, store: StateStore, key: str) -> Self:
        """The note under a key.

        Raises:
            FrazilError: It is damaged, or gone.
        """
        try:
            return msgspec.json.decode(store.get(key) or b"", type=cls)
        except (msgspec.DecodeError, OSError) as problem:
            place = store.place(key)
            raise FrazilError(
                f"{place}, which says which letters went to a topic, cannot be read: {problem}.",
                fix=f"restore it; or see in the topic whether its newest letters are there, and remove {place}",
            ) from None

    def write(self, store: StateStore, changes: pa.Table) -> str:
        """Make the note durable, with the life that its letters have once they are in the topic; returns its key.

        Args:
            store: The part of the stream's replays.
            changes: See `jobs.replay.lifecycle.change_life`.
        """
        key = f"returning-{self.number // _BATCHES:08d}.json"
        store.put(_beside(key), as_parquet(changes))
        store.put(key, msgspec.json.encode(self))
        return key


def is_returned(said: str | None) -> bool:
    """Whether what is noted in a letter says that it went back to a topic."""
    return said is not None and said.startswith(RETURNED_TO)


def changes_of(store: StateStore, note: str) -> pa.Table:
    """The life of the note's letters.

    Raises:
        FrazilError: What was noted of it is gone.
    """
    content = store.get(_beside(note))
    if content is None:
        raise FrazilError(
            f"{store.place(_beside(note))}, which says which letters went to a topic, is gone.",
            fix=f"restore it; or see in the topic whether its newest letters are there, and remove {store.place(note)}",
        )
    return from_parquet(content)


def remove_note(store: StateStore, note: str) -> None:
    """The batch is done, or never was."""
    store.delete(note)
    store.delete(_beside(note))


def return_notes(store: StateStore) -> list[str]:
    """The keys of the notes that earlier returns left, oldest first."""
    return store.keys("returning-*.json")


def _beside(note: str) -> str:
    return f"{note.removesuffix('.json')}.parquet"
