"""Start, stop, pause, resume, restart and what the supervisor does, on real processes that only beat."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.locks import exclusive
from jobs.base.system.processes import is_alive, wait_until_dead
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore
from jobs.config.documents.validation import SpecError
from jobs.streaming.supervision.control import lifecycle
from jobs.streaming.supervision.control.lifecycle import ActionResult
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import write_heartbeat
from jobs.streaming.supervision.documents.launches import launched_file, read_launch
from tests.helpers.waiting import wait_for
from tests.unit.streaming.supervision.worlds import (
    IMPATIENT,
    QUICK,
    STANDIN,
    WHY,
    World,
)


def test_a_stream_is_started_once(world: World) -> None:
    done = world.control().start(*WHY)
    assert done.heartbeat is not None
    assert (done.heartbeat.state, done.heartbeat.attempt) == ("running", 1)
    assert done.sentence.startswith(f"payments runs: process {done.heartbeat.pid} on ")
    again = world.control().start(*WHY)
    assert "runs already" in again.sentence
    assert world.beat().pid == done.heartbeat.pid
    assert world.request().mode == "running"
    launch = read_launch(LocalStore(world.folder()))
    assert launch is not None
    assert (launch.attempt, launch.failures, launch.reason) == (1, 0, "a test")
    assert launch.generation == done.heartbeat.generation


def test_a_stream_is_stopped_after_its_batch_and_stays_stopped(world: World) -> None:
    world.control().start(*WHY)
    assert "is stopped: attempt 1 ended after its batch" in world.control().stop(*WHY).sentence
    assert (world.beat().state, world.living()) == ("stopped", [])
    assert (
        world.control().stop("all stop", "ann@here").sentence == "payments is stopped already by tester@here: a test."
    )
    with pytest.raises(FrazilError, match="payments is stopped by tester@here: a test") as caught:
        world.control().ensure_running("nothing runs", "supervisor")
    assert caught.value.fix == "frazil start payments"
    done = world.control().start(*WHY)
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 2


def test_who_stopped_or_paused_a_stream_first_is_kept_when_all_are_stopped(world: World) -> None:
    world.control().stop("a suspicion", "ann")
    asked = world.request()
    world.control().stop("its state moves", "bob")
    assert world.request() == asked
    world.control().drain_driver("its machine goes", "supervisor")
    assert (world.request().by, world.request().reason, world.request().paused) == ("ann", "a suspicion", None)
    world.control().pause("a look at it", "ann")
    world.control().stop("its state moves", "bob")
    world.control().stop("once more", "bob")
    world.control().end("nobody wants it", "supervisor")
    request = world.request()
    assert (request.mode, request.by, request.reason, request.paused) == (
        "stopped",
        "bob",
        "its state moves",
        "a look at it",
    )
    world.control().pause("as before", "ann")
    assert (world.request().mode, world.request().paused) == ("paused", None)


def test_a_flush_is_asked_of_a_driver_that_reads_and_changes_no_wish(world: World) -> None:
    with pytest.raises(FrazilError, match="payments has no driver that could land") as caught:
        world.control().flush(*WHY)
    assert caught.value.fix == "frazil start payments"
    world.control().start(*WHY)
    wish = world.request()
    assert world.control().flush(*WHY).facts == {"batches": 0, "read": 0, "landed": 0, "dead": 0}
    assert world.control().flush(*WHY).sentence == "payments has landed everything up to now: nothing waited."
    assert (world.request(), world.beat().work.flush.number) == (wish, 2)
    world.control().pause(*WHY)
    with pytest.raises(FrazilError, match="payments is paused by tester@here") as caught:
        world.control().flush(*WHY)
    assert caught.value.fix == "frazil resume payments"
    world.control().stop(*WHY)
    with pytest.raises(FrazilError, match="payments is stopped by tester@here"):
        world.control().flush(*WHY)


def test_pausing_keeps_the_driver_and_outlives_it(world: World) -> None:
    world.control().start(*WHY)
    assert "is paused: process" in world.control().pause(*WHY).sentence
    assert "is paused: process" in world.control().pause(*WHY).sentence
    pid = world.beat().pid
    restarted = world.control().restart(*WHY)
    assert "is paused: process" in restarted.sentence
    assert world.beat().pid != pid
    with pytest.raises(FrazilError) as caught:
        world.control().ensure_running("nothing runs", "supervisor")
    assert caught.value.fix == "frazil resume payments"
    resumed = world.control().resume(*WHY)
    assert resumed.heartbeat is not None
    assert (resumed.heartbeat.state, resumed.heartbeat.attempt) == ("running", 2)


def test_a_paused_stream_without_a_driver_is_left_without_one_until_it_is_resumed(world: World) -> None:
    assert "no driver runs" in world.control().pause(*WHY).sentence
    assert "paused: its file takes effect" in world.control().roll(*WHY).sentence
    assert world.living() == []
    assert "payments runs:" in world.control().resume(*WHY).sentence


def test_restart_makes_another_driver(world: World) -> None:
    world.control().start(*WHY)
    first = world.beat()
    done = world.control().restart(*WHY)
    assert done.heartbeat is not None
    assert (done.heartbeat.attempt, done.heartbeat.pid != first.pid) == (2, True)
    assert "Attempt 1 ended after its batch." in done.sentence


def test_restart_starts_what_does_not_run(world: World) -> None:
    assert "payments runs:" in world.control().restart(*WHY).sentence


@pytest.mark.parametrize("action", ["start", "roll", "ensure_running"])
def test_a_changed_file_replaces_the_driver(world: World, action: str) -> None:
    world.control().start(*WHY)
    before = world.beat()
    world.write("payments", "trigger: {every: 30s}\n")
    getattr(world.control(), action)(*WHY)
    after = world.beat()
    assert after.attempt == 2
    assert after.generation != before.generation
    assert "runs already" in world.control().roll(*WHY).sentence


def expecting(world: World, generation: str) -> StreamControl:
    return StreamControl(world.home, None, "payments", timeouts=QUICK, command=STANDIN, generation=generation)


@pytest.mark.parametrize("action", ["roll", "ensure_running"])
def test_only_the_expected_generation_is_started(world: World, action: str) -> None:
    world.control().start(*WHY)
    runs = world.beat().generation
    path = world.write("payments")
    path.write_text(path.read_text().replace("value: json", "value: json\n  case_insensitive: true"))
    with pytest.raises(FrazilError, match=f"generation {runs} was shown, and it is") as refused:
        getattr(expecting(world, runs), action)(*WHY)
    assert refused.value.fix == "frazil apply payments"
    assert (world.beat().attempt, world.request().end_attempt) == (1, 0)
    shown = world.control().observe().desired.generation
    assert shown is not None
    assert getattr(expecting(world, shown), action)(*WHY).heartbeat.generation == shown


def test_a_file_that_changes_while_the_former_driver_ends_is_not_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().start(*WHY)
    path = world.write("payments")
    path.write_text(path.read_text().replace("value: json", "value: json\n  case_insensitive: true"))
    shown = world.control().observe().desired.generation
    assert shown is not None

    def edit(failpoint: str) -> None:
        if failpoint == "between_drivers":
            world.write("payments", "trigger: available_now\n")

    monkeypatch.setattr(lifecycle, "step", edit)
    done = expecting(world, shown).roll(*WHY)
    assert done.heartbeat is not None
    assert (done.heartbeat.attempt, done.heartbeat.generation) == (2, shown)
    assert "case_insensitive" in launched_file(world.control().observe().folder).read_text()


def test_a_description_is_no_reason_for_another_driver(world: World) -> None:
    world.control().start(*WHY)
    path = world.write("payments")
    path.write_text(path.read_text().replace("Card payments.", "Payments by card."))
    assert "runs already" in world.control().roll(*WHY).sentence


def test_a_broken_file_stops_no_action(world: World) -> None:
    world.control().start(*WHY)
    path = world.write("payments", "trigge: 5\n")
    with pytest.raises(SpecError, match="trigge: unknown key"):
        world.control().roll(*WHY)
    world.control().pause(*WHY)
    world.control().resume(*WHY)
    done = world.control().restart(*WHY)
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 2
    assert f"{path} has problems, so the configuration that was launched last is used" in done.sentence
    world.control().stop(*WHY)
    assert "launched last" in world.control().start(*WHY).sentence


def test_a_broken_file_of_a_stream_that_never_ran_is_told(world: World) -> None:
    world.write("payments", "trigge: 5\n")
    with pytest.raises(SpecError, match="trigge: unknown key"):
        world.control().start(*WHY)
    assert not (world.folder() / "launch.json").exists()


def test_a_stream_whose_file_is_gone_can_be_stopped_and_not_started(world: World) -> None:
    world.control().start(*WHY)
    (world.home / "streams" / "payments.yaml").unlink()
    world.control().pause(*WHY)
    world.control().resume(*WHY)
    assert "is stopped" in world.control().stop(*WHY).sentence
    with pytest.raises(FrazilError, match="There is no file for stream payments"):
        world.control().start(*WHY)


def test_nothing_is_started_while_the_folder_of_the_files_is_missing(world: World) -> None:
    world.control().start(*WHY)
    world.control().stop(*WHY)
    streams = world.home / "streams"
    streams.rename(world.home / "elsewhere")
    with pytest.raises(FrazilError, match="There is no file for stream payments"):
        world.control().start(*WHY)
    assert world.living() == []


def test_the_supervisor_ends_only_what_nobody_wants(world: World) -> None:
    world.control().start(*WHY)
    assert "is wanted" in world.control().end(*WHY).sentence
    path = world.write("payments")
    path.rename(path.with_suffix(".gone"))
    assert "ended after its batch" in world.control().end(*WHY).sentence
    assert (world.living(), world.request().mode) == ([], "running")
    path.with_suffix(".gone").rename(path)
    assert "has no driver" in world.control().end(*WHY).sentence
    assert "payments runs:" in world.control().ensure_running(*WHY).sentence


def test_an_unknown_stream_is_a_sentence_and_leaves_nothing(world: World) -> None:
    for name in ("paymets", "../payments", ".."):
        with pytest.raises(FrazilError, match="There is no stream"):
            world.control(name).stop(*WHY)
    with pytest.raises(FrazilError) as caught:
        world.control("paymets").start(*WHY)
    assert caught.value.fix == "did you mean payments?"
    assert not (world.home / ".frazil").exists()


def test_a_stream_without_a_driver_of_its_own_is_only_wished_for(world: World) -> None:
    world.write("payments", "trigger: available_now\n")
    for action in ("start", "restart", "roll", "ensure_running"):
        with pytest.raises(FrazilError, match="has the trigger available_now") as caught:
            getattr(world.control(), action)(*WHY)
        assert caught.value.fix == "frazil run payments"
    world.control().pause(*WHY)
    assert world.request().mode == "paused"
    assert "frazil run payments" in world.control().resume(*WHY).sentence
    assert world.request().mode == "running"
    world.control().stop(*WHY)
    assert world.request().mode == "stopped"


def test_what_drains_the_stream_is_no_driver(world: World) -> None:
    lease = Lease(LocalStore(world.folder()), "payments", 30.0)
    lease.acquire(above=0)
    try:
        for action in ("start", "restart", "roll", "ensure_running", "resume", "stop", "pause"):
            with pytest.raises(FrazilError, match=r"is landed by process .* which is no driver"):
                getattr(world.control(), action)(*WHY)
        assert world.living() == []
    finally:
        lease.release()
    assert "payments runs:" in world.control().start(*WHY).sentence


def test_attempts_grow_also_when_files_are_lost(world: World) -> None:
    world.control().start(*WHY)
    world.control().restart(*WHY)
    for name in ("launch.json", "process.json", "heartbeat.json"):
        world.control().stop(*WHY)
        (world.folder() / name).unlink()
        done = world.control().start(*WHY)
        assert done.heartbeat is not None
        assert done.heartbeat.attempt > 2
        assert done.heartbeat.state == "running"


def test_failures_in_a_row_are_counted_by_the_supervisor_and_forgotten_by_an_operator(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failures() -> int:
        launch = read_launch(LocalStore(world.folder()))
        assert launch is not None
        return launch.failures

    monkeypatch.setenv("STANDIN", "fail")
    for expected in (0, 1, 2):
        with pytest.raises(FrazilError, match="made of cheese") as caught:
            world.control().ensure_running("nothing runs", "supervisor")
        assert caught.value.fix == "eat it"
        assert failures() == expected
    world.write("payments", "trigger: {every: 30s}\n")
    with pytest.raises(FrazilError, match="made of cheese"):
        world.control().ensure_running("nothing runs", "supervisor")
    assert failures() == 0
    monkeypatch.delenv("STANDIN")
    world.control().start(*WHY)
    assert failures() == 0


def together(*actions: Callable[[], ActionResult]) -> list[ActionResult | FrazilError]:
    came: list[ActionResult | FrazilError] = []

    def run(action: Callable[[], ActionResult]) -> None:
        try:
            came.append(action())
        except FrazilError as problem:
            came.append(problem)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return came


@pytest.mark.parametrize("action", ["start", "ensure_running"])
def test_two_actions_at_once_make_one_driver(world: World, action: str) -> None:
    controls = [world.control() for _ in range(4)]
    came = together(*(lambda one=one: getattr(one, action)(*WHY) for one in controls))
    assert all(isinstance(each, ActionResult) for each in came), came
    beat = world.beat()
    assert (beat.state, beat.attempt, world.living()) == ("running", 1, [beat.pid])


def test_restarts_at_once_leave_one_driver(world: World) -> None:
    came = together(*(lambda: world.control().restart(*WHY) for _ in range(4)))
    assert any(isinstance(each, ActionResult) for each in came), came
    assert all("came while its driver started" in each.message for each in came if isinstance(each, FrazilError))
    beat = world.beat()
    assert (beat.state, world.living()) == ("running", [beat.pid])


@pytest.mark.parametrize("action", ["start", "ensure_running"])
def test_a_driver_that_dies_as_it_is_found_is_replaced(
    world: World, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().start(*WHY)
    first = world.beat()

    def killed(name: str) -> None:
        if name == "before_first_beat" and is_alive(first.pid, first.started):
            os.kill(first.pid, signal.SIGKILL)
            assert wait_until_dead(first.pid, first.started, 10)

    monkeypatch.setattr(lifecycle, "step", killed)
    done = getattr(world.control(), action)(*WHY)
    assert done.heartbeat is not None
    assert (done.heartbeat.state, done.heartbeat.attempt) == ("running", 2)
    assert world.living() == [done.heartbeat.pid]


def test_a_stop_wins_over_a_start_that_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "slow")
    waits = world.control(timeouts=replace(QUICK, ready_seconds=600))
    starting = threading.Thread(target=lambda: together(lambda: waits.start(*WHY)))
    starting.start()
    wait_for(lambda: (world.folder() / "heartbeat.json").exists(), "the first heartbeat")
    began = time.monotonic()
    stopped = world.control(timeouts=IMPATIENT).stop(*WHY)
    assert time.monotonic() - began < 300, "the start waits for ten minutes"
    assert "ended on SIGTERM" in stopped.sentence or "was killed" in stopped.sentence
    starting.join()
    assert (world.living(), world.request().mode) == ([], "stopped")


def test_an_action_waits_for_another_one_only_so_long(world: World) -> None:
    world.folder().mkdir(parents=True)
    with (
        exclusive(world.folder() / "control.lock", deadline_seconds=1),
        pytest.raises(FrazilError, match="Another action on stream payments is under way"),
    ):
        world.control(timeouts=IMPATIENT).start(*WHY)
    assert world.living() == []


def test_a_driver_on_another_host_is_asked_and_no_process_here_is_touched(world: World) -> None:
    world.control().start(*WHY)
    here = world.beat()
    world.control().stop(*WHY)
    (world.folder() / "process.json").unlink()
    there = msgspec.structs.replace(
        here, host="elsewhere", boot="another", attempt=7, state="running", beat_wall=time.time()
    )
    write_heartbeat(LocalStore(world.folder()), there)
    with pytest.raises(FrazilError, match=r"driven by process .* on elsewhere, which this host cannot reach") as caught:
        world.control(timeouts=IMPATIENT).stop(*WHY)
    assert caught.value.fix == f"on elsewhere: kill {here.pid}"
    assert world.request().mode == "stopped"
    write_heartbeat(LocalStore(world.folder()), msgspec.structs.replace(there, state="stopped"))
    assert "is stopped" in world.control().stop(*WHY).sentence
