"""Bases of mirrors, and the changes of changelogs that they stand for, in a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.maintain.plan import PlanInput, Skip, Step
from jobs.maintain.text import duration_text, size_text
from jobs.spec.units import format_duration

BASE_EVERY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class BaseForecast:
    """What a base of a mirror would be.

    Attributes:
        snapshot_id: That it would be; None if `refused`.
        merged_at: When that was published.
        newest_at: When the newest base was; None without one that is good for anything.
        newer: Whether the snapshot has more of the changelog than that one.
        refused: Why none can be made; None if one can.
    """

    snapshot_id: int | None = None
    merged_at: datetime | None = None
    newest_at: datetime | None = None
    newer: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class ChangesForecast:
    """Which changes of a changelog would expire.

    Attributes:
        keep: How old changes become, at least.
        before: Changes that came to Kafka before go.
        files, rows, bytes: What would go.
        held_rows: Older changes that stay, as younger ones, or some that a base lacks, are in their data files.
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


def plan_base(at: PlanInput, found: BaseForecast | None) -> Iterator[Step | Skip]:
    """Whether a base is due: each day, once there is more to be in it.

    Args:
        found: What it would be; None of a table that needs none.
    """
    if found is None:
        return
    if found.refused is not None:
        yield Skip("base", "", found.refused)
        return
    age = at.now - found.newest_at if found.newest_at else None
    # One from the future is of a clock that was ahead.
    young = age is not None and timedelta(0) <= age < BASE_EVERY
    if age is not None and (young or not found.newer):
        said = "is made each day" if young else "is made once there is more to be in it"
        yield Skip("base", "", f"The newest base is {duration_text(age)} old; another one {said}.")
        return
    why = f"The newest base is {duration_text(age)} old" if age else "There is no base"
    reason = f"{why}: the newest merge becomes one, and the changelog may let go what came before."
    detail: dict[str, str | int | float] = {"snapshot_id": str(found.snapshot_id)}
    yield Step("base", "", None, reason, seconds=at.seconds("base"), detail=detail)


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
        older = f"No data file holds changes alone from before {found.before:%Y-%m-%d} that all bases have"
        yield Skip("changes", "", f"{older} (changes.keep {format_duration(found.keep)}).{held}")
    else:
        what = f"{found.rows:,} changes from before {found.before:%Y-%m-%d} in {found.files:,} data files"
        yield Step(
            "changes",
            "",
            None,
            f"{what} of {size_text(found.bytes)} are in the bases of all mirrors: they go by metadata.{held}",
            files_before=found.all_files,
            files_after=found.all_files - found.files,
            seconds=at.seconds("changes"),
            detail={"before": found.before.isoformat()},
        )
