"""Driver of a group: where its documents are, and how its process is launched, rolled and ended.

To supervision a group is one more thing with a folder, a launch, a heartbeat and a keeper, but for its name, which no
stream can have. What a stream of it is asked, and what becomes of it, stands in the stream's own folder as ever.
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
# Touched by whoever is about to give the group a stream, so that a driver without one does not end at that moment.
BELL = "bell"
_STABLE_SECONDS = 600.0
_ENDS = FINAL | {"stopping"}


class GroupRollsError(FrazilError):
    """The driver of the group ends to make room for one with new settings.

    Safe: Its batch is committed first.
    Next: none: the supervisor starts the new driver

    Attributes:
        group: The group.
        driver: That driver.
    """

    def __init__(self, group: DriverGroup, driver: Driver) -> None:
        super().__init__(f"the driver of group {group.name} makes room for another.")
        self.group: DriverGroup = group
        self.driver: Driver = driver


@dataclass(frozen=True, slots=True)
class NextStart:
    """When the driver of a group is started again.

    Attributes:
        keeper: The process of its keeper, which does it, if one lives on this host.
        seconds: How long that takes still; negative once it was to be.
    """

    keeper: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class DriverGroup:
    """A group of streams that one driver carries.

    Attributes:
        name: As the streams' files have it.
        folder: What is kept of the group: its driver's launch, heartbeat, keeper and logs.
        settings: Of the deployment.
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
        """What stands where a stream's id does: in documents, messages, and the environment of its processes."""
        return f"group:{self.name}"

    @property
    def generation(self) -> str:
        """Of a driver that would be launched now."""
        return group_generation(self.settings, importlib.metadata.version("frazil"))

    def actual(self) -> ActualState:
        """What there is of its driver.

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
        """See to it that a driver of the group lives, and under the settings as they are; returns its process.

        Args:
            home: The deployment's folder.
            settings_file: Its settings; None for the default place.
            command: What starts a stream's driver.
            reason: Why, if one has to be launched.
            count_failures: Whether one is launched only after the pause that failures in a row ask for.

        Raises:
            GroupRollsError: One lives that has to end first; it has been asked to.
            FrazilError: Another machine is starting one; another action is under way; it is too early.
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
                # Not of the stream, which was launched nowhere.
                raise FrazilError(f"group {self.name}: {problem.message}", fix="run this again in a moment") from None

    def asked(self, actual: ActualState) -> ActualState:
        """What there is of its driver, by its launcher's word also where it has only just fallen silent."""
        driver = actual.driver
        if driver is None or not driver.process.remote:
            return actual
        look = looker(self.settings)(driver.process)
        gone = look.life == "ended"
        return replace(actual, process=False, launched_process_lives=False, look=look) if gone else actual

    def next_start(self) -> NextStart:
        """When a driver of the group is started again, as far as its documents say.

        Raises:
            UnreadableStateError: A document cannot be read.
        """
        actual = self.actual()
        left = self._pause_left(actual)[1] if actual.driver is None else float("-inf")
        record = find_keeper(self.folder.store.local, actual.launch.attempt) if actual.launch is not None else None
        if record is not None:
            # It notes the pause when it sees the driver's end, and that the pause is over when it has launched another.
            left = max(left, min(record.pause, record.at + record.pause - time.time()))
        return NextStart(record.pid if record is not None else None, left)

    def end(self, driver: Driver, timeouts: Timeouts) -> str:
        """See a driver that was asked to end to its end; returns how it ended, as the end of a sentence."""
        launcher = launcher_of(driver.process, self.settings)
        return end_driver(self.label, driver, timeouts, lambda: self.actual().driver, launcher)

    def ask_to_end(self, reason: str, timeouts: Timeouts) -> Driver | None:
        """Ask the driver to end, after the batches at hand; returns it, or None if none lives."""
        if not self.folder.kept():
            return None
        with self._locked(timeouts):
            driver = self.actual().driver
            if driver is not None:
                self._ask_to_end(driver.attempt, read_control(self.folder.store), reason)
        return driver

    def locked_at_once(self) -> contextlib.AbstractContextManager[None]:
        """Hold the group's lock, for who ends if nobody needs it; raises TimeoutError if another has it."""
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
        """Raise while the pause lasts that drivers of the group which died in a row ask for."""
        failures, left = self._pause_left(actual)
        if left > 0:
            raise FrazilError(
                f"the driver of group {self.name} ended {failures} times in a row without landing anything; it is "
                f"started again in {left:.0f} s.",
                fix=f"read {self.folder.root / 'logs' / 'driver.log'}; `frazil start` of a stream starts it at once",
            )

    @staticmethod
    def _pause_left(actual: ActualState) -> tuple[int, float]:
        """How many drivers failed in a row, and the seconds that are left of the pause for it, of a group without one.

        The seconds are negative since its end.
        """
        failures = failures_in_a_row(actual.launch, actual.heartbeat, _STABLE_SECONDS)
        restart = Restart()
        pause = pause_before(failures, restart.first_delay.total_seconds(), restart.longest_delay.total_seconds())
        # A beat of an earlier launch says nothing of the end of one that died before its own first.
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
    """What starts the driver of a group, where this starts a stream's own."""
    command = [_FORMER_NAMES.get(part, part) for part in command]
    if _STREAM_MODULE not in command and MODULE not in command:
        raise FrazilError(
            f"{COMMAND_VARIABLE} does not name {_STREAM_MODULE}, so how it starts the driver of a group is not known.",
            fix=f"have it end with `python -m {_STREAM_MODULE}`, in whose place {MODULE} is put; or `group: own`",
        )
    return tuple(MODULE if part == _STREAM_MODULE else part for part in command)


def known_groups(settings: Settings) -> list[str]:
    """The groups that anything is kept of, in order."""
    return sorted({key.split("/")[1] for key in state_store(settings).keys("groups/*/launch.json")})
