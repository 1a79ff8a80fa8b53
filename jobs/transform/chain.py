"""Chain of steps: the transforms of a stream in their order, with the columns between them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.transform.columns import Columns, Place, TransformProblem
from jobs.transform.transform import Transform, added_columns


class StepProblem(Exception):
    """A step of a chain that cannot be taken.

    Args:
        index: Of the step, from 0.
        problem: What is wrong with it.
    """

    def __init__(self, index: int, problem: TransformProblem) -> None:
        super().__init__(problem.message)
        self.index: int = index
        self.message: str = problem.message
        self.place: Place = problem.place


@dataclass(frozen=True)
class Chain:
    """Steps in their order.

    Attributes:
        steps: None of them where rows go to their table as they were decoded.
        leading: How many of them stand before those that the list `transform` of a stream's file has.
    """

    steps: tuple[Transform, ...] = ()
    leading: int = 0

    @property
    def asks(self) -> frozenset[str]:
        """What has to be fetched of a record for the steps, beyond what every record is fetched with."""
        return frozenset().union(*(each.asks for each in self.steps))

    @property
    def adds(self) -> frozenset[str] | None:
        """The names of the columns that the steps add, if all of them leave the others as they are; else None."""
        return added_columns(self.steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """What dead letters call the steps: those of the list by their place in it."""
        listed = (f"transform[{at}].{each.name}" for at, each in enumerate(self.steps[self.leading :]))
        return (*(each.name for each in self.steps[: self.leading]), *listed)

    def columns(self, decoded: Columns) -> tuple[Columns, ...]:
        """The columns before the first step, and behind each.

        Raises:
            StepProblem: A step cannot be taken on the columns that it meets.
        """
        found = [decoded]
        for index, step in enumerate(self.steps):
            try:
                found.append(Columns.of(step.output(found[-1]).fields))
            except TransformProblem as problem:
                raise StepProblem(index, problem) from None
        return tuple(found)

    def output(self, decoded: Columns) -> Columns:
        """The columns behind the last step; raises as `columns` does."""
        return self.columns(decoded)[-1]


NO_CHAIN = Chain()
