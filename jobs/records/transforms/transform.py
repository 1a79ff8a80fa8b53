"""Transform interface: one step that rows take between decoding and their table.

A step is a frozen value that travels to the tasks pickled. Its columns are settled when the spec is validated
(`output`); its kernel (`apply`) is Arrow, without Python for each row where values are as they should be. A value is
the one that was sent, or its row fails: no step makes null of what it cannot read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.records.transforms.columns import Columns, Place, TransformProblem
from jobs.records.transforms.frame import Frame, Indices

NO_ROWS: Indices = np.zeros(0, np.int64)


class RowFailure(NamedTuple):
    """A row that a step refuses.

    Attributes:
        row: Its index among the rows that the step was given.
        error_class: Stable name of the reason, as in `jobs.records.formats.interface.problems`.
        message: One sentence: `needs …, found …`.
        path: Of the column at fault, such as `$.a.b`; None when the whole row is.
    """

    row: int
    error_class: str
    message: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows on their way through the steps.

    Attributes:
        columns: Theirs, in Iceberg's types.
        batch: In the schema `columns.arrow`.
        frame: What Kafka keeps of their records, one entry for each row.
        tombstones: Which rows have no value any more, since a step took it from them (`extract` of a struct that is
            null); None where none is so. Their columns are null, also required ones. A row that is one behind the last
            step is counted as a tombstone, and lands nowhere.
    """

    columns: Columns
    batch: pa.RecordBatch
    frame: Frame
    tombstones: pa.BooleanArray | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.batch.num_rows

    def with_batch(self, columns: Columns, arrays: Sequence[pa.Array]) -> Rows:
        """The same rows with other columns.

        Args:
            columns: The new ones.
            arrays: One for each of them, in the types of `columns.arrow`.
        """
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=columns.arrow) if arrays else _bare(self.batch)
        return replace(self, columns=columns, batch=batch)

    def take(self, rows: Indices) -> Rows:
        """Some of the rows, ascending."""
        indices = pa.array(rows, pa.int64())
        gone = None if self.tombstones is None else self.tombstones.take(indices)
        return Rows(self.columns, self.batch.take(indices), self.frame.take(rows), gone)


def _bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without columns still have a number."""
    return batch.select([])


@dataclass(frozen=True, slots=True)
class Applied:
    """What a step made of its rows: each is left, has failed, or is filtered out.

    Attributes:
        rows: Those that are left, in their order.
        kept: Which rows they are of those that the step was given; None: all of them.
        failures: Ascending by row.
        filtered: Rows that a filter dropped, ascending.
        warned: Rows that broke a rule and are left nevertheless, by the rule's name, ascending.
    """

    rows: Rows
    kept: Indices | None = None
    failures: Sequence[RowFailure] = ()
    filtered: Indices = field(default_factory=lambda: NO_ROWS)
    warned: Mapping[str, Indices] = field(default_factory=dict)


def settled(rows: Rows, failures: Sequence[RowFailure] = (), filtered: Indices = NO_ROWS) -> Applied:
    """What a step made of its rows, given what it made of all of them and which failed.

    Args:
        rows: One for each row that the step was given; of one that failed, with anything in it.
        failures: In any order; of several of one row the first counts. One of a row that is filtered does not count.
        filtered: Ascending.
    """
    if not failures and not len(filtered):
        return Applied(rows)
    dropped = set(filtered.tolist())
    first: dict[int, RowFailure] = {}
    for each in failures:
        if each.row not in dropped:
            first.setdefault(each.row, each)
    gone = np.fromiter((*dropped, *first), np.int64)
    kept = np.setdiff1d(np.arange(rows.count), gone)
    return Applied(rows.take(kept), kept, [first[row] for row in sorted(first)], filtered)


class Transform(ABC):
    """One step. Implementations are frozen dataclasses."""

    name: ClassVar[str]
    """The step's key in YAML; dead letters name it."""

    @property
    def asks(self) -> frozenset[str]:
        """Parts of the frame that have to be fetched for it: of `timestamp_type`, `key`, `headers`."""
        return frozenset()

    @property
    def adds(self) -> frozenset[str] | None:
        """The names of the columns that it adds, of a step that leaves all others as they are; None of other steps."""
        return None

    @property
    def retypes(self) -> bool:
        """Whether it may give a column that it leaves where it is another type."""
        return False

    @abstractmethod
    def output(self, columns: Columns) -> Columns:
        """The columns behind the step.

        Raises:
            TransformProblem: The step cannot be taken on them; it names the column.
        """

    @abstractmethod
    def apply(self, rows: Rows) -> Applied:
        """The step on some rows, whose columns `output` has taken; the rows that are left have those that it gives.

        Raises:
            ValueProblem: A row is at fault, and the step does not know which; it is looked for by bisection.
        """

    def prepare(self) -> None:  # noqa: B027 - most steps need nothing
        """Look up what the step needs of its machine, before the first row.

        Raises:
            FrazilError: It is not there: a secret, say.
        """


class PassingStep(Transform):
    """A step that leaves all columns as they are, such as one that changes the record's key, topic or headers."""

    @property
    def adds(self) -> frozenset[str]:
        return frozenset()

    def output(self, columns: Columns) -> Columns:
        return columns


def added_columns(steps: Iterable[Transform]) -> frozenset[str] | None:
    """The names of the columns that steps add, if all of them leave the others as they are; else None."""
    added: set[str] = set()
    for each in steps:
        if (names := each.adds) is None:
            return None
        added |= names
    return frozenset(added)


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
