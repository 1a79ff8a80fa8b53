"""A driver killed under its keeper, a frozen one, and one whose JVM hangs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.keeper_record import find_keeper
from jobs.supervise.launches import read_launch
from jobs.supervise.observation import observe
from jobs.supervise.termination import Timeouts
from jobs.system.processes import session_members, start_time
from orchestration.cli.status.collection import status_from_state
from orchestration.reconcile.assessment import Assessment, assess
from orchestration.reconcile.decide import decide
from orchestration.reconcile.decision import Action
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline
from tests.integration.test_driver import jvm_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def kept(pipeline: Callable[..., Pipeline], request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    """A stream whose driver runs and is kept; whatever runs at the end of the test is ended."""
    made = pipeline()
    made.write_spec(trigger={"every": "1s"})
    made.produce({GOOD: 30, TRUNCATED: 3, TOMBSTONE: 2})
    made.control().start("the test begins", "tester")
    try:
        yield made
    finally:
        made.control().stop("the test ends", "tester")
    assert session_members(made.beat().pid) == []


def lands(made: Pipeline, attempt: int) -> Heartbeat:
    """Wait until this attempt has committed a batch of its own and everything is landed."""
    wait_for(lambda: (beat := made.beat()).attempt == attempt and beat.work.batches > 0, f"attempt {attempt} to commit")
    made.wait_until_landed()
    wait_for(lambda: find_keeper(made.folder().store, attempt), f"the keeper of attempt {attempt}")
    return made.beat()


def test_a_driver_killed_or_frozen_is_back_and_one_whose_jvm_hangs_is_told(kept: Pipeline) -> None:
    first = lands(kept, 1)
    os.kill(first.pid, signal.SIGKILL)
    kept.produce({GOOD: 20, TRUNCATED: 2})
    second = lands(kept, 2)
    assert session_members(first.pid) == [], "the JVM of the killed driver went before the next one was launched"
    launch = read_launch(kept.folder().store)
    assert launch is not None
    assert (launch.attempt, launch.kept, launch.failures) == (2, 1, 1)

    os.kill(second.pid, signal.SIGSTOP)
    frozen_at = time.monotonic()
    kept.produce({GOOD: 20})
    wait_for(lambda: start_time(second.pid) is None, "the frozen driver's end", 60)
    assert time.monotonic() - frozen_at < 45
    third = lands(kept, 3)
    launch = read_launch(kept.folder().store)
    assert launch is not None
    assert "was frozen" in launch.reason
    assert third.work.landed == 20

    # The supervisor replaces a driver whose JVM hangs, which is told within a minute.
    os.kill(jvm_of(third.pid), signal.SIGSTOP)
    stopped_at = time.monotonic()
    kept.produce({GOOD: 20})
    wait_for(lambda: kept.beat().work.unanswered_since is not None, "the JVM's silence to be told", 60)
    assert time.monotonic() - stopped_at < 50
    assert kept.beat().age() < 10, "its heart beats"
    assessed = assessed_now(kept)
    assert assessed.decision.action is Action.ADOPT
    assert "has stalled since 20" in assessed.decision.sentence
    assert assessed.decision.fix == f"frazil restart {kept.stream}"
    status = status_from_state(assessed.observed, kept.spec())
    assert (status.state, status.fix) == ("stalled", f"frazil restart {kept.stream}")
    # As after restart.stalled_after.
    overdue = decide(replace(assessed.observed.desired, stalled_after=1.0), assessed.observed.actual, time.time())
    assert (overdue.action, overdue.ends) == (Action.ROLL, True)
    timeouts = Timeouts(grace_seconds=3, term_seconds=3)
    assert "was killed" in kept.control(timeouts=timeouts).drain_driver(overdue.sentence, "supervisor").sentence
    kept.control().ensure_running("it was let go", "supervisor")
    assert lands(kept, 4).work.landed == 20
    kept.assert_exactly_once()


def assessed_now(made: Pipeline) -> Assessment:
    files = read_files(Deployment.at(made.home))
    return assess(observe(made.stream, files, made.settings()), time.time(), 0.0)
