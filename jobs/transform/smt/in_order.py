"""Several steps as one: what one transform of Connect is in frazil's own steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from jobs.transform.columns import Columns
from jobs.transform.transform import NO_ROWS, Applied, RowFailure, Rows, Transform, added_columns


class InOrder(Transform):
    """Steps, each on what the one before it left. Without any, rows pass.

    Args:
        steps: In their order.
    """

    name: ClassVar[str] = "in_order"

    def __init__(self, steps: Sequence[Transform]) -> None:
        self._steps: tuple[Transform, ...] = tuple(steps)

    @property
    def asks(self) -> frozenset[str]:
        """What any of them asks."""
        return frozenset().union(*(each.asks for each in self._steps))

    @property
    def adds(self) -> frozenset[str] | None:
        """What all of them add, if each leaves the other columns."""
        return added_columns(self._steps)

    def prepare(self) -> None:
        """As each of them."""
        for each in self._steps:
            each.prepare()

    def output(self, columns: Columns) -> Columns:
        """Those behind the last one."""
        for each in self._steps:
            columns = Columns.of(each.output(columns).fields)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """A row that one refuses or drops does not meet the next."""
        at: np.ndarray | None = None
        failures: list[RowFailure] = []
        filtered = NO_ROWS
        for each in self._steps:
            made = each.apply(rows)
            failures += [one if at is None else one._replace(row=int(at[one.row])) for one in made.failures]
            if len(made.filtered):
                filtered = np.union1d(filtered, made.filtered if at is None else at[made.filtered])
            if made.kept is not None:
                at = made.kept if at is None else at[made.kept]
            rows = made.rows
        return Applied(rows, at, sorted(failures, key=lambda one: one.row), filtered)
