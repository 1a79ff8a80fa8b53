"""Expiry in a plan: snapshots, orphan files, and changes of a changelog. Pure functions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobs.config.documents.units import format_duration
from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.measure.text import duration_text, size_text
from jobs.maintenance.plan.plan import PlanInput, Skip, Step
from jobs.maintenance.plan.snapshot_retention import ExpiryCutoff

if TYPE_CHECKING:
    from jobs.config.services.maintenance_policy import Expire, Orphans

# With fewer, it does not pay to start Spark.
_WORTHWHILE = 20
_DAY = timedelta(days=1)


def may_be_due(facts: TableFacts, expire: Expire, now: datetime) -> bool:
    """Whether some snapshots are due by age or number, so that the holds are worth looking up."""
    times = facts.snapshot_times
    old = bool(times) and times[0] < now - expire.keep
    return expire.enabled and len(times) > min(expire.max_snapshots, expire.min_snapshots if old else len(times))


def plan_expiry(at: PlanInput, expire: Expire, cutoff: ExpiryCutoff | str | None = None) -> Step | Skip:
    """Snapshots to expire: by age beyond `min_snapshots`, and by number whatever the age.

    `time_travel` always holds: the snapshots of that time stay, and the one that was current when it began.

    Args:
        cutoff: Cutoff of the expiry, see `expected_cutoff`, or the reason of a refusal. None: none is due, see
            `may_be_due`.
    """
    times, keep = at.facts.snapshot_times, format_duration(expire.keep)
    if not expire.enabled:
        return Skip("expire", "", "expire.enabled is false.")
    if (collected := garbage_collection(at)) is not None:
        return Skip("expire", "", collected)
    count, old = len(times), at.now - expire.keep
    kept = f"{count:,} snapshots (at least {expire.min_snapshots}, at most {expire.max_snapshots})"
    if cutoff is None:
        return Skip("expire", "", f"Nothing may go: {kept}; beyond the fewest, none is older than {keep}.")
    by_age = min(bisect_left(times, old), max(0, count - expire.min_snapshots))
    over = max(0, count - expire.max_snapshots)
    due = max(by_age, over)
    why = f"{over:,} too many" if over >= by_age else f"{by_age:,} are older than {keep}"
    refused = isinstance(cutoff, str)
    if refused:
        # Other holds are unknown. Each branch or tag holds one snapshot, most likely an old one.
        spared = max(0, bisect_right(times, at.now - expire.time_travel) - 1) if expire.time_travel else due
        go, refs = min(due, spared), len(at.facts.refs)
        if go and refs >= go:
            return Skip("expire", "", f"{go:,} of {kept} are due, but branches or tags need as many.")
        go, oldest = max(0, go - refs), times[min(refs, count - 1)]
    else:
        go, oldest = cutoff.going, cutoff.oldest_going or at.now
    held = ""
    if due > go and not refused:
        holding = "; ".join(dict.fromkeys(hold.what for hold in cutoff.holds)) or "branches or tags"
        held = f" {due - go:,} of those that are due stay, for {holding}."
    if not go:
        return Skip("expire", "", f"Nothing may go: {kept}.{held}")
    # An old snapshot goes within a day, even a single one.
    if not over and oldest >= old - _DAY and go < _WORTHWHILE:
        worth = f"at {_WORTHWHILE} they do, or once one is a day older"
        return Skip("expire", "", f"Not worth it yet: {go:,} of {kept} may go; {worth}.{held}")
    seconds = at.seconds("expire")
    if refused:
        return Step("expire", "", None, f"{kept}: {why}. None will go: {cutoff}", count, count, seconds=seconds)
    return Step(
        "expire",
        "",
        None,
        f"{kept}: {why}, the oldest that goes of {duration_text(at.now - oldest)} ago.{held}",
        files_before=count,
        files_after=cutoff.staying,
        seconds=seconds,
        detail={
            "planned_at": at.now.isoformat(),
            "cutoff": cutoff.older_than.isoformat(),
            "retain_last": cutoff.retain_last,
            "go": go,
        },
    )


def expiry_warnings(at: PlanInput, expire: Expire) -> list[str]:
    """Warnings about snapshots that come so fast that the promise needs more of them than the limit."""
    promised, commits = expire.time_travel, at.facts.commits_per_day
    if promised is None or commits * (promised / _DAY) <= expire.max_snapshots:
        return []
    reach = duration_text(timedelta(days=expire.max_snapshots / commits))
    return [
        f"At {commits:,.0f} commits a day, expire.max_snapshots ({expire.max_snapshots}) reaches {reach} back, less "
        f"than expire.time_travel promises ({format_duration(promised)}). The promise is kept: there will be about "
        f"{commits * (promised / _DAY):,.0f} snapshots, and each commit takes longer for it. Use a longer trigger, or "
        "promise less."
    ]


def garbage_collection(at: PlanInput) -> str | None:
    """Reason why no expiry may delete files of the table: they are shared, or its catalog deletes them itself."""
    if str(at.facts.properties.get("gc.enabled", "true")).lower() != "false":
        return None
    return "The table has gc.enabled=false: its files may belong to others, or its catalog deletes them itself."


def plan_orphans(at: PlanInput, policy: Orphans) -> Step | Skip:
    """Step or skip of the search for orphan files."""
    facts = at.facts
    if not policy.enabled:
        return Skip("orphans", "", "orphans.enabled is false.")
    if (collected := garbage_collection(at)) is not None:
        return Skip("orphans", "", collected)
    older = format_duration(policy.older_than)
    born = table_created_at(facts, at.history)
    if facts.snapshot_id is None or (born is not None and at.now - born < policy.older_than):
        return Skip("orphans", "", f"Not due: the table is younger than {older}, and so is every file of it.")
    since, every = at.since("orphans"), format_duration(policy.every)
    if since is not None and since < policy.every:
        return Skip("orphans", "", f"Not due: looked for {duration_text(since)} ago, which is done every {every}.")
    last = "Never looked for yet" if since is None else f"Last looked for {duration_text(since)} ago"
    return Step(
        "orphans",
        "",
        None,
        f"{last}, which is done every {every}: files older than {older} that nothing refers to.",
        seconds=at.seconds("orphans"),
        detail={
            "older_than": (at.now - policy.older_than).isoformat(),
            "max_share": policy.max_share,
            "max_files": policy.max_files,
        },
    )


def table_created_at(facts: TableFacts, history: MaintenanceHistory) -> datetime | None:
    """Creation time of the table, as far as known; None if not.

    No file of it is older. Once snapshots and metadata files are removed, only the maintenance history has it.
    """
    # While no snapshot has expired there are as many as commits. Format version 1 does not number them.
    whole = facts.snapshot_times[0] if facts.sequence and facts.sequence == facts.snapshots else None
    known = (facts.created_at, history.created_at, whole)
    return min((each for each in known if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class ChangesForecast:
    """Changes of a changelog that would expire.

    Attributes:
        keep: Least age of an expired change.
        before: Changes that arrived in Kafka before this instant go.
        files, rows, bytes: What would be removed.
        held_rows: Older changes that stay because their data files also have younger ones, or some that a mirror lacks.
        all_files: Number of the changelog's data files.
        refused: Reason why none go; None if they do.
        held_by: What older changes wait for, beside others in their files; empty if they do not wait.
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
    """Step or skip of the expiry of a changelog's changes.

    Args:
        found: Changes that would expire; None for a table that keeps all of them.
    """
    if found is None:
        return
    held = f" {found.held_rows:,} older ones stay in files with others." if found.held_rows else ""
    if found.held_rows and found.held_by:
        held = f" {found.held_rows:,} older ones stay in files with others, or for {found.held_by}."
    if found.refused is not None:
        yield Skip("changes", "", found.refused)
    elif not found.files:
        older = f"No data file has only changes from before {found.before:%Y-%m-%d} that all mirrors have"
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
