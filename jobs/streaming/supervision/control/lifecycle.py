"""Lifecycle of a stream's drivers: end one and wait, launch the next and wait until it runs.

Writes and launches happen in short sections under the stream's control lock, and waiting happens outside. So an action
that waits, or that is killed while it waits, does not keep anybody from stopping the stream. Two concurrent actions
never make two drivers: each observes again, under the lock, before it launches.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import private_folder
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.documents.validation import SpecError
from jobs.config.redaction import redacted
from jobs.config.services.trigger import OWN
from jobs.config.settings.generation import generation
from jobs.config.settings.groups import group_of, mixed_groups
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.supervision.documents.control_request import (
    LOCK,
    ControlRequest,
    DesiredMode,
    read_control,
    write_control,
)
from jobs.streaming.supervision.documents.driver_session import end_leftovers
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedElsewhereError,
    deaths_in_a_row,
    failures_in_a_row,
    read_launched_process,
)
from jobs.streaming.supervision.documents.waiting import wait_until
from jobs.streaming.supervision.launchers.choice import chosen_launcher, launcher_of, looker
from jobs.streaming.supervision.launchers.launcher import DriverOrder
from jobs.streaming.supervision.launchers.local_process import OUTPUT
from jobs.streaming.supervision.processes.actual import Driver, read_certain
from jobs.streaming.supervision.processes.groups import DriverGroup, GroupRollsError
from jobs.streaming.supervision.processes.launcher import (
    LaunchedDriver,
    await_ready,
    final_error,
    given_to_group,
    launched_driver,
)
from jobs.streaming.supervision.processes.termination import Timeouts, end_driver, end_in_group
from jobs.streaming.supervision.state.configuration import Configuration, configuration
from jobs.streaming.supervision.state.desired import read_stream_files
from jobs.streaming.supervision.state.observation import Observation, observe


class DriverProcesses:
    """Processes that drive one stream.

    Args:
        home: The deployment's folder.
        settings_file: Settings file; None for the default path.
        stream: The stream's id.
        timeouts: Timeouts of waiting.
        command: Command that starts a driver; its arguments are appended.
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
        """Launch a driver, under the stream's control lock; or give the stream to its group, which is started first.

        Args:
            now: Present observation of the stream.
            config: Configuration for the driver.
            reason: Reason of the launch.
            count_failures: Whether to continue the count of consecutive failed launches.

        Raises:
            GroupRollsError: The driver of the group has to end first; its end was requested.
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
        """Wait for a driver whose end was requested; returns how it ended, as the end of a sentence."""

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
        """Refuse a configuration that must not be in its group, by its present file and those of others.

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
        """A driver that was launched earlier, to wait for; None if it runs on another machine."""
        process = driver.process
        launcher = launcher_of(process, now.settings)
        if launcher is None:
            return None
        group = None if driver.group is None else DriverGroup.of(now.settings, driver.group).folder.root
        return LaunchedDriver(now.folder, self._stream, driver.attempt, process, launcher, group)


_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_FILELESS = ("none", "unsure")


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Result of an action.

    Attributes:
        sentence: Sentence for a person.
        heartbeat: Newest heartbeat of the driver; None if there never was one.
        facts: Figures by name, if the action has any.
    """

    sentence: str
    heartbeat: Heartbeat | None
    facts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _UselessDriver:
    """A driver that cannot be used, found where a new one is needed.

    Attributes:
        now: Observation of the stream.
        driver: The driver.
        died: Whether it ended without a last heartbeat; otherwise its end was requested.
    """

    now: Observation
    driver: Driver
    died: bool


class Lifecycle(DriverProcesses):
    """Drivers of one stream, from a request to a running driver; takes the arguments of `DriverProcesses`.

    Args:
        expected: The only generation that is launched; None for that of the file.
    """

    def __init__(
        self,
        home: Path,
        settings_file: Path | None,
        stream: str,
        timeouts: Timeouts,
        command: Sequence[str],
        expected: str | None = None,
    ) -> None:
        super().__init__(home, settings_file, stream, timeouts, command)
        self._expected: str | None = expected
        self._kept: Configuration | None = None
        self._judged: dict[str, SpecError | None] = {}

    def observe(self) -> Observation:
        """Present state of the stream. Reads files only.

        Raises:
            FrazilError: There is no such stream, neither a file nor anything left of it, or its state is damaged.
        """
        return self._observe(load_settings(self._settings_file, home=self._home))

    def _observe(self, settings: Settings) -> Observation:
        files = read_stream_files(self._streams)
        # Checked before its folder is looked up, as the name may be a path to anywhere.
        observed = observe(self._stream, files, settings) if _NAME.fullmatch(self._stream) else None
        if observed is None or (observed.desired.file in _FILELESS and not observed.folder.kept()):
            close = difflib.get_close_matches(self._stream, files.specs, n=1)
            known = f"; it has {', '.join(sorted(files.specs))}." if files.specs else "."
            raise FrazilError(
                f"There is no stream '{self._stream}' in {self._streams}{known}",
                fix=f"did you mean {close[0]}?" if close else "frazil status",
            )
        if observed.actual.problem:
            raise FrazilError(observed.actual.problem, fix=observed.actual.fix)
        return observed

    def prepare(self) -> None:
        """Check a changed file against the catalog, before any lock is taken: it may take seconds."""
        now = self.observe()
        with contextlib.suppress(FrazilError):
            # Problems are reported when the configuration is needed.
            self._configuration(now)

    def _configuration(self, now: Observation) -> Configuration:
        return configuration(now, self._streams, lambda config: self._judge(now, config))

    def _judge(self, now: Observation, config: Configuration) -> SpecError | None:
        if config.generation not in self._judged:
            # Imported here: most actions meet no changed file, and this imports PyIceberg.
            from jobs.streaming.supervision.state.spec_check import check_spec

            try:
                self._judged[config.generation] = check_spec(config.spec, config.file, now.settings)
            except FrazilError as problem:
                message = f"it is not known whether the stream's table can hold it: {problem.message}"
                self._judged[config.generation] = SpecError(
                    [f"{config.file}: {message}"], fix=problem.fix or "frazil validate", path=config.file
                )
        return self._judged[config.generation]

    @contextlib.contextmanager
    def section(self) -> Iterator[Observation]:
        """Hold the stream's control lock; yields the present state of the stream.

        Raises:
            FrazilError: Another action holds the lock, or there is no such stream.
        """
        settings = load_settings(self._settings_file, home=self._home)
        folder = stream_folder(settings, self._stream)
        if not (_NAME.fullmatch(self._stream) and folder.kept()):
            # There may be no such stream, and then no folder is created for it.
            folder = self._observe(settings).folder
        private_folder(folder.root)
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(exclusive(folder.root / LOCK, deadline_seconds=self._timeouts.lock_seconds))
            except TimeoutError:
                raise FrazilError(
                    f"Another action on stream {self._stream} is under way: it holds {folder.root / LOCK}.",
                    fix=f"wait a moment and run this again; `fuser {folder.root / LOCK}` names the process",
                ) from None
            yield self._observe(settings)

    def request(
        self, now: Observation, action: str, reason: str, by: str, *, mode: DesiredMode, end_attempt: int = 0
    ) -> None:
        """Store the desired mode, and that attempts up to `end_attempt` end after their batch."""
        former = now.control
        ended = max(former.end_attempt, end_attempt)
        # Keeps the earlier state of a stopped stream, for a start of all streams.
        paused = former.reason if former.mode == "paused" else former.paused
        paused = paused if mode == "stopped" else None
        if mode == former.mode == "stopped":
            # Ending its driver does not change who stopped the stream.
            reason, by = former.reason, former.by
        write_control(now.folder.store, ControlRequest(mode, ended, action, reason, by, time.time(), paused), former)
        step("after_wish")

    def launchable(self, now: Observation) -> Configuration:
        """Configuration for a launch; not a changed file that the stream's table cannot hold.

        Raises:
            FrazilError: The stream must have no driver, or something else lands its records now.
        """
        config = self._configuration(now) if self._expected is None else self._as_expected(now, self._expected)
        if not config.spec.continuous:
            raise FrazilError(
                f"stream {self._stream} has the trigger available_now, so no driver runs it: it runs on request.",
                fix=f"frazil run {self._stream}",
            )
        now.refuse_other_holder()
        self.refuse_mixed(config, now.settings)
        return config

    def _as_expected(self, now: Observation, expected: str) -> Configuration:
        """Configuration of the expected generation. Once read it is kept, also if the file changes before the launch.

        Raises:
            FrazilError: The file or the settings have another generation.
        """
        config = self._kept or self._configuration(now)
        runs = generation(config.spec, now.settings)
        if self._kept is None and runs == expected:
            # The text was read after the spec: a file that changed in between is noticed here.
            runs = generation(load_stream(config.file), now.settings)
        if runs != expected:
            raise FrazilError(
                f"stream {self._stream}: {config.file.name} or the settings have changed since the plan was shown: "
                f"generation {expected} was shown, and it is {runs} now. "
                f"{'Its driver was left as it is' if now.driver is not None else 'No driver was started'}.",
                fix=f"frazil apply {self._stream}",
            )
        self._kept = config
        return config

    def bring_up(
        self,
        before: Observation,
        replaced: Driver | None,
        reason: str,
        *,
        count_failures: bool = False,
        resumed: bool = False,
    ) -> ActionResult:
        """Wait for `replaced` to end, launch a driver unless one lives, and wait until it runs.

        It begins again if the driver that it finds has ended, or is about to. As that is another driver each time,
        there is no limit.

        Args:
            before: Observation at the request.
            replaced: Driver whose end was requested already.
            count_failures: Whether to continue the count of consecutive failed launches.
            resumed: Whether a living driver was not supposed to run before.
        """
        now, ended, ended_attempt = before, "", 0
        while True:
            if replaced is not None:
                ended = f" Attempt {replaced.attempt} {self.end(now, replaced)}."
                ended_attempt = replaced.attempt
                step("between_drivers")
            already = replaced is None and not resumed
            try:
                outcome = self._bring_up(reason, ended, ended_attempt, count_failures=count_failures, already=already)
            except GroupRollsError as problem:
                problem.group.end(problem.driver, self._timeouts)
                replaced = None
                continue
            if isinstance(outcome, ActionResult):
                return outcome
            now, replaced = outcome.now, None if outcome.died else outcome.driver
            ended_attempt = outcome.driver.attempt if outcome.died else ended_attempt

    def _bring_up(
        self, reason: str, ended: str, ended_attempt: int, *, count_failures: bool, already: bool
    ) -> ActionResult | _UselessDriver:
        """One round of `bring_up`, after the replaced driver has ended.

        Args:
            reason: Reason of a launch.
            ended: How the former driver ended, as a sentence of the result.
            ended_attempt: Newest attempt that is known to have ended; 0 for none. Its last heartbeat may be so recent
                that the stream's documents still count it as alive.
            count_failures: As in `bring_up`.
            already: Whether a living driver was supposed to run before.

        Returns:
            The result; or the driver that was found and has ended, or is about to.

        Raises:
            GroupRollsError: The driver of the stream's group has to end first.
        """
        with contextlib.ExitStack() as stack:
            with self.section() as now:
                now.refuse_stopped()
                driver, note = now.driver, ""
                if driver is not None and driver.attempt <= ended_attempt:
                    driver = None
                if driver is None:
                    config = self.launchable(now)
                    note = config.note
                    try:
                        if now.actual.launched_elsewhere:
                            raise LaunchedElsewhereError(f"another machine launched attempt {now.last_attempt}.")
                        launching = stack.enter_context(self.launched(now, config, reason, count_failures))
                    except LaunchedElsewhereError as problem:
                        return ActionResult(
                            f"{self._stream} is started elsewhere: {problem.message}{ended}", now.heartbeat
                        )
                elif (found := self.found(now, driver)) is not None:
                    note = self._held_back(now)
                    # It was running before, or another action was quicker.
                    launching = found
                else:
                    return ActionResult(f"{self._stream} runs already: {driver.name}.{ended}", driver.heartbeat)
            if driver is not None and now.ending:
                # Another action has requested the end of that driver meanwhile.
                return _UselessDriver(now, driver, died=False)
            step("before_first_beat")
            try:
                beat = self._await_ready(now, launching)
            except FrazilError:
                if driver is None or not launching.died_silently():
                    raise
                # It was dying when it was found, such as by SIGKILL. The supervision of the stream handles this.
                return _UselessDriver(now, driver, died=True)
            if beat is None:
                return ActionResult(f"{self._stream} {launching.unheard}.{ended}{note}", None)
            if now.control.mode == "running" and beat.state == "paused":
                beat = self._await_resumed(launching, beat)
            state = _state_of(beat, already and driver is not None)
            return ActionResult(f"{self._stream} {state}.{ended}{note}", beat)

    def _held_back(self, now: Observation) -> str:
        """What is wrong with the file of a stream whose driver keeps its configuration."""
        with contextlib.suppress(FrazilError):
            return self.launchable(now).note
        return ""

    def _await_ready(self, now: Observation, launching: LaunchedDriver) -> Heartbeat | None:
        try:
            return await_ready(launching, self._timeouts)
        except FrazilError as problem:
            later = read_control(now.folder.store)
            if later == now.control:
                # The message includes the end of the driver's output, which may quote anything.
                raise FrazilError(redacted(now.settings, problem.message), fix=problem.fix) from None
            raise FrazilError(
                f"stream {self._stream}: {later.action} by {later.by} ({later.reason}) came while its driver started.",
                fix=f"frazil status {self._stream}",
            ) from None

    def _await_resumed(self, launching: LaunchedDriver, paused: Heartbeat) -> Heartbeat:
        def resumed() -> bool:
            return (launching.heartbeat() or paused).state != "paused" or not launching.lives()

        wait_until(resumed, self._timeouts.ready_seconds)
        beat = launching.heartbeat() or paused
        if beat.final or not launching.lives():
            raise final_error(launching, beat)
        return beat


def _state_of(beat: Heartbeat, already: bool) -> str:
    who = f"process {beat.pid} on {beat.host}, attempt {beat.attempt}, generation {beat.generation}"
    if beat.state == "paused":
        return f"is paused: {who}"
    if beat.state == "retrying":
        return f"tries again by itself ({beat.error.message if beat.error else 'something is unavailable'}): {who}"
    if beat.state == "starting":
        return f"is still starting: {who}; its log is {beat.log}"
    return f"runs{' already' if already else ''}: {who}"
