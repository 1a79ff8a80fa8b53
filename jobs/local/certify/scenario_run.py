"""Scenarios carried out, by their manner: how the driver, or the action on it, comes to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from jobs.base.system.processes import command_of, session_members
from jobs.clients.state_store.lease import Lease, stream_lease
from jobs.local.certify.action import reset_to
from jobs.local.certify.comparison import main_problems, rows_of
from jobs.local.certify.drivers import DriverWatch, armed_command
from jobs.local.certify.harness import (
    ACTION_SECONDS,
    COMMIT_SECONDS,
    DEATH_SECONDS,
    END_SECONDS,
    Harness,
    ScenarioFailedError,
    last_line,
)
from jobs.local.certify.mirror_reader import Merge, MirrorReader
from jobs.local.certify.results import ScenarioResult
from jobs.local.certify.scenario_plan import KEPT, Scenario
from jobs.local.certify.workspace import STREAM
from jobs.streaming.driver.process.logs import spark_log
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.streaming.supervision.documents.keeper_record import find_keeper
from jobs.tables.commit.stamp.offsets import TopicPartition

_PASSED_OVER = 40
# Spark's scheduler prints this.
_LOST_EXECUTOR = "Lost executor"


def run_scenario(harness: Harness, scenario: Scenario, result: ScenarioResult, upcoming: Scenario | None) -> None:
    """Run one scenario.

    Args:
        harness: Harness of the scenario.
        scenario: The scenario.
        result: Result to fill.
        upcoming: The scenario after it; None behind the last.

    Raises:
        FrazilError: The protocol was violated.
    """
    watch, floor = harness.start(scenario)
    result.attempt = watch.note.attempt if watch.note is not None else 0
    if scenario.manner == "early":
        harness.await_death(watch, scenario)
        harness.record_kill(result, watch)
        return
    if scenario.manner == "early moment":
        harness.wait(lambda: watch.died_at is not None, "a random moment", DEATH_SECONDS)
        result.where = harness.doing()
        harness.record_kill(result, watch)
        return
    if harness.await_commit(floor, watch, scenario):
        harness.settle(watch)
    match scenario.manner:
        case "moment":
            _die_at_random(harness, scenario, result, watch)
        case "schema":
            _die_of_schema(harness, scenario, result, watch)
        case "tables":
            _die_of_tables(harness, scenario, result, watch)
        case "stop":
            _die_of_stop(harness, scenario, result, watch)
        case "roll":
            _die_of_roll(harness, scenario, result, upcoming)
        case "keeper":
            _die_with_keeper(harness, scenario, result, watch, upcoming)
        case "reset":
            _die_of_reset(harness, scenario, result)
        case "publish":
            _die_of_publication(harness, scenario, result)
        case "executor":
            _lose_executor(harness, scenario, result, watch)
        case "merge":
            die_of_merge(harness, scenario, result, watch)
        case "asleep" if harness.mirror is not None:
            sleep_in_merge(harness, scenario, result, watch)
        case "asleep":
            _sleep(harness, scenario, result, watch)
        case _:
            _die_in_batch(harness, scenario, result, watch)


def _die_in_batch(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    harness.feed(lambda: False, f"a batch to die at {scenario.at}", watch)
    harness.await_death(watch, scenario)
    harness.record_kill(result, watch)


def _die_of_schema(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    """A field turns up that no record had before; of a driver that has died, the change before it was not made yet."""
    if watch.died_at is None:
        harness.load.add_field()
    _die_in_batch(harness, scenario, result, watch)


def _die_of_tables(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    """Types turn up that no record had before, one with each batch, until the driver dies while it makes a table."""

    def another() -> bool:
        if watch.died_at is None:
            harness.load.add_type()
        return False

    harness.feed(another, f"a batch to die at {scenario.at}", watch)
    harness.await_death(watch, scenario)
    harness.record_kill(result, watch)


def _die_at_random(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    until = time.monotonic() + scenario.delay
    harness.feed(lambda: time.monotonic() >= until, "a random moment", watch, every=0.1)
    if watch.died_at is not None:
        raise ScenarioFailedError(harness.last_words("The driver ended before it was killed."))
    watch.kill()
    harness.wait(lambda: watch.died_at is not None, "the driver's death", END_SECONDS)
    result.where = harness.doing()
    harness.record_kill(result, watch)


def _die_of_stop(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    harness.more()
    harness.stop()
    harness.await_death(watch, scenario)
    harness.record_kill(result, watch)


def _die_of_roll(harness: Harness, scenario: Scenario, result: ScenarioResult, upcoming: Scenario | None) -> None:
    harness.workspace.write_spec(scenario.number)
    harness.more()
    epoch = harness.observer.epoch()
    harness.say("its file has changed, and it is rolled")
    # If the action has started the next driver before it dies, that driver is the next scenario's.
    command = json.dumps(armed_command(harness.arming(upcoming)))
    harness.die_as_action(scenario, "roll", ["--command", command])
    harness.rolled = True
    harness.record_kill(result, None, epoch)


def _die_with_keeper(
    harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch, upcoming: Scenario | None
) -> None:
    """Kill the driver, and its watchdog before or after it starts the next driver."""
    note = watch.note
    assert note is not None
    harness.more()
    steps = f"{scenario.step}=kill" if scenario.step != KEPT else ""
    # If the watchdog starts the next driver before it dies, that driver is the next scenario's.
    keeper = harness.drivers.start_keeper(note, steps, harness.arming(upcoming))
    harness.wait(
        lambda: find_keeper(harness.drivers.folder.store.local, note.attempt) is not None, "its watchdog", END_SECONDS
    )
    epoch = harness.observer.epoch()
    watch.kill()
    harness.wait(lambda: watch.died_at is not None, "the driver's death", END_SECONDS)
    if scenario.step == KEPT:
        harness.wait(lambda: harness.drivers.attempt > note.attempt, "its watchdog to start another", END_SECONDS)
        keeper.kill()
    else:
        harness.wait(lambda: keeper.process.poll() is not None, f"the watchdog's death at {scenario.step}", END_SECONDS)
        if not keeper.died_at(scenario.step):
            raise ScenarioFailedError(
                f"The watchdog ended, and not at {scenario.step}: {last_line(keeper.log.read_text())}"
            )
    harness.drivers.remember()
    harness.floor = epoch
    harness.record_kill(result, watch, epoch)


def _die_of_reset(harness: Harness, scenario: Scenario, result: ScenarioResult) -> None:
    """Skip records that were produced for it: an operator's will, which has to happen entirely or not at all."""
    harness.stop()
    partition = TopicPartition(harness.load.topic, 0)
    stands = harness.observer.now().position[partition]
    harness.more()
    to = min(harness.load.ends()[partition], stands + _PASSED_OVER)
    request = f"{partition.topic}:{partition.partition}={to}"
    epoch = harness.observer.epoch()
    harness.say("its offsets are reset")
    harness.die_as_action(scenario, "reset", ["--to", request])
    harness.record_kill(result, None, epoch)
    harness.load.pass_over(partition.partition, stands, to)
    reset_to(harness.workspace.folder, request)
    now = harness.observer.now().position[partition]
    if now != to:
        raise ScenarioFailedError(f"After the repeated reset, {partition} is at {now}, not at {to}.")


def _die_of_publication(harness: Harness, scenario: Scenario, result: ScenarioResult) -> None:
    """The publisher is killed while the driver lands; it is run again, and main has all of it, once."""
    harness.more()
    before, epoch = harness.observer.main(), harness.observer.epoch()
    harness.say("its branch is published")
    action = "hold" if scenario.holds else "publish"
    harness.die_as_action(scenario, action, [])
    died_at, left = time.time(), harness.observer.main()
    result.problems += main_problems(left, harness.observer.now().rows(), whole=False)
    grown = rows_of(left) - rows_of(before)
    if (grown > 0) != (scenario.step == "publish_after_commit"):
        result.problems.append(f"main has {grown:,} more rows after the kill at {scenario.step}")
    waits = harness.observer.now().rows()
    if scenario.holds:
        harness.act("hold")
        if rows_of(harness.observer.main()) != rows_of(before):
            result.problems.append("main shows quarantined rows")
        harness.act("release")
    harness.act("publish")
    result.seconds = time.time() - died_at
    result.problems += main_problems(harness.observer.main(), waits, whole=True)
    harness.stop()
    harness.record_kill(result, None, epoch)


def _lose_executor(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    """Kill an executor of its application during a task; the driver still lands the batch."""
    log = spark_log(harness.drivers.folder.root)
    harness.feed(lambda: watch.said(f"step {scenario.at}: SIGKILL"), "a batch that loses its executor", watch)
    result.killed_at, ends = time.time(), harness.load.ends()

    def landed() -> bool:
        if watch.died_at is not None:
            raise ScenarioFailedError(harness.last_words("The driver ended with its executor."))
        return dict(harness.observer.now().position) == ends

    harness.wait(landed, "its batch to land", COMMIT_SECONDS)
    if not (log.exists() and _LOST_EXECUTOR in log.read_text(errors="replace")):
        raise ScenarioFailedError(f"Spark lost no executor, by {log}.")
    found = harness.observer.now()
    committed_at = found.commit_behind(result.killed_at)
    result.seconds = committed_at - result.killed_at if committed_at is not None else None
    result.problems += found.problems(harness.load.expected())
    harness.stop()


def _sleep(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    asleep = f"step {scenario.at}: SIGSTOP"
    harness.feed(lambda: watch.said(asleep), f"a batch to sleep at {scenario.at}", watch)
    if watch.died_at is not None:
        raise ScenarioFailedError(harness.last_words("The driver ended instead of sleeping."))
    slept_at, epoch = time.time(), harness.observer.epoch()
    lease = Lease(harness.observer.folder.store, STREAM, 0.0)
    try:
        harness.wait(lambda: (held := lease.read()) is None or held.expired(), "its lease to run out", END_SECONDS)
        harness.more()
        harness.say("another driver takes over")
        status, said = harness.drivers.run_action("drain", [], seconds=ACTION_SECONDS)
        if status != 0:
            raise ScenarioFailedError(f"The driver that took over ended with exit status {status}: {last_line(said)}")
        before = harness.observer.now()
    finally:
        watch.send(signal.SIGCONT)
    harness.wait(lambda: watch.died_at is not None, "the end of the driver that woke up", END_SECONDS)
    beat = read_heartbeat(harness.drivers.folder.store)
    if beat is None or beat.state != "fenced":
        raise ScenarioFailedError(
            f"The driver that woke up ended as {beat.state if beat else 'nothing'}, not as fenced."
        )
    if harness.observer.now().heads != before.heads:
        raise ScenarioFailedError("The driver that woke up has committed.")
    harness.record_kill(result, watch, epoch)
    taken_over_at = before.first_commit(epoch)
    result.killed_at = slept_at
    result.seconds = taken_over_at - slept_at if taken_over_at is not None else None


_PROCESS = "jobs.mirrors.main"
# Common to all messages of a session that finds itself fenced.
_FENCED = "Nothing more is committed from here."
_PUBLISHED = "mirror_after_publish"
# One that slept before its merge makes that first.
_WAKE_SECONDS = 300.0


def die_of_merge(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    """Kill a second merge and its driver: main must have all of that merge, or nothing."""
    reader = _reader(harness)
    before = harness.merges
    await_merge(harness, watch)
    harness.feed(lambda: watch.said(f"step {scenario.at}: SIGKILL"), f"a merge to die at {scenario.at}", watch)
    _end(harness, watch)
    merged = len(reader.merges()) - before
    expected = scenario.passes - (scenario.step != _PUBLISHED)
    if merged != expected:
        result.problems.append(f"{merged} merges were published before the kill at {scenario.step}, not {expected}")
    result.problems += reader.problems()
    harness.record_kill(result, watch)
    _kept(harness, result)


def sleep_in_merge(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    """Suspend a merge until its lease has expired and the command has merged; woken, it must publish nothing."""
    reader = _reader(harness)
    await_merge(harness, watch)
    asleep = f"step {scenario.at}: SIGSTOP"
    harness.feed(lambda: watch.said(asleep), f"a merge to sleep at {scenario.at}", watch)
    if watch.died_at is not None:
        raise ScenarioFailedError(harness.last_words("The driver ended before its merge paused."))
    slept_at, before = time.time(), reader.merges()
    lease = stream_lease(harness.workspace.settings, reader.id)
    try:
        harness.wait(lambda: (held := lease.read()) is None or held.expired(), "its lease to run out", END_SECONDS)
        harness.more()
        harness.say("another process merges")
        harness.act("merge")
        after = reader.merges()
    finally:
        for pid in _merging(watch):
            _send(pid, signal.SIGCONT)
    # Printed after the merge was tried to its end; the lease renewal prints a similar message at once.
    refused = (f"mirror {harness.workspace.mirror}: ", _FENCED)
    harness.wait(lambda: watch.said(*refused), "the end of the merge that woke up", _WAKE_SECONDS)
    _end(harness, watch)
    if len(after) != len(before) + 1:
        result.problems.append(f"the other process published {len(after) - len(before)} merges")
    # It may have merged what came since, in a session of its own.
    if late := [each for each in reader.merges()[len(after) :] if each.epoch <= after[-1].epoch]:
        result.problems.append(f"the merge that woke up was published: {late}")
    result.problems += reader.problems()
    harness.record_kill(result, watch)
    result.killed_at, result.seconds = slept_at, after[-1].at - slept_at
    _kept(harness, None)


def await_merge(harness: Harness, watch: DriverWatch | None) -> None:
    """Wait until the driver's process has published a merge of its own, which times the kill before."""
    reader, known = _reader(harness), harness.merges

    def published() -> list[Merge]:
        if watch is not None and watch.died_at is not None:
            raise ScenarioFailedError(harness.last_words("The driver ended before anything was merged."))
        return reader.merges()[known:]

    harness.wait(lambda: bool(published()), "its first merge", COMMIT_SECONDS)
    killed = harness.unmerged
    if killed is not None and killed.killed_at is not None:
        killed.seconds = max(0.0, reader.merges()[known].at - killed.killed_at)
    harness.unmerged = None


def finish_merges(harness: Harness) -> list[str]:
    """Merge what is left, once nothing lands any more, and all of the changelog again; what is wrong, as sentences."""
    reader = _reader(harness)
    harness.say("the rest is merged, and all of it again")
    harness.act("merge-again")
    return [*reader.problems(), *reader.lacking()]


def _reader(harness: Harness) -> MirrorReader:
    assert harness.mirror is not None, "its stream has a mirror"
    return harness.mirror


def _end(harness: Harness, watch: DriverWatch) -> None:
    """The driver dies, and what it may have started since to merge on."""
    if watch.died_at is not None:
        raise ScenarioFailedError(harness.last_words("The driver ended with what merges beside it."))
    watch.kill()
    harness.wait(lambda: watch.died_at is not None, "the driver's death", END_SECONDS)
    for pid in _merging(watch):
        _send(pid, signal.SIGKILL)
    harness.wait(lambda: not _merging(watch), "the end of what merges beside it", END_SECONDS)


def _kept(harness: Harness, result: ScenarioResult | None) -> None:
    harness.merges = len(_reader(harness).merges())
    harness.unmerged = result


def _merging(watch: DriverWatch) -> list[int]:
    """The processes that merge beside a driver: they are of its session."""
    members = session_members(watch.note.pid) if watch.note is not None else []
    return [pid for pid in members if _PROCESS in command_of(pid)]


def _send(pid: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, which)
