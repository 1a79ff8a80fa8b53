"""Orphan removal in a plan: whether files that nothing refers to are looked for. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from jobs.maintain.health_facts import TableFacts
from jobs.maintain.maintenance_history import MaintenanceHistory
from jobs.maintain.plan import PlanInput, Skip, Step
from jobs.maintain.plan_expiry import garbage_collection
from jobs.maintain.text import duration_text
from jobs.spec.units import format_duration

if TYPE_CHECKING:
    from jobs.spec.maintenance_policy import Orphans


def plan_orphans(at: PlanInput, policy: Orphans) -> Step | Skip:
    """Returns whether files that nothing refers to are looked for."""
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
    """When the table was made, as far as anything tells; None if nothing does.

    Before that no file of it was written. Once snapshots have expired and metadata files have gone, only what was noted
    before tells.
    """
    # While no snapshot has expired there are as many as there were commits. Format version 1 does not number them.
    whole = facts.snapshot_times[0] if facts.sequence and facts.sequence == facts.snapshots else None
    known = (facts.created_at, history.created_at, whole)
    return min((each for each in known if each is not None), default=None)
