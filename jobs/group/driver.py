"""Driver of a group of streams: takes up those given to it, sees each to its end, and ends when it has none."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from jobs.errors import FrazilError
from jobs.group.carried_stream import CarriedStream
from jobs.group.members import Member, in_order, proven
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.settings import Settings
from jobs.state.stream_folder import StreamFolder, stream_folder, streams_with
from jobs.steps import step
from jobs.supervise.actual import UnreadableStateError, read_certain
from jobs.supervise.control_request import LOCK, ControlReader, read_control
from jobs.supervise.groups import BELL, DriverGroup
from jobs.supervise.heartbeat import Heartbeat, LastError, State, Work, write_heartbeat
from jobs.supervise.launches import (
    LAUNCH_KEY,
    KeptRestart,
    Launch,
    LaunchedElsewhereError,
    LaunchedProcess,
    launched_file,
    read_launch,
    write_launch,
    write_launched_process,
)
from jobs.supervise.termination import Timeouts
from jobs.system.locks import exclusive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
SHARED_LOOK_SECONDS = 3.0
IDLE_SECONDS = 10.0
_KEPT_NEWEST = 5
_LATER_SECONDS = 5.0


class GroupDriver:
    """Carries the streams of a group until it is asked to end, or none has been left for a while.

    Args:
        group: The group.
        process: This process, as launches record it.
        control: What is asked of the group as a whole.
        session: Its Spark.
        metrics_url: Where the metrics of its streams are.
        timeouts: How long a batch may take once its stream is asked to end.
        idle_seconds: How long it stays without a stream.
    """

    def __init__(
        self,
        group: DriverGroup,
        process: LaunchedProcess,
        control: ControlReader,
        session: Callable[[], SparkSession],
        metrics_url: str,
        *,
        timeouts: Timeouts | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._group: DriverGroup = group
        self._settings: Settings = group.settings
        self._process: LaunchedProcess = process
        self._control: ControlReader = control
        self._session: Callable[[], SparkSession] = session
        self._metrics_url: str = metrics_url
        self._timeouts: Timeouts = timeouts or Timeouts()
        self._idle_seconds: float = idle_seconds
        self._streams: dict[str, CarriedStream] = {}
        self._attempts: dict[str, int] = {}
        self._alone: tuple[str, float] | None = None
        self._batches: int = 0
        # When a stream that was left alone is looked at again, by its launch: most stay as they are.
        self._later: dict[tuple[str, int], float] = {}
        self._reported: dict[str, str] = {}
        self._stop: threading.Event = threading.Event()

    def beats(self) -> list[Heartbeat]:
        """The heartbeats of the streams that it carries."""
        return [each.beat() for each in list(self._streams.values())]

    def work(self, now: float) -> Work:
        """What its own heartbeat tells: whether any of its streams gets on, or is at work."""
        works = [each.work for each in self.beats()]
        busy = [each.busy_since for each in works if each.busy_since is not None]
        return Work(
            batches=self._batches + sum(each.batches for each in works),
            recovered=sum(each.recovered for each in works),
            busy_since=min(busy, default=None),
        )

    def run(self) -> State:
        """Carry them; returns the group's last word."""
        shared = self._group.folder.store.shared
        alive_at = time.monotonic()
        while self._control.now() != "end":
            try:
                self._take_up()
            except (OSError, UnreadableStateError) as problem:
                self._report("", f"the state cannot be read: {problem}")
            self._put_away()
            now = time.monotonic()
            if self._streams:
                alive_at = now
            elif now - alive_at > self._idle_seconds and self._ends_idle():
                return "finished"
            self._stop.wait(SHARED_LOOK_SECONDS if shared else LOOK_SECONDS)
        self._end_all()
        return "terminated" if self._control.signalled else "stopped"

    def _take_up(self) -> None:
        """Take up streams that were given to the group; after a death those first, and alone, that it may be of."""
        if self._alone is not None:
            stream, since = self._alone
            carried = self._streams.get(stream)
            if carried is not None and carried.lives and not proven(carried.beat(), time.time(), since):
                return
            self._alone = None
        wanted = [each for each in self._members() if self._is_wanted(each)]
        first, others = in_order(wanted)
        for member in first:
            if member.left_out:
                self._leave_out(member)
                continue
            if self._begin(member):
                self._alone = (member.stream, time.time())
                log.info("stream %s starts alone: it had a batch at hand when a driver died", member.stream)
                return
        for member in others:
            self._begin(member)

    def _is_wanted(self, member: Member) -> bool:
        if member.take_up(self._attempts.get(member.stream, 0)) == "no":
            self._later[member.stream, member.launch.attempt] = time.monotonic() + _LATER_SECONDS
            return False
        before = self._streams.get(member.stream)
        if before is not None:
            # Whoever launched it has not waited for the end of this attempt.
            before.end()
        return before is None

    def _members(self, *, all_of_them: bool = False) -> Iterable[Member]:
        for stream in streams_with(self._settings, LAUNCH_KEY):
            store = stream_folder(self._settings, stream).store
            launch = read_launch(store)
            if launch is None or launch.group != self._group.name:
                continue
            if launch.attempt <= self._attempts.get(stream, 0):
                continue
            if not all_of_them and time.monotonic() < self._later.get((stream, launch.attempt), 0.0):
                continue
            try:
                actual = read_certain(store, stream)
                control = read_control(store)
            except FrazilError as problem:
                self._report(stream, problem.message)
                continue
            # Its newest launch may be recorded as this very process's, which has not begun it.
            driven = actual.other_holder is not None or (
                actual.driver is not None and (actual.driver.pid, actual.driver.started) != self._me
            )
            yield Member(stream, launch, control, actual.heartbeat, driven)

    @property
    def _me(self) -> tuple[int, str]:
        return self._process.pid, self._process.started

    def _begin(self, member: Member) -> bool:
        """Take a stream up; False if something else has happened to it meanwhile."""
        stream, folder = member.stream, stream_folder(self._settings, member.stream)
        try:
            launch = member.launch
            if member.take_up(self._attempts.get(stream, 0)) == "anew":
                launch = self._launched_anew(member, folder)
            step("before_taken_up")
            write_launched_process(folder.store, self._note(launch))
            spec = load_stream(launched_file(folder))
            given = (spec, self._settings, folder, launch.attempt, self._group.name, self._session, self._metrics_url)
            carried = CarriedStream(*given)
        except (FrazilError, OSError, TimeoutError) as problem:
            self._report(stream, str(problem))
            return False
        self._reported.pop(stream, None)
        self._attempts[stream] = launch.attempt
        self._streams[stream] = carried
        carried.start()
        return True

    def _launched_anew(self, member: Member, folder: StreamFolder) -> Launch:
        """The next launch of a stream that an earlier driver of the group left without a word.

        Raises:
            TimeoutError, FrazilError: An action on the stream is under way, or was quicker.
        """
        with exclusive(folder.root / LOCK, deadline_seconds=0.0):
            former = member.launch
            if read_launch(folder.store) != former:
                raise LaunchedElsewhereError(f"stream {member.stream} was launched meanwhile.")
            kept, attempt, now = launched_file(folder), former.attempt + 1, time.time()
            why = f"the driver of group {self._group.name} ended without a last word"
            launch = msgspec.structs.replace(
                former,
                attempt=attempt,
                generation=generation(load_stream(kept), self._settings),
                failures=member.failures,
                at=now,
                reason=why,
                kept=former.kept + 1,
                kept_newest=(*former.kept_newest, KeptRestart(attempt, now, why))[-_KEPT_NEWEST:],
            )
            write_launch(folder.store, launch, kept.read_text(encoding="utf-8"))
        return launch

    def _note(self, launch: Launch) -> LaunchedProcess:
        return msgspec.structs.replace(
            self._process,
            attempt=launch.attempt,
            generation=launch.generation,
            at=time.time(),
            group=self._group.name,
        )

    def _leave_out(self, member: Member) -> None:
        """Say of a stream that drivers die of that it is left out, as its last word."""
        beat, folder = member.heartbeat, stream_folder(self._settings, member.stream)
        assert beat is not None
        message = (
            f"the driver of group {self._group.name} died {member.failures} times in a row while stream "
            f"{member.stream} had a batch at hand or was opening, so the others go on without it."
        )
        log.error("%s", message)
        fix = f"frazil start {member.stream}, after mending the cause; or give it a driver of its own: group: own"
        error = LastError(message, "operator", time.time(), fix, question=False)
        write_heartbeat(folder.store, msgspec.structs.replace(beat, state="failed", error=error))
        self._attempts[member.stream] = member.launch.attempt

    def _put_away(self) -> None:
        """Look after those that are asked to end, and forget those that have."""
        for stream, carried in list(self._streams.items()):
            carried.look(self._timeouts)
            if not carried.lives:
                self._batches += carried.beat().work.batches
                del self._streams[stream]

    def _ends_idle(self) -> bool:
        """Whether nobody is about to give it a stream; the group's lock is held while that is looked at."""
        try:
            with self._group.locked_at_once():
                rung = (self._group.folder.root / BELL).stat().st_mtime
                if time.time() - rung < self._idle_seconds:
                    return False
                return all(
                    each.take_up(self._attempts.get(each.stream, 0)) == "no" for each in self._members(all_of_them=True)
                )
        except (TimeoutError, OSError, UnreadableStateError):
            return False

    def _end_all(self) -> None:
        """Let every stream end after its batch, and give up batches that take longer than the grace."""
        for each in self._streams.values():
            each.end()
        deadline = time.monotonic() + self._timeouts.grace_seconds + self._timeouts.term_seconds
        while any(each.lives for each in self._streams.values()) and time.monotonic() < deadline:
            for each in self._streams.values():
                each.look(self._timeouts)
                each.join(LOOK_SECONDS / max(1, len(self._streams)))

    def _report(self, stream: str, problem: str) -> None:
        if self._reported.get(stream) != problem:
            self._reported[stream] = problem
            log.warning("%s%s", f"stream {stream}: " if stream else "", problem)


def process_note(attempt: int, beat: Heartbeat, group: str) -> LaunchedProcess:
    """This process as launches of the group's streams record it."""
    return LaunchedProcess(attempt, beat.generation, beat.pid, beat.started, beat.boot, beat.host, time.time(), group)
