"""Contract findings: what a difference between a stream's records and its table leads to, before a record shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pyiceberg.types import NestedField

from jobs.records.schema.difference import Difference
from jobs.records.schema.iceberg_schema import with_null

Outcome: TypeAlias = Literal["lands", "null", "changes_table", "left_out", "proposed", "dead_letter", "stops"]
"""What becomes of records: they land; the column is null; the table is changed for them; the field is left out and
counted; somebody has to decide, and they become dead letters until then; they become dead letters; the stream stops, or
does not start."""

Level: TypeAlias = Literal["ok", "warn", "error"]

_LEVELS: dict[Outcome, Level] = {"proposed": "warn", "dead_letter": "warn", "stops": "error"}


@dataclass(frozen=True, slots=True)
class ContractFinding:
    """One difference, and what it leads to.

    Attributes:
        difference: Between the rows that records give and the table.
        outcome: What becomes of records that have it.
        why: Why so, as a sentence without its point.
    """

    difference: Difference
    outcome: Outcome
    why: str

    @property
    def level(self) -> Level:
        """Whether anybody should look at it."""
        return _LEVELS.get(self.outcome, "ok")

    @property
    def facts(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        needs = self.difference.needs
        return {
            "column": self.difference.column,
            "difference": self.difference.kind,
            "rows": _type(self.difference.rows),
            "table": _type(self.difference.table),
            "change": needs.change if needs else None,
            "outcome": self.outcome,
            "why": self.why,
        }


def worst(findings: list[ContractFinding]) -> Level:
    """The level of the finding that is worst; `ok` where there is none."""
    levels = {finding.level for finding in findings}
    return "error" if "error" in levels else "warn" if "warn" in levels else "ok"


def _type(field: NestedField | None) -> str | None:
    return with_null(field) if field else None
