"""Transform interface: one step for rows between decoding and their table.

A step is a frozen value that is pickled for the tasks. Its columns are settled when the spec is validated (`output`);
its kernel (`apply`) is Arrow, without Python for each row as long as values are good. A value stays what was sent, or
its row fails: no step turns unreadable values into null.
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
        path: Path of the column at fault, such as `$.a.b`; None if the whole row is.
    """

    row: int
    error_class: str
    message: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows between two steps.

    Attributes:
        columns: Columns of the rows, in Iceberg's types.
        batch: The rows in the schema `columns.arrow`.
        frame: Kafka's metadata of their records, one entry for each row.
        tombstones: Mask of the rows whose value a step has removed (`extract` of a struct that is null); None if there
            are none. Their columns are null, also required ones. Behind the last step such a row is counted as a
            tombstone, and does not land.
    """

    columns: Columns
    batch: pa.RecordBatch
    frame: Frame
    tombstones: pa.BooleanArray | None = None

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return self.batch.num_rows

    def with_batch(self, columns: Columns, arrays: Sequence[pa.Array]) -> Rows:
        """Return the same rows with other columns.

        Args:
            columns: The new ones.
            arrays: One array for each of them, in the types of `columns.arrow`.
        """
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=columns.arrow) if arrays else _bare(self.batch)
        return replace(self, columns=columns, batch=batch)

    def take(self, rows: Indices) -> Rows:
        """Return some of the rows, ascending."""
        indices = pa.array(rows, pa.int64())
        gone = None if self.tombstones is None else self.tombstones.take(indices)
        return Rows(self.columns, self.batch.take(indices), self.frame.take(rows), gone)


def _bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without columns; their number stays."""
    return batch.select([])


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a step: each row is left, has failed, or is filtered out.

    Attributes:
        rows: Rows that are left, in their order.
        kept: Indices of these rows among those that the step was given; None for all of them.
        failures: Failures, ascending by row.
        filtered: Rows that a filter dropped, ascending.
        warned: Rows that broke a rule and are left nevertheless, by the rule's name, ascending.
    """

    rows: Rows
    kept: Indices | None = None
    failures: Sequence[RowFailure] = ()
    filtered: Indices = field(default_factory=lambda: NO_ROWS)
    warned: Mapping[str, Indices] = field(default_factory=dict)


def settled(rows: Rows, failures: Sequence[RowFailure] = (), filtered: Indices = NO_ROWS) -> Applied:
    """Return the result of a step from its rows and failures.

    Args:
        rows: One row for each row that the step was given; arbitrary if it failed.
        failures: Failures in any order; the first one of a row counts, and none if the row is filtered.
        filtered: Filtered rows, ascending.
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
        """Return the parts of the frame that have to be fetched for it: of `timestamp_type`, `key`, `headers`."""
        return frozenset()

    @property
    def adds(self) -> frozenset[str] | None:
        """Return the names of the columns that it adds if it changes no others; None for other steps."""
        return None

    @property
    def retypes(self) -> bool:
        """Return whether it may change the type of a column that keeps its place."""
        return False

    @abstractmethod
    def output(self, columns: Columns) -> Columns:
        """Return the columns behind the step.

        Raises:
            TransformProblem: The columns do not allow the step; the message names the column.
        """

    @abstractmethod
    def apply(self, rows: Rows) -> Applied:
        """Take the step on rows with columns that `output` accepts; the rows that are left have the columns of
        `output`.

        Raises:
            ValueProblem: A row is at fault, and the step does not know which; it is then found by bisection.
        """

    def prepare(self) -> None:  # noqa: B027 - most steps need nothing
        """Look up what the step needs on its machine, before the first row.

        Raises:
            FrazilError: It does not exist, for example a secret.
        """


class PassingStep(Transform):
    """A step that leaves all columns as they are, such as one that changes the record's key, topic or headers."""

    @property
    def adds(self) -> frozenset[str]:
        return frozenset()

    def output(self, columns: Columns) -> Columns:
        return columns


def added_columns(steps: Iterable[Transform]) -> frozenset[str] | None:
    """Return the names of the columns that steps add, if all of them leave the others unchanged; else None."""
    added: set[str] = set()
    for each in steps:
        if (names := each.adds) is None:
            return None
        added |= names
    return frozenset(added)


class StepProblem(Exception):
    """A step of a chain that is not possible.

    Args:
        index: Index of the step, from 0.
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
        steps: The steps; empty if rows go to their table as they were decoded.
        leading: Number of steps before those of the list `transform` in a stream's file.
    """

    steps: tuple[Transform, ...] = ()
    leading: int = 0

    @property
    def asks(self) -> frozenset[str]:
        """Return the parts of a record that the steps need, beyond those that are always fetched."""
        return frozenset().union(*(each.asks for each in self.steps))

    @property
    def adds(self) -> frozenset[str] | None:
        """Return the names of the columns that the steps add, if all of them leave the others unchanged; else None."""
        return added_columns(self.steps)

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the steps' names in dead letters; a step of the list has its index."""
        listed = (f"transform[{at}].{each.name}" for at, each in enumerate(self.steps[self.leading :]))
        return (*(each.name for each in self.steps[: self.leading]), *listed)

    def columns(self, decoded: Columns) -> tuple[Columns, ...]:
        """Return the columns before the first step, and behind each.

        Raises:
            StepProblem: The columns before a step do not allow it.
        """
        found = [decoded]
        for index, step in enumerate(self.steps):
            try:
                found.append(Columns.of(step.output(found[-1]).fields))
            except TransformProblem as problem:
                raise StepProblem(index, problem) from None
        return tuple(found)

    def output(self, decoded: Columns) -> Columns:
        """Return the columns behind the last step; raises as `columns` does."""
        return self.columns(decoded)[-1]


NO_CHAIN = Chain()
