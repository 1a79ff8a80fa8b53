"""Findings: the effect of a difference between a stream's records and its table, before a record shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pyiceberg.types import NestedField

from jobs.records.schema.difference import Difference
from jobs.records.schema.iceberg_schema import with_null

Outcome: TypeAlias = Literal["lands", "null", "changes_table", "left_out", "proposed", "dead_letter", "stops"]
"""Effect on records.

They land; the column is null; the table is changed for them; the field is left out and counted; they become dead
letters until somebody decides; they become dead letters; the stream stops, or does not start.
"""

Level: TypeAlias = Literal["ok", "warn", "error"]

_LEVELS: dict[Outcome, Level] = {"proposed": "warn", "dead_letter": "warn", "stops": "error"}


@dataclass(frozen=True, slots=True)
class ContractFinding:
    """One difference, and its effect.

    Attributes:
        difference: Difference between the rows of records and the table.
        outcome: Effect on records with it.
        why: Reason, a sentence without its full stop.
    """

    difference: Difference
    outcome: Outcome
    why: str

    @property
    def level(self) -> Level:
        """Level of attention that it needs."""
        return _LEVELS.get(self.outcome, "ok")

    @property
    def facts(self) -> dict[str, Any]:
        """The finding as JSON."""
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
    """The worst level of the findings; `ok` without any."""
    levels = {finding.level for finding in findings}
    return "error" if "error" in levels else "warn" if "warn" in levels else "ok"


def _type(field: NestedField | None) -> str | None:
    return with_null(field) if field else None
