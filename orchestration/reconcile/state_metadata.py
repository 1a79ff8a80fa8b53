"""State of a stream as metadata of its assets: the word, since when, the next command, and where its driver is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.metadata import driver_metadata, instant
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work
from orchestration.reconcile.assessment import assess_now
from orchestration.reconcile.remote_queries import RemoteQueries
from orchestration.reconcile.stream_state import StreamState, stream_state
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


_LOG_LINES, _LOG_LINE, _LOG_BYTES = 12, 200, 16_384


def _parked(work: Work) -> dict[str, Any]:
    """Metadata about suspended tables: since when, and the dead letters for each since the driver started."""
    return {
        name: {
            "since": f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC",
            "letters": work.parked_letters.get(name, 0),
        }
        for name, at in work.parked.items()
    }


def log_tail(log: Path) -> str:
    """The last lines of a driver's log, as Markdown; empty if there is none on this machine."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line[:_LOG_LINE].replace("`", "'") for line in text.splitlines()[-_LOG_LINES:] if line.strip()]
    return "\n".join(["```", *lines, "```"]) if lines else ""


def state_metadata(stands: StreamState, beat: Heartbeat | None) -> dict[str, Any]:
    """The metadata of a stream's state, which every report carries."""
    told: dict[str, Any] = {"state": stands.state}
    if stands.since is not None:
        told["state_since"] = instant(stands.since)
    if stands.fix:
        told["next"] = stands.fix
    if beat is not None and beat.error is not None and not stands.at_work:
        told["last_error"] = beat.error.message
    if stands.fix and beat is not None and (tail := log_tail(Path(beat.log))):
        told["log_tail"] = dg.MetadataValue.md(tail)
    if beat is not None and beat.work.parked:
        told["parked_tables"] = dg.MetadataValue.json(_parked(beat.work))
    if stands.launched is not None:
        told |= {"driver_launcher": stands.launched.launcher, "driver_handle": stands.launched.handle}
    told["as_of"] = instant(stands.at)
    found = driver_metadata(beat)
    if not stands.lives:
        # Nobody answers there any more; the log stays.
        for page in ("spark_ui", "metrics"):
            found.pop(page, None)
    return told | {key: value for key, value in found.items() if key not in told}


def current_state_metadata(deployment: Deployment, stream: str, catalog: Callable[[], Catalog]) -> dict[str, Any]:
    """The stream's state as metadata of a report that a run makes, the same as the supervisor's reports have."""
    now = time.time()
    assessed = assess_now(deployment, stream, RemoteQueries(catalog, None), now)
    return state_metadata(stream_state(assessed.observed, assessed.decision, now), assessed.observed.heartbeat)
