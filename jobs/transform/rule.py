"""Row rule: what is expected of every row before it lands; one that breaks it is a dead letter, or is counted."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobs.formats.problems import RULE_VIOLATED
from jobs.transform.columns import Columns
from jobs.transform.sql import asks_of, compiled, evaluated, failures_of
from jobs.transform.transform import Applied, RowFailure, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class Rule(Transform):
    """A condition that every row has to meet.

    Attributes:
        rule: The rule's name.
        expect: A SQL expression that has to be true; null is not true.
        warn: Whether rows that break it land nevertheless, and are counted.
    """

    rule: str
    expect: str
    warn: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The rule's."""
        return self.rule

    @property
    def asks(self) -> frozenset[str]:
        """What the expression asks."""
        return asks_of(self.expect)

    def output(self, columns: Columns) -> Columns:
        """The same columns."""
        compiled(self.expect, columns, ("expect",), condition=True)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """A row of which it cannot be said has broken the rule as well."""
        found = evaluated(compiled(self.expect, rows.columns, condition=True), rows)
        met = found.true().to_numpy(zero_copy_only=False)
        if rows.tombstones is not None:
            met = met | rows.tombstones.to_numpy(zero_copy_only=False)
        broken = np.flatnonzero(~met)
        if not len(broken):
            return Applied(rows)
        if self.warn:
            return Applied(rows, warned={self.rule: broken.astype(np.int64)})
        unsaid = {each.row: each.message for each in failures_of(found, self.expect)}
        message = f"needs {self.expect} (rule {self.rule})"
        failures = [RowFailure(row, RULE_VIOLATED, unsaid.get(row, message)) for row in broken.tolist()]
        return settled(rows, failures)
