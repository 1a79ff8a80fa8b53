"""A stream that this process may commit to, and the folder of what it keeps outside its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamps import Stamp
from jobs.commit.start import LogState, StartingPoint
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.lease import Lease
from jobs.state.paths import StreamFolder

if TYPE_CHECKING:
    # Who only asks for a stream's folder does not wait for PyIceberg.
    from jobs.commit.target import Target


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
        """The coordinator: stamped in every batch, before the others."""
        return self.targets[self.spec.coordinator]

    @property
    def dead_letters(self) -> Target:
        """The table of the records that failed."""
        return self.targets[self.spec.dead_letter_table]
