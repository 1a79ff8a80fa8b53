"""What a keeper does when something has happened to its driver: looks, judges, and launches the next one.

It acts as any control action does: under the stream's control lock, where it looks again, and it gives way to whoever
was quicker. It launches what was launched, so nothing is read here but the state folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from jobs.supervise import keeper_note

# A keeper that was started by an earlier release has that release's modules in memory, beside which these do not work:
# it begins anew with its order.
if not hasattr(keeper_note, "KEY"):
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

from jobs.errors import FrazilError
from jobs.state.paths import StreamFolder
from jobs.steps import step
from jobs.supervise.actual import ActualState, UnreadableStateError, read_certain
from jobs.supervise.control import LOCK, read_control
from jobs.supervise.ending import end_leftovers, kill_session
from jobs.supervise.heartbeat import BEAT_SECONDS
from jobs.supervise.keeper_note import write_keeper
from jobs.supervise.keeping import Policy, Seen, Verdict, judge
from jobs.supervise.launcher import driver_command, launched, reap
from jobs.supervise.launches import SPEC_FILE, KeptRestart, Launch
from jobs.system.locks import exclusive
from jobs.system.processes import is_alive

_POLL_SECONDS = 0.5
_LOCK_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
_FIRST_BEAT_SECONDS = 60.0
_LOOK_SECONDS = 1.0
# So often in a row a driver has to look frozen: one that only could not write until now is heard of in between.
_LOOKS = 4
_TOLD = 5


class KeptStream:
    """A stream whose driver is kept.

    Args:
        order: What the driver said when it started its keeper.

    Attributes:
        pid, started: The process of the driver that is kept.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._folder: StreamFolder = StreamFolder.at(Path(order["folder"]))
        self._stream: str = order["stream"]
        self._attempt: int = order["attempt"]
        self._arguments: list[str] = order["arguments"]
        self._policy: Policy = msgspec.convert(order["policy"], Policy)
        self._launched_at: float | None = None
        self.pid: int = order["pid"]
        self.started: str = order["started"]

    def look_after(self) -> bool:
        """Do what there is to do now; returns whether there is a driver to wait for.

        It never raises for what it finds: a keeper that gives up leaves its stream to the supervisor.
        """
        try:
            if is_alive(self.pid, self.started):
                return self._look_at_living()
            return self._restart(f"attempt {self._attempt} (process {self.pid}) ended without a last word")
        except FrazilError as problem:
            return self._leave(problem.message)
        except OSError as problem:
            return self._leave(str(problem))
        finally:
            reap()

    def _look_at_living(self) -> bool:
        """Go on waiting for a driver that beats, and end one that is frozen or never began to beat."""
        looks = 0
        while is_alive(self.pid, self.started):
            actual = read_certain(self._folder.store, self._stream)
            beat = actual.heartbeat
            mine = beat is not None and beat.attempt == self._attempt
            if mine and actual.heartbeat_age <= BEAT_SECONDS * 2:
                return True
            verdict = self._judged(actual, living=True)
            if not verdict.restart:
                if actual.launch is None or actual.launch.attempt != self._attempt:
                    return self._leave(verdict.why)
                # Whoever asked it to end sees to that.
                looks = 0
            elif not mine:
                if self._launched_at is not None and time.monotonic() - self._launched_at > _FIRST_BEAT_SECONDS:
                    return self._end_and_restart(f"attempt {self._attempt} (process {self.pid}) gave no heartbeat")
            else:
                looks = looks + 1 if self._looks_frozen(actual) else 0
                if looks >= _LOOKS:
                    return self._end_and_restart(
                        f"attempt {self._attempt} (process {self.pid}) was frozen: it had not beaten for "
                        f"{actual.heartbeat_age:.0f} s, and its lease had run out"
                    )
            time.sleep(_LOOK_SECONDS)
        return True

    def _looks_frozen(self, actual: ActualState) -> bool:
        """Whether the driver neither beats nor holds its lease, though both could be written."""
        if actual.fresh or actual.holds_lease:
            return False
        try:
            write_keeper(self._folder.store, self._attempt)
        except OSError:
            # The disk is full, or away: a driver that is well cannot write either then, and waits for room.
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
            return self._leave(f"attempt {self._attempt}, which it had launched, ended before its first heartbeat")
        verdict = self._judged(actual)
        if verdict.restart:
            self._say(f"{why}; it is started again" + (f" in {verdict.pause:.0f} s" if verdict.pause else ""))
            # Where this cannot be written, the supervisor starts the stream, or the keeper does: who is first.
            with contextlib.suppress(OSError):
                write_keeper(self._folder.store, self._attempt, verdict.pause)
        while verdict.restart:
            left = verdict.pause - (time.monotonic() - died)
            if left <= 0:
                try:
                    return self._launch(why)
                except (OSError, UnreadableStateError) as problem:
                    self._say(f"it could not be started: {problem}")
                    left = _AGAIN_SECONDS
            time.sleep(min(left, _POLL_SECONDS if left < _AGAIN_SECONDS else _AGAIN_SECONDS))
            verdict = self._judged(read_certain(self._folder.store, self._stream))
        return False if verdict.expected else self._leave(verdict.why)

    def _launch(self, why: str) -> bool:
        with exclusive(self._folder.root / LOCK, deadline_seconds=_LOCK_SECONDS):
            actual = read_certain(self._folder.store, self._stream)
            verdict, former = self._judged(actual), actual.launch
            if not verdict.restart or former is None:
                return self._leave(verdict.why)
            step("keeper_before_launch")
            end_leftovers(actual.process_note, self._stream)
            attempt, now = self._attempt + 1, time.time()
            launch = Launch(
                attempt=attempt,
                generation=former.generation,
                file=former.file,
                failures=verdict.failures,
                at=now,
                reason=f"its keeper: {why}",
                kept=former.kept + 1,
                kept_newest=(*former.kept_newest, KeptRestart(attempt, now, why))[-_TOLD:],
            )
            text = (self._folder.root / SPEC_FILE).read_text(encoding="utf-8")
            arguments = [*self._arguments, "--attempt", str(attempt)]
            with launched(self._folder, launch, text, self._stream, arguments, driver_command()) as launching:
                self._attempt, self.pid, self.started = attempt, launching.pid, launching.started
        step("keeper_after_launch")
        self._launched_at = time.monotonic()
        with contextlib.suppress(OSError):
            write_keeper(self._folder.store, attempt)
        return True

    def _judged(self, actual: ActualState, *, living: bool = False) -> Verdict:
        """What is to be done if the driver is gone; `living`: it is not, and is left out of account."""
        launch = actual.launch
        seen = Seen(
            self._attempt,
            read_control(self._folder.store),
            launch,
            actual.process_note,
            actual.heartbeat,
            driven=not living and actual.driver is not None,
            held=not living and actual.other_holder is not None,
            named=launch is None or Path(launch.file).exists(),
        )
        return judge(seen, self._policy)

    def _leave(self, why: str) -> bool:
        self._say(f"ends: {why}")
        return False

    def _say(self, sentence: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{at} keeper of attempt {self._attempt}: {sentence}", file=sys.stderr, flush=True)
