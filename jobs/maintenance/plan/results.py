"""Results of a table's steps and of the whole table, and the progress told meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.plan.plan import Plan, Step

# In a result: who came first each time, so that the step is left to the next run.
LOST = "lost"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one step of a plan.

    Attributes:
        files_before, files_after: What the action counts: data files of the partition, delete files, manifests,
            snapshots (`expire`), files listed (`orphans`).
        bytes: Rewritten, or deleted.
        seconds: That it took; steps that one run of Spark did together share its time by their bytes.
        detail: Numbers and words of the action.
        error: Why it failed; None if it ended well.
        done: Whether anything was changed: what must stay may leave nothing to do.
    """

    step: Step
    files_before: int = 0
    files_after: int = 0
    bytes: int = 0
    seconds: float = 0.0
    detail: dict[str, str | int | float] = field(default_factory=dict)
    error: str | None = None
    done: bool = True


@dataclass(frozen=True, slots=True)
class TableResult:
    """What a run did to one table.

    Attributes:
        done: The steps that were tried, in their order; those of a dry run are none.
        before: As it was measured.
        after: Measured again; None if nothing was done.
        skipped: Why nothing was tried, where there was something to do; None otherwise.
    """

    table: str
    plan: Plan
    done: tuple[StepResult, ...]
    before: TableFacts
    after: TableFacts | None = None
    skipped: str | None = None
    seconds: float = 0.0

    @property
    def errors(self) -> tuple[str, ...]:
        """What failed, as sentences."""
        return tuple(result.error for result in self.done if result.error)


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a step, which begins or ends with its result.

    Attributes:
        number: Of the step, from 1.
        total: How many steps the plan has.
        result: What became of it; None while it begins.
    """

    table: str
    step: Step
    number: int
    total: int
    result: StepResult | None = None


OnProgress = Callable[[StepProgress], None]


def no_progress(progress: StepProgress) -> None:
    """Tells the progress and the results of steps to nobody."""
