"""One word for how a stream stands, which accounts for the driver, the lease, the operator's wish and the last beat."""

from __future__ import annotations

from jobs.supervise.situation import Situation
from jobs.supervise.stall import STALLED_SECONDS, stall_of, stalled_after

# What the supervisor calls a stream that waits for a person, and one for which no driver is wanted.
_HALT, _IDLE = "halt", "idle"


def state_of(now: Situation, decided: str | None = None) -> str:
    """The word.

    `running` works on a batch, `waiting` between two; `paused`, `stopped`: as the operator wishes; `retrying`:
    Kafka or the catalog is away; `failed`: ended by an error, is started again; `halted`: the same, and a person has to
    act; `dead`: its driver is gone without a word; `starting`, `stopping`; `frozen`: a process without a sign of life;
    `stalled`: a driver that beats and does not get on;
    `fenced`: its driver gave way; `draining`: `frazil run`, or a run of Dagster; `idle`: no driver, and none is missed;
    `never ran`.

    Args:
        now: A look at the stream.
        decided: What the supervisor's last tick decided; None while nobody supervises.
    """
    if now.driver is not None:
        return _with_driver(now)
    if now.holder is not None:
        return "draining"
    if now.control.wish != "running":
        return now.control.wish
    if now.beat is None and now.launch is None:
        return "never ran"
    if not now.continuous:
        return "idle"
    beat = now.beat
    if beat is None or not beat.final or (now.launch is not None and now.launch.attempt > beat.attempt):
        if decided == _IDLE:
            return "idle"
        return "halted" if decided == _HALT else "dead"
    if beat.state in ("failed", "fenced"):
        needs_answer = beat.error is not None and beat.error.kind == "operator"
        return "halted" if needs_answer or decided == _HALT else beat.state
    return "idle"


def _with_driver(now: Situation) -> str:
    beat = now.driver.beat if now.driver is not None else None
    if beat is None:
        return "starting"
    if now.frozen:
        return "frozen"
    if now.ending:
        return "stopping"
    after = stalled_after(now.wanted.spec) if now.wanted.spec is not None else STALLED_SECONDS
    if stall_of(beat, after) is not None:
        return "stalled"
    if beat.state == "running":
        return "running" if beat.work.busy_since is not None else "waiting"
    return beat.state


def next_command(now: Situation, state: str) -> str | None:
    """What a person would type next; None where nothing is to be done."""
    stream = now.stream
    if state == "paused":
        return f"frazil resume {stream}"
    if state in ("stopped", "never ran", "dead", "failed", "fenced", "halted") and now.continuous:
        return f"frazil start {stream}"
    if state in ("frozen", "stalled"):
        return f"frazil restart {stream}"
    return f"frazil run {stream}" if state == "never ran" else None
