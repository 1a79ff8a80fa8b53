"""What to do about a stream: a pure function of what is wanted and what there is.

START is never decided while a live lease exists. What keeps a commit safe if the facts are wrong all the same is not
this function, but the lease's epoch: the claims in the tables refuse whoever is not the newest driver.
"""

from __future__ import annotations

from jobs.supervise.launches import failures_in_a_row
from orchestration.reconcile.facts import START_SECONDS, Action, Actual, Decision, Desired
from orchestration.reconcile.progress import stalled

# A driver that was asked to end finishes its batch; after so long the request is made anew, with its own grace.
_END_SECONDS = 150.0
# A process that has said its last word ends Spark; after so long it hangs.
_LAST_WORD_SECONDS = 60.0


def decide(desired: Desired, actual: Actual, now: float) -> Decision:
    """What to do about one stream.

    Args:
        desired: What is wanted.
        actual: What there is.
        now: Seconds since 1970.
    """
    if actual.problem:
        lives = "; its driver runs on" if actual.driver_lives else ""
        return Decision(Action.HALT, f"{actual.problem.rstrip('.')}{lives}.", actual.fix)
    if actual.driver_lives and not _is_frozen(actual):
        return _with_driver(desired, actual, now)
    if actual.awaited and actual.launched_for < START_SECONDS and actual.launch is not None:
        return Decision(
            Action.WAIT,
            f"attempt {actual.launch.attempt} was launched {_seconds(actual.launched_for)} ago and has not said "
            "anything yet",
        )
    if actual.lease.state == "live":
        return _with_holder(desired, actual)
    return _without_driver(desired, actual, now)


def _is_frozen(actual: Actual) -> bool:
    """Whether a process that still exists has lost its stream: it does not beat, and its lease has run out."""
    return not actual.fresh and actual.lease.state != "live"


def _with_driver(desired: Desired, actual: Actual, now: float) -> Decision:
    beat = actual.beat
    assert beat is not None
    control = desired.control
    who = f"attempt {beat.attempt} (process {beat.pid} on {beat.host})"
    if not actual.fresh:
        return Decision(
            Action.WAIT,
            f"{who} has not beaten for {_seconds(actual.beat_age)} though its lease is renewed; once the lease runs "
            "out, another driver can be started beside it safely",
            f"frazil restart {desired.stream}",
        )
    if beat.state == "stopping":
        return Decision(Action.WAIT, f"{who} finishes its batch and ends")
    asked_for = now - control.at
    asked_long_ago = not 0 <= asked_for <= _END_SECONDS
    if control.wish == "stopped":
        if asked_long_ago:
            return Decision(Action.STOP, f"{who} was asked to stop and still runs")
        return Decision(Action.WAIT, f"{who} was asked to stop {_seconds(asked_for)} ago")
    if desired.file == "none":
        return Decision(Action.STOP, f"no file in streams/ names the stream any more; {who} ends, its state is kept")
    if desired.file == "valid" and not desired.continuous:
        return Decision(Action.STOP, f"its trigger is available_now, which needs no driver; {who} ends")
    if control.end_attempt >= beat.attempt:
        if asked_long_ago and desired.file == "valid":
            return Decision(Action.ROLL, f"{who} was asked to make room and still runs")
        return Decision(Action.WAIT, f"{who} was asked to make room", f"frazil restart {desired.stream}")
    if desired.file != "valid":
        return Decision(
            Action.HALT,
            f"{who} runs on under generation {beat.generation}; nothing is changed, since {_problem(desired)}",
            "frazil validate",
        )
    rolls = desired.generation != beat.generation
    if control.wish == "paused":
        later = f"; generation {desired.generation} is rolled out when it is resumed" if rolls else ""
        return Decision(Action.ADOPT, f"{who} is paused{later}", f"frazil resume {desired.stream}")
    if beat.state == "starting" and beat.beat_wall - beat.state_since < START_SECONDS:
        return Decision(Action.WAIT, f"{who} is starting")
    if rolls:
        return Decision(Action.ROLL, f"its file has changed from generation {beat.generation} to {desired.generation}")
    return Decision(Action.ADOPT, f"{who} {stalled(desired, beat) or _doing(actual)}")


def _doing(actual: Actual) -> str:
    beat = actual.beat
    assert beat is not None
    if beat.state == "retrying" and beat.error is not None:
        return f"tries again after: {beat.error.message}"
    words = {"starting": "is still starting", "running": "runs", "paused": "resumes"}
    return words.get(beat.state, f"is {beat.state}")


def _with_holder(desired: Desired, actual: Actual) -> Decision:
    """The lease is held by a process that is no living driver."""
    holder = actual.lease.holder
    if actual.lease_is_the_drivers and actual.beat is not None and actual.beat.final:
        said = f"{holder} has said its last word ({actual.beat.state})"
        if actual.beat_age <= _LAST_WORD_SECONDS:
            return Decision(Action.WAIT, f"{said} and is ending")
        if _driver_wanted(desired) and desired.file == "valid":
            return Decision(Action.ROLL, f"{said} and does not end, so another takes its place")
        if desired.control.wish == "stopped" or desired.file == "none" or not desired.continuous:
            return Decision(Action.STOP, f"{said} and does not end")
        return Decision(Action.WAIT, f"{said} and does not end", f"frazil restart {desired.stream}")
    if not _driver_wanted(desired):
        return Decision(Action.IDLE, f"{holder} drains the stream; no driver is wanted")
    return Decision(
        Action.WAIT,
        f"{holder} holds the stream's lease and is no driver (a `frazil run`, or a drain in Dagster); a driver is "
        "started when it ends",
    )


def _driver_wanted(desired: Desired) -> bool:
    return desired.continuous and desired.control.wish == "running" and desired.file in ("valid", "invalid")


def _without_driver(desired: Desired, actual: Actual, now: float) -> Decision:
    stream, launch = desired.stream, actual.launch
    if desired.control.wish == "stopped":
        return Decision(Action.IDLE, "it is stopped", f"frazil start {stream}")
    if desired.control.wish == "paused":
        return Decision(
            Action.IDLE, f"it is paused, and {_ended(actual)}; resuming starts one", f"frazil resume {stream}"
        )
    if desired.file == "none":
        return Decision(Action.IDLE, "no file in streams/ names the stream; its state is kept")
    if not desired.continuous:
        return Decision(Action.IDLE, "its trigger is available_now: it is drained when it is materialized")
    if desired.file == "unsure" or (desired.file == "invalid" and launch is None):
        return Decision(Action.HALT, f"no driver runs, and none is started, since {_problem(desired)}", _fix(desired))
    if launch is None:
        return Decision(Action.START, "it has not been launched before")
    frozen = "; its lease has run out, so whatever it does later is refused" if actual.driver_lives else ""
    as_it_was = f"; it starts as it last ran, since {_problem(desired)}" if desired.file == "invalid" else ""
    ended = f"{_ended(actual)}{frozen}{as_it_was}"
    if desired.generation is not None and desired.generation != launch.generation:
        return Decision(Action.START, f"{ended}; its file has changed since, to generation {desired.generation}")
    return _after_an_end(desired, actual, now, ended)


def _after_an_end(desired: Desired, actual: Actual, now: float, ended: str) -> Decision:
    stream, beat, restart = desired.stream, actual.beat, desired.restart
    failures = failures_in_a_row(actual.launch, beat, restart.stable_after.total_seconds())
    if not failures:
        return Decision(Action.START, ended)
    error = beat.error if beat is not None and not actual.awaited else None
    if error is not None and error.kind == "operator" and beat is not None and beat.state == "failed":
        return Decision(
            Action.HALT,
            f"{ended}. Starting it again would not help",
            f"{error.fix}; then frazil start {stream}" if error.fix else f"frazil start {stream}",
            failures=failures,
        )
    if failures > restart.max_restarts:
        fix = f"frazil start {stream}, after mending the cause"
        return Decision(
            Action.HALT,
            f"it failed {failures} times in a row, which is more than restart.max_restarts ({restart.max_restarts}); "
            f"{ended}",
            f"{error.fix}; {fix}" if error is not None and error.fix else fix,
            failures=failures,
        )
    left = backoff_seconds(desired, failures) - down_for(actual, now)
    if left > 0:
        return Decision(
            Action.BACKOFF,
            f"start {failures + 1} in a row in {_seconds(left)}; {ended}",
            f"frazil start {stream}, to start it at once",
            seconds=left,
            failures=failures,
        )
    return Decision(Action.START, ended, failures=failures)


def backoff_seconds(desired: Desired, failures: int) -> float:
    """How long to wait after this many failures in a row: 0, then `first_delay`, doubling up to `longest_delay`."""
    if failures <= 1:
        return 0.0
    restart = desired.restart
    # 60 doublings of the shortest delay are longer than any that can be configured.
    grown = restart.first_delay.total_seconds() * 2.0 ** min(failures - 2, 60)
    return min(grown, restart.longest_delay.total_seconds())


def down_for(actual: Actual, now: float) -> float:
    """Seconds since the driver ended; 0 at least, whatever the wall clock did meanwhile."""
    if actual.down_for is not None:
        return max(0.0, actual.down_for)
    if actual.awaited and actual.launch is not None:
        return max(0.0, now - actual.launch.at)
    return max(0.0, actual.beat_age) if actual.beat is not None else 0.0


def _ended(actual: Actual) -> str:
    beat, launch = actual.beat, actual.launch
    if launch is not None and actual.awaited:
        return f"attempt {launch.attempt} did not say anything within {START_SECONDS:.0f} s"
    if beat is None:
        return "no driver has run"
    if beat.state == "failed" and beat.error is not None:
        return f"attempt {beat.attempt} failed: {beat.error.message}"
    if beat.final:
        return f"attempt {beat.attempt} has {'been ' if beat.state != 'finished' else ''}{beat.state}"
    if actual.driver_lives:
        return f"attempt {beat.attempt} (process {beat.pid}) has not beaten for {_seconds(actual.beat_age)}"
    return f"attempt {beat.attempt} is gone without a last word (process {beat.pid} on {beat.host})"


def _problem(desired: Desired) -> str:
    return desired.problem.rstrip(".") or "its file cannot be read"


def _fix(desired: Desired) -> str:
    return "frazil validate" if desired.file == "invalid" else "bring back the folder streams/"


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s"
