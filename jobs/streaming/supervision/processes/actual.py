"""Actual state of a stream: its lease, driver and watchdog, from its state folder. Uses no network.

A driver writes its heartbeat soon, but not at once. Until then only the launch record names its process. So if a
launcher is killed while it waits, its driver is still known.
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
    """Present or last holder of the stream's lease.

    Attributes:
        state: `live`: held; `expired`: not renewed in time; `dead`: not released, and its process is known to be dead.
        started, boot: They distinguish the process from a later one with the same pid, as in the lease.
    """

    state: LeaseState = "none"
    epoch: int = 0
    pid: int = 0
    started: str = ""
    boot: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"process {self.pid} on {self.host}"


def lease_holder(record: LeaseRecord | None) -> LeaseHolder:
    """Holder of a lease, by its newest document; None: it was never held."""
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
        local: Whether it runs on this host, so that it is visible and can get signals.
        heartbeat: Its newest heartbeat; None before the first.
        frozen: Whether it neither writes heartbeats nor holds the lease any more.
        group: Group whose driver it is; its process runs other streams, too.
        launched: Its launcher's record; None without one.
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
        """Name for messages."""
        if self.launched is None or not self.launched.remote:
            return f"process {self.pid} on {self.host}"
        return process_name(msgspec.structs.replace(self.launched, pid=self.pid, host=self.host))

    @property
    def process(self) -> LaunchedProcess:
        """Its process, for a launcher."""
        if self.launched is not None:
            return self.launched
        # The driver was started by hand, or the record belongs to another attempt.
        boot = boot_id() if self.local else ""
        return LaunchedProcess(
            self.attempt, self.generation, self.pid, self.started, boot, self.host, time.time(), self.group
        )

    def lives(self) -> bool:
        """Whether its process runs now; only for a process on this host."""
        return is_alive(self.pid, self.started)


T = TypeVar("T")

# A driver writes a heartbeat every two seconds. If the newest one is older than this, the driver's state is uncertain,
# so its process or its launcher is checked.
QUIET_SECONDS = 15.0
# Time after its last heartbeat beyond which a driver counts as alive only by its lease.
SILENT_SECONDS = 30.0
# Time for a launch to write its first heartbeat, or to record its process.
START_SECONDS = 90.0
UNSTARTED_SECONDS = 5.0
# Longer than a submission may take by default to be recorded: a second one must not be made before.
SUBMISSION_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ActualState:
    """What exists of one stream.

    Attributes:
        heartbeat: The newest heartbeat, of any attempt.
        heartbeat_age: Seconds since then; by the boot clock if it comes from this host.
        process: Whether the heartbeat's process runs; None if it is not visible from here.
        launch: The newest launch.
        launched_process: The process of the newest launch, as its launcher recorded it.
        launched_process_lives: Whether that process runs; None if it is not visible from here.
        look: Its launcher's answer about that process, if it was needed.
        launched_for: Seconds since the newest launch, as far as known.
        down_for: Seconds for which no driver has been seen, on a clock that neither jumps nor stops; None if they were
            not counted, and then the wall clock has to do.
        unheld_for: Seconds for which a driver has been seen running without the lease, if they were counted.
        launched_elsewhere: Whether the newest launch may be another machine's, whose driver has not reported yet.
        keeper: Process of the watchdog of the newest launch, or of its group's, if it lives on this host.
        group_starts_in: For a stream of a group without a driver: seconds until the group's driver is started again,
            negative afterwards.
        problem: A document of the state folder that cannot be read, in a sentence; `fix` is the next command. The other
            documents still count.
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
        """Whether the driver has missed heartbeats, so that its state is uncertain."""
        return self.heartbeat is not None and not self.heartbeat.final and self.heartbeat_age > QUIET_SECONDS

    @property
    def lease_is_the_drivers(self) -> bool:
        """Whether the driver that writes heartbeats holds, or last held, the lease."""
        beat, lease = self.heartbeat, self.lease
        if beat is None or lease.state == "none":
            return False
        return (beat.pid, beat.started, beat.boot) == (lease.pid, lease.started, lease.boot)

    @property
    def holds_lease(self) -> bool:
        """Whether the driver that writes heartbeats holds the stream's lease now."""
        return self.lease.state == "live" and self.lease_is_the_drivers

    @property
    def driver_lives(self) -> bool:
        """Whether a driver seems to run: its process lives, and it has not written its last heartbeat."""
        if self.heartbeat is None or self.heartbeat.final:
            return False
        return self.process if self.process is not None else self.fresh or self.holds_lease

    @property
    def frozen(self) -> bool:
        """Whether the heartbeats' process still exists, but neither writes them nor holds the lease any more."""
        return self.process is True and not self.fresh and not self.holds_lease

    @property
    def unheld(self) -> bool:
        """Whether a driver with heartbeats runs without the lease, as while it waits or starts."""
        at_work = self.heartbeat is not None and self.heartbeat.state in ("running", "stopping")
        return at_work and self.driver_lives and self.fresh and not self.holds_lease

    @property
    def awaited(self) -> bool:
        """Whether a launch has not written its first heartbeat."""
        return self.launch is not None and (self.heartbeat is None or self.heartbeat.attempt < self.launch.attempt)

    @property
    def noted(self) -> bool:
        """Whether the process of the newest launch is recorded."""
        launched = self.launched_process
        return launched is not None and self.launch is not None and launched.attempt >= self.launch.attempt

    @property
    def unstarted(self) -> bool:
        """Whether no process was recorded for the newest launch, or it is known to be dead."""
        return self.launch is not None and not (self.noted and self.launched_process_lives is not False)

    @property
    def starting(self) -> bool:
        """Whether the newest launch may still write its first heartbeat."""
        launcher = self.launch.launcher if self.launch is not None else LOCAL
        if launcher != LOCAL and not (self.noted and self.launched_process_lives is False):
            # A cluster may have no place for it yet, and may not answer. Recording a submission takes longer than
            # recording a process.
            limit = SUBMISSION_SECONDS if launcher == "spark_submit" else START_SECONDS
            return self.awaited and (self.noted or self.launched_for < limit)
        limit = UNSTARTED_SECONDS if self.unstarted else START_SECONDS
        return self.awaited and self.launched_for < limit

    @property
    def kept(self) -> bool:
        """Whether a watchdog will restart the dead driver, which has not written its last heartbeat."""
        return self.keeper is not None and (self.awaited or (self.heartbeat is not None and not self.heartbeat.final))

    @property
    def driver(self) -> Driver | None:
        """Process that drives the stream, also while it ends or before its first heartbeat; None without one.

        Only heartbeats and lease of a driver on another host are visible: it counts as alive until both have expired.
        """
        beat, launched = self.heartbeat, self.launched_process
        if launched is not None and (beat is None or beat.attempt <= launched.attempt) and self.launched_process_lives:
            own = beat if beat is not None and _is_of(beat, launched) else None
            # The driver's own record is best: its watchdog launched it by the file alone, and the settings may have
            # changed.
            runs = own.generation if own is not None else launched.generation
            frozen = own is not None and self.frozen
            seen = own if own is not None and launched.remote else launched
            who = (launched.attempt, runs, seen.pid, seen.started, seen.host)
            if launched.group is None or own is None or not own.final:
                return Driver(*who, not launched.remote, own, frozen, launched.group, launched)
        lives = self.process if self.process is not None else self.driver_lives
        if beat is None or not lives or (beat.group is not None and beat.final):
            # A driver that runs other streams goes on after its last heartbeat of this stream.
            return None
        noted = launched if launched is not None and _is_of(beat, launched) else None
        who = (beat.attempt, beat.generation, beat.pid, beat.started, beat.host)
        local = self.process is not None and (noted is None or not noted.remote)
        return Driver(*who, local, beat, self.frozen, beat.group, noted)

    @property
    def other_holder(self) -> LeaseHolder | None:
        """Holder of the lease that is not the stream's driver: `frazil run`, or a Dagster run that drains it."""
        # A dead driver, whose lease expires by itself, does not count.
        if self.lease.state != "live" or self.lease_is_the_drivers:
            return None
        driver = self.driver
        if driver is not None and (self.lease.pid, self.lease.started) == (driver.pid, driver.started):
            return None
        return self.lease


def _is_of(beat: Heartbeat, launched: LaunchedProcess) -> bool:
    """Whether a heartbeat comes from a launched process."""
    return beat.attempt == launched.attempt and (launched.remote or beat.pid == launched.pid)


class UnreadableStateError(FrazilError):
    """A document of the stream's state cannot be read.

    Safe: Nothing was changed.
    Next: `frazil status S`, and repair the document that the message names
    """


def read_certain(store: StateStore, stream: str, look: Looker = nobody_looks) -> ActualState:
    """As `read_actual`, for callers that act on missing documents.

    Raises:
        UnreadableStateError: A document cannot be read.
    """
    actual = read_actual(store, stream, look)
    if actual.problem:
        raise UnreadableStateError(actual.problem, fix=actual.fix)
    return actual


def read_actual(store: StateStore, stream: str, look: Looker = nobody_looks) -> ActualState:
    """What exists of a stream in the state store now. Never raises for the documents' content.

    Args:
        store: The stream's part of the state store.
        stream: The stream's id.
        look: Called for a driver that only its launcher can see, if its own documents leave its state open.
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

    # The newest launch is read first, so that a driver that writes its first heartbeat meanwhile is not taken for a
    # former one.
    launch = read(lambda: read_launch(store))
    beat = read(lambda: read_heartbeat(store))
    lease = read(lambda: read_lease(store, stream))
    process = beat.process_lives() if beat is not None else None
    launched = read(lambda: read_launched_process(store))
    if launch is not None and (launched is None or launched.attempt < launch.attempt):
        planned = planned_process(launch)
        if planned is not None and look(planned).life != "ended":
            # Its launcher was killed before it could record it.
            launched = planned
    lives, seen = launched.process_lives() if launched is not None else None, None
    if launched is not None and launched.remote:
        lives, seen = _seen(launched, beat, look)
        if beat is not None and _is_of(beat, launched):
            process = lives
    if process is False and beat is not None and not beat.final:
        # It may have written its last heartbeat just now.
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
    """Whether a driver lives that only its launcher sees; with the launcher's answer, if heartbeats do not suffice."""
    own = beat if beat is not None and _is_of(beat, launched) else None
    if own is not None and own.final:
        # The stream ended, and the driver of its group goes on.
        return None, None
    if own is not None and own.age() <= QUIET_SECONDS:
        return True, None
    seen = look(launched)
    return {"alive": True, "ended": False, "unknown": None}[seen.life], seen


def _launched_for(store: StateStore, launch: Launch) -> float:
    seconds = time.time() - launch.at
    if store.shared or seconds < -AHEAD_SECONDS:
        # Its clock cannot be compared: it was another machine's, or ahead.
        return store.unchanged_for(LAUNCH_KEY, msgspec.json.encode(launch))
    return max(0.0, seconds)
