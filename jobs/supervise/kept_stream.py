"""Keeper's actions when something has happened to its driver: observe, decide, and launch the next one.

It acts as any control action does: under the stream's control lock, where it observes again, and it gives way to
whoever was quicker. It launches what was launched, so nothing is read here but the state folder. Keepers of earlier
releases import this module by its name.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

# A keeper that was started by an earlier release has that release's modules in memory, beside which these do not work:
# it begins anew with its order.
if "jobs.supervise.keeper_note" in sys.modules:
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

from jobs.errors import FrazilError
from jobs.state.stream_folder import StreamFolder
from jobs.steps import step
from jobs.supervise.actual import ActualState, UnreadableStateError, read_certain
from jobs.supervise.control_request import LOCK, read_control
from jobs.supervise.driver_session import end_leftovers, kill_session
from jobs.supervise.heartbeat import HEARTBEAT_SECONDS
from jobs.supervise.keeper_decision import KeeperDecision, KeeperObservation, RestartPolicy, decide_restart
from jobs.supervise.keeper_record import write_keeper
from jobs.supervise.launcher import driver_command, launched_driver
from jobs.supervise.launchers.launcher import DriverOrder
from jobs.supervise.launchers.local_process import LocalProcesses, reap_drivers
from jobs.supervise.launches import SPEC_FILE, KeptRestart, Launch
from jobs.system.locks import exclusive
from jobs.system.processes import is_alive

_POLL_SECONDS = 0.5
_LOCK_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
_FIRST_HEARTBEAT_SECONDS = 180.0
_OBSERVE_SECONDS = 1.0
# So often in a row a driver has to look frozen: one that only could not write until now is heard of in between.
_FROZEN_OBSERVATIONS = 4
_KEPT_NEWEST = 5


class KeptStream:
    """A stream whose driver is kept.

    Args:
        order: What the driver said when it started its keeper.

    Attributes:
        pid, started: The process of the driver that is kept.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._folder: StreamFolder = _folder(order)
        self._stream: str = order["stream"]
        self._attempt: int = order["attempt"]
        self._arguments: list[str] = order["arguments"]
        self._policy: RestartPolicy = msgspec.convert(order["policy"], RestartPolicy)
        self._launched_at: float | None = None
        self.pid: int = order["pid"]
        self.started: str = order["started"]

    def run_once(self) -> bool:
        """Do what there is to do now; returns whether there is a driver to wait for.

        It never raises for what it finds: a keeper that gives up leaves its stream to the supervisor.
        """
        try:
            if is_alive(self.pid, self.started):
                return self._observe_living()
            return self._restart(f"attempt {self._attempt} (process {self.pid}) ended without a last word")
        except (UnreadableStateError, OSError) as problem:
            if not self._folder.store.shared:
                return self._end(str(problem))
            if not self._folder.root.is_dir():
                return self._end("the deployment was taken away")
            # A service comes back, and then it is known again what was asked of the stream.
            self._report(f"waits: {problem}")
            time.sleep(_AGAIN_SECONDS)
            return True
        except FrazilError as problem:
            return self._end(problem.message)
        finally:
            reap_drivers()

    def _observe_living(self) -> bool:
        """Go on waiting for a driver that beats, and end one that is frozen or never began to beat."""
        frozen_for = 0
        while is_alive(self.pid, self.started):
            actual = read_certain(self._folder.store, self._stream)
            beat = actual.heartbeat
            own = beat is not None and beat.attempt == self._attempt
            if own and actual.heartbeat_age <= HEARTBEAT_SECONDS * 2:
                return True
            decision = self._decision(actual, living=True)
            if not decision.restart:
                if actual.launch is None or actual.launch.attempt != self._attempt:
                    return self._end(decision.why)
                # Whoever asked it to end sees to that.
                frozen_for = 0
            elif not own:
                if self._launched_at is not None and time.monotonic() - self._launched_at > _FIRST_HEARTBEAT_SECONDS:
                    return self._end_and_restart(f"attempt {self._attempt} (process {self.pid}) gave no heartbeat")
            else:
                frozen_for = frozen_for + 1 if self._looks_frozen(actual) else 0
                if frozen_for >= _FROZEN_OBSERVATIONS:
                    return self._end_and_restart(
                        f"attempt {self._attempt} (process {self.pid}) was frozen: it had not beaten for "
                        f"{actual.heartbeat_age:.0f} s, and its lease had run out"
                    )
            time.sleep(_OBSERVE_SECONDS)
        return True

    def _looks_frozen(self, actual: ActualState) -> bool:
        """Whether the driver neither beats nor holds its lease, though both could be written."""
        if actual.fresh or actual.holds_lease:
            return False
        try:
            write_keeper(self._folder.store.local, self._attempt)
            if self._folder.store.shared:
                write_keeper(self._folder.store, self._attempt)
        except OSError:
            # Disk full, or store away: a driver that is well cannot write either then, and waits.
            return False
        return True

    def _end_and_restart(self, why: str) -> bool:
        kill_session(self.pid, self.started, self._stream, self._attempt)
        return self._restart(f"{why}, and was killed")

    def _restart(self, why: str) -> bool:
        """Launch the next driver, after the pause that its failures ask for; returns whether it was launched here."""
        step("keeper_saw_death")
        died = time.monotonic()
        actual = read_certain(self._folder.store, self._stream)
        beat = actual.heartbeat
        if self._launched_at is not None and (beat is None or beat.attempt < self._attempt):
            # Another one would end there as well, as with a mistake in the settings: the supervisor knows more.
            return self._end(f"attempt {self._attempt}, which it had launched, ended before its first heartbeat")
        decision = self._decision(actual)
        if decision.restart:
            self._report(f"{why}; it is started again" + (f" in {decision.pause:.0f} s" if decision.pause else ""))
            # Where this cannot be written, the supervisor starts the stream, or the keeper does: who is first.
            with contextlib.suppress(OSError):
                write_keeper(self._folder.store.local, self._attempt, decision.pause)
        while decision.restart:
            left = decision.pause - (time.monotonic() - died)
            if left <= 0:
                try:
                    return self._launch(why)
                except (OSError, UnreadableStateError) as problem:
                    self._report(f"it could not be started: {problem}")
                    left = _AGAIN_SECONDS
            time.sleep(min(left, _POLL_SECONDS if left < _AGAIN_SECONDS else _AGAIN_SECONDS))
            decision = self._decision(read_certain(self._folder.store, self._stream))
        return False if decision.expected else self._end(decision.why)

    def _launch(self, why: str) -> bool:
        with exclusive(self._folder.root / LOCK, deadline_seconds=_LOCK_SECONDS):
            actual = read_certain(self._folder.store, self._stream)
            decision, former = self._decision(actual), actual.launch
            if not decision.restart or former is None:
                return self._end(decision.why)
            step("keeper_before_launch")
            end_leftovers(actual.launched_process, self._stream)
            attempt, now = self._attempt + 1, time.time()
            launch = Launch(
                attempt=attempt,
                generation=former.generation,
                file=former.file,
                failures=decision.failures,
                at=now,
                reason=f"its keeper: {why}",
                kept=former.kept + 1,
                kept_newest=(*former.kept_newest, KeptRestart(attempt, now, why))[-_KEPT_NEWEST:],
            )
            text = (self._folder.root / SPEC_FILE).read_text(encoding="utf-8")
            given = tuple(self._arguments)
            order = DriverOrder(self._stream, launch, self._folder.root, driver_command(), given)
            with launched_driver(self._folder, order, text, LocalProcesses()) as launching:
                process = launching.process
                self._attempt, self.pid, self.started = attempt, process.pid, process.started
        step("keeper_after_launch")
        self._launched_at = time.monotonic()
        with contextlib.suppress(OSError):
            write_keeper(self._folder.store.local, attempt)
        return True

    def _decision(self, actual: ActualState, *, living: bool = False) -> KeeperDecision:
        """What is to be done if the driver is gone; `living`: it is not, and is left out of account."""
        launch = actual.launch
        seen = KeeperObservation(
            self._attempt,
            read_control(self._folder.store),
            launch,
            actual.launched_process,
            actual.heartbeat,
            driven=not living and actual.driver is not None,
            held=not living and actual.other_holder is not None,
            named=launch is None or Path(launch.file).exists(),
        )
        return decide_restart(seen, self._policy)

    def _end(self, why: str) -> bool:
        self._report(f"ends: {why}")
        return False

    def _report(self, sentence: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{at} keeper of attempt {self._attempt}: {sentence}", file=sys.stderr, flush=True)


def _folder(order: dict[str, Any]) -> StreamFolder:
    root = Path(order["folder"])
    if "store" not in order:
        return StreamFolder.at(root)
    # Imported here: only who shares its state needs a client.
    from jobs.spec.state import StateSettings
    from jobs.state.chosen_store import shared_store

    state = Path(order["state"])
    store = shared_store(StateSettings.model_validate(order["store"]), state)
    return StreamFolder(root, store.below(root.relative_to(state).as_posix()))
