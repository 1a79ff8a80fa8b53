"""Driver of a group of streams: starts those given to it, runs each to its end, and ends when it has none."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.locks import exclusive
from jobs.clients.spark.session import apply_secrets
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder, streams_with
from jobs.config.documents.secrets import Secret, secrets_in
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.process.mirror_process import mirror_process
from jobs.streaming.groups.carried_stream import CarriedStream
from jobs.streaming.groups.documents import MemberDocuments
from jobs.streaming.groups.members import Member, in_order, proven
from jobs.streaming.supervision.documents.control_request import LOCK, ControlReader
from jobs.streaming.supervision.documents.heartbeat import (
    Heartbeat,
    LastError,
    State,
    Work,
)
from jobs.streaming.supervision.documents.launches import (
    LAUNCH_KEY,
    Launch,
    LaunchedElsewhereError,
    LaunchedProcess,
    launched_file,
    read_launch,
)
from jobs.streaming.supervision.processes.actual import UnreadableStateError
from jobs.streaming.supervision.processes.groups import BELL, DriverGroup
from jobs.streaming.supervision.processes.termination import Timeouts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
SHARED_LOOK_SECONDS = 3.0
IDLE_SECONDS = 10.0
_LATER_SECONDS = 2.0


class GroupDriver:
    """Runs the streams of a group until its end is requested, or it has had none for a while.

    Args:
        on_secrets: Called with the secrets of its streams' files, before anything is logged for a stream with new ones.
        on_ending: Called once it starts no further stream.
        timeouts: Longest time of a batch after its stream was asked to end.
        started_with: Folder and settings file of the deployment, as passed to this process.
    """

    def __init__(
        self,
        group: DriverGroup,
        process: LaunchedProcess,
        control: ControlReader,
        session: Callable[[], SparkSession],
        metrics_url: str,
        *,
        on_secrets: Callable[[frozenset[Secret]], None] = lambda secrets: None,
        on_ending: Callable[[], None] = lambda: None,
        timeouts: Timeouts | None = None,
        idle_seconds: float = IDLE_SECONDS,
        started_with: Sequence[str] | None = None,
    ) -> None:
        self._started_with: Sequence[str] | None = started_with
        self._group: DriverGroup = group
        self._settings: Settings = group.settings
        self._documents: MemberDocuments = MemberDocuments(group, process)
        self._control: ControlReader = control
        self._session: Callable[[], SparkSession] = session
        self._metrics_url: str = metrics_url
        self._on_secrets: Callable[[frozenset[Secret]], None] = on_secrets
        self._on_ending: Callable[[], None] = on_ending
        self._timeouts: Timeouts = timeouts or Timeouts()
        self._idle_seconds: float = idle_seconds
        self._streams: dict[str, CarriedStream] = {}
        # Newest launch of each stream that this process has run or reported on.
        self._had: dict[str, Launch] = {}
        # One session for each stream, whatever its attempt: Spark never frees a session.
        self._sessions: dict[str, SparkSession] = {}
        self._secrets: frozenset[Secret] = frozenset()
        self._alone: tuple[str, float] | None = None
        self._batches: int = 0
        # When to look again at a stream that was left alone, unless it is launched anew: most do not change.
        self._later: dict[str, tuple[Launch, float]] = {}
        self._reported: dict[str, str] = {}
        self._stop: threading.Event = threading.Event()

    def beats(self) -> list[Heartbeat]:
        """Heartbeats of its streams."""
        return [each.beat() for each in list(self._streams.values())]

    def work(self, now: float) -> Work:
        """Work for its own heartbeat: whether any of its streams progresses or is busy."""
        works = [each.work for each in self.beats()]
        busy = [each.busy_since for each in works if each.busy_since is not None]
        return Work(
            batches=self._batches + sum(each.batches for each in works),
            recovered=sum(each.recovered for each in works),
            busy_since=min(busy, default=None),
        )

    def run(self) -> State:
        """Run the streams; returns the group's last state."""
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
        self._on_ending()
        self._end_all()
        return "terminated" if self._control.signalled else "stopped"

    def _take_up(self) -> None:
        """Start streams that were given to the group; after a death, first its suspects, one at a time."""
        # Requests are handled while one stream starts alone, so that a stop of another one is answered at once.
        wanted = [each for each in self._members() if self._is_wanted(each)]
        if self._alone is not None:
            stream, since = self._alone
            carried = self._streams.get(stream)
            if carried is not None and carried.lives and not proven(carried.beat(), time.time(), since):
                return
            self._alone = None
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
        launch = member.launch
        if member.take_up(self._carried(member.stream, launch)) == "no":
            self._later[member.stream] = (launch, time.monotonic() + _LATER_SECONDS)
            if member.unbegun and member.unwanted:
                self._say(member, "stopped")
            return False
        before = self._streams.get(member.stream)
        if before is not None:
            # Its launcher has not waited for the end of this attempt.
            before.end()
        return before is None

    def _carried(self, stream: str, launch: Launch) -> int:
        """Newest attempt of a stream in this process; 0 if a launch belongs to another count of attempts."""
        had = self._had.get(stream)
        # Its state may have been lost, or restored from a backup, and then attempts are counted anew.
        return had.attempt if had is not None and (launch.attempt > had.attempt or launch.at <= had.at) else 0

    def _members(self, *, all_of_them: bool = False) -> Iterable[Member]:
        for stream in streams_with(self._settings, LAUNCH_KEY):
            store = stream_folder(self._settings, stream).store
            launch = read_launch(store)
            if launch is None or launch.group != self._group.name:
                continue
            if launch.attempt <= self._carried(stream, launch):
                continue
            seen, later = self._later.get(stream, (None, 0.0))
            if not all_of_them and seen == launch and time.monotonic() < later:
                continue
            try:
                yield self._documents.member(stream, launch)
            except FrazilError as problem:
                self._report(stream, problem.message)

    def _begin(self, member: Member) -> bool:
        """Start a stream; False if it was not started, or has changed meanwhile."""
        stream, folder = member.stream, stream_folder(self._settings, member.stream)
        try:
            with exclusive(folder.root / LOCK, deadline_seconds=0.0):
                launch = self._launch_now(member, folder)
                if launch is None:
                    return False
                spec = load_stream(launched_file(folder))
                self._refuse_other_secrets(spec)
                step("before_taken_up")
                self._documents.note(folder, launch)
            given = (spec, self._settings, folder, launch.attempt, self._group.name, self._metrics_url)
            mirrors = mirror_process(spec, self._started_with)
            carried = CarriedStream(*given, session=lambda: self._session_of(stream), mirrors=mirrors)
        except (LaunchedElsewhereError, UnreadableStateError, OSError, TimeoutError) as problem:
            self._report(stream, str(problem))
            return False
        except FrazilError as problem:
            self._say(member, "failed", LastError(problem.message, "error", time.time(), problem.fix))
            return False
        self._reported.pop(stream, None)
        self._had[stream] = launch
        self._streams[stream] = carried
        carried.start()
        return True

    def _launch_now(self, member: Member, folder: StreamFolder) -> Launch | None:
        """The launch to carry out, under the stream's lock; None if it is no longer wanted."""
        now = self._documents.member(member.stream, member.launch)
        if read_launch(folder.store) != member.launch:
            return None
        how = now.take_up(self._carried(member.stream, member.launch))
        if how == "launched":
            return member.launch
        return (
            self._documents.launched_anew(now, folder)
            if how == "anew" and self._documents.is_named(member.launch)
            else None
        )

    def _refuse_other_secrets(self, spec: StreamSpec) -> None:
        """Raise if a stream's file names other secrets than those of the running streams."""
        own = frozenset(secrets_in(spec))
        if self._streams and own != self._secrets:
            names = ", ".join(sorted(str(each) for each in own ^ self._secrets))
            raise FrazilError(
                f"stream {spec.stream} names other secrets in its file ({names}) than the streams that the driver of "
                f"group {self._group.name} carries, which could read them.",
                fix="frazil validate",
            )
        self._secrets = own
        self._on_secrets(own)

    def _session_of(self, stream: str) -> SparkSession:
        """A stream's own session in the group's Spark, for the life of this process."""
        # Called each time, as it ends this process if the application is over.
        shared = self._session()
        if stream not in self._sessions:
            made = shared.newSession()
            apply_secrets(made, self._settings)
            self._sessions[stream] = made
        return self._sessions[stream]

    def _leave_out(self, member: Member) -> None:
        """Write as a stream's last heartbeat that it is left out, because drivers die of it."""
        message = (
            f"the driver of group {self._group.name} died {member.deaths} times in a row while stream {member.stream} "
            "had a batch at hand or was opening, so the others go on without it."
        )
        log.error("%s", message)
        fix = f"frazil start {member.stream}, after mending the cause; or give it a driver of its own: group: own"
        self._say(member, "failed", LastError(message, "operator", time.time(), fix, question=False))

    def _say(self, member: Member, state: State, error: LastError | None = None) -> None:
        """Write a last heartbeat for a stream that is not started."""
        try:
            self._documents.say(member, state, error)
        except OSError as problem:
            self._report(member.stream, str(problem))
            return
        self._had[member.stream] = member.launch

    def _put_away(self) -> None:
        """Check streams that are asked to end, and drop those that have ended."""
        for stream, carried in list(self._streams.items()):
            carried.look(self._timeouts)
            if not carried.lives:
                self._batches += carried.beat().work.batches
                del self._streams[stream]
        for stream in self._later.keys() & self._had.keys():
            if self._had[stream].attempt >= self._later[stream][0].attempt:
                del self._later[stream]

    def _ends_idle(self) -> bool:
        """Whether it ends because no launch is under way; from then on it takes no stream."""
        if not self._group.folder.root.is_dir():
            # The deployment was removed, so nobody can give it a stream.
            return True
        if self._is_wanted_by_any():
            # Checked without the lock, which other processes wait for.
            return False
        try:
            with self._group.locked_at_once():
                if time.time() - self._rung() < self._idle_seconds:
                    return False
                self._on_ending()
                return True
        except (TimeoutError, OSError):
            return False

    def _rung(self) -> float:
        """Time when a process of this machine last came to give it a stream; 0 if launches come from other machines.

        A stream given by another machine meanwhile is started anew there, as its launcher sees that this driver has
        ended.
        """
        try:
            return (self._group.folder.root / BELL).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _is_wanted_by_any(self) -> bool:
        try:
            members = self._members(all_of_them=True)
            return any(each.take_up(self._carried(each.stream, each.launch)) != "no" for each in members)
        except (OSError, UnreadableStateError):
            return True

    def _end_all(self) -> None:
        """Let every stream end after its batch, and cancel batches that take longer than the grace."""
        for each in self._streams.values():
            each.end()
        deadline = time.monotonic() + self._timeouts.grace_seconds + self._timeouts.term_seconds
        while any(each.lives for each in self._streams.values()) and time.monotonic() < deadline:
            for each in self._streams.values():
                each.look(self._timeouts)
                each.join(LOOK_SECONDS / max(1, len(self._streams)))
        for each in self._streams.values():
            each.leave()

    def _report(self, stream: str, problem: str) -> None:
        if self._reported.get(stream) != problem:
            self._reported[stream] = problem
            log.warning("%s%s", f"stream {stream}: " if stream else "", problem)
