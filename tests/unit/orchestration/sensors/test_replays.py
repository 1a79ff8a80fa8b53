"""The sensor that proposes replays, or starts them: when it looks, what it says, and that it starts each once."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import StringType

from jobs.clients.state_store.stream_folder import stream_folder
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from orchestration.jobs.replay import ReplayConfig, replay_job, replay_run_config, replay_tags
from orchestration.sensors.replays import ReplaysCursor, ReplaysTick, run_replays_tick
from resources.deployment import Deployment
from tests.helpers.dead_letters import BROKEN, GOOD, UNKNOWN, DeadLetterWorld
from tests.unit.orchestration.dead_letter_deployment import DEAD, OPENED, Replays, change_file, deployment_of
from tests.unit.orchestration.deployments import connections, deployment_in
from tests.unit.orchestration.reconcile.sample_states import stand_in

CHECK = dg.AssetCheckKey(DEAD, "replay_would_help")


@pytest.fixture
def sensor(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> Replays:
    return Replays(dead_letters, instance)


def automatic(dead_letters: DeadLetterWorld) -> None:
    change_file(dead_letters, "park_after: 2", "park_after: 2, automatic: true")


def check(instance: dg.DagsterInstance) -> tuple[str, str, dict[str, Any]]:
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([CHECK])[CHECK]
    assert record.event is not None
    told: Any = record.event.dagster_event.event_specific_data  # type: ignore[union-attr]
    return record.status.value, told.description, {name: value.value for name, value in told.metadata.items()}


def test_a_sample_that_succeeds_is_proposed(
    dead_letters: DeadLetterWorld, sensor: Replays, instance: dg.DagsterInstance
) -> None:
    dead_letters.add([UNKNOWN] * 30 + [BROKEN] * 10)
    first = sensor.tick()
    assert first.run_requests == []
    status, said, figures = check(instance)
    assert (status, figures["letters_of_earlier_configurations"], figures["sample_would_come_back"]) == (
        "SUCCEEDED",
        40,
        0,
    )
    assert "command" not in figures
    change_file(dead_letters, *OPENED)
    assert sensor.tick().run_requests == []
    status, said, figures = check(instance)
    assert status == "FAILED"
    assert "30 was_unknown (30 of 30 tried)" in said
    assert "Others would still fail: 10 was_broken (0 of 10 tried)" in said
    assert figures["command"] in said
    assert figures["letters_that_may_come_back"] == 30
    assert dead_letters.states() == {"new": 40}, "a proposal changes nothing"


def test_the_command_that_is_proposed_lands_them(dead_letters: DeadLetterWorld, sensor: Replays) -> None:
    import shlex

    from click.testing import CliRunner

    from orchestration.cli.main import main

    dead_letters.add([UNKNOWN] * 3 + [BROKEN])
    change_file(dead_letters, *OPENED)
    tick = sensor.tick()
    command = shlex.split(tick.asset_events[-1].metadata["command"].value)
    assert command[0] == "frazil"
    done = CliRunner().invoke(main, ["--home", str(dead_letters.home), *command[1:]])
    assert done.exit_code == 0, done.output
    assert dead_letters.states() == {"replayed": 3, "new": 1}, "those that would fail again are not tried"


def test_nobody_is_asked_while_no_configuration_changes(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN])
    asked: list[float] = []
    memory, here = ReplaysCursor(), deployment_of(dead_letters)

    def catalog() -> Catalog:
        asked.append(time.time())
        return dead_letters.quick()

    def ticks(count: int) -> int:
        """How often the catalog is asked."""
        before = len(asked)
        for _ in range(count):
            run_replays_tick(here, catalog, memory, (), lambda stream: "", time.time())
        return len(asked) - before

    assert ticks(3) == 1
    change_file(dead_letters, "park_after: 2", "park_after: 3")
    assert ticks(1) == 0, "rows come out as before"
    change_file(dead_letters, *OPENED)
    assert ticks(1) == 1


def test_letters_of_the_present_configuration_are_no_reason(
    dead_letters: DeadLetterWorld, sensor: Replays, instance: dg.DagsterInstance
) -> None:
    sensor.tick()
    assert check(instance)[1] == "No dead letter of an earlier configuration waits."


def test_it_starts_once_per_configuration_even_if_the_cursor_is_lost(
    dead_letters: DeadLetterWorld, sensor: Replays, instance: dg.DagsterInstance
) -> None:
    automatic(dead_letters)
    dead_letters.add([UNKNOWN] * 5 + [BROKEN] * 3)
    change_file(dead_letters, *OPENED)
    (request,) = sensor.tick().run_requests
    config = dead_letters.spec.config_hash
    assert request.run_key == f"payments:replay:{config}:1"
    assert request.tags["frazil/stream"] == "payments"
    assert request.tags["frazil/by"] == "frazil_replays"
    assert check(instance)[0] == "SUCCEEDED"
    # The daemon was killed after it launched the run, and before it kept the cursor.
    assert sensor.launch(request).success
    assert dead_letters.states() == {"replayed": 5, "new": 3}
    dead_letters.add([UNKNOWN] * 2)
    sensor.cursor = None
    assert sensor.tick().run_requests == []
    assert check(instance)[0] == "FAILED", "what is left is proposed: a person decides"
    # Another configuration is another matter, and so is the former one after it.
    change_file(dead_letters, "amount decimal(12,2)", "amount decimal(12,2), colour string")
    dead_letters.catalog.load_table("orders.payments").update_schema().add_column("colour", StringType()).commit()
    (second,) = sensor.tick().run_requests
    assert second.run_key == f"payments:replay:{dead_letters.spec.config_hash}:2"


def test_a_stream_that_an_operator_stopped_is_left_alone(
    dead_letters: DeadLetterWorld, sensor: Replays, instance: dg.DagsterInstance
) -> None:
    automatic(dead_letters)
    dead_letters.add([UNKNOWN])
    change_file(dead_letters, *OPENED)
    write_control(
        stream_folder(dead_letters.settings, "payments").store, ControlRequest("stopped", reason="month end", by="jo")
    )
    assert sensor.tick().run_requests == []
    assert check(instance)[0] == "FAILED"


def test_it_waits_for_the_driver_to_run_the_new_configuration(dead_letters: DeadLetterWorld, sensor: Replays) -> None:
    dead_letters.add([UNKNOWN])
    folder = stream_folder(dead_letters.settings, "payments").root
    folder.mkdir(parents=True, exist_ok=True)
    stand_in(
        folder,
        "payments",
        "former",
        pid=os.getpid(),
        now=time.time(),
        spec_text=dead_letters.spec_file.read_text(),
        file=str(dead_letters.spec_file),
    )
    assert "still runs the former configuration" in sensor.tick().skip_message


def test_a_replay_under_way_is_waited_for(
    dead_letters: DeadLetterWorld, sensor: Replays, instance: dg.DagsterInstance
) -> None:
    dead_letters.add([GOOD])
    config = ReplayConfig(stream="payments")
    instance.create_run_for_job(
        replay_job, run_config=replay_run_config(config), tags=replay_tags(config), status=dg.DagsterRunStatus.STARTED
    )
    assert "its dead letters are being replayed" in sensor.tick().skip_message


def test_what_is_proposed_is_looked_at_again_and_taken_back(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([UNKNOWN] * 3)
    change_file(dead_letters, *OPENED)
    memory, here = ReplaysCursor(), deployment_of(dead_letters)
    now = time.time()

    def tick(at: float) -> list[bool]:
        return [
            event.passed
            for event in run_replays_tick(here, dead_letters.quick, memory, (), lambda stream: "", at).events
        ]

    assert tick(now) == [False]
    dead_letters.replay()
    assert tick(now + 60) == []
    assert tick(now + 601) == [True]
    assert tick(now + 1300) == []
    assert len(memory.to_cursor()) < 150


def test_what_an_automatic_replay_leaves_is_proposed(dead_letters: DeadLetterWorld) -> None:
    automatic(dead_letters)
    dead_letters.add([UNKNOWN] * 3)
    change_file(dead_letters, *OPENED)
    memory, here, now, config = ReplaysCursor(), deployment_of(dead_letters), time.time(), dead_letters.spec.config_hash
    first = run_replays_tick(here, dead_letters.quick, memory, (), lambda stream: "former", now)
    assert [each.config for each in first.start] == [config]
    # Its run failed.
    later = run_replays_tick(here, dead_letters.quick, memory, (), lambda stream: config, now + 601)
    assert later.start == []
    assert [event.passed for event in later.events] == [False]


def test_tables_that_do_not_fit_are_told_and_tried_again_later(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([UNKNOWN] * 3)
    change_file(dead_letters, "amount decimal(12,2)", "amount long")
    memory, here, now = ReplaysCursor(), deployment_of(dead_letters), time.time()
    first = run_replays_tick(here, dead_letters.quick, memory, (), lambda stream: "", now)
    assert "cannot hold what the file declares" in first.sentences["payments"]
    assert run_replays_tick(here, dead_letters.quick, memory, (), lambda stream: "", now + 60).sentences == {}
    assert run_replays_tick(here, dead_letters.quick, memory, (), lambda stream: "", now + 601).sentences


def test_what_cannot_be_read_of_one_stream_holds_no_other_up(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([UNKNOWN] * 3)
    change_file(dead_letters, *OPENED)
    automatic(dead_letters)
    text = dead_letters.spec_file.read_text().replace("automatic: true", "automatic: false")
    other = text.replace("stream: payments", "stream: zz").replace("orders.payments", "orders.zz")
    (dead_letters.home / "streams" / "zz.yaml").write_text(other)
    folder = stream_folder(dead_letters.settings, "payments").root
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "control.json").write_text("{")
    tick = run_replays_tick(
        deployment_of(dead_letters), dead_letters.quick, ReplaysCursor(), (), lambda stream: "", time.time()
    )
    assert "cannot be read" in tick.sentences["payments"]
    assert tick.start == []
    assert len(tick.events) == 1, "the other one's"
    assert "cannot" not in tick.sentences["zz"]


def test_before_the_first_run_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path / "d", "payments"))
    catalog = connections(deployment)["catalog"].quick
    tick = run_replays_tick(deployment, catalog, ReplaysCursor(), (), lambda stream: "", time.time())
    assert [event.passed for event in tick.events] == [True]


def test_slow_looks_are_picked_up_by_a_later_tick(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([UNKNOWN])
    go = threading.Event()
    memory, here = ReplaysCursor(), deployment_of(dead_letters)

    def slow() -> Catalog:
        go.wait(60)
        return dead_letters.quick()

    def tick(budget: float) -> ReplaysTick:
        return run_replays_tick(here, slow, memory, (), lambda stream: "", time.time(), budget)

    assert tick(0.05).sentences == {"payments": "its dead letters are being sampled"}
    go.set()
    assert len(tick(60).events) == 1
