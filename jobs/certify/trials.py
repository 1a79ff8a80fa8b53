"""The manners of a trial: how the driver, or the action on it, comes to its end."""

from __future__ import annotations

import signal
import time

from jobs.certify.act import reset_to
from jobs.certify.drivers import Watch, armed_command, command_argument
from jobs.certify.plan import KEPT, Trial
from jobs.certify.results import Result
from jobs.certify.stage import ACTION_SECONDS, DEATH_SECONDS, END_SECONDS, Stage, TrialFailedError, last_line
from jobs.certify.workspace import STREAM
from jobs.commit.offsets import TopicPartition
from jobs.state.lease import Lease
from jobs.supervise.heartbeat import read_heartbeat
from jobs.supervise.keeper_note import find_keeper

_PASSED_OVER = 40


def make(stage: Stage, trial: Trial, result: Result, upcoming: Trial | None) -> None:
    """Make one trial.

    Args:
        stage: Where.
        trial: What.
        result: What comes of it.
        upcoming: The trial after it; None behind the last.

    Raises:
        FrazilError: It did not go as the protocol says.
    """
    watch, floor = stage.start(trial)
    result.attempt = watch.note.attempt if watch.note is not None else 0
    if trial.manner == "early":
        stage.await_death(watch, trial)
        stage.note_kill(result, watch)
        return
    if trial.manner == "early moment":
        stage.wait(lambda: watch.died_at is not None, "a random moment", DEATH_SECONDS)
        result.where = stage.doing()
        stage.note_kill(result, watch)
        return
    if stage.await_commit(floor, watch, trial):
        stage.settle(watch)
    match trial.manner:
        case "moment":
            _die_at_random(stage, trial, result, watch)
        case "stop":
            _die_of_stop(stage, trial, result, watch)
        case "roll":
            _die_of_roll(stage, trial, result, upcoming)
        case "keeper":
            _die_with_keeper(stage, trial, result, watch, upcoming)
        case "reset":
            _die_of_reset(stage, trial, result)
        case "asleep":
            _sleep(stage, trial, result, watch)
        case _:
            stage.feed(lambda: False, f"a batch to die at {trial.at}", watch)
            stage.await_death(watch, trial)
            stage.note_kill(result, watch)


def _die_at_random(stage: Stage, trial: Trial, result: Result, watch: Watch) -> None:
    until = time.monotonic() + trial.delay
    stage.feed(lambda: time.monotonic() >= until, "a random moment", watch, every=0.1)
    if watch.died_at is not None:
        raise TrialFailedError(stage.last_words("The driver ended before it was killed."))
    watch.kill()
    stage.wait(lambda: watch.died_at is not None, "the driver's death", END_SECONDS)
    result.where = stage.doing()
    stage.note_kill(result, watch)


def _die_of_stop(stage: Stage, trial: Trial, result: Result, watch: Watch) -> None:
    stage.more()
    stage.stop()
    stage.await_death(watch, trial)
    stage.note_kill(result, watch)


def _die_of_roll(stage: Stage, trial: Trial, result: Result, upcoming: Trial | None) -> None:
    stage.workspace.write_spec(trial.number)
    stage.more()
    epoch = stage.looking.epoch()
    stage.say("its file has changed, and it is rolled")
    # Where the action has started the next driver before it dies, that one is the next trial's.
    command = command_argument(armed_command(stage.arming(upcoming)))
    stage.die_as_action(trial, "roll", ["--command", command])
    stage.rolled = True
    stage.note_kill(result, None, epoch)


def _die_with_keeper(stage: Stage, trial: Trial, result: Result, watch: Watch, upcoming: Trial | None) -> None:
    """The driver is killed, and its keeper on the way to the next one, or behind it."""
    note = watch.note
    assert note is not None
    stage.more()
    steps = f"{trial.step}=kill" if trial.step != KEPT else ""
    # Where the keeper starts the next driver before it dies, that one is the next trial's.
    keeper = stage.drivers.start_keeper(note, steps, stage.arming(upcoming))
    stage.wait(lambda: find_keeper(stage.drivers.folder.store, note.attempt) is not None, "its keeper", END_SECONDS)
    epoch = stage.looking.epoch()
    watch.kill()
    stage.wait(lambda: watch.died_at is not None, "the driver's death", END_SECONDS)
    if trial.step == KEPT:
        stage.wait(lambda: stage.drivers.attempt > note.attempt, "its keeper to start another", END_SECONDS)
        keeper.kill()
    else:
        stage.wait(lambda: keeper.process.poll() is not None, f"the keeper's death at {trial.step}", END_SECONDS)
        if not keeper.died_at(trial.step):
            raise TrialFailedError(f"The keeper ended, and not at {trial.step}: {last_line(keeper.log.read_text())}")
    stage.drivers.remember()
    stage.floor = epoch
    stage.note_kill(result, watch, epoch)


def _die_of_reset(stage: Stage, trial: Trial, result: Result) -> None:
    """Skip records that were produced for it: an operator's will, which has to happen entirely or not at all."""
    stage.stop()
    partition = TopicPartition(stage.load.topic, 0)
    stands = stage.looking.now().position[partition]
    stage.more()
    to = min(stage.load.ends()[partition], stands + _PASSED_OVER)
    request = f"{partition.topic}:{partition.partition}={to}"
    epoch = stage.looking.epoch()
    stage.say("its offsets are reset")
    stage.die_as_action(trial, "reset", ["--to", request])
    stage.note_kill(result, None, epoch)
    stage.load.pass_over(partition.partition, stands, to)
    reset_to(stage.workspace.folder, request)
    now = stage.looking.now().position[partition]
    if now != to:
        raise TrialFailedError(f"After the reset was given again, {partition} stands at {now}, not at {to}.")


def _sleep(stage: Stage, trial: Trial, result: Result, watch: Watch) -> None:
    asleep = f"step {trial.at}: SIGSTOP"
    stage.feed(lambda: watch.said(asleep), f"a batch to sleep at {trial.at}", watch)
    if watch.died_at is not None:
        raise TrialFailedError(stage.last_words("The driver ended instead of sleeping."))
    slept_at, epoch = time.time(), stage.looking.epoch()
    lease = Lease(stage.looking.folder.store, STREAM, 0.0)
    try:
        stage.wait(lambda: (held := lease.read()) is None or held.expired(), "its lease to run out", END_SECONDS)
        stage.more()
        stage.say("another driver takes over")
        status, said = stage.drivers.run_action("drain", [], seconds=ACTION_SECONDS)
        if status != 0:
            raise TrialFailedError(f"The driver that took over ended with exit status {status}: {last_line(said)}")
        before = stage.looking.now()
    finally:
        watch.send(signal.SIGCONT)
    stage.wait(lambda: watch.died_at is not None, "the end of the driver that woke up", END_SECONDS)
    beat = read_heartbeat(stage.drivers.folder.store)
    if beat is None or beat.state != "fenced":
        raise TrialFailedError(f"The driver that woke up ended as {beat.state if beat else 'nothing'}, not as fenced.")
    if stage.looking.now().heads != before.heads:
        raise TrialFailedError("The driver that woke up has committed.")
    stage.note_kill(result, watch, epoch)
    taken = before.first_commit(epoch)
    result.killed_at = slept_at
    result.seconds = taken.at - slept_at if taken is not None else None
