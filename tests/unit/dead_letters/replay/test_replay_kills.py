"""A replay that is killed, stopped or doubled anywhere lands each record once, and says so."""

from __future__ import annotations

import signal
import threading

import pyarrow as pa
import pytest

from jobs.base.failpoints import STEPS
from jobs.clients.state_store.lease import LeaseHeldError
from jobs.dead_letters.replay.opening import is_at_rest
from jobs.proof.audit.replayed_rows import ReplayedRows
from jobs.tables.dead_letter_table.selection import Selection
from tests.helpers.dead_letters import BROKEN, GOOD, DeadLetterWorld
from tests.helpers.waiting import wait_for

NOTHING = Selection(reasons=("none",))
# From here on a batch has landed, and whoever comes next tells its letters.
HALF_DONE = {"replay_after_commit", "inside_life_change", "replay_after_life"}
REPLAY_STEPS = [name for name, each in STEPS.items() if each.kind == "replay"]
# Passed by a replay of one table that finds nothing to recover.
FIRST_STEPS = [name for name in REPLAY_STEPS if name not in ("replay_before_recovery", "replay_between_tables")]


def run(dead_letters: DeadLetterWorld, steps: str, *arguments: str) -> int:
    """Run `frazil replay` to its end; returns its exit status, or minus the signal's number."""
    process = dead_letters.start(steps, *arguments)
    status = process.wait()
    if steps:
        assert f"step {steps.removesuffix('=kill')}: SIGKILL" in process.said()
    return status


def assert_each_once(dead_letters: DeadLetterWorld) -> None:
    assert dead_letters.landed() == {"p-0": 1, "p-2": 1, "p-3": 1}
    assert dead_letters.states() == {"replayed": 3, "failed_again": 1}
    lives = dead_letters.lives()
    assert {row["attempts"] for row in lives.values()} == {1}
    snapshots = {lives[offset]["replay_snapshot_id"] for offset in (0, 2, 3)}
    assert len(snapshots) == 1
    assert not list(dead_letters.folder.glob("pending-*"))
    assert not list(dead_letters.folder.glob("letters-*"))
    referenced = {task.file.file_path for task in dead_letters.sink().scan().plan_files()}
    assert len(referenced) == 1


@pytest.mark.parametrize("step", FIRST_STEPS)
def test_killed_anywhere_and_run_again_each_record_lands_once(dead_letters: DeadLetterWorld, step: str) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD, GOOD])
    assert run(dead_letters, f"{step}=kill") == -signal.SIGKILL
    # What the second run selects does not matter for what the first one left.
    again = run(dead_letters, "", "--reason", "none") if step in HALF_DONE else run(dead_letters, "")
    assert again == 0
    assert_each_once(dead_letters)


@pytest.mark.parametrize("step", ["replay_before_recovery", "replay_after_claims", "inside_life_change"])
def test_killed_while_it_finishes_what_a_killed_one_left(dead_letters: DeadLetterWorld, step: str) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD, GOOD])
    assert run(dead_letters, "replay_after_commit=kill") == -signal.SIGKILL
    assert run(dead_letters, f"{step}=kill") == -signal.SIGKILL
    assert run(dead_letters, "", "--reason", "none") == 0
    assert_each_once(dead_letters)


def test_a_record_that_is_lost_after_the_commit_lands_nothing_twice(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD, GOOD])
    run(dead_letters, "replay_after_commit=kill")
    for left in [*dead_letters.folder.glob("pending-*"), *dead_letters.folder.glob("letters-*")]:
        left.unlink()
    assert not is_at_rest(dead_letters.spec, dead_letters.settings, dead_letters.sink(), dead_letters.dead())
    # Whatever it is asked for: the audit waits for no replay any more.
    dead_letters.replay(selection=NOTHING)
    assert is_at_rest(dead_letters.spec, dead_letters.settings, dead_letters.sink(), dead_letters.dead())
    assert ReplayedRows("payments", dead_letters.sink(), dead_letters.dead()).pending is None
    result = dead_letters.replay()
    assert (result.replayed, result.standing, result.failed_again) == (0, 3, 1)
    assert dead_letters.landed() == {"p-0": 1, "p-2": 1, "p-3": 1}
    assert dead_letters.states() == {"replayed": 3, "failed_again": 1}


def test_only_one_replay_at_a_time(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD, GOOD])
    process = dead_letters.start("replay_before_commit=stop")
    try:
        wait_for(lambda: any(dead_letters.folder.glob("pending-*")), "the first replay's record")
        with pytest.raises(LeaseHeldError, match=f"replayed by process {process.pid}"):
            dead_letters.replay()
        process.wait_until_stopped()
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0, process.said()
    finally:
        process.kill()
    assert_each_once(dead_letters)


@pytest.mark.parametrize("step", ["replay_before_commit", "replay_after_commit", "inside_life_change"])
def test_a_replay_that_slept_through_a_take_over_changes_nothing(dead_letters: DeadLetterWorld, step: str) -> None:
    (dead_letters.home / "frazil.yaml").write_text("lease_ttl: 4s\n")
    dead_letters.add([GOOD, BROKEN, GOOD, GOOD])
    process = dead_letters.start(f"{step}=stop")
    try:
        process.wait_until_stopped()

        def taken_over() -> bool:
            try:
                dead_letters.replay(selection=NOTHING if step in HALF_DONE else Selection())
            except LeaseHeldError:
                return False
            return True

        wait_for(taken_over, "the lease to run out")
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 1, process.said()
    finally:
        process.kill()
    assert dead_letters.landed() == {"p-0": 1, "p-2": 1, "p-3": 1}
    assert dead_letters.states() == {"replayed": 3, "failed_again": 1}
    assert {row["attempts"] for row in dead_letters.lives().values()} == {1}


def test_others_append_to_both_tables_while_letters_come_back(dead_letters: DeadLetterWorld) -> None:
    """As the stream does that runs meanwhile, in real commits of another connection."""
    dead_letters.add([GOOD, BROKEN] * 20)
    other = dead_letters.connect()
    appended, ended = [0], threading.Event()

    def append() -> None:
        from jobs.tables.commit.stamp.errors import HeadMovedError

        while not ended.is_set():
            table = other.load_table("orders.payments")
            number = appended[0]
            try:
                dead_letters.append(table, pa.record_batch({"id": [f"s-{number}"]}))
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
        result = dead_letters.replay(most=5)
    finally:
        ended.set()
        thread.join()
    assert (result.replayed, result.failed_again) == (20, 20)
    assert appended[0] > 0
    expected = {f"p-{n}": 1 for n in range(0, 40, 2)} | {f"s-{n}": 1 for n in range(appended[0])}
    assert dead_letters.landed() == expected
    assert dead_letters.states() == {"replayed": 20, "failed_again": 20}
