"""Stream folder: what a stream keeps outside its tables, its documents in the state store and its local files."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.base.system.private_files import private_folder
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import StateStore

if TYPE_CHECKING:
    # A keeper, which launches drivers with a few megabytes, imports neither.
    from jobs.config.settings.settings import Settings
    from jobs.tables.commit.stamp.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """What a stream keeps outside its tables.

    Attributes:
        root: Its folder, for what is of this machine alone: logs, locks, what a driver is started with, and Spark's
            scratch checkpoint.
        store: Its documents: the lease, pending records, what is asked of it and what its driver says.
    """

    root: Path
    store: StateStore

    @staticmethod
    def at(root: Path) -> StreamFolder:
        """Of a stream whose folder is known, and has its documents as well."""
        return StreamFolder(root, LocalStore(root))

    def kept(self) -> bool:
        """Whether anything is kept of the stream, on this machine or in a store that it shares."""
        return self.root.is_dir() or (self.store.shared and bool(self.store.keys("*.json")))

    def below(self, name: str) -> StreamFolder:
        """Of what works on the stream beside its driver, under a lease of its own: `replay`, `connect`."""
        return StreamFolder(self.root / name, self.store.below(name))

    def pending(self, epoch: int) -> str:
        """The key of the pending record of the driver with this epoch, while it commits a batch.

        Each epoch has its own, so that a driver that wakes up after a take-over cannot overwrite its successor's.
        """
        return f"pending-{epoch:08d}.json"

    def pending_records(self) -> list[str]:
        """The keys of the pending records that earlier drivers left, oldest first."""
        return self.store.keys("pending-*.json")

    def new_checkpoint(self) -> Path:
        """An empty checkpoint for a query; those of earlier queries go, since the position is in the tables."""
        folder = self.root / "checkpoints"
        shutil.rmtree(folder, ignore_errors=True)
        # Spark would make it for everybody.
        private_folder(folder)
        return folder / uuid.uuid4().hex[:8]

    def last_planned(self) -> dict[TopicPartition, int]:
        """How far the last query had planned to read, from what is left of its checkpoint: a hint, not a position."""
        from jobs.tables.commit.stamp.offsets import from_spark_offsets

        try:
            logs = self.root.glob("checkpoints/*/offsets/*")
            newest = max((log for log in logs if log.name.isdigit()), key=lambda log: int(log.name), default=None)
            return from_spark_offsets(newest.read_text().splitlines()[-1]) if newest else {}
        except (OSError, ValueError, IndexError, AttributeError):
            return {}


def state_store(settings: Settings) -> StateStore:
    """The deployment's state store: that of the settings, or the folder of this machine.

    Raises:
        FrazilError: The client of the store is not installed, or an environment variable with a secret is not set.
    """
    if settings.state_store is None:
        return LocalStore(settings.state)
    # Imported here: what has its state in a folder needs no more than that.
    from jobs.clients.state_store.chosen_store import shared_store

    return shared_store(settings.state_store, settings.state)


def streams_with(settings: Settings, name: str) -> list[str]:
    """The ids of the streams that have a document of this name, in order."""
    return [key.split("/")[1] for key in state_store(settings).keys(f"streams/*/{name}")]


def stream_folder(settings: Settings, stream: str) -> StreamFolder:
    """What a stream keeps outside its tables.

    Args:
        settings: Where things are.
        stream: Its id. What works beside it has a folder in its own: `payments/replay` for `payments~replay`.
    """
    name = "/".join(["streams", *stream.split("~")])
    return StreamFolder(settings.state / name, state_store(settings).below(name))
