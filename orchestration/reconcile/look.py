"""One look at one stream: the facts, what to do, what the checks say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from assets.stream_checks import Verdict
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from jobs.state.paths import stream_folder
from orchestration.reconcile.actual import read_actual
from orchestration.reconcile.decide import decide
from orchestration.reconcile.desired import Wanted, read_files, wanted
from orchestration.reconcile.facts import Actual, Decision
from orchestration.reconcile.lookups import Lookups
from orchestration.reconcile.memory import StreamMemory
from orchestration.reconcile.rollout import judged_rollout
from orchestration.reconcile.standing import standing, standing_metadata
from orchestration.reconcile.verdicts import Lag, lag_of, settings_verdict, verdicts
from resources.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Look:
    """How a stream stands, and what follows."""

    wanted: Wanted
    actual: Actual
    decision: Decision


def look_at(each: Wanted, settings: Settings, now: float, clock: float, memory: StreamMemory | None = None) -> Look:
    """Look at a stream.

    Args:
        each: What is wanted of it.
        settings: Where its state is.
        now: Seconds since 1970.
        clock: The boot clock.
        memory: What the supervisor remembers of it; without it the wall clock says how long things have been so.
    """
    stream = each.desired.stream
    actual = read_actual(stream_folder(settings, stream).root, stream)
    if memory is not None:
        actual = memory.timed(actual, clock)
    if each.control_problem and not actual.problem:
        actual = replace(actual, problem=each.control_problem, fix=each.control_fix)
    return Look(each, actual, decide(each.desired, actual, now))


def judge(deployment: Deployment, stream: str) -> Sequence[Verdict]:
    """What the checks say of one stream, looked at now; asks Kafka and the catalog if no driver tells.

    This is what a check does that is executed from the UI; the sensor says the same from the same facts.
    """
    now = time.time()
    files = read_files(deployment)
    try:
        settings = deployment.settings()
    except SpecError as problem:
        return [settings_verdict(problem)]
    lookups = Lookups(settings)
    each = judged_rollout(wanted(stream, files, settings, deployment), files, settings, deployment, lookups)
    look = look_at(each, settings, now, 0.0)
    lag = lag_of(look.actual)
    if (lag is None or not look.actual.driver_lives) and look.wanted.spec is not None:
        lag = lookups.lag(look.wanted.spec, now) or lag
    return judged(look, lag, now)


def told_now(deployment: Deployment, stream: str) -> dict[str, Any]:
    """What a report made by a run carries of the stream's state, as the supervisor's own reports do."""
    now = time.time()
    settings = deployment.settings()
    files = read_files(deployment)
    each = wanted(stream, files, settings, deployment)
    look = look_at(judged_rollout(each, files, settings, deployment, Lookups(settings)), settings, now, 0.0)
    stands = standing(look.wanted, look.actual, look.decision, settings, now)
    return standing_metadata(stands, look.actual)


def judged(look: Look, lag: Lag | None, now: float) -> list[Verdict]:
    """What the checks say of what was looked at."""
    return verdicts(look.wanted.desired, look.actual, look.decision, look.wanted.spec, lag, now)
