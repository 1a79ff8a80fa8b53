"""What a replay did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jobs.commit.stamp_parts import Counts
from jobs.deadletter.letters import LetterCounts

Coordinates = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why letters would not come back, or did not.

    Attributes:
        example: Topic, partition and offset of one of them; never a value.
    """

    stage: str
    error_class: str
    count: int
    example: Coordinates


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is.

    Attributes:
        total: The letters that were selected.
        done: Those that have been tried.
        failed: Those of them that failed again, parked ones included.
    """

    total: int
    done: int
    replayed: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay, or of a dry run.

    Attributes:
        replay: Its id, as the letters keep it; empty for a dry run.
        selected: Letters that the selection means.
        replayed: Letters whose rows landed now; in a dry run, that would.
        standing: Letters whose rows stood in the table already, or of records that have another letter; they count as
            replayed and land nothing.
        failed_again: Letters that failed again.
        parked: Letters that failed for the last time, and are left alone from now on.
        unreadable: Letters in data files that cannot be read.
        reasons: Why letters failed, the most frequent first.
        problems: A sentence for each data file that cannot be read.
        snapshots: Of the stream's table, with the rows that landed.
        correction: The YAML that the spec was corrected with.
        there_is: All letters of the stream, told where the selection means none.
    """

    stream: str
    dry_run: bool
    replay: str = ""
    selected: int = 0
    replayed: int = 0
    standing: int = 0
    failed_again: int = 0
    parked: int = 0
    unreadable: int = 0
    reasons: tuple[Reason, ...] = ()
    problems: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()
    correction: str | None = None
    seconds: float = 0.0
    there_is: LetterCounts | None = None

    @property
    def failed(self) -> int:
        """Letters that failed, for the last time or not."""
        return self.failed_again + self.parked


@dataclass(slots=True)
class Sums:
    """A result in the making."""

    total: int = 0
    counts: Counts = field(default_factory=Counts)
    standing: int = 0
    failed_again: int = 0
    parked: int = 0
    unreadable: int = 0
    reasons: dict[tuple[str, str], Reason] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)

    def failed_for(self, stage: str, error_class: str, where: Coordinates) -> None:
        """Count one more letter with this reason."""
        known = self.reasons.get((stage, error_class))
        self.reasons[stage, error_class] = (
            replace(known, count=known.count + 1) if known else Reason(stage, error_class, 1, where)
        )

    @property
    def progress(self) -> Progress:
        """How far it is."""
        failed = self.failed_again + self.parked
        done = self.counts.landed + self.standing + failed + self.unreadable
        return Progress(max(self.total, done), done, self.counts.landed, failed)
