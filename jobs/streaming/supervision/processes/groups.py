"""Driver of a group: its documents, and how its process is launched, rolled and ended.

Like a stream, a group has a folder, a launch, a heartbeat and a watchdog; its name is one that no stream can have.
Requests and results of its streams are in the streams' own folders as usual.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import private_folder, private_opener
from jobs.clients.state_store.stream_folder import StreamFolder, state_store
from jobs.config.services.trigger import Restart
from jobs.config.settings.generation import group_generation
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.control_request import (
    LOCK,
    ControlRequest,
    read_control,
    write_control,
)
from jobs.streaming.supervision.documents.driver_session import end_leftovers
from jobs.streaming.supervision.documents.heartbeat import FINAL
from jobs.streaming.supervision.documents.keeper_record import find_keeper
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedElsewhereError,
    LaunchedProcess,
    failures_in_a_row,
    pause_before,
    read_launched_process,
)
from jobs.streaming.supervision.launchers.choice import chosen_launcher, launcher_of, looker
from jobs.streaming.supervision.launchers.launcher import DriverOrder
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from jobs.streaming.supervision.processes.actual import ActualState, Driver, read_certain
from jobs.streaming.supervision.processes.launcher import launched_driver
from jobs.streaming.supervision.processes.termination import Timeouts, end_driver

MODULE = "jobs.streaming.groups.main"
_STREAM_MODULE = "jobs.streaming.driver.main"
_FORMER_NAMES = {"jobs.stream.main": _STREAM_MODULE, "jobs.runtime.driver": _STREAM_MODULE, "jobs.group.main": MODULE}
# Touched before a stream is given to the group, so that an idle driver does not end at that moment.
BELL = "bell"
_STABLE_SECONDS = 600.0
_ENDS = FINAL | {"stopping"}


class GroupRollsError(FrazilError):
    """The group's driver ends, so that one with new settings can start.

    Safe: Its batch is committed first.
    Next: none: the supervisor starts the new driver

    Attributes:
        group: The group.
        driver: That driver.
    """

    def __init__(self, group: DriverGroup, driver: Driver) -> None:
        super().__init__(f"the driver of group {group.name} gives way to another.")
        self.group: DriverGroup = group
        self.driver: Driver = driver


@dataclass(frozen=True, slots=True)
class NextStart:
    """Next start of a group's driver.

    Attributes:
        keeper: Process of its watchdog, which starts it, if one lives on this host.
        seconds: Time until then; negative afterwards.
    """

    keeper: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class DriverGroup:
    """A group of streams that one driver runs.

    Attributes:
        name: Name in the streams' files.
        folder: Folder with its driver's launch, heartbeat, watchdog record and logs.
        settings: Settings of the deployment.
    """

    name: str
    folder: StreamFolder
    settings: Settings

    @staticmethod
    def of(settings: Settings, name: str) -> DriverGroup:
        """The group of this name."""
        key = f"groups/{name}"
        return DriverGroup(name, StreamFolder(settings.state / key, state_store(settings).below(key)), settings)

    @property
    def label(self) -> str:
        """Replacement for a stream's id in documents, messages, and the environment of its processes."""
        return f"group:{self.name}"

    @property
    def generation(self) -> str:
        """Generation of a driver that would be launched now."""
        return group_generation(self.settings, importlib.metadata.version("frazil"))

    def actual(self) -> ActualState:
        """Actual state of its driver.

        Raises:
            UnreadableStateError: A document cannot be read.
        """
        return read_certain(self.folder.store, self.label, looker(self.settings))

    def ensure(
        self,
        home: Path,
        settings_file: Path | None,
        command: Sequence[str],
        reason: str,
        timeouts: Timeouts,
        *,
        count_failures: bool = False,
    ) -> LaunchedProcess:
        """Make sure that a driver of the group lives, under the present settings; returns its process.

        Args:
            home: The deployment's folder.
            settings_file: Settings file; None for the default path.
            command: Command that starts a stream's driver.
            reason: Reason of a launch.
            count_failures: Whether a launch waits for the pause after consecutive failures.

        Raises:
            GroupRollsError: A living driver has to end first; its end was requested.
            FrazilError: Another machine is starting one, another action is under way, or it is too early.
        """
        private_folder(self.folder.root)
        with self._locked(timeouts):
            with open(self.folder.root / BELL, "w", opener=private_opener):
                pass
            actual = self.asked(self.actual())
            driver, control = actual.driver, read_control(self.folder.store)
            if driver is not None:
                beat = driver.heartbeat
                ends = control.end_attempt >= driver.attempt or (beat is not None and beat.state in _ENDS)
                if not ends and driver.generation == self.generation:
                    return driver.process
                if not ends:
                    self._ask_to_end(driver.attempt, control, f"its settings have changed; {reason}")
                raise GroupRollsError(self, driver)
            if actual.launched_elsewhere:
                raise FrazilError(
                    f"another machine is starting the driver of group {self.name}.", fix="run this again in a moment"
                )
            if count_failures:
                self._refuse_early(actual)
            try:
                return self._launch(actual, control, home, settings_file, command, reason)
            except LaunchedElsewhereError as problem:
                # The message is about the group, as the stream was launched nowhere.
                raise FrazilError(f"group {self.name}: {problem.message}", fix="run this again in a moment") from None

    def asked(self, actual: ActualState) -> ActualState:
        """Actual state of its driver; a recently silent driver is looked up at its launcher as well."""
        driver = actual.driver
        if driver is None or not driver.process.remote:
            return actual
        look = looker(self.settings)(driver.process)
        gone = look.life == "ended"
        return replace(actual, process=False, launched_process_lives=False, look=look) if gone else actual

    def next_start(self) -> NextStart:
        """Next start of the group's driver, by its documents.

        Raises:
            UnreadableStateError: A document cannot be read.
        """
        actual = self.actual()
        left = self._pause_left(actual)[1] if actual.driver is None else float("-inf")
        record = find_keeper(self.folder.store.local, actual.launch.attempt) if actual.launch is not None else None
        if record is not None:
            # The watchdog records the pause when it sees the driver's end, and clears it after it has launched another.
            left = max(left, min(record.pause, record.at + record.pause - time.time()))
        return NextStart(record.pid if record is not None else None, left)

    def end(self, driver: Driver, timeouts: Timeouts) -> str:
        """Wait for a driver whose end was requested; returns how it ended, as the end of a sentence."""
        launcher = launcher_of(driver.process, self.settings)
        return end_driver(self.label, driver, timeouts, lambda: self.actual().driver, launcher)

    def ask_to_end(self, reason: str, timeouts: Timeouts) -> Driver | None:
        """Ask the driver to end after its present batches; returns it, or None if none lives."""
        if not self.folder.kept():
            return None
        with self._locked(timeouts):
            driver = self.actual().driver
            if driver is not None:
                self._ask_to_end(driver.attempt, read_control(self.folder.store), reason)
        return driver

    def locked_at_once(self) -> contextlib.AbstractContextManager[None]:
        """Hold the group's lock, for an idle driver's end; raises TimeoutError if another process has it."""
        return exclusive(self.folder.root / LOCK, deadline_seconds=0.0)

    @contextlib.contextmanager
    def _locked(self, timeouts: Timeouts) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(exclusive(self.folder.root / LOCK, deadline_seconds=timeouts.lock_seconds))
            except TimeoutError:
                raise FrazilError(
                    f"Another action on group {self.name} is under way: it holds {self.folder.root / LOCK}.",
                    fix=f"wait a moment and run this again; `fuser {self.folder.root / LOCK}` names the process",
                ) from None
            yield

    def _refuse_early(self, actual: ActualState) -> None:
        """Raise during the pause after consecutive deaths of the group's drivers."""
        failures, left = self._pause_left(actual)
        if left > 0:
            raise FrazilError(
                f"the driver of group {self.name} ended {failures} times in a row without landing anything; it is "
                f"started again in {left:.0f} s.",
                fix=f"read {self.folder.root / 'logs' / 'driver.log'}; `frazil start` of a stream starts it at once",
            )

    @staticmethod
    def _pause_left(actual: ActualState) -> tuple[int, float]:
        """Number of consecutive failed drivers, and the rest of their pause in seconds, for a group without a driver.

        The seconds are negative after its end.
        """
        failures = failures_in_a_row(actual.launch, actual.heartbeat, _STABLE_SECONDS)
        restart = Restart()
        pause = pause_before(failures, restart.first_delay.total_seconds(), restart.longest_delay.total_seconds())
        # A heartbeat of an earlier launch does not show how a driver ended that died before its own first.
        beaten = actual.heartbeat is not None and not actual.awaited
        return failures, pause - (actual.heartbeat_age if beaten else actual.launched_for)

    def _ask_to_end(self, attempt: int, former: ControlRequest, reason: str) -> None:
        request = ControlRequest(former.mode, attempt, "roll", reason, "frazil", time.time())
        write_control(self.folder.store, request, former)

    def _launch(
        self,
        actual: ActualState,
        control: ControlRequest,
        home: Path,
        settings_file: Path | None,
        command: Sequence[str],
        reason: str,
    ) -> LaunchedProcess:
        end_leftovers(actual.launched_process, self.label)
        former = actual.launch
        known = (control.end_attempt, *(each.attempt for each in (former, actual.heartbeat) if each is not None))
        launch = Launch(
            attempt=1 + max(known),
            generation=self.generation,
            file=str(home),
            failures=failures_in_a_row(former, actual.heartbeat, _STABLE_SECONDS),
            at=time.time(),
            reason=reason,
            kept=former.kept if former is not None else 0,
            kept_newest=former.kept_newest if former is not None else (),
        )
        settings = ("--settings", str(settings_file)) if settings_file else ()
        given = ("--home", str(home), *settings, "--group", self.name)
        order = DriverOrder(self.label, launch, self.folder.root, group_command(command), given)
        with launched_driver(self.folder, order, "", chosen_launcher(self.settings)):
            launched = read_launched_process(self.folder.store)
        assert launched is not None
        return launched


def group_command(command: Sequence[str]) -> tuple[str, ...]:
    """Command that starts a group's driver, from the command of a stream's."""
    command = [_FORMER_NAMES.get(part, part) for part in command]
    if _STREAM_MODULE not in command and MODULE not in command:
        raise FrazilError(
            f"{COMMAND_VARIABLE} does not name {_STREAM_MODULE}, so how it starts the driver of a group is not known.",
            fix=f"have it end with `python -m {_STREAM_MODULE}`, in whose place {MODULE} is put; or `group: own`",
        )
    return tuple(MODULE if part == _STREAM_MODULE else part for part in command)


def known_groups(settings: Settings) -> list[str]:
    """Names of the groups with a folder, in order."""
    return sorted({key.split("/")[1] for key in state_store(settings).keys("groups/*/launch.json")})
