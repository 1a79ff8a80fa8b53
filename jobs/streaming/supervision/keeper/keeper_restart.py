"""Restart by the watchdog of a driver that ended without a last heartbeat: observe, decide, launch.

A watchdog starts again what was launched, and nothing else. Like any control action it works under the stream's control
lock, observes again there, and gives way to a quicker action. Anything that somebody decided meanwhile, or has to
decide, is left to the actions and the supervisor.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.locks import exclusive
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.supervision.documents.control_request import LOCK, ControlRequest, read_control
from jobs.streaming.supervision.documents.driver_session import end_leftovers
from jobs.streaming.supervision.documents.keeper_record import write_keeper
from jobs.streaming.supervision.documents.launches import (
    SPEC_FILE,
    KeptRestart,
    Launch,
    failures_in_a_row,
    pause_before,
)
from jobs.streaming.supervision.launchers.launcher import DriverOrder
from jobs.streaming.supervision.launchers.local_process import LocalProcesses
from jobs.streaming.supervision.processes.actual import ActualState, UnreadableStateError, read_certain
from jobs.streaming.supervision.processes.launcher import driver_command, launched_driver

_LOCK_SECONDS = 10.0
_AGAIN_SECONDS = 5.0
_KEPT_NEWEST = 5


class RestartPolicy(msgspec.Struct, frozen=True):
    """Restarts that a watchdog may make: `restart` of the stream's file at its launch; seconds."""

    max_restarts: int
    first_delay: float
    longest_delay: float
    stable_after: float


@dataclass(frozen=True, slots=True)
class KeeperDecision:
    """Decision whether a watchdog starts the next driver.

    Attributes:
        refusal: Reason why it does not, as a part of a sentence; empty if it does.
        failures: Number of consecutive failed launches, the newest included.
        pause: Seconds from the driver's end to the start.
    """

    refusal: str = ""
    failures: int = 0
    pause: float = 0.0


def decide_restart(
    attempt: int, control: ControlRequest, actual: ActualState, policy: RestartPolicy, *, file_exists: bool = True
) -> KeeperDecision:
    """Decide whether the watchdog restarts a dead driver.

    Args:
        attempt: Number of its launch.
        control: Newest request for the stream.
        actual: Actual state of the stream.
        policy: Number of restarts, and their pauses.
        file_exists: Whether the stream's file still exists.
    """
    launch, beat = actual.launch, actual.heartbeat
    newest = max([attempt, *(each.attempt for each in (launch, actual.launched_process, beat) if each is not None)])
    if launch is None or newest > attempt or launch.attempt != attempt:
        return KeeperDecision(f"attempt {newest} was launched since")
    if control.mode != "running":
        return KeeperDecision(f"the stream is {control.mode}")
    if control.end_attempt >= attempt:
        return KeeperDecision(f"it was asked to end ({control.action})")
    if beat is not None and beat.attempt == attempt and beat.final:
        return KeeperDecision(f"it has reported its end ({beat.state})")
    if actual.driver is not None:
        return KeeperDecision("a driver runs")
    if actual.other_holder is not None:
        return KeeperDecision("something else lands the stream's records")
    if not file_exists:
        return KeeperDecision("the stream's file is missing")
    failures = failures_in_a_row(launch, beat, policy.stable_after)
    if failures > policy.max_restarts:
        return KeeperDecision(f"it failed {failures} times in a row")
    return KeeperDecision("", failures, pause_before(failures, policy.first_delay, policy.longest_delay))


def restart_driver(order: dict[str, Any]) -> None:
    """Start the next driver as soon as it may be started; raises nothing.

    If it gives up, the supervisor starts the stream.

    Args:
        order: Order of the dead driver for its watchdog, see `keeper_command`.
    """
    step("keeper_saw_death")
    folder, attempt, died, said = _folder(order), int(order["attempt"]), time.monotonic(), ""
    while True:
        try:
            decision = _decide(folder, order)[0]
            left = decision.pause - (time.monotonic() - died)
            if not decision.refusal and left <= 0:
                decision = _launch(folder, order)
                if not decision.refusal:
                    return
            if decision.refusal:
                _report(attempt, f"ends: {decision.refusal}")
                return
            sentence = f"starts the driver again in {decision.pause:.0f} s"
            if said != sentence:
                said = sentence
                _report(attempt, said)
                # If this cannot be written, the supervisor or the watchdog starts the stream, whichever is first.
                with contextlib.suppress(OSError):
                    write_keeper(folder.store.local, attempt, decision.pause)
        except (OSError, FrazilError) as problem:
            unread = isinstance(problem, UnreadableStateError) and folder.store.shared
            sentence = problem.message if isinstance(problem, FrazilError) else str(problem)
            # Once the disk or service is available, the request for the stream can be read again.
            if not (isinstance(problem, OSError) or unread) or not folder.root.is_dir():
                _report(attempt, f"ends: {sentence}")
                return
            if said != sentence:
                said = sentence
                _report(attempt, f"waits: {said}")
            left = _AGAIN_SECONDS
        time.sleep(min(left, _AGAIN_SECONDS))


def _launch(folder: StreamFolder, order: dict[str, Any]) -> KeeperDecision:
    stream, attempt = order["stream"], int(order["attempt"])
    why = f"attempt {attempt} (process {order['pid']}) ended without a report"
    with exclusive(folder.root / LOCK, deadline_seconds=_LOCK_SECONDS):
        decision, actual = _decide(folder, order)
        former = actual.launch
        if decision.refusal or former is None:
            return decision
        step("keeper_before_launch")
        end_leftovers(actual.launched_process, stream)
        now = time.time()
        launch = Launch(
            attempt=attempt + 1,
            generation=former.generation,
            file=former.file,
            failures=decision.failures,
            at=now,
            reason=f"its watchdog: {why}",
            kept=former.kept + 1,
            kept_newest=(*former.kept_newest, KeptRestart(attempt + 1, now, why))[-_KEPT_NEWEST:],
        )
        text = (folder.root / SPEC_FILE).read_text(encoding="utf-8")
        driver = DriverOrder(stream, launch, folder.root, driver_command(), tuple(order["arguments"]))
        with launched_driver(folder, driver, text, LocalProcesses()):
            _report(attempt, f"{why}; it is started again")
    step("keeper_after_launch")
    return decision


def _decide(folder: StreamFolder, order: dict[str, Any]) -> tuple[KeeperDecision, ActualState]:
    actual = read_certain(folder.store, order["stream"])
    policy = msgspec.convert(order["policy"], RestartPolicy)
    exists = actual.launch is None or Path(actual.launch.file).exists()
    control = read_control(folder.store)
    return decide_restart(int(order["attempt"]), control, actual, policy, file_exists=exists), actual


def _report(attempt: int, sentence: str) -> None:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{at} watchdog of attempt {attempt}: {sentence}", file=sys.stderr, flush=True)


def _folder(order: dict[str, Any]) -> StreamFolder:
    root = Path(order["folder"])
    if "store" not in order:
        return StreamFolder.at(root)
    # Imported here: only shared state needs a client.
    from jobs.clients.state_store.chosen_store import shared_store
    from jobs.config.services.services import StateSettings

    state = Path(order["state"])
    store = shared_store(StateSettings.model_validate(order["store"]), state)
    return StreamFolder(root, store.below(root.relative_to(state).as_posix()))
