"""State of a stream in one word, with since when and the next command: for pages and terminals."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.documents.stall import find_stall
from jobs.streaming.supervision.processes.actual import ActualState, Driver
from jobs.streaming.supervision.state.observation import Observation
from orchestration.reconcile.decide import Action, Decision

NEVER_RAN = "never ran"
# Between two batches and in one: no news.
_AT_WORK = frozenset({"running", "waiting"})


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of a stream at one moment.

    Attributes:
        state: One word, see `state_word`.
        since: Time when the state began, as far as known; for a dead driver, that of its last heartbeat. Seconds since
            1970.
        fix: The next command; None if nothing is to be done.
        at: Time of the observation; seconds since 1970.
        lives: Whether a driver is at work, whose pages can be opened.
        launched: Launched process of the newest driver; None if it is a process like others.
        suspended: Names of its suspended tables, in order, as its driver has reported them.
    """

    state: str
    since: float | None
    fix: str | None
    at: float
    lives: bool
    launched: LaunchedProcess | None = None
    suspended: tuple[str, ...] = ()

    @property
    def at_work(self) -> bool:
        """Whether it lands records, or waits between two batches."""
        return self.state in _AT_WORK

    @property
    def code(self) -> str:
        """The state without what changes with every batch: what has to differ to be news."""
        word = "running" if self.at_work else self.state
        return ", ".join((word, *self.suspended))


def unpark_command(stream: str, table: str) -> str:
    """The command that lets a stream write a suspended table again, and when it is of use."""
    return f"frazil accept {stream} --unpark {table}, once it takes commits"


def stream_state(now: Observation, decision: Decision, at: float) -> StreamState:
    """The state of a stream, by the facts that its decision is made of.

    Args:
        at: Seconds since 1970.
    """
    beat, actual = now.heartbeat, now.actual
    lives = actual.driver_lives and not actual.frozen
    as_of = beat.beat_wall if beat is not None and lives and actual.fresh else at
    if actual.problem:
        return StreamState("unknown", None, actual.fix, as_of, lives)
    state = state_word(now, decision.action.value)
    if state == NEVER_RAN and actual.lease.state != "none":
        state = "idle"  # it was drained
    fix = decision.fix or next_command(now, state)
    says_why = state in ("retrying", "failed", "fenced") or (state == "halted" and decision.action is not Action.HALT)
    if says_why and beat is not None and beat.error is not None:
        fix = beat.error.fix or fix
    suspended: tuple[str, ...] = ()
    if beat is not None and beat.work.parked:
        suspended = tuple(sorted(beat.work.parked))
        fix = fix or unpark_command(beat.stream, suspended[0])
    launched = actual.launched_process if actual.launched_process and actual.launched_process.remote else None
    return StreamState(state, _since(state, now), fix, as_of, lives, launched, suspended)


def state_word(now: Observation, decided: str | None = None) -> str:
    """Word for a stream's state.

    - `running`, `waiting`: The driver works on a batch, or waits for the next one.
    - `paused`, `stopped`: The operator has paused or stopped the stream.
    - `retrying`: Kafka or the catalog is unavailable.
    - `failed`: The driver ended with an error, and is started again.
    - `halted`: The driver ended with an error, and a person has to act.
    - `dead`: The driver has vanished.
    - `starting`, `stopping`: The driver starts or stops.
    - `frozen`: The driver sends no heartbeats.
    - `stalled`: The driver sends heartbeats, and makes no progress.
    - `fenced`: The driver gave way to another one.
    - `draining`: A one-off run lands the stream: `frazil run`, or a run of Dagster.
    - `idle`: No driver runs, and none is needed.
    - `never ran`: The stream has never run.

    Args:
        decided: Decision of the supervisor's last tick; None while nobody supervises.
    """
    beat, launch, driver = now.heartbeat, now.actual.launch, now.driver
    if driver is not None:
        return _with_driver(now, driver)
    if now.actual.other_holder is not None:
        return "draining"
    if now.control.mode != "running":
        return now.control.mode
    if beat is None and launch is None:
        return NEVER_RAN
    if not now.desired.continuous:
        return "idle"
    if beat is None or not beat.final or (launch is not None and launch.attempt > beat.attempt):
        if decided == Action.IDLE:
            return "idle"
        if decided == Action.HALT:
            return "halted"
        return "starting" if _is_on_its_way(now.actual) else "dead"
    if beat.state in ("failed", "fenced"):
        needs_answer = beat.error is not None and beat.error.kind == "operator"
        return "halted" if needs_answer or decided == Action.HALT else beat.state
    return "idle"


def _with_driver(now: Observation, driver: Driver) -> str:
    beat = driver.heartbeat
    if beat is None:
        return "starting"
    if driver.frozen or now.actual.quiet:
        return "frozen"
    if now.ending:
        return "stopping"
    if find_stall(beat, now.desired.stalled_after) is not None:
        return "stalled"
    if beat.state == "running":
        return "running" if beat.work.busy_since is not None else "waiting"
    return beat.state


def _is_on_its_way(actual: ActualState) -> bool:
    """Whether a launch whose process is not seen from here, or not noted yet, may still say something."""
    launch, note = actual.launch, actual.launched_process
    noted = launch is not None and note is not None and note.attempt >= launch.attempt
    return actual.starting and not (noted and actual.launched_process_lives is False)


def next_command(now: Observation, state: str) -> str | None:
    """The command that a person would type next; None if nothing is to be done."""
    stream = now.stream
    if state == "paused":
        return f"frazil resume {stream}"
    if state in ("stopped", NEVER_RAN, "dead", "failed", "fenced", "halted") and now.desired.continuous:
        return f"frazil start {stream}"
    if state in ("frozen", "stalled"):
        return f"frazil restart {stream}"
    return f"frazil run {stream}" if state == NEVER_RAN else None


def _since(state: str, now: Observation) -> float | None:
    beat, launch, control = now.heartbeat, now.actual.launch, now.control
    if state == "starting" and (beat is None or now.actual.awaited):
        return launch.at if launch is not None else None
    if now.driver is None and state == control.mode:
        return control.at or (beat.state_since if beat is not None else None)
    if beat is None or now.actual.other_holder is not None:
        return None
    if state == "stalled":
        stall = find_stall(beat, now.desired.stalled_after)
        return stall.since if stall is not None else beat.state_since
    if state in ("dead", "frozen") or (state == "halted" and not beat.final):
        return beat.beat_wall
    return beat.state_since
