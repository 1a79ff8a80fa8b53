"""Result of a check: the checked rows of a table, and the outcome of each expectation."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec

from jobs.config.contract.contract import Expectation
from jobs.config.values.targets import Role
from jobs.quality.contracts.check_rows import EngineName
from jobs.quality.contracts.outcome import ExpectationOutcome
from jobs.quality.incremental_scan.increment import Increment

Scope = Literal["increment", "table", "condition"]


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows of a table that a check covers.

    Attributes:
        scope: New rows since the last check, the whole table, or rows that match a condition.
        where: The condition.
    """

    scope: Scope = "increment"
    where: str | None = None

    @classmethod
    def of(cls, whole: bool, where: str | None) -> CheckedRows:
        """Rows by the options of a command."""
        return cls("condition", where) if where is not None else cls("table" if whole else "increment")


@dataclass(slots=True)
class TableCheck:
    """Outcome of a check of one table.

    Attributes:
        role: Whether the table has the stream's rows or its dead letters.
        part: The stream's table, as named in the history of checks.
        asked: Requested rows.
        found: New rows, or the extent of the whole table; None if the table does not exist.
        engine: Engine; None if there was nothing to evaluate.
        rows: Number of checked rows.
        outcomes: One for each requested expectation; if nothing is new, only for those about the amount of rows.
        nothing_new: Names of the other expectations in that case, whose results stay.
        sql: SQL that shows the unexpected rows, by the name of an expectation.
        recorded: Whether the rows count as checked from now on.
        not_recorded: Reason why they do not.
        not_kept: Reason why the results are not in the stream's check history; empty if they are.
        at: Start of the check.
    """

    stream: str
    table: str
    role: Role
    asked: CheckedRows
    at: datetime
    found: Increment | None = None
    engine: EngineName | None = None
    rows: int = 0
    outcomes: list[ExpectationOutcome] = field(default_factory=list)
    nothing_new: tuple[str, ...] = ()
    sql: Mapping[str, str] = field(default_factory=dict)
    recorded: bool = False
    not_recorded: str = ""
    not_kept: str = ""
    seconds: float = 0.0
    part: str = "rows"

    @property
    def failed(self) -> list[ExpectationOutcome]:
        """Outcomes that did not pass, critical ones first."""
        order = ("critical", "warning", "info")
        return sorted((each for each in self.outcomes if not each.passed), key=lambda each: order.index(each.severity))

    @property
    def critical(self) -> bool:
        """Whether a critical expectation failed."""
        return any(each.severity == "critical" for each in self.failed)

    @property
    def unevaluated(self) -> bool:
        """Whether an expectation could not be evaluated."""
        return any(each.problem is not None for each in self.outcomes)

    @property
    def failures(self) -> dict[str, int]:
        """Number of failures by severity."""
        return dict(Counter(each.severity for each in self.failed))

    @property
    def extent(self) -> str:
        """Extent of the checked rows, as a sentence."""
        if self.found is None:
            return f"Table {self.table} does not exist yet."
        if self.found.head is None:
            return f"Table {self.table} has no rows yet."
        if self.asked.scope == "condition":
            return f"Rows of {self.table} where {self.asked.where}."
        if self.asked.scope == "table":
            return f"All rows of {self.table}."
        if self.found.found == "table":
            return f"All rows of {self.table}: {self.found.why}."
        if self.found.empty:
            return f"Nothing is new in {self.table} since snapshot {self.found.begin}."
        count = len(self.found.snapshots)
        new = f"{count:,} new {'snapshot' if count == 1 else 'snapshots'}"
        said = f"{new} of {self.table} since snapshot {self.found.begin}"
        return f"{said}; {self.found.why}." if self.found.why else f"{said}."


def contract_digest(expectations: Sequence[Expectation]) -> str:
    """Twelve hexadecimal digits that change with the expectations."""
    text = msgspec.json.encode([each.model_dump(mode="json") for each in expectations], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:12]
