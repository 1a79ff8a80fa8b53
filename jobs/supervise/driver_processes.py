"""Processes of a stream's drivers: launched, its own or its group's, and seen to their end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from jobs.errors import FrazilError
from jobs.spec.settings import Settings
from jobs.spec.trigger import OWN, group_of, mixed_groups
from jobs.supervise.actual import read_certain
from jobs.supervise.configuration import Configuration
from jobs.supervise.desired import read_stream_files
from jobs.supervise.driver import Driver
from jobs.supervise.driver_session import end_leftovers
from jobs.supervise.groups import DriverGroup
from jobs.supervise.launcher import LaunchedDriver, given_to_group, launched_driver
from jobs.supervise.launchers.choice import chosen_launcher, launcher_of, looker
from jobs.supervise.launchers.launcher import DriverOrder
from jobs.supervise.launchers.local_process import OUTPUT
from jobs.supervise.launches import Launch, deaths_in_a_row, failures_in_a_row, read_launched_process
from jobs.supervise.observation import Observation
from jobs.supervise.termination import Timeouts, end_driver, end_in_group


class DriverProcesses:
    """The processes that drive one stream.

    Args:
        home: The deployment's folder.
        settings_file: Its settings; None for the default place.
        stream: The stream's id.
        timeouts: How long to wait for what.
        command: What starts a driver; the arguments that say which follow it.
    """

    def __init__(
        self, home: Path, settings_file: Path | None, stream: str, timeouts: Timeouts, command: Sequence[str]
    ) -> None:
        self._home: Path = home
        self._streams: Path = home / "streams"
        self._settings_file: Path | None = settings_file
        self._stream: str = stream
        self._timeouts: Timeouts = timeouts
        self._command: tuple[str, ...] = tuple(command)

    @contextlib.contextmanager
    def launched(
        self, now: Observation, config: Configuration, reason: str, count_failures: bool
    ) -> Iterator[LaunchedDriver]:
        """Launch a driver, under the stream's control lock; or give the stream to its group's, which is started first.

        Args:
            now: The stream, as it was observed.
            config: What the driver is to run.
            reason: Why.
            count_failures: Whether launches that failed in a row are counted on.

        Raises:
            GroupRollsError: The driver of the group has to end first; it has been asked to.
            FrazilError: The stream must not be in its group, or nothing could be started.
        """
        actual, former = now.actual, now.actual.launch
        end_leftovers(actual.launched_process, self._stream)
        same = former is not None and former.generation == config.generation
        stable = config.spec.restart.stable_after.total_seconds()
        launch = Launch(
            attempt=now.last_attempt + 1,
            generation=config.generation,
            file=str(config.file),
            failures=failures_in_a_row(former, actual.heartbeat, stable) if count_failures and same else 0,
            at=time.time(),
            reason=reason,
            kept=former.kept if former is not None else 0,
            kept_newest=former.kept_newest if former is not None else (),
            group=group_of(config.spec, now.settings),
            deaths=deaths_in_a_row(former, actual.heartbeat) if count_failures and same else 0,
        )
        if launch.group is not None:
            group = DriverGroup.of(now.settings, launch.group)
            given = (self._home, self._settings_file, self._command, reason, self._timeouts)
            process = group.ensure(*given, count_failures=count_failures)
            who = (self._stream, process, group.folder.root, launcher_of(process, now.settings))
            with given_to_group(now.folder, launch, config.text, *who) as launching:
                yield launching
            return
        settings = ("--settings", str(self._settings_file)) if self._settings_file else ()
        given = ("--home", str(self._home), *settings, "--stream", self._stream)
        order = DriverOrder(self._stream, launch, now.folder.root, self._command, given)
        with launched_driver(now.folder, order, config.text, chosen_launcher(now.settings)) as launching:
            yield launching

    def end(self, now: Observation, driver: Driver) -> str:
        """See a driver to its end, which has been asked to; returns how it ended, as the end of a sentence."""

        def find() -> Driver | None:
            return read_certain(now.folder.store, self._stream, looker(now.settings)).driver

        launcher = launcher_of(driver.process, now.settings)
        if driver.group is None or launcher is None:
            return end_driver(self._stream, driver, self._timeouts, find, launcher)
        if (how := end_in_group(self._stream, driver, self._timeouts, find)) is not None:
            return how
        group = DriverGroup.of(now.settings, driver.group)
        if driver.heartbeat is None and group.actual().fresh:
            raise FrazilError(
                f"stream {self._stream}: attempt {driver.attempt} was not begun yet by the driver of group "
                f"{group.name}, which is at work; it will not begin it any more.",
                fix=f"run this again; {group.folder.root / OUTPUT} and logs/driver.log beside it say what it waits for",
            )
        launched = read_launched_process(group.folder.store)
        attempt = launched.attempt if launched is not None else 0
        launcher.end(msgspec.structs.replace(driver.process, attempt=attempt), group.label, 0.0)
        return f"did not end: the driver of group {group.name} was killed, and its streams are started again"

    def refuse_mixed(self, config: Configuration, settings: Settings) -> None:
        """Refuse a configuration that must not be in its group, as its file and those of others stand.

        Raises:
            FrazilError: It names other secrets than the streams of its group.
        """
        if group_of(config.spec, settings) is None:
            return
        others = read_stream_files(self._streams).specs
        for spec, sentence in mixed_groups([*({**others, self._stream: config.spec}).values()], settings):
            if spec.stream == self._stream:
                raise FrazilError(f"{config.file}: {sentence}.", fix=f"give it another group, or `group: {OWN}`")

    def found(self, now: Observation, driver: Driver) -> LaunchedDriver | None:
        """A driver that was there before, to be waited for; None if it is a process of another machine."""
        process = driver.process
        launcher = launcher_of(process, now.settings)
        if launcher is None:
            return None
        group = None if driver.group is None else DriverGroup.of(now.settings, driver.group).folder.root
        return LaunchedDriver(now.folder, self._stream, driver.attempt, process, launcher, group)
