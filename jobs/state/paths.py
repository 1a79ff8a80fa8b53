"""Where a stream keeps what is not in its tables: its folder below the deployment's state."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from jobs.commit.offsets import TopicPartition, from_spark_offsets
from jobs.spec.settings import Settings
from jobs.system.private import private_folder


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """Where a stream keeps what is not in its tables: the lease, the pending record, and Spark's scratch checkpoint."""

    root: Path

    def pending(self, epoch: int) -> Path:
        """The pending record of the driver with this epoch, while it commits a batch.

        Each epoch has its own, so that a driver that wakes up after a take-over cannot overwrite its successor's.
        """
        return self.root / f"pending-{epoch:08d}.json"

    def pending_records(self) -> list[Path]:
        """The pending records that earlier drivers left, oldest first."""
        return sorted(self.root.glob("pending-*.json"))

    def new_checkpoint(self) -> Path:
        """An empty checkpoint for a query; those of earlier queries go, since the position is in the tables."""
        folder = self.root / "checkpoints"
        shutil.rmtree(folder, ignore_errors=True)
        # Spark would make it for everybody.
        private_folder(folder)
        return folder / uuid.uuid4().hex[:8]

    def last_planned(self) -> dict[TopicPartition, int]:
        """How far the last query had planned to read, from what is left of its checkpoint: a hint, not a position."""
        try:
            logs = self.root.glob("checkpoints/*/offsets/*")
            newest = max((log for log in logs if log.name.isdigit()), key=lambda log: int(log.name), default=None)
            return from_spark_offsets(newest.read_text().splitlines()[-1]) if newest else {}
        except (OSError, ValueError, IndexError, AttributeError):
            return {}


def stream_folder(settings: Settings, stream: str) -> StreamFolder:
    """The state folder of a stream.

    Args:
        settings: Where things are.
        stream: Its id. What works beside it has a folder in its own: `payments/replay` for `payments~replay`.
    """
    return StreamFolder(settings.state.joinpath("streams", *stream.split("~")))
