"""State of a stream outside its tables: its documents in the state store, and its local files."""

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
    # A watchdog, which launches drivers with a few megabytes, imports neither.
    from jobs.config.settings.settings import Settings
    from jobs.tables.commit.stamp.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """State of a stream outside its tables.

    Attributes:
        root: Folder for files of this machine alone: logs, locks, the launched configuration, and Spark's scratch
            checkpoint.
        store: Documents: the lease, pending records, control requests and the driver's heartbeat.
    """

    root: Path
    store: StateStore

    @staticmethod
    def at(root: Path) -> StreamFolder:
        """Return the state of a stream whose documents are in its folder, too."""
        return StreamFolder(root, LocalStore(root))

    def kept(self) -> bool:
        """Whether the stream has any state, on this machine or in a shared store."""
        return self.root.is_dir() or (self.store.shared and bool(self.store.keys("*.json")))

    def below(self, name: str) -> StreamFolder:
        """Return the state of a job beside the driver that has its own lease: `replay`, `connect`."""
        return StreamFolder(self.root / name, self.store.below(name))

    def pending(self, epoch: int) -> str:
        """Return the key of the pending record of an epoch's driver, which exists while it commits a batch.

        Each epoch has its own, so that a zombie cannot overwrite its successor's.
        """
        return f"pending-{epoch:08d}.json"

    def pending_records(self) -> list[str]:
        """Return the keys of the pending records that earlier drivers left, oldest first."""
        return self.store.keys("pending-*.json")

    def new_checkpoint(self) -> Path:
        """Create an empty checkpoint for a query and remove earlier ones: the position is in the tables."""
        folder = self.root / "checkpoints"
        shutil.rmtree(folder, ignore_errors=True)
        # Spark would make it readable for everybody.
        private_folder(folder)
        return folder / uuid.uuid4().hex[:8]

    def last_planned(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which the last query planned to read, from its checkpoint: a hint, no position."""
        from jobs.tables.commit.stamp.offsets import from_spark_offsets

        try:
            logs = self.root.glob("checkpoints/*/offsets/*")
            newest = max((log for log in logs if log.name.isdigit()), key=lambda log: int(log.name), default=None)
            return from_spark_offsets(newest.read_text().splitlines()[-1]) if newest else {}
        except (OSError, ValueError, IndexError, AttributeError):
            return {}


def state_store(settings: Settings) -> StateStore:
    """Return the deployment's state store: the one in the settings, or the folder of this machine.

    Raises:
        FrazilError: The client of the store is not installed, or an environment variable with a secret is not set.
    """
    if settings.state_store is None:
        return LocalStore(settings.state)
    # Imported here: a deployment with its state in a folder does not need it.
    from jobs.clients.state_store.chosen_store import shared_store

    return shared_store(settings.state_store, settings.state)


def streams_with(settings: Settings, name: str) -> list[str]:
    """Return the ids of the streams that have a document of this name, sorted."""
    return [key.split("/")[1] for key in state_store(settings).keys(f"streams/*/{name}")]


def stream_folder(settings: Settings, stream: str) -> StreamFolder:
    """Return the state of a stream outside its tables.

    Args:
        settings: Settings of the deployment.
        stream: Id of the stream. A job beside it has a folder within the stream's: `payments/replay` for
            `payments~replay`.
    """
    name = "/".join(["streams", *stream.split("~")])
    return StreamFolder(settings.state / name, state_store(settings).below(name))
