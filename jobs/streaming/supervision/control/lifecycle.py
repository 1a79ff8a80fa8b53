"""Lifecycle of a stream's drivers: one is asked to end and awaited, the next launched and awaited until it runs.

Whatever is written, and every launch, happens in short sections under the stream's control lock; waiting for a driver
happens outside. So an action that waits, or that is killed while it waits, keeps nobody from stopping the stream. Two
actions at once never make two drivers: each observes again, under the lock, before it launches.
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
from jobs.config.settings.groups import group_of, mixed_groups
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


_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_FILELESS = ("none", "unsure")


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an action came to.

    Attributes:
        sentence: For a person.
        heartbeat: The driver's newest; None if there never was one.
        facts: Figures of it, by their names, where it has any.
    """

    sentence: str
    heartbeat: Heartbeat | None
    facts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _UselessDriver:
    """A driver that was found where a new one is needed, and cannot be used.

    Attributes:
        now: The stream as it was found.
        driver: The driver.
        died: Whether it has ended without a last word; otherwise it has been asked to end.
    """

    now: Observation
    driver: Driver
    died: bool


class Lifecycle(DriverProcesses):
    """The drivers of one stream, from what is asked of it to a driver at work; takes what `DriverProcesses` takes."""

    def __init__(
        self, home: Path, settings_file: Path | None, stream: str, timeouts: Timeouts, command: Sequence[str]
    ) -> None:
        super().__init__(home, settings_file, stream, timeouts, command)
        self._judged: dict[str, SpecError | None] = {}

    def observe(self) -> Observation:
        """How the stream stands now. Reads files only.

        Raises:
            FrazilError: There is no such stream: neither a file nor anything that it left; or what is kept of it is
                damaged.
        """
        return self._observe(load_settings(self._settings_file, home=self._home))

    def _observe(self, settings: Settings) -> Observation:
        files = read_stream_files(self._streams)
        # Before its folder is looked for, which may be anywhere with such a name.
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
        """Ask the catalog about a changed file, if there is one, before any lock is taken: it may take seconds."""
        now = self.observe()
        with contextlib.suppress(FrazilError):
            # What is in the way is said when the configuration is wanted.
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
        """Hold the stream's control lock; yields how the stream stands.

        Raises:
            FrazilError: Another action keeps it; or there is no such stream.
        """
        settings = load_settings(self._settings_file, home=self._home)
        folder = stream_folder(settings, self._stream)
        if not (_NAME.fullmatch(self._stream) and folder.kept()):
            # There may be no such stream, and then nothing is made for it.
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
        """Write down what is wanted from here on, and that attempts up to `end_attempt` end after their batch."""
        former = now.control
        ended = max(former.end_attempt, end_attempt)
        # What the operator who stopped it had before, for whoever starts everything again.
        paused = former.reason if former.mode == "paused" else former.paused
        paused = paused if mode == "stopped" else None
        if mode == former.mode == "stopped":
            # Who has its driver end is not who stopped it.
            reason, by = former.reason, former.by
        write_control(now.folder.store, ControlRequest(mode, ended, action, reason, by, time.time(), paused), former)
        step("after_wish")

    def launchable(self, now: Observation) -> Configuration:
        """What a driver would be launched with: not with a changed file that the stream's table cannot hold.

        Raises:
            FrazilError: The stream is to have no driver, or something else lands its records now.
        """
        config = self._configuration(now)
        if not config.spec.continuous:
            raise FrazilError(
                f"stream {self._stream} has the trigger available_now, so no driver runs it: it is drained when "
                "somebody asks for it.",
                fix=f"frazil run {self._stream}",
            )
        now.refuse_other_holder()
        self.refuse_mixed(config, now.settings)
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
        """See `replaced` to its end, and launch a driver unless one lives; then wait until it is at work.

        It begins again if the driver that it finds has ended, or is about to. Each time that is another driver, so it
        needs no limit.

        Args:
            before: How the stream stood when that was asked for.
            replaced: Has been asked to end already.
            count_failures: Whether launches that failed in a row are counted on.
            resumed: Whether a driver that lives was not to run before.
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
        """One round of `bring_up`, once the driver to be replaced has ended.

        Args:
            reason: Why a driver is launched.
            ended: How the driver before ended, as a sentence of the result.
            ended_attempt: The newest attempt that is known to have ended; 0 if none is. Its last heartbeat may be so
                young that the stream's documents take it for alive.
            count_failures: As in `bring_up`.
            already: Whether a driver that lives was to run before.

        Returns:
            What came of it; or the driver that was found and has ended, or is about to.

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
                    # It was there before, or another action was quicker.
                    launching = found
                else:
                    return ActionResult(f"{self._stream} runs already: {driver.name}.{ended}", driver.heartbeat)
            if driver is not None and now.ending:
                # Yet another action has asked that driver to end meanwhile.
                return _UselessDriver(now, driver, died=False)
            step("before_first_beat")
            try:
                beat = self._await_ready(now, launching)
            except FrazilError:
                if driver is None or not launching.died_silently():
                    raise
                # It was about to die when it was found, as by SIGKILL; that is what the stream is looked after for.
                return _UselessDriver(now, driver, died=True)
            if beat is None:
                return ActionResult(f"{self._stream} {launching.unheard}.{ended}{note}", None)
            if now.control.mode == "running" and beat.state == "paused":
                beat = self._await_resumed(launching, beat)
            state = _state_of(beat, already and driver is not None)
            return ActionResult(f"{self._stream} {state}.{ended}{note}", beat)

    def _held_back(self, now: Observation) -> str:
        """What is wrong with the file of a stream whose driver runs on as it was."""
        with contextlib.suppress(FrazilError):
            return self.launchable(now).note
        return ""

    def _await_ready(self, now: Observation, launching: LaunchedDriver) -> Heartbeat | None:
        try:
            return await_ready(launching, self._timeouts)
        except FrazilError as problem:
            later = read_control(now.folder.store)
            if later == now.control:
                # The end of the driver's output is part of it, and may quote anything.
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
        return f"tries again by itself ({beat.error.message if beat.error else 'something is away'}): {who}"
    if beat.state == "starting":
        return f"is still starting: {who}; its log is {beat.log}"
    return f"runs{' already' if already else ''}: {who}"
