"""Changes of a changelog that expire, in a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.maintain.plan import PlanInput, Skip, Step
from jobs.maintain.text import size_text
from jobs.spec.units import format_duration


@dataclass(frozen=True, slots=True)
class ChangesForecast:
    """Which changes of a changelog would expire.

    Attributes:
        keep: How old changes become, at least.
        before: Changes that came to Kafka before go.
        files, rows, bytes: What would go.
        held_rows: Older changes that stay, as younger ones, or some that a mirror lacks, are in their data files.
        all_files: Of the changelog.
        refused: Why none go; None if they do.
        held_by: What older changes wait for, beside others of their files; empty if they do not.
    """

    keep: timedelta
    before: datetime
    files: int = 0
    rows: int = 0
    bytes: int = 0
    held_rows: int = 0
    all_files: int = 0
    refused: str | None = None
    held_by: str = ""


def plan_changes(at: PlanInput, found: ChangesForecast | None) -> Iterator[Step | Skip]:
    """Whether changes of a changelog are due to go.

    Args:
        found: Which would; None of a table that keeps all it has.
    """
    if found is None:
        return
    held = f" {found.held_rows:,} older ones stay in files with others." if found.held_rows else ""
    if found.held_rows and found.held_by:
        held = f" {found.held_rows:,} older ones stay in files with others, or for {found.held_by}."
    if found.refused is not None:
        yield Skip("changes", "", found.refused)
    elif not found.files:
        older = f"No data file holds changes alone from before {found.before:%Y-%m-%d} that all mirrors have"
        yield Skip("changes", "", f"{older} (changes.keep {format_duration(found.keep)}).{held}")
    else:
        what = f"{found.rows:,} changes from before {found.before:%Y-%m-%d} in {found.files:,} data files"
        yield Step(
            "changes",
            "",
            None,
            f"{what} of {size_text(found.bytes)} are merged into all mirrors: they go by metadata.{held}",
            files_before=found.all_files,
            files_after=found.all_files - found.files,
            seconds=at.seconds("changes"),
            detail={"before": found.before.isoformat()},
        )
