"""The harness that scenarios run in: it starts drivers, feeds them, waits, records kills and compares the tables."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.local.certify.drivers import Drivers, DriverWatch
from jobs.local.certify.load import Load
from jobs.local.certify.mirror_reader import MirrorReader
from jobs.local.certify.observation import Observation, Observer
from jobs.local.certify.results import ScenarioResult
from jobs.local.certify.scenario_plan import Scenario
from jobs.local.certify.workspace import Workspace
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat

COMMIT_SECONDS = 600.0
DEATH_SECONDS = 300.0
END_SECONDS = 180.0
ACTION_SECONDS = 600.0
_POLL_SECONDS = 0.25
_FEED_SECONDS = 0.75

OnProgress = Callable[[int, str, str], None]


class ScenarioFailedError(FrazilError):
    """A scenario of `frazil certify` did not end as the protocol requires.

    Safe: The report keeps what was observed.
    Next: read the report that the command names
    """


@dataclass(slots=True)
class _Kill:
    """A kill whose tables have yet to be compared.

    Attributes:
        epoch: The next driver's epoch is greater than this.
    """

    result: ScenarioResult
    observation: Observation
    epoch: int


class Harness:
    """Runs scenarios against one workspace.

    Args:
        workspace: Workspace with its topic and namespace.
        load: Load of its topic.
        observer: Observer of its tables.
        records: Number of records produced before every start; a quarter at a time while a driver works.
        on_progress: Called with the scenario's number (from 1), its failpoint, and what is waited for.
        mirror: Reader of its stream's mirror; None without a mirror.

    Attributes:
        at: The number of the scenario and its step.
        rolled: An action that rolls the stream has died, so it is to be given again.
        floor: Greatest epoch before the next driver, if another process may have started that one.
        merges: Number of published merges into the mirror at the end of the previous scenario.
        unmerged: The kill since which nothing was merged.
    """

    def __init__(
        self,
        workspace: Workspace,
        load: Load,
        observer: Observer,
        records: int,
        on_progress: OnProgress,
        mirror: MirrorReader | None = None,
    ) -> None:
        self.workspace: Workspace = workspace
        self.load: Load = load
        self.observer: Observer = observer
        self.drivers: Drivers = Drivers(workspace)
        self.at: tuple[int, str] = (0, "")
        self.rolled: bool = False
        self.floor: int | None = None
        self.mirror: MirrorReader | None = mirror
        self.merges: int = 0
        self.unmerged: ScenarioResult | None = None
        self._records: int = records
        self._tell: OnProgress = on_progress
        self._kills: list[_Kill] = []
        self._acted_at: float = 0.0

    def start(self, scenario: Scenario | None) -> tuple[DriverWatch, int]:
        """Start the next driver, with records waiting, armed for a scenario; None: nothing is armed.

        Returns:
            Its watch, and the greatest epoch before it.
        """
        self.say("records are produced")
        floor = self.observer.epoch() if self.floor is None else self.floor
        self.floor = None
        self.load.produce(self._records)
        moment = scenario is not None and scenario.manner == "early moment"
        watch = self.drivers.watch(scenario.delay if scenario is not None and moment else None)
        self.say("a driver starts")
        problem = self.drivers.give("roll" if self.rolled else "start", self.arming(scenario))
        if self.rolled:
            # The driver that made room may have landed all that waited, and ended.
            self.more()
        self.rolled = False
        if problem is None:
            self.wait(lambda: watch.note is not None, "the driver's process", END_SECONDS)
        elif not (watch.killed or (scenario is not None and watch.said(f"step {scenario.at}: "))):
            raise ScenarioFailedError(problem)
        return watch, floor

    def arming(self, scenario: Scenario | None) -> str:
        """Value of FRAZIL_STEPS for a scenario's driver."""
        if scenario is None:
            return ""
        if scenario.manner == "batch" and scenario.step.startswith("inside_") and self.observer.pending():
            # Committing from the pending record comes there as well.
            return f"{scenario.at}=kill@{scenario.passes + 1}"
        return scenario.arming

    def more(self) -> None:
        """Produce some more records of the load."""
        self.load.produce(max(1, self._records // 4))

    def feed(self, enough: Callable[[], bool], what: str, watch: DriverWatch, every: float = _FEED_SECONDS) -> None:
        """Produce records, a few at a time, until it is enough or the driver has died, so that batches go on."""

        def fed() -> bool:
            if enough() or watch.died_at is not None:
                return True
            self.more()
            return False

        self.wait(fed, what, DEATH_SECONDS, every)

    def stop(self) -> None:
        """Stop the stream, as an operator does.

        Raises:
            ScenarioFailedError: The stream cannot be stopped.
        """
        self.say("it is asked to stop")
        if problem := self.drivers.give("stop"):
            raise ScenarioFailedError(problem)

    def die_as_action(self, scenario: Scenario, action: str, arguments: list[str]) -> None:
        """Carry out an action in a process of its own, in which the scenario's step kills it.

        Raises:
            ScenarioFailedError: The process did not die there.
        """
        steps = f"{scenario.step}=kill@{scenario.passes}"
        status, said = self.drivers.run_action(action, arguments, steps=steps, seconds=ACTION_SECONDS)
        self._acted_at = time.time()
        if status != -signal.SIGKILL or f"step {scenario.step}: SIGKILL" not in said:
            raise ScenarioFailedError(f"The action ended with exit status {status}, not at the step: {last_line(said)}")

    def act(self, action: str) -> None:
        """Carry out an action in a process of its own, which is not killed.

        Raises:
            ScenarioFailedError: The action failed.
        """
        status, said = self.drivers.run_action(action, [], seconds=ACTION_SECONDS)
        if status != 0:
            raise ScenarioFailedError(f"The action {action} ended with exit status {status}: {last_line(said)}")

    def await_commit(self, floor: int, watch: DriverWatch, scenario: Scenario | None) -> bool:
        """Wait until the driver has committed a batch of its own.

        Args:
            floor: The greatest epoch before it.
            watch: Watch of the driver.
            scenario: Scenario for which it is armed.

        Returns:
            Whether it has; False if it has died at the scenario's step already.
        """

        def settled() -> bool:
            # Its heartbeat costs nothing to read; reading tables does, while it starts on few cores.
            beat = read_heartbeat(self.drivers.folder.store)
            works = beat is not None and watch.note is not None and beat.attempt == watch.note.attempt
            return watch.died_at is not None or (works and beat is not None and beat.work.batches > 0)

        self.wait(settled, "the first commit", COMMIT_SECONDS)
        if self.observer.now().first_commit(floor) is not None:
            return True
        if scenario is not None and watch.said(f"step {scenario.at}: "):
            return False
        raise ScenarioFailedError(self.last_words("The driver ended before it had committed anything."))

    def await_death(self, watch: DriverWatch, scenario: Scenario) -> None:
        """Wait until the driver has died at the scenario's step."""
        self.wait(lambda: watch.died_at is not None, f"its death at {scenario.step}", DEATH_SECONDS)
        if not watch.said(f"step {scenario.at}: SIGKILL"):
            raise ScenarioFailedError(self.last_words(f"The driver ended, and not at {scenario.at}."))

    def wait(self, condition: Callable[[], bool], what: str, seconds: float, every: float = _POLL_SECONDS) -> None:
        """Wait until the condition holds.

        Raises:
            ScenarioFailedError: The condition does not hold in time.
        """
        self.say(f"waits for {what}")
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ScenarioFailedError(self.last_words(f"Waited {seconds:.0f} s for {what}."))
            time.sleep(every)

    def record_kill(self, result: ScenarioResult, watch: DriverWatch | None, epoch: int | None = None) -> None:
        """Keep the tables as the kill left them.

        Args:
            result: Result of the scenario.
            watch: Watch of the killed driver; None if an action was killed.
            epoch: The next driver's epoch is greater than this; None for that of the newest lease.
        """
        observation = self.observer.now()
        if watch is not None:
            result.killed_at = watch.died_at
            result.from_record = self.observer.pending()
            result.replayed = self.observer.to_read_again(observation.position, watch.note.at if watch.note else 0.0)
        else:
            result.killed_at = self._acted_at
        self._kills.append(_Kill(result, observation, self.observer.epoch() if epoch is None else epoch))

    def settle(self, watch: DriverWatch) -> None:
        """Time the kills before, now that a driver has committed, and look at the tables as they left them.

        Raises:
            ScenarioFailedError: Something of an earlier driver is alive.
        """
        observation = self.observer.now()
        self.say("the tables are compared")
        expected = self.load.expected()
        for number, kill in enumerate(self._kills):
            later = self._kills[number + 1].result.killed_at if number + 1 < len(self._kills) else None
            committed_at, killed_at = observation.first_commit(kill.epoch), kill.result.killed_at
            # A kill followed by another one before a commit shows no time to recover.
            if committed_at and killed_at and kill.result.seconds is None and (later is None or committed_at < later):
                kill.result.seconds = max(0.0, committed_at - killed_at)
            kill.result.problems += kill.observation.problems(expected)
        self._kills = []
        living = watch.note.attempt if watch.note is not None else None
        if orphans := self.drivers.orphans(but=living):
            raise ScenarioFailedError(f"Processes of earlier drivers are alive: {', '.join(map(str, orphans))}.")

    def doing(self) -> str:
        """Activity that the newest driver last reported."""
        beat = read_heartbeat(self.drivers.folder.store)
        if beat is None or beat.attempt != self.drivers.attempt:
            return "before its first heartbeat"
        return f"{beat.state}, in a batch" if beat.work.busy_since is not None else beat.state

    def last_words(self, sentence: str) -> str:
        """A sentence, and the newest driver's error, if there is one."""
        beat = read_heartbeat(self.drivers.folder.store)
        return f"{sentence} Its last message: {beat.error.message}" if beat is not None and beat.error else sentence

    def say(self, waits_for: str) -> None:
        """Show what is under way."""
        self._tell(*self.at, waits_for)


def last_line(text: str) -> str:
    """Last line of a harness process's output that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it reported nothing")
