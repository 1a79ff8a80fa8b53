"""What the keepers of a stream did, as Dagster is told: drivers that they started without asking anybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg

from jobs.supervise.launches import Launch
from orchestration.reconcile.facts import Actual
from orchestration.reconcile.memory import CHANGED_SECONDS, StreamMemory, due
from orchestration.reconcile.standing import instant


def keeper_events(key: dg.AssetKey, actual: Actual, memory: StreamMemory, now: float) -> Iterator[dg.AssetObservation]:
    """What was started since this was last told; of a driver that crashes again and again, gathered.

    Args:
        key: Of the stream's table.
        now: Seconds since 1970.
    """
    launch = actual.launch
    if launch is None:
        return
    since = memory.kept
    if since is None or launch.kept < since:
        # Restarts of long ago are no news to a supervisor that has just begun.
        memory.kept = launch.kept
        return
    if launch.kept == since or not due(now, memory.kept_at, CHANGED_SECONDS):
        return
    memory.kept, memory.kept_at = launch.kept, int(now)
    count = launch.kept - since
    newest = "; ".join(each.why for each in launch.kept_newest[-count:])
    times = "" if count == 1 else f" {count} times"
    yield dg.AssetObservation(
        key,
        description=f"Its keeper started the driver again{times}: {newest}.",
        metadata=keeper_restarts(launch) | {"restarts": count, "attempt": launch.attempt},
    )


def keeper_restarts(launch: Launch | None) -> dict[str, Any]:
    """How often keepers have started the stream's driver, and the last time; nothing if they never had to."""
    if launch is None or not launch.kept_newest:
        return {}
    newest = launch.kept_newest[-1]
    return {
        "keeper_restarts": launch.kept,
        "keeper_restarted_at": instant(newest.at),
        "keeper_restarted_why": newest.why,
    }
