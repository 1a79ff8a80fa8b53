"""Actual state of a stream: its lease, driver and keeper, as its state folder says. Asks no network.

A driver writes its heartbeat as soon as it can, but not at once. Until then only the launch record says which process
it is, so that a launcher that is killed while it waits leaves no driver that nobody knows of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.boot import AHEAD_SECONDS, boot_id
from jobs.base.system.processes import is_alive
from jobs.clients.state_store.lease_record import LeaseRecord, read_lease
from jobs.clients.state_store.store import StateStore
from jobs.config.services.launcher_name import LOCAL
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.keeper_record import find_keeper
from jobs.streaming.supervision.documents.launches import (
    LAUNCH_KEY,
    Launch,
    LaunchedProcess,
    planned_process,
    process_name,
    read_launch,
    read_launched_process,
)
from jobs.streaming.supervision.launchers.launcher import Look, Looker, nobody_looks

LeaseState: TypeAlias = Literal["none", "live", "expired", "released", "dead"]


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds the stream's lease, or held it last.

    Attributes:
        state: `live`: held; `expired`: not renewed in time; `dead`: not released, and its process is known to be gone.
        started, boot: Tell the process apart from a later one with the same pid, as in the lease.
    """

    state: LeaseState = "none"
    epoch: int = 0
    pid: int = 0
    started: str = ""
    boot: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"process {self.pid} on {self.host}"


def lease_holder(record: LeaseRecord | None) -> LeaseHolder:
    """Who holds a lease by its newest document; None: nobody ever held it."""
    if record is None:
        return LeaseHolder()
    return LeaseHolder(_state(record), record.epoch, record.pid, record.started, record.boot, record.host)


def _state(record: LeaseRecord) -> LeaseState:
    if record.released:
        return "released"
    if record.expired():
        return "expired"
    return "live" if record.held() else "dead"


@dataclass(frozen=True, slots=True)
class Driver:
    """The process of a driver, alive when it was observed.

    Attributes:
        local: Whether it runs on this host, so that it can be seen and sent signals.
        heartbeat: Its newest; None before the first.
        frozen: Whether it neither writes heartbeats nor holds the lease any more.
        group: The group whose driver it is; its process carries other streams, too.
        launched: It as its launcher knows it; None where nobody has recorded that.
    """

    attempt: int
    generation: str
    pid: int
    started: str
    host: str
    local: bool
    heartbeat: Heartbeat | None
    frozen: bool = False
    group: str | None = None
    launched: LaunchedProcess | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.launched is None or not self.launched.remote:
            return f"process {self.pid} on {self.host}"
        return process_name(msgspec.structs.replace(self.launched, pid=self.pid, host=self.host))

    @property
    def process(self) -> LaunchedProcess:
        """It as a launcher looks at it, and ends it."""
        if self.launched is not None:
            return self.launched
        # Of a driver that was started by hand, or whose note is of another attempt.
        boot = boot_id() if self.local else ""
        return LaunchedProcess(
            self.attempt, self.generation, self.pid, self.started, boot, self.host, time.time(), self.group
        )

    def lives(self) -> bool:
        """Whether its process runs now; only for one on this host."""
        return is_alive(self.pid, self.started)


T = TypeVar("T")

# A driver writes a heartbeat every two seconds. If the newest one is older than this, nobody knows what the driver is
# doing, so its process or its launcher is asked.
QUIET_SECONDS = 15.0
# So long after its last heartbeat a driver counts as alive only if its lease says so.
SILENT_SECONDS = 30.0
# A launch is given so long to say something; and, if no process was recorded for it, so long.
START_SECONDS = 90.0
UNSTARTED_SECONDS = 5.0
# A submission is given longer to be noted than it may take by default: until then a second one would be beside it.
SUBMISSION_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ActualState:
    """What there is of one stream.

    Attributes:
        heartbeat: The newest, of whatever attempt.
        heartbeat_age: Seconds since then, by the boot clock where it is this host's.
        process: Whether the heartbeat's process runs; None if that cannot be told from here.
        launch: The newest launch.
        launched_process: The process of the newest launch, as its launcher recorded it.
        launched_process_lives: Whether that process runs; None if that cannot be told from here.
        look: What its launcher says of that process, if it had to be asked.
        launched_for: Seconds since the newest launch, as far as known.
        down_for: Seconds for which no driver has been seen, on a clock that neither jumps nor stops; None if nobody
            kept count, and then the wall clock has to do.
        unheld_for: Seconds for which a driver has been seen at work without the lease, as far as somebody kept count.
        launched_elsewhere: The newest launch may be another machine's, whose driver has not said anything yet.
        keeper: The process of the newest launch's keeper, or of its group's, if it lives on this host.
        group_starts_in: Of a stream of a group, without a driver: seconds until the group's is started again, negative
            since then.
        problem: A document of the state folder that cannot be read, in a sentence; `fix` is the next command. What the
            others say is here all the same.
    """

    lease: LeaseHolder = field(default_factory=LeaseHolder)
    heartbeat: Heartbeat | None = None
    heartbeat_age: float = 0.0
    process: bool | None = None
    launch: Launch | None = None
    launched_process: LaunchedProcess | None = None
    launched_process_lives: bool | None = None
    look: Look | None = None
    launched_for: float = 0.0
    down_for: float | None = None
    unheld_for: float = 0.0
    launched_elsewhere: bool = False
    keeper: int | None = None
    group_starts_in: float | None = None
    problem: str = ""
    fix: str | None = None

    @property
    def fresh(self) -> bool:
        """Whether the newest heartbeat is recent."""
        return self.heartbeat is not None and self.heartbeat_age <= SILENT_SECONDS

    @property
    def quiet(self) -> bool:
        """Whether the driver has missed heartbeats, so that nobody knows what it does."""
        return self.heartbeat is not None and not self.heartbeat.final and self.heartbeat_age > QUIET_SECONDS

    @property
    def lease_is_the_drivers(self) -> bool:
        """Whether who writes heartbeats is who holds, or last held, the lease."""
        beat, lease = self.heartbeat, self.lease
        if beat is None or lease.state == "none":
            return False
        return (beat.pid, beat.started, beat.boot) == (lease.pid, lease.started, lease.boot)

    @property
    def holds_lease(self) -> bool:
        """Whether who writes heartbeats holds the stream's lease now."""
        return self.lease.state == "live" and self.lease_is_the_drivers

    @property
    def driver_lives(self) -> bool:
        """Whether a driver is at work, as far as can be told: its process runs, and it has not said its last word."""
        if self.heartbeat is None or self.heartbeat.final:
            return False
        return self.process if self.process is not None else self.fresh or self.holds_lease

    @property
    def frozen(self) -> bool:
        """Whether the process of the heartbeats still exists, but neither writes them nor holds the lease any more."""
        return self.process is True and not self.fresh and not self.holds_lease

    @property
    def unheld(self) -> bool:
        """Whether a driver with heartbeats is at work without the lease, as one that waits or starts may be."""
        at_work = self.heartbeat is not None and self.heartbeat.state in ("running", "stopping")
        return at_work and self.driver_lives and self.fresh and not self.holds_lease

    @property
    def awaited(self) -> bool:
        """Whether a launch has not had its first heartbeat."""
        return self.launch is not None and (self.heartbeat is None or self.heartbeat.attempt < self.launch.attempt)

    @property
    def noted(self) -> bool:
        """Whether the process of the newest launch is recorded."""
        launched = self.launched_process
        return launched is not None and self.launch is not None and launched.attempt >= self.launch.attempt

    @property
    def unstarted(self) -> bool:
        """Whether no process was recorded for the newest launch, or it is known to be gone."""
        return self.launch is not None and not (self.noted and self.launched_process_lives is not False)

    @property
    def starting(self) -> bool:
        """Whether the newest launch may still say something for the first time."""
        launcher = self.launch.launcher if self.launch is not None else LOCAL
        if launcher != LOCAL and not (self.noted and self.launched_process_lives is False):
            # A cluster may have no place for it yet, and may not be asked; a start takes longer to be noted than a
            # process's.
            limit = SUBMISSION_SECONDS if launcher == "spark_submit" else START_SECONDS
            return self.awaited and (self.noted or self.launched_for < limit)
        limit = UNSTARTED_SECONDS if self.unstarted else START_SECONDS
        return self.awaited and self.launched_for < limit

    @property
    def kept(self) -> bool:
        """Whether a keeper starts the driver again that is gone: one that has not said its last word."""
        return self.keeper is not None and (self.awaited or (self.heartbeat is not None and not self.heartbeat.final))

    @property
    def driver(self) -> Driver | None:
        """The process that drives the stream, also while it ends or has not had its first heartbeat; None without one.

        Of a driver on another host only its heartbeats and its lease are seen: it counts as alive until both have run
        out.
        """
        beat, launched = self.heartbeat, self.launched_process
        if launched is not None and (beat is None or beat.attempt <= launched.attempt) and self.launched_process_lives:
            own = beat if beat is not None and _is_of(beat, launched) else None
            # It knows best what it runs: its keeper launched it by the file alone, and the settings may have changed.
            runs = own.generation if own is not None else launched.generation
            frozen = own is not None and self.frozen
            seen = own if own is not None and launched.remote else launched
            who = (launched.attempt, runs, seen.pid, seen.started, seen.host)
            if launched.group is None or own is None or not own.final:
                return Driver(*who, not launched.remote, own, frozen, launched.group, launched)
        lives = self.process if self.process is not None else self.driver_lives
        if beat is None or not lives or (beat.group is not None and beat.final):
            # A driver that carries others goes on after its last word on this stream.
            return None
        noted = launched if launched is not None and _is_of(beat, launched) else None
        who = (beat.attempt, beat.generation, beat.pid, beat.started, beat.host)
        local = self.process is not None and (noted is None or not noted.remote)
        return Driver(*who, local, beat, self.frozen, beat.group, noted)

    @property
    def other_holder(self) -> LeaseHolder | None:
        """Who holds the lease without being the stream's driver: `frazil run`, or a run of Dagster that drains it."""
        # A driver that is gone, or was a moment ago, and whose lease runs out by itself, is none.
        if self.lease.state != "live" or self.lease_is_the_drivers:
            return None
        driver = self.driver
        if driver is not None and (self.lease.pid, self.lease.started) == (driver.pid, driver.started):
            return None
        return self.lease


def _is_of(beat: Heartbeat, launched: LaunchedProcess) -> bool:
    """Whether a heartbeat is of a process that was launched."""
    return beat.attempt == launched.attempt and (launched.remote or beat.pid == launched.pid)


class UnreadableStateError(FrazilError):
    """A document of the stream's state cannot be read.

    Safe: Nothing was changed.
    Next: `frazil status S`, and repair the document that the message names
    """


def read_certain(store: StateStore, stream: str, look: Looker = nobody_looks) -> ActualState:
    """As `read_actual`, for who acts on what is not there.

    Raises:
        UnreadableStateError: A document cannot be read.
    """
    actual = read_actual(store, stream, look)
    if actual.problem:
        raise UnreadableStateError(actual.problem, fix=actual.fix)
    return actual


def read_actual(store: StateStore, stream: str, look: Looker = nobody_looks) -> ActualState:
    """What there is of a stream in the state store now. Never raises for what stands there.

    Args:
        store: The stream's part of the state store.
        stream: The stream's id.
        look: Asked about a driver that runs where only its launcher can tell, if its own documents leave that open.
    """
    problems: list[FrazilError] = []

    def read(document: Callable[[], T]) -> T | None:
        try:
            return document()
        except FrazilError as problem:
            problems.append(problem)
        except OSError as problem:
            place = store.place("")
            sentence = f"the state {'store' if store.shared else 'folder'} {place} cannot be read: {problem.strerror}"
            problems.append(FrazilError(sentence, fix="frazil validate" if store.shared else f"ls -l {place}"))
        return None

    # The newest launch first, so that a driver that begins to beat meanwhile is not taken for a former one.
    launch = read(lambda: read_launch(store))
    beat = read(lambda: read_heartbeat(store))
    lease = read(lambda: read_lease(store, stream))
    process = beat.process_lives() if beat is not None else None
    launched = read(lambda: read_launched_process(store))
    if launch is not None and (launched is None or launched.attempt < launch.attempt):
        planned = planned_process(launch)
        if planned is not None and look(planned).life != "ended":
            # Whoever has started it was killed before it could say so.
            launched = planned
    lives, seen = launched.process_lives() if launched is not None else None, None
    if launched is not None and launched.remote:
        lives, seen = _seen(launched, beat, look)
        if beat is not None and _is_of(beat, launched):
            process = lives
    if process is False and beat is not None and not beat.final:
        # It may have said its last word just now.
        remote = launched is not None and launched.remote and _is_of(beat, launched)
        beat = read(lambda: read_heartbeat(store)) or beat
        process = False if remote else beat.process_lives()
    keeper = find_keeper(store.local, launch.attempt) if launch is not None else None
    launched_for = _launched_for(store, launch) if launch is not None else 0.0
    actual = ActualState(
        lease=lease_holder(lease),
        heartbeat=beat,
        heartbeat_age=beat.age() if beat is not None else 0.0,
        process=process,
        launch=launch,
        launched_process=launched,
        launched_process_lives=lives,
        look=seen,
        launched_for=launched_for,
        keeper=keeper.pid if keeper is not None else None,
        problem=problems[0].message if problems else "",
        fix=problems[0].fix if problems else None,
    )
    if store.shared and actual.starting and actual.launched_process_lives is None:
        return replace(actual, launched_elsewhere=True)
    return actual


def _seen(launched: LaunchedProcess, beat: Heartbeat | None, look: Looker) -> tuple[bool | None, Look | None]:
    """Whether a driver lives that only its launcher sees; with what that one says, if its own word does not do."""
    own = beat if beat is not None and _is_of(beat, launched) else None
    if own is not None and own.final:
        # It ends by itself, and what carries other streams goes on.
        return None, None
    if own is not None and own.age() <= QUIET_SECONDS:
        return True, None
    seen = look(launched)
    return {"alive": True, "ended": False, "unknown": None}[seen.life], seen


def _launched_for(store: StateStore, launch: Launch) -> float:
    seconds = time.time() - launch.at
    if store.shared or seconds < -AHEAD_SECONDS:
        # It was written under a clock that says nothing here: another machine's, or one that was ahead.
        return store.unchanged_for(LAUNCH_KEY, msgspec.json.encode(launch))
    return max(0.0, seconds)
