"""The run that fails when streams halt: once for each halt, and again while nobody has acted."""

from __future__ import annotations

import time
from typing import Any

import dagster as dg
import pytest

from jobs.streaming.supervision.documents.heartbeat import LastError, Work
from orchestration.definitions import build_definitions
from orchestration.jobs.halted import AGAIN_SECONDS, JOB
from orchestration.reconcile.supervisor_heartbeat import HALTED, SupervisorHeartbeat
from orchestration.sensors.halts import SENSOR, HaltsCursor, new_halts
from tests.unit.orchestration.deployments import connections
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import World, dead_process

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def supervisor(at: float, **fixes: str) -> SupervisorHeartbeat:
    """A tick that has halted these streams, each with its next command, and one that runs."""
    running = {"calm": {"action": "adopt", "sentence": "it runs", "fix": ""}}
    halted = {
        stream: {"action": "halt", "sentence": f"{stream} failed", "fix": fix, HALTED: "yes"}
        for stream, fix in fixes.items()
    }
    return SupervisorHeartbeat(at, "here", 1, running | halted)


def reported(memory: HaltsCursor, now: float, **fixes: str) -> list[str]:
    return [each.stream for each in new_halts(supervisor(now, **fixes), memory, now)]


def test_a_halt_is_reported_once_and_again_while_it_lasts() -> None:
    memory, both = HaltsCursor(), {"a": "frazil accept a", "b": "frazil accept b"}
    assert reported(memory, NOW) == []
    assert reported(memory, NOW, **both) == []
    assert reported(memory, NOW + 30, **both) == ["a", "b"]
    assert reported(memory, NOW + 60, **both) == []
    changed = both | {"a": "frazil start a"}
    assert reported(memory, NOW + 90, **changed) == []
    assert reported(memory, NOW + 120, **changed) == ["a"], "something else is to be done"
    assert reported(memory, NOW + 29 + AGAIN_SECONDS, **changed) == []
    assert reported(memory, NOW + 30 + AGAIN_SECONDS, **changed) == ["b"]
    assert AGAIN_SECONDS < 12 * 3600, "Dagster's first page shows twelve hours"


def test_a_stream_that_halts_anew_is_reported_anew() -> None:
    memory = HaltsCursor()
    seen = [reported(memory, NOW + 30 * number, **fixes) for number, fixes in enumerate(({"a": "x"}, {"a": "x"}) * 2)]
    assert seen == [[], ["a"], [], []]
    assert reported(memory, NOW + 150) == []
    assert [reported(memory, NOW + at, a="x") for at in (180, 210)] == [[], ["a"]]


def test_what_is_halted_for_a_moment_starts_no_run() -> None:
    memory = HaltsCursor()
    for number in range(20):
        fixes = {} if number % 2 else {f"s{of}": "frazil validate" for of in range(300)}
        assert reported(memory, NOW + 30 * number, **fixes) == []


def test_while_nobody_supervises_nothing_is_said_and_nothing_forgotten() -> None:
    memory = HaltsCursor()
    assert [reported(memory, NOW + at, a="frazil accept a") for at in (0, 30)] == [[], ["a"]]
    assert new_halts(supervisor(NOW), memory, NOW + 600) == []
    assert new_halts(None, memory, NOW + 600) == []
    assert reported(memory, NOW + 700, a="frazil accept a") == []


def test_the_memory_survives_the_cursor() -> None:
    memory = HaltsCursor()
    for at, expected in ((0, []), (30, ["a"]), (60, [])):
        memory = HaltsCursor.from_cursor(memory.to_cursor())
        assert reported(memory, NOW + at, a="frazil accept a") == expected


def tick(world: World, definitions: dg.Definitions, instance: dg.DagsterInstance, cursor: str | None) -> Any:
    world.tick()
    with dg.build_sensor_context(
        instance, cursor, definitions=definitions, resources=connections(world.deployment)
    ) as context:
        return definitions.resolve_sensor_def(SENSOR).evaluate_tick(context)


def test_the_run_fails_with_why_and_the_next_command(world: World, instance: dg.DagsterInstance) -> None:
    world.write("calm")
    world.drive("calm")
    world.write("orders")
    error = LastError("offsets are gone", "operator", time.time(), "frazil accept orders --lost-offsets")
    world.drive("orders", state="failed", error=error, work=Work(), lease_state="released", **dead_process())
    # What runs on though its file has broken is no halted stream.
    world.write("edited")
    world.drive("edited")
    world.file("edited").write_text(world.file("edited").read_text().replace("decode:", "decod:"))
    definitions = build_definitions(world.deployment)
    seen = tick(world, definitions, instance, None)
    assert (seen.run_requests, seen.skip_message) == ([], "Halted: orders; reported by the next tick if it lasts.")
    first = tick(world, definitions, instance, seen.cursor)
    (request,) = first.run_requests
    assert request.tags["frazil/halted"] == "orders"
    result = definitions.resolve_job_def(JOB).execute_in_process(
        run_config=request.run_config, instance=instance, raise_on_error=False
    )
    assert not result.success
    (failed,) = [event for event in result.all_node_events if event.is_step_failure]
    said = failed.step_failure_data.user_failure_data
    assert said is not None and said.description is not None
    assert said.description.startswith("Stream orders is halted: attempt 1 failed: offsets are gone.")
    assert said.description.endswith("Next: frazil accept orders --lost-offsets; then frazil start orders")
    second = tick(world, definitions, instance, first.cursor)
    assert second.run_requests == []
    assert second.skip_message == "Halted: orders; reported before."


def test_a_state_that_cannot_be_read_for_a_moment_halts_no_stream(orders: World, instance: dg.DagsterInstance) -> None:
    orders.drive("orders")
    definitions = build_definitions(orders.deployment)
    documents = {path: path.read_bytes() for path in orders.folder("orders").glob("*.json")}
    for path in documents:
        path.write_bytes(b"{")
    first = tick(orders, definitions, instance, None)
    assert "Halted: orders" in (first.skip_message or "")
    for path, content in documents.items():
        path.write_bytes(content)
    second = tick(orders, definitions, instance, first.cursor)
    assert (first.run_requests, second.run_requests) == ([], [])
    assert second.skip_message == "No stream is halted."


def test_a_deployment_without_trouble_says_so(orders: World, instance: dg.DagsterInstance) -> None:
    orders.drive("orders")
    done = tick(orders, build_definitions(orders.deployment), instance, None)
    assert (done.run_requests, done.skip_message) == ([], "No stream is halted.")


def test_settings_that_cannot_be_read_are_named(orders: World, instance: dg.DagsterInstance) -> None:
    (orders.deployment.home / "frazil.yaml").write_text("kafak: {}\n")
    done = tick(orders, build_definitions(orders.deployment), instance, None)
    assert "kafak: unknown key" in (done.skip_message or "")
