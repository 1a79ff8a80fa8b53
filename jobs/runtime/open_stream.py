"""A stream that this process may commit to, and the folder of what it keeps outside its tables."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.commit.offsets import TopicPartition, from_spark_offsets
from jobs.commit.stamps import Stamp
from jobs.commit.start import LogState, StartingPoint
from jobs.runtime.lease import Lease
from jobs.runtime.private import private_folder
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    # Who only asks for a stream's folder does not wait for PyIceberg.
    from jobs.commit.target import Target


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


@dataclass(slots=True)
class OpenStream:
    """A stream that this process may commit to.

    Attributes:
        targets: By table name, the anchor first.
        positions: Where each target stands; follows every commit.
        begin: Where reading begins.
        generation: The configuration that this process runs under, see `jobs.spec.generation`.
        former: The newest stamps of tables that the stream wrote under an earlier configuration.
        recovered: How many batches of earlier drivers were committed from their pending records.
    """

    spec: StreamSpec
    settings: Settings
    folder: StreamFolder
    lease: Lease
    epoch: int
    targets: dict[str, Target]
    log: LogState
    generation: str = ""
    former: dict[str, Stamp | None] = field(default_factory=dict)
    recovered: int = 0
    positions: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    begin: StartingPoint = field(default_factory=lambda: StartingPoint({}))

    @property
    def anchor(self) -> Target:
        """The stream's table: stamped in every batch."""
        return self.targets[self.spec.table.name]

    @property
    def dead_letters(self) -> Target:
        """The table of the records that failed."""
        return self.targets[self.spec.dead_letter_table]


def stream_folder(settings: Settings, stream: str) -> StreamFolder:
    """The state folder of a stream."""
    return StreamFolder(settings.state / "streams" / stream)
