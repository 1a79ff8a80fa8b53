"""How a stream stands, in the words of `frazil status`, from the facts of one look: what its reports carry.

The word is that of `orchestration.reconcile.stream_state`, so that Dagster's pages and the command say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from assets.metadata import driver_metadata
from jobs.spec.settings import Settings
from jobs.state.lease import LeaseRecord
from jobs.state.paths import stream_folder
from jobs.supervise.driver_process import Driver
from jobs.supervise.situation import Situation
from jobs.supervise.stall import stall_of, stalled_after
from jobs.supervise.wanted import Wanted as FileWanted
from orchestration.reconcile.desired import Wanted
from orchestration.reconcile.facts import START_SECONDS, Action, Actual, Decision
from orchestration.reconcile.stream_state import next_command, state_of

# Between two batches and in one: no news.
_AT_WORK = frozenset({"running", "waiting"})


@dataclass(frozen=True, slots=True)
class Standing:
    """How a stream stands at one moment.

    Attributes:
        state: One word, see `orchestration.reconcile.stream_state.state_of`.
        since: When that began, as far as known; of a driver that is gone without a word, when it last beat. Seconds
            since 1970.
        fix: The next command; None where nothing is to be done.
        at: When this was so; seconds since 1970.
        lives: Whether a driver is at work, whose pages can be opened.
    """

    state: str
    since: float | None
    fix: str | None
    at: float
    lives: bool

    @property
    def code(self) -> str:
        """The state without what changes with every batch: what has to differ to be news."""
        return "running" if self.state in _AT_WORK else self.state


def standing(each: Wanted, actual: Actual, decision: Decision, settings: Settings, now: float) -> Standing:
    """How a stream stands, by the facts that its decision is made of.

    Args:
        now: Seconds since 1970.
    """
    beat = actual.beat
    lives = actual.driver_lives and not actual.frozen
    at = beat.beat_wall if beat is not None and lives and actual.fresh else now
    if actual.problem:
        return Standing("unknown", None, actual.fix, now, lives)
    seen = _situation(each, actual, settings)
    state = state_of(seen, decision.action.value)
    if state == "never ran" and actual.lease.state != "none":
        state = "idle"  # it was drained
    fix = decision.fix or next_command(seen, state)
    says_why = state in ("retrying", "failed", "fenced") or (state == "halted" and decision.action is not Action.HALT)
    if says_why and beat is not None and beat.error is not None:
        fix = beat.error.fix or fix
    return Standing(state, _since(state, seen, actual, each), fix, at, lives)


def standing_metadata(stands: Standing, actual: Actual) -> dict[str, Any]:
    """What every report of a stream's assets carries: its state, how old that is, and where its driver is found."""
    beat = actual.beat
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


def instant(seconds: float) -> dg.TimestampMetadataValue:
    """A moment as Dagster shows it.

    Args:
        seconds: Since 1970.
    """
    return dg.MetadataValue.timestamp(datetime.fromtimestamp(seconds, UTC))


def _situation(each: Wanted, actual: Actual, settings: Settings) -> Situation:
    beat, launch, lease = actual.beat, actual.launch, actual.lease
    driver = holder = None
    if beat is not None and (actual.driver_lives or (beat.final and actual.process)):
        local = actual.process is not None
        driver = Driver(beat.attempt, beat.generation, beat.pid, beat.started, beat.host, local, beat)
    elif launch is not None and actual.awaited and actual.launched_for < START_SECONDS:
        driver = Driver(launch.attempt, launch.generation, 0, "", "", False, None)
    if lease.state == "live" and not actual.lease_is_the_drivers and driver is None:
        holder = LeaseRecord(
            each.desired.stream, lease.epoch, lease.host, lease.boot, lease.pid, lease.started, 0.0, 0.0, 0.0
        )
    return Situation(
        stream=each.desired.stream,
        folder=stream_folder(settings, each.desired.stream).root,
        settings=settings,
        # Whether it is to have a driver is asked of it, and when that has stalled.
        wanted=FileWanted(each.spec, None, None, ()),
        control=each.desired.control,
        launch=launch,
        beat=beat,
        note=None,
        driver=driver,
        holder=holder,
        frozen=actual.frozen,
    )


def _since(state: str, seen: Situation, actual: Actual, each: Wanted) -> float | None:
    beat = seen.beat
    if state == "starting" and (beat is None or actual.awaited):
        return seen.launch.at if seen.launch is not None else None
    if seen.driver is None and state == seen.control.wish:
        return seen.control.at or (beat.state_since if beat is not None else None)
    if beat is None or seen.holder is not None:
        return None
    if state == "stalled" and each.spec is not None:
        stall = stall_of(beat, stalled_after(each.spec))
        return stall.since if stall is not None else beat.state_since
    if state in ("dead", "frozen") or (state == "halted" and not beat.final):
        return beat.beat_wall
    return beat.state_since
