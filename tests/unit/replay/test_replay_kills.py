"""A replay that is killed, stopped or doubled anywhere lands each record once, and says so."""

from __future__ import annotations

import signal
import threading

import pyarrow as pa
import pytest

from jobs.deadletter.selection import Selection
from jobs.replay.opening import is_at_rest
from jobs.state.lease import LeaseHeldError
from jobs.steps import STEPS
from jobs.verify.audit_replays import Replays
from tests.helpers.waiting import wait_for
from tests.unit.deadletter.letters_world import BROKEN, GOOD, LettersWorld

NOTHING = Selection(reasons=("none",))
# From here on a batch has landed, and whoever comes next tells its letters.
HALF_DONE = {"replay_after_commit", "inside_life_change", "replay_after_life"}
REPLAY_STEPS = [name for name, each in STEPS.items() if each.kind == "replay"]
# Passed by a replay that finds nothing to recover.
FIRST_STEPS = [name for name in REPLAY_STEPS if name != "replay_before_recovery"]


def run(world: LettersWorld, steps: str, *arguments: str) -> int:
    """Run `frazil replay` to its end; returns its exit status, or minus the signal's number."""
    process = world.start(steps, *arguments)
    status = process.wait()
    if steps:
        assert f"step {steps.removesuffix('=kill')}: SIGKILL" in process.said()
    return status


def assert_each_once(world: LettersWorld) -> None:
    assert world.landed() == {"p-0": 1, "p-2": 1, "p-3": 1}
    assert world.states() == {"replayed": 3, "failed_again": 1}
    lives = world.lives()
    assert {row["attempts"] for row in lives.values()} == {1}
    snapshots = {lives[offset]["replay_snapshot_id"] for offset in (0, 2, 3)}
    assert len(snapshots) == 1
    assert not list(world.folder.glob("pending-*"))
    assert not list(world.folder.glob("letters-*"))
    referenced = {task.file.file_path for task in world.sink().scan().plan_files()}
    assert len(referenced) == 1


@pytest.mark.parametrize("step", FIRST_STEPS)
def test_killed_anywhere_and_run_again_each_record_lands_once(world: LettersWorld, step: str) -> None:
    world.add([GOOD, BROKEN, GOOD, GOOD])
    assert run(world, f"{step}=kill") == -signal.SIGKILL
    # What the second run selects does not matter for what the first one left.
    again = run(world, "", "--reason", "none") if step in HALF_DONE else run(world, "")
    assert again == 0
    assert_each_once(world)


@pytest.mark.parametrize("step", ["replay_before_recovery", "replay_after_claims", "inside_life_change"])
def test_killed_while_it_finishes_what_a_killed_one_left(world: LettersWorld, step: str) -> None:
    world.add([GOOD, BROKEN, GOOD, GOOD])
    assert run(world, "replay_after_commit=kill") == -signal.SIGKILL
    assert run(world, f"{step}=kill") == -signal.SIGKILL
    assert run(world, "", "--reason", "none") == 0
    assert_each_once(world)


def test_a_record_that_is_lost_after_the_commit_lands_nothing_twice(world: LettersWorld) -> None:
    world.add([GOOD, BROKEN, GOOD, GOOD])
    run(world, "replay_after_commit=kill")
    for left in [*world.folder.glob("pending-*"), *world.folder.glob("letters-*")]:
        left.unlink()
    assert not is_at_rest(world.spec, world.settings, world.sink(), world.dead())
    # Whatever it is asked for: the audit waits for no replay any more.
    world.replay(selection=NOTHING)
    assert is_at_rest(world.spec, world.settings, world.sink(), world.dead())
    assert Replays("payments", world.sink(), world.dead()).pending is None
    result = world.replay()
    assert (result.replayed, result.standing, result.failed_again) == (0, 3, 1)
    assert world.landed() == {"p-0": 1, "p-2": 1, "p-3": 1}
    assert world.states() == {"replayed": 3, "failed_again": 1}


def test_only_one_replay_at_a_time(world: LettersWorld) -> None:
    world.add([GOOD, BROKEN, GOOD, GOOD])
    process = world.start("replay_before_commit=stop")
    try:
        wait_for(lambda: any(world.folder.glob("pending-*")), "the first replay's record")
        with pytest.raises(LeaseHeldError, match=f"replayed by process {process.pid}"):
            world.replay()
        process.wait_until_stopped()
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0, process.said()
    finally:
        process.kill()
    assert_each_once(world)


@pytest.mark.parametrize("step", ["replay_before_commit", "replay_after_commit", "inside_life_change"])
def test_a_replay_that_slept_through_a_take_over_changes_nothing(world: LettersWorld, step: str) -> None:
    (world.home / "frazil.yaml").write_text("lease_ttl: 1s\n")
    world.add([GOOD, BROKEN, GOOD, GOOD])
    process = world.start(f"{step}=stop")
    try:
        process.wait_until_stopped()

        def taken_over() -> bool:
            try:
                world.replay(selection=NOTHING if step in HALF_DONE else Selection())
            except LeaseHeldError:
                return False
            return True

        wait_for(taken_over, "the lease to run out")
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 1, process.said()
    finally:
        process.kill()
    assert world.landed() == {"p-0": 1, "p-2": 1, "p-3": 1}
    assert world.states() == {"replayed": 3, "failed_again": 1}
    assert {row["attempts"] for row in world.lives().values()} == {1}


def test_others_append_to_both_tables_while_letters_come_back(
    world: LettersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the stream does that runs meanwhile, in real commits of another connection."""
    monkeypatch.setattr("jobs.replay.run.MAX_LETTERS", 5)
    world.add([GOOD, BROKEN] * 20)
    other = world.connect()
    appended, ended = [0], threading.Event()

    def append() -> None:
        from jobs.commit.errors import HeadMovedError

        while not ended.is_set():
            table = other.load_table("orders.payments")
            number = appended[0]
            try:
                world.append(table, pa.record_batch({"id": [f"s-{number}"]}))
            except HeadMovedError:
                continue
            appended[0] += 1
            dead = other.load_table("orders.payments_dead")
            with_properties = dead.transaction().set_properties({"touched": str(number)})
            try:
                with_properties.commit_transaction()
            except Exception:
                continue

    thread = threading.Thread(target=append)
    thread.start()
    try:
        result = world.replay()
    finally:
        ended.set()
        thread.join()
    assert (result.replayed, result.failed_again) == (20, 20)
    assert appended[0] > 0
    expected = {f"p-{n}": 1 for n in range(0, 40, 2)} | {f"s-{n}": 1 for n in range(appended[0])}
    assert world.landed() == expected
    assert world.states() == {"replayed": 20, "failed_again": 20}
