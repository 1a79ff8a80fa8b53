"""Control actions on a stream, for an operator or the supervisor.

An operator's actions change the desired mode of the stream: `start`, `stop`, `pause`, `resume`, `restart`. `flush`
leaves it. The supervisor's actions use the mode at the time of their execution, which may be later than the decision:
`ensure_running`, `roll`, `end`, `drain_driver`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from jobs.base.errors import FrazilError
from jobs.clients.state_store.store import StateStore
from jobs.streaming.supervision.control.lifecycle import ActionResult, Lifecycle
from jobs.streaming.supervision.documents.control_request import DesiredMode
from jobs.streaming.supervision.documents.driver_session import end_leftovers
from jobs.streaming.supervision.documents.flush_request import request_flush
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.scrape_target import withdraw
from jobs.streaming.supervision.documents.waiting import wait_until
from jobs.streaming.supervision.processes.actual import Driver
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.processes.launcher import driver_command
from jobs.streaming.supervision.processes.termination import Timeouts
from jobs.streaming.supervision.state.configuration import Configuration
from jobs.streaming.supervision.state.observation import Observation

FLUSH_SECONDS = 240.0
"""Default time to wait for a flush, seconds."""

_POLL_SECONDS = 0.25
_SHARED_POLL_SECONDS = 2.0
_SAY_SECONDS = 5.0


def await_flush(
    store: StateStore, stream: str, number: int, seconds: float, say: Callable[[str], None] = lambda line: None
) -> ActionResult:
    """Wait until the flush of this number is done.

    Args:
        store: The stream's part of the state store.
        seconds: Time to wait.
        say: Called every few seconds with the progress.

    Raises:
        FrazilError: The stream's driver failed, or the time is over.
    """
    began = said = time.monotonic()
    while True:
        beat = read_heartbeat(store)
        if beat is not None and beat.work.flush.number >= number and beat.work.flush.done:
            return ActionResult(_sentence(stream, beat), beat, _facts(beat))
        if beat is not None and beat.state == "failed":
            why = beat.error.message if beat.error else "its driver failed"
            raise FrazilError(
                f"stream {stream}: {why}", fix=(beat.error and beat.error.fix) or f"frazil status {stream}"
            )
        now = time.monotonic()
        if now - began >= seconds:
            raise FrazilError(
                f"stream {stream} has not landed all that was there within {seconds:.0f} s: {_so_far(beat, number)}. "
                "It goes on with it.",
                fix=f"frazil status {stream}",
            )
        if now - said >= _SAY_SECONDS:
            said = now
            say(f"{stream}: {_so_far(beat, number)}, {now - began:.0f} s")
        time.sleep(_SHARED_POLL_SECONDS if store.shared else _POLL_SECONDS)


def _so_far(beat: Heartbeat | None, number: int) -> str:
    if beat is None:
        return "no driver has reported yet"
    if beat.work.flush.number < number:
        return f"its driver ({beat.state}) has not heard of it yet"
    flush = beat.work.flush
    return f"{flush.read:,} records read so far in {flush.batches} batches; its driver is {beat.state}"


def _sentence(stream: str, beat: Heartbeat) -> str:
    flush = beat.work.flush
    if not flush.read:
        return f"{stream} has landed everything up to now: nothing waited."
    batches = "a batch" if flush.batches == 1 else f"{flush.batches} batches"
    return (
        f"{stream} has landed everything up to now: {flush.read:,} records in {batches}, {flush.landed:,} landed, "
        f"{flush.dead:,} dead letters."
    )


def _facts(beat: Heartbeat) -> dict[str, int]:
    flush = beat.work.flush
    return {"batches": flush.batches, "read": flush.read, "landed": flush.landed, "dead": flush.dead}


Action = Literal["start", "stop", "pause", "resume", "restart", "flush", "roll", "ensure_running", "end", "let_go"]


class StreamControl:
    """Actions on one stream. Each is idempotent.

    Every action raises FrazilError, with the next command, if it cannot be done.

    Args:
        home: The deployment's folder.
        settings_file: Settings file; None for the default path.
        stream: The stream's id.
        timeouts: Timeouts of waiting.
        command: Command that starts a driver; None for the real one.
        generation: The only generation that a driver is started with; None for that of the file.
    """

    def __init__(
        self,
        home: Path,
        settings_file: Path | None,
        stream: str,
        *,
        timeouts: Timeouts | None = None,
        command: Sequence[str] | None = None,
        generation: str | None = None,
    ) -> None:
        self._stream: str = stream
        self._timeouts: Timeouts = timeouts or Timeouts()
        self._life: Lifecycle = Lifecycle(
            home, settings_file, stream, self._timeouts, command or driver_command(), generation
        )

    def observe(self) -> Observation:
        """Present state of the stream."""
        return self._life.observe()

    def perform(self, action: Action, reason: str, by: str) -> ActionResult:
        """Perform the action of this name."""
        return getattr(self, "drain_driver" if action == "let_go" else action)(reason, by)

    def start(self, reason: str, by: str) -> ActionResult:
        """Make the stream run by its file, whatever was requested before."""
        self._life.prepare()
        with self._life.section() as now:
            replaced = _to_replace(now, self._life.launchable(now))
            self._life.request(now, "start", reason, by, mode="running", end_attempt=_attempt(replaced))
        return self._life.bring_up(now, replaced, reason, resumed=now.control.mode != "running")

    def resume(self, reason: str, by: str) -> ActionResult:
        """Let a paused or stopped stream go on."""
        self._life.prepare()
        with self._life.section() as now:
            if now.driver is None and now.desired.continuous:
                self._life.launchable(now)
            replaced = _to_replace(now)
            self._life.request(now, "resume", reason, by, mode="running", end_attempt=_attempt(replaced))
            if not now.desired.continuous:
                return ActionResult(f"{self._stream} may run again: frazil run {self._stream}.", now.heartbeat)
        return self._life.bring_up(now, replaced, reason, resumed=now.control.mode != "running")

    def restart(self, reason: str, by: str) -> ActionResult:
        """End the driver after its batch and launch another. A paused stream stays paused."""
        self._life.prepare()
        with self._life.section() as now:
            self._life.launchable(now)
            mode: DesiredMode = "paused" if now.control.mode == "paused" else "running"
            self._life.request(now, "restart", reason, by, mode=mode, end_attempt=_attempt(now.driver))
        return self._life.bring_up(now, now.driver, reason)

    def roll(self, reason: str, by: str) -> ActionResult:
        """Replace a driver that runs another configuration than the file's; the operator's mode stays."""
        self._life.prepare()
        with self._life.section() as now:
            if now.desired.error is not None:
                raise now.desired.error
            config = self._life.launchable(now)
            if config.problem is not None:
                # A running driver is not ended for a configuration that could not run.
                raise config.problem
            now.refuse_stopped()
            if now.driver is None and now.control.mode == "paused":
                return ActionResult(
                    f"{self._stream} is paused: its file takes effect when it is resumed.", now.heartbeat
                )
            replaced = _to_replace(now, config)
            if replaced is not None:
                self._life.request(now, "roll", reason, by, mode=now.control.mode, end_attempt=_attempt(replaced))
        return self._life.bring_up(now, replaced, reason)

    def ensure_running(self, reason: str, by: str) -> ActionResult:
        """Start a driver that is wanted and does not run; the operator's mode stays, so a paused stream is refused.

        This continues the count of consecutive failed launches; an operator's own start begins a new count. A running
        driver is rolled if its file has changed.
        """
        self._life.prepare()
        with self._life.section() as now:
            now.refuse_stopped()
            if now.control.mode == "paused":
                raise FrazilError(now.control.sentence(self._stream), fix=f"frazil resume {self._stream}")
            replaced = _to_replace(now, self._life.launchable(now))
            if replaced is not None:
                self._life.request(now, "ensure_running", reason, by, mode="running", end_attempt=_attempt(replaced))
        return self._life.bring_up(now, replaced, reason, count_failures=True)

    def flush(
        self,
        reason: str,
        by: str,
        *,
        seconds: float = FLUSH_SECONDS,
        say: Callable[[str], None] = lambda line: None,
    ) -> ActionResult:
        """Have the driver land what the topics hold now, without its trigger's pause, and wait for it.

        Args:
            seconds: Time to wait.
            say: Called every few seconds with the progress.
        """
        with self._life.section() as now:
            now.refuse_stopped()
            if now.control.mode == "paused":
                raise FrazilError(now.control.sentence(self._stream), fix=f"frazil resume {self._stream}")
            if now.driver is None:
                now.refuse_other_holder()
                command = "start" if now.desired.continuous else "run"
                raise FrazilError(
                    f"stream {self._stream} has no driver that could land the topics' records.",
                    fix=f"frazil {command} {self._stream}",
                )
            told = now.heartbeat.work.flush.number if now.heartbeat is not None else 0
            number = request_flush(now.folder.store, reason, by, told)
        return await_flush(now.folder.store, self._stream, number, seconds, say)

    def pause(self, reason: str, by: str) -> ActionResult:
        """Keep the driver and read nothing, until the stream is resumed."""
        with self._life.section() as now:
            self._life.request(now, "pause", reason, by, mode="paused")
        driver = now.driver
        if driver is None:
            _refuse_while_drained(now)
            return ActionResult(f"{self._stream} is paused; no driver runs, and none is started.", now.heartbeat)

        def settled() -> bool:
            beat = _beat_of(now, driver)
            return (beat is not None and (beat.state == "paused" or beat.final)) or not _lives(driver)

        reached = wait_until(settled, self._timeouts.grace_seconds)
        beat = _beat_of(now, driver)
        if not reached:
            return ActionResult(f"{self._stream} pauses when its batch is done, which takes long.", beat)
        if _lives(driver) and beat is not None and beat.state == "paused":
            return ActionResult(f"{self._stream} is paused: {driver.name} stays and reads nothing.", beat)
        return ActionResult(f"{self._stream} is paused; its driver has ended, and none is started.", beat)

    def stop(self, reason: str, by: str) -> ActionResult:
        """End the driver after its batch; none is started until somebody starts or resumes the stream.

        The first author and reason of a stop stay: so `frazil stop --all` keeps what was stopped on purpose.
        """
        with self._life.section() as now:
            already = now.control.mode == "stopped" and now.driver is None
            if now.control.mode != "stopped":
                self._life.request(now, "stop", reason, by, mode="stopped")
        if now.driver is None:
            _refuse_while_drained(now)
            end_leftovers(now.actual.launched_process, self._stream)
            self._withdraw(now)
            stopped = f"{self._stream} is stopped{f' already{now.control.origin}' if already else ''}."
            return ActionResult(stopped, now.heartbeat)
        how = self._life.end(now, now.driver)
        self._withdraw(now)
        return ActionResult(
            f"{self._stream} is stopped: attempt {now.driver.attempt} {how}.", read_heartbeat(now.folder.store)
        )

    def end(self, reason: str, by: str) -> ActionResult:
        """End a driver that is no longer wanted: stopped, without a file, drained on a schedule, or long finished.

        The operator's mode stays.
        """
        with self._life.section() as now:
            unwanted = now.control.mode == "stopped" or not now.desired.continuous or now.desired.gone
            beat = now.driver.heartbeat if now.driver is not None else None
            ended = beat is not None and beat.final
            if now.driver is None:
                end_leftovers(now.actual.launched_process, self._stream)
                self._withdraw(now)
                return ActionResult(f"{self._stream} has no driver.", now.heartbeat)
            if not (unwanted or ended):
                return ActionResult(f"{self._stream} is wanted: its driver stays.", now.heartbeat)
            self._life.request(now, "end", reason, by, mode=now.control.mode, end_attempt=now.driver.attempt)
        how = self._life.end(now, now.driver)
        self._withdraw(now)
        return ActionResult(f"{self._stream}: attempt {now.driver.attempt} {how}.", read_heartbeat(now.folder.store))

    def _withdraw(self, now: Observation) -> None:
        """Remove the Prometheus files of a killed driver, the stream's own or its group's."""
        withdraw(now.settings, self._stream)
        launch = now.actual.launch
        if launch is not None and launch.group is not None:
            withdraw(now.settings, DriverGroup.of(now.settings, launch.group).label)

    def drain_driver(self, reason: str, by: str) -> ActionResult:
        """End the driver after its batch, and keep the desired mode: the next supervisor starts another."""
        with self._life.section() as now:
            # Done without a driver as well: its watchdog may be about to start the next one.
            self._life.request(now, "let_go", reason, by, mode=now.control.mode, end_attempt=now.last_attempt)
            if now.driver is None:
                return ActionResult(f"{self._stream} has no driver.", now.heartbeat)
        how = self._life.end(now, now.driver)
        return ActionResult(f"{self._stream}: attempt {now.driver.attempt} {how}.", read_heartbeat(now.folder.store))


def _to_replace(now: Observation, config: Configuration | None = None) -> Driver | None:
    """The driver to replace: it ends anyhow, or runs another configuration than this."""
    driver = now.driver
    if driver is None or now.ending:
        return driver
    return driver if config is not None and driver.generation != config.generation else None


def _attempt(driver: Driver | None) -> int:
    return driver.attempt if driver is not None else 0


def _refuse_while_drained(now: Observation) -> None:
    # A stream that is drained on a schedule has no driver to stop, and its drain ends by itself.
    if now.desired.continuous:
        now.refuse_other_holder()


def _beat_of(now: Observation, driver: Driver) -> Heartbeat | None:
    beat = read_heartbeat(now.folder.store)
    return beat if beat is not None and beat.attempt >= driver.attempt else None


def _lives(driver: Driver) -> bool:
    return driver.lives() if driver.local else True
