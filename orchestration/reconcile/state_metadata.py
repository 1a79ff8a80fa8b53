"""State of a stream as metadata of its assets: the word, since when, the next command, and where its driver is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assets.metadata import driver_metadata, instant
from jobs.supervise.heartbeat import Heartbeat
from orchestration.reconcile.assessment import assess_now
from orchestration.reconcile.remote_queries import RemoteQueries
from orchestration.reconcile.stream_state import StreamState, stream_state
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def state_metadata(stands: StreamState, beat: Heartbeat | None) -> dict[str, Any]:
    """The metadata of a stream's state, which every report carries.

    Args:
        stands: How the stream stands.
        beat: The newest heartbeat.
    """
    told: dict[str, Any] = {"state": stands.state}
    if stands.since is not None:
        told["state_since"] = instant(stands.since)
    if stands.fix:
        told["next"] = stands.fix
    if beat is not None and beat.error is not None and stands.code != "running":
        told["last_error"] = beat.error.message
    told["as_of"] = instant(stands.at)
    found = driver_metadata(beat)
    if not stands.lives:
        # Nobody answers there any more; the log stays.
        for page in ("spark_ui", "metrics"):
            found.pop(page, None)
    return told | {key: value for key, value in found.items() if key not in told}


def current_state_metadata(deployment: Deployment, stream: str, catalog: Callable[[], Catalog]) -> dict[str, Any]:
    """What a report made by a run carries of the stream's state, as the supervisor's own reports do."""
    now = time.time()
    assessed = assess_now(deployment, stream, RemoteQueries(catalog, None), now)
    return state_metadata(stream_state(assessed.observed, assessed.decision, now), assessed.observed.heartbeat)
