"""Reading a deployment: what each stream's file and state folder say, and that one broken one touches no other."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.control_request import KEY as CONTROL_FILE
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import KEY as BEAT_FILE
from jobs.streaming.supervision.documents.launches import LAUNCH_KEY
from jobs.streaming.supervision.processes.actual import read_actual
from jobs.streaming.supervision.state.desired import DesiredState
from jobs.streaming.supervision.state.observation import observe
from orchestration.reconcile.cursor import StreamCursor
from orchestration.reconcile.decide import Action
from orchestration.reconcile.stream_files import read_files, stream_ids
from tests.unit.orchestration.reconcile.sample_states import actual, beat, gone, launch
from tests.unit.orchestration.reconcile.supervised_deployment import World, dead_process


def wanted(world: World) -> dict[str, DesiredState]:
    files = read_files(world.deployment)
    return {stream: observe(stream, files, world.settings).desired for stream in stream_ids(files, world.settings)}


def test_a_valid_file_gives_a_generation_and_the_operators_word(world: World) -> None:
    world.write("orders", "trigger: {every: 2m}\nrestart: {max_restarts: 3}\n")
    write_control(LocalStore(world.folder("orders")), ControlRequest("paused", reason="month end"))
    (each,) = wanted(world).values()
    assert (each.file, each.generation) == ("valid", world.generation("orders"))
    assert (each.control.mode, each.restart.max_restarts) == ("paused", 3)
    assert each.stalled_after == 720


def test_a_file_is_read_again_when_it_changes(world: World) -> None:
    world.write("orders")
    before = wanted(world)["orders"].generation
    world.write("orders", "trigger: as_fast_as_possible\n")
    assert wanted(world)["orders"].generation not in (before, None)


def test_a_lock_of_an_editor_is_no_file_and_a_broken_link_says_nothing_of_any_stream(world: World) -> None:
    world.write("orders")
    folder = world.deployment.streams_folder
    (folder / ".#orders.yaml").symlink_to("me@here.4711:1800000000")
    assert wanted(world)["orders"].file == "valid"
    (folder / "refunds.yaml").symlink_to(folder / "not-mounted" / "refunds.yaml")
    assert read_files(world.deployment).absence


def test_an_invalid_file_is_told_of_the_stream_that_it_names(world: World) -> None:
    world.write("orders")
    world.write("refunds")
    world.drive("orders")
    world.file("orders").write_text('stream: "orders"  # ours\nsourc: {}\n')
    found = wanted(world)
    assert found["orders"].file == "invalid"
    assert "sourc: unknown key" in found["orders"].problem
    assert found["orders"].spec is not None, "as it was launched"
    assert found["refunds"].file == "valid"


def test_an_invalid_file_that_names_no_stream_is_told_of_the_one_launched_from_it(world: World) -> None:
    world.write("orders")
    world.drive("orders")
    world.file("orders").write_text("stream: [orders\n")
    assert wanted(world)["orders"].file == "invalid"


def test_two_files_that_claim_one_stream_are_its_problem(world: World) -> None:
    world.write("orders")
    world.file("copy").write_text(world.file("orders").read_text())
    assert "is claimed by" in wanted(world)["orders"].problem


def test_a_stream_whose_file_is_gone_is_known_by_its_state(world: World) -> None:
    world.write("orders")
    world.write("refunds")
    world.drive("orders")
    world.file("orders").unlink()
    assert wanted(world)["orders"].file == "none"
    assert world.tick().decisions["orders"].action is Action.STOP


def test_a_file_that_was_renamed_is_still_the_streams(world: World) -> None:
    world.write("orders")
    world.drive("orders")
    world.file("orders").rename(world.file("sales"))
    assert world.tick().decisions["orders"].action is Action.ADOPT


@pytest.mark.parametrize("how", ["missing", "empty", "no folder"])
def test_a_folder_that_is_away_says_nothing_of_its_streams(world: World, how: str) -> None:
    world.write("orders")
    world.drive("orders")
    world.file("orders").unlink()
    if how != "empty":
        world.deployment.streams_folder.rmdir()
    if how == "no folder":
        world.deployment.streams_folder.write_text("not a folder")
    assert wanted(world)["orders"].file == "unsure"
    tick = world.tick()
    assert (tick.decisions["orders"].action, tick.requests) == (Action.HALT, [])


@pytest.mark.parametrize(
    ("file", "words"),
    [(CONTROL_FILE, "what was last asked"), ("lease-00000002.json", "is no lease")],
)
def test_a_damaged_file_in_a_state_folder_halts_that_stream_alone(world: World, file: str, words: str) -> None:
    for stream in ("orders", "refunds"):
        world.write(stream)
        world.drive(stream)
    (world.folder("orders") / file).write_text("{half")
    tick = world.tick()
    assert tick.problems == {}
    assert tick.decisions["orders"].action is Action.HALT
    assert words in tick.decisions["orders"].sentence
    assert tick.decisions["refunds"].action is Action.ADOPT


def test_a_launch_that_cannot_be_read_counts_as_none(world: World) -> None:
    world.write("orders")
    world.drive("orders", **dead_process())
    (world.folder("orders") / LAUNCH_KEY).write_text("{half")
    assert world.tick().decisions["orders"].action is Action.START


def test_a_lease_says_whether_it_is_held(world: World) -> None:
    world.write("orders")
    world.drive("orders")
    folder = world.folder("orders")
    there = read_actual(LocalStore(folder), "orders")
    assert (there.lease.state, there.driver_lives, there.fresh, there.lease_is_the_drivers) == ("live", *[True] * 3)
    world.drive("orders", **dead_process())
    there = read_actual(LocalStore(folder), "orders")
    assert (there.lease.state, there.driver_lives) == ("dead", False)
    world.drive("orders", lease_state="released", state="stopped")
    assert read_actual(LocalStore(folder), "orders").lease.state == "released"
    assert read_actual(LocalStore(Path("/nowhere")), "orders").lease.state == "none"


def test_a_driver_of_another_host_is_judged_by_its_beats(world: World) -> None:
    world.write("orders")
    world.drive("orders", host="elsewhere", **dead_process())
    there = read_actual(LocalStore(world.folder("orders")), "orders")
    assert (there.process, there.driver_lives) == (None, True)


def test_a_driver_of_a_clock_that_was_ahead_is_gone_when_it_writes_nothing_more(world: World) -> None:
    world.write("orders")
    world.drive("orders", host="elsewhere", **dead_process())
    folder = world.folder("orders")
    for file, wall in ((max(folder.glob("lease-*.json")), "renewed_wall"), (folder / BEAT_FILE, "beat_wall")):
        document = msgspec.json.decode(file.read_bytes())
        changed = {"boot": "another kernel", "ttl_seconds": 30.0, wall: time.time() + 86_400}
        file.write_bytes(msgspec.json.encode(document | changed))
    there = read_actual(LocalStore(folder), "orders")
    assert (there.lease.state, there.fresh, there.driver_lives) == ("live", True, True), "at the first sight"
    now = boot_clock()
    there = read_actual(LocalStore(folder, lambda: now + 60), "orders")
    assert (there.lease.state, there.fresh, there.driver_lives) == ("expired", False, False)


def test_how_long_things_have_been_so_is_counted_on_a_clock_that_does_not_jump() -> None:
    memory, clock = StreamCursor(), boot_clock()
    awaited = replace(gone(), launch=launch(attempt=4))
    assert memory.timed(awaited, clock).launched_for < 1
    later = memory.timed(awaited, clock + 50)
    assert 50 <= later.launched_for < 51
    assert 50 <= (later.down_for or 0) < 51
    assert memory.timed(actual(beat(attempt=4), launch=launch(attempt=4)), clock + 60).down_for is None
    assert (memory.launched, memory.down) == (None, None)
    assert (memory.timed(gone(launch=launch(attempt=5)), clock + 70).down_for or 0) < 1
