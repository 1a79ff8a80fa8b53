"""Results of a table's steps and of the whole table, and progress reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.plan.plan import Plan, Step

# Key of a result: the writer that won each time, so that the step is left to the next run.
LOST = "lost"


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step of a plan.

    Attributes:
        files_before, files_after: Numbers of what the action counts: data files of the partition, delete files,
        manifests, snapshots (`expire`), files listed (`orphans`).
        bytes: Bytes rewritten or deleted.
        seconds: Time; steps in one run of Spark share its time by their bytes.
        detail: Further figures of the action.
        error: Reason of a failure; None after a success.
        done: Whether anything was changed: holds may leave nothing to do.
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
    """Result of a run for one table.

    Attributes:
        done: Attempted steps, in order; empty in a dry run.
        before: Facts before.
        after: Facts after; None if nothing was done.
        skipped: Reason why nothing was tried although steps were due; otherwise None.
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
        """Failures, as sentences."""
        return tuple(result.error for result in self.done if result.error)


@dataclass(frozen=True, slots=True)
class StepProgress:
    """Begin of a step, or its end with the result.

    Attributes:
        number: Number of the step, from 1.
        total: Number of steps in the plan.
        result: Result; None at the begin.
    """

    table: str
    step: Step
    number: int
    total: int
    result: StepResult | None = None


OnProgress = Callable[[StepProgress], None]


def no_progress(progress: StepProgress) -> None:
    """Progress callback that does nothing."""
