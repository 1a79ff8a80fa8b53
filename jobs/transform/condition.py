"""Conditions: which rows of a block a step is for, by their topic, their headers, or what is left of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.columns import Columns
from jobs.transform.masks import Mask, mask_of
from jobs.transform.transform import RowFailure, Rows


class Condition(ABC):
    """What is asked of each row. Implementations are frozen dataclasses."""

    @property
    def asks(self) -> frozenset[str]:
        """Parts of the frame that have to be fetched, as of a transform."""
        return frozenset()

    def check(self, columns: Columns) -> None:  # noqa: B027 - most conditions ask nothing of the columns
        """See that the condition can be asked of rows with these columns.

        Raises:
            TransformProblem: It cannot.
        """

    @abstractmethod
    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        """For which rows it holds, and the rows of which that cannot be said."""


@dataclass(frozen=True, slots=True)
class TopicMatches(Condition):
    """The whole name of the topic, as steps left it, matches a pattern.

    Attributes:
        pattern: In the syntax of Python's `re`.
    """

    pattern: str

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        encoded = pc.dictionary_encode(rows.frame.part("topic"))
        wanted = re.compile(self.pattern)
        of = pa.array([wanted.fullmatch(each) is not None for each in encoded.dictionary.to_pylist()], pa.bool_())
        return mask_of(of.take(encoded.indices)), ()


@dataclass(frozen=True, slots=True)
class HasHeader(Condition):
    """The record has a header of a name, whatever its value.

    Attributes:
        header: The name, exactly.
    """

    header: str

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"})

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        """A record without headers has none of this name."""
        headers = rows.frame.part("headers")
        found = np.zeros(len(headers), dtype=bool)
        names = pc.struct_field(headers.flatten(), "key")
        found[pc.list_parent_indices(headers).to_numpy()[mask_of(pc.equal(names, self.header))]] = True
        return found, ()


@dataclass(frozen=True, slots=True)
class IsTombstone(Condition):
    """The row has no value at this step: a step before it took the value away."""

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        return (np.zeros(rows.count, dtype=bool) if rows.tombstones is None else mask_of(rows.tombstones)), ()


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """Another condition does not hold.

    Attributes:
        inner: That one.
    """

    inner: Condition

    @property
    def asks(self) -> frozenset[str]:
        return self.inner.asks

    def check(self, columns: Columns) -> None:
        self.inner.check(columns)

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        found, failures = self.inner.holds(rows)
        return ~found, failures


@dataclass(frozen=True, slots=True)
class AllOf(Condition):
    """Several conditions hold.

    Attributes:
        inner: Those.
    """

    inner: tuple[Condition, ...]

    @property
    def asks(self) -> frozenset[str]:
        return frozenset().union(*(each.asks for each in self.inner))

    def check(self, columns: Columns) -> None:
        for each in self.inner:
            each.check(columns)

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        """Where every one does; a row of which one cannot be said fails, unless another says no."""
        every = [each.holds(rows) for each in self.inner]
        found = np.logical_and.reduce([mask for mask, _ in every])
        no = np.zeros(rows.count, dtype=bool)
        for mask, failures in every:
            refuted = ~mask
            refuted[[each.row for each in failures]] = False
            no |= refuted
        return found, [one for _, failures in every for one in failures if not no[one.row]]
