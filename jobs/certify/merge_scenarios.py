"""Scenarios of merges into a mirror: what merges beside the driver is killed, or sleeps while another one merges."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from jobs.certify.driver_watch import DriverWatch
from jobs.certify.harness import COMMIT_SECONDS, END_SECONDS, Harness, ScenarioFailedError
from jobs.certify.mirror_reader import Merge, MirrorReader
from jobs.certify.results import ScenarioResult
from jobs.certify.scenario_plan import Scenario
from jobs.state.lease import stream_lease
from jobs.system.processes import command_of, session_members

_PROCESS = "jobs.mirror.main"
# Of every way in which a session finds that it is not the newest any more.
_FENCED = "Nothing more is committed from here."
_PUBLISHED = "mirror_after_publish"
# One that slept before its merge makes that first.
_WAKE_SECONDS = 300.0


def die_of_merge(harness: Harness, scenario: Scenario, result: ScenarioResult, watch: DriverWatch) -> None:
    """What merges is killed in its second merge, and the driver with it: main has all of that merge, or nothing."""
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
    """What merges is suspended until its lease has run out, and the command has merged; woken, it publishes nothing."""
    reader = _reader(harness)
    await_merge(harness, watch)
    asleep = f"step {scenario.at}: SIGSTOP"
    harness.feed(lambda: watch.said(asleep), f"a merge to sleep at {scenario.at}", watch)
    if watch.died_at is not None:
        raise ScenarioFailedError(harness.last_words("The driver ended before its merge slept."))
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
    # Said of the merge that was tried to its end; what renews the lease says the like as soon as it wakes up.
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
