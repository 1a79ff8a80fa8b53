"""Pending return: the durable record of a batch of dead letters about to go to a topic, with its number."""

from __future__ import annotations

from typing import Self

import msgspec
import pyarrow as pa

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.dead_letters.replay.replay_state import changes_as_parquet, changes_from_parquet

RETURNED_TO = "returned to topic "
_BATCHES = 2**32


class PendingReturn(msgspec.Struct, frozen=True):
    """Record of one batch. Each replay has its own file, so that it does not overwrite its successor's.

    Attributes:
        number: Position of the consumer group once the batch is in the topic: `epoch · 2³² + batch`.
    """

    topic: str
    number: int
    letters: int

    @staticmethod
    def numbered(topic: str, epoch: int, batch: int, letters: int) -> PendingReturn:
        """Record of a replay's batch."""
        return PendingReturn(topic, epoch * _BATCHES + batch, letters)

    @classmethod
    def read(cls, store: StateStore, key: str) -> Self:
        """Read the record with a key.

        Raises:
            FrazilError: The record is damaged or missing.
        """
        try:
            return decode_json(store.get(key) or b"", cls)
        except (*DAMAGED, OSError) as problem:
            place = store.place(key)
            raise FrazilError(
                f"{place}, which names the dead letters that went to a topic, cannot be read: {problem}.",
                fix=f"restore it; or see whether the topic has the newest dead letters, and remove {place}",
            ) from None

    @property
    def key(self) -> str:
        """The key of the record."""
        return f"returning-{self.number // _BATCHES:08d}.json"

    def write(self, store: StateStore, changes: pa.Table) -> None:
        """Write the record durably, with the replay state of its dead letters after the return.

        Args:
            store: Part of the state store for the stream's replays.
            changes: See `jobs.dead_letters.replay.replay_state.update_replay_state`.
        """
        store.put(_beside(self.key), changes_as_parquet(changes))
        store.put(self.key, msgspec.json.encode(self))

    def changes(self, store: StateStore) -> pa.Table:
        """Replay state of its dead letters after the return.

        Raises:
            FrazilError: It is missing.
        """
        beside, place = _beside(self.key), store.place(self.key)
        content = store.get(beside)
        if content is None:
            raise FrazilError(
                f"{store.place(beside)}, which names the dead letters that went to a topic, does not exist any more.",
                fix=f"restore it; or see whether the topic has the newest dead letters, and remove {place}",
            )
        return changes_from_parquet(content)

    def remove(self, store: StateStore) -> None:
        """Remove the record: the batch is done, or never was."""
        store.delete(self.key)
        store.delete(_beside(self.key))


def is_returned(note: str | None) -> bool:
    """Whether a dead letter's note says that it went back to a topic."""
    return note is not None and note.startswith(RETURNED_TO)


def pending_returns(store: StateStore) -> list[str]:
    """Keys of the records that earlier returns left, oldest first."""
    return store.keys("returning-*.json")


def _beside(key: str) -> str:
    return f"{key.removesuffix('.json')}.parquet"
