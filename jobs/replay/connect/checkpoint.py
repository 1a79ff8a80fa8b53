"""Checkpoint of a queue's import: where the counts stood when it began, so that the run after a kill counts both."""

from __future__ import annotations

import contextlib

import msgspec

from jobs.commit.stamp_fields import Counts
from jobs.replay.connect.task import QueueCounts
from jobs.state.documents import DAMAGED
from jobs.state.store import StateStore
from jobs.system.typed_json import decode_json

_FILE = "taking.json"


class CheckpointDocument(msgspec.Struct, frozen=True):
    """The checkpoint as it is kept.

    Attributes:
        topic: The queue.
        totals: What all queues of the stream had come to when the run began, by the stamps.
    """

    topic: str
    totals: Counts


class ImportCheckpoint:
    """The checkpoint of a stream's run that imports a queue; only its counts come from it.

    Args:
        store: The part of the stream's queues.
    """

    def __init__(self, store: StateStore) -> None:
        self._store: StateStore = store

    def begin(self, topic: str, totals: Counts) -> QueueCounts:
        """A run begins; returns what an earlier one of this queue committed that did not come to its end.

        Args:
            totals: By the stamps now, with what was left half done finished.
        """
        earlier = self.since(topic, totals)
        if earlier is not None:
            return earlier
        self._store.put(_FILE, msgspec.json.encode(CheckpointDocument(topic, totals)), durable=False)
        return QueueCounts()

    def since(self, topic: str, totals: Counts) -> QueueCounts | None:
        """What was committed of a queue since the checkpoint was made; None without one of it.

        The stream's table counts each record once, also one whose letter a later run committed.

        Args:
            totals: By the stamps now.
        """
        noted = self._read()
        if noted is None or noted.topic != topic:
            return None
        done = totals - noted.totals
        others = done.read - done.landed - done.dead - done.tombstones
        # Less than there was: a table has been rolled back since.
        if min(done.read, done.landed, done.dead, done.tombstones, others) < 0:
            return None
        return QueueCounts(done.read, done.landed, done.dead, others, done.tombstones)

    def end(self) -> None:
        """The run has come to its end."""
        self._store.delete(_FILE)

    def _read(self) -> CheckpointDocument | None:
        with contextlib.suppress(*DAMAGED):
            return decode_json(self._store.get(_FILE) or b"", CheckpointDocument)
        return None
