"""Filter: rows are left or dropped by a condition; those that are dropped are counted as filtered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jobs.transform.columns import Columns
from jobs.transform.condition import Condition
from jobs.transform.transform import Applied, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class Filter(Transform):
    """Rows are dropped.

    Attributes:
        condition: Of each row; None: it holds for every one.
        drop: Whether those are dropped for which it holds; else the others.
    """

    name: ClassVar[str] = "filter"
    condition: Condition | None = None
    drop: bool = True

    @property
    def asks(self) -> frozenset[str]:
        """What the condition asks."""
        return self.condition.asks if self.condition else frozenset()

    @property
    def adds(self) -> frozenset[str]:
        """None: rows stay as they are."""
        return frozenset()

    def output(self, columns: Columns) -> Columns:
        """The same columns."""
        if self.condition is not None:
            self.condition.check(columns)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """A row of which the condition cannot be said fails."""
        if self.condition is None:
            mask, failures = np.ones(rows.count, dtype=bool), ()
        else:
            mask, failures = self.condition.holds(rows)
        dropped = mask if self.drop else ~mask
        if failures:
            dropped = dropped.copy()
            dropped[[each.row for each in failures]] = False
        return settled(rows, failures, np.flatnonzero(dropped))
