"""`frazil apply`: tables, then drivers; refused where somebody has to decide; each step may be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from tests.unit.orchestration.cli.plan.test_command import NOTE
from tests.unit.orchestration.drivers import end_all
from tests.unit.orchestration.plan_world import PlanWorld
from tests.unit.streaming.supervision.worlds import STANDIN, WHY

LEVEL = ("[day(created_at)]}", '[day(created_at)], properties: {write.parquet.compression-level: "2"}}')


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanWorld]:
    monkeypatch.setenv(COMMAND_VARIABLE, " ".join(STANDIN))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    made = PlanWorld(tmp_path)
    made.land()
    yield made
    end_all(made)


def columns(world: PlanWorld) -> list[str]:
    with world.catalog() as catalog:
        return catalog.load_table("orders.payments").schema().column_names


def level(world: PlanWorld) -> str | None:
    with world.catalog() as catalog:
        return catalog.load_table("orders.payments").properties.get("write.parquet.compression-level")


def test_tables_are_altered_and_then_the_driver_is_replaced(world: PlanWorld) -> None:
    world.start()
    world.edit(*NOTE)
    world.edit(*LEVEL)
    dry = world.frazil("apply", "--dry-run")
    assert dry.exit_code == 0
    assert dry.stdout.endswith("Nothing was changed.\n")
    assert "1. payments: table orders.payments: add column note string" in dry.stdout
    assert "3. payments: its driver runs generation" in dry.stdout
    asked = world.frazil("apply")
    assert asked.exit_code == 2
    assert "frazil --home" in asked.stderr
    assert ("note" in columns(world), level(world), world.beat().attempt) == (False, "1", 1)
    facts = json.loads(world.frazil("apply", "--json", "--yes").stdout)
    assert facts["done"]
    assert [(each["step"], each["table"], each["done"]) for each in facts["steps"]] == [
        ("alter", "orders.payments", True),
        ("properties", "orders.payments", True),
        ("roll", None, True),
    ]
    assert ("note" in columns(world), level(world), world.beat().attempt) == (True, "2", 2)
    assert world.frazil("plan", "--check").exit_code == 0
    again = world.frazil("apply", "--yes")
    assert (again.exit_code, again.stdout) == (0, "Nothing to do: 1 stream is as the files say.\n")
    assert json.loads(world.frazil("apply", "--json").stdout) == {
        "done": True,
        "summary": "Nothing to do: 1 stream is as the files say.",
        "steps": [],
    }


def test_nothing_is_applied_while_somebody_has_to_decide(world: PlanWorld) -> None:
    world.stand_in()
    world.write("orders")
    world.edit("id string not null", "id long not null")
    refused = world.frazil("apply", "payments", "--yes")
    assert refused.exit_code == 1
    assert "somebody has to decide first about 1 breaking: stream payments: table orders.payments" in refused.stderr
    assert "Next: correct streams/payments.yaml" in refused.stderr
    # Nobody can say whether the new stream's topic is there.
    unknown = world.frazil("apply", "orders", "--yes")
    assert unknown.exit_code == 1
    assert "not everything could be looked at" in unknown.stderr
    world.edit("value: json", "value: jsn")
    assert "files have problems" in world.frazil("apply", "--yes").stderr
    assert world.beat().attempt == 1


def test_a_saved_plan_is_applied_only_as_far_as_it_goes(world: PlanWorld, tmp_path: Path) -> None:
    world.start()
    world.edit(*NOTE)
    saved = tmp_path / "plan.json"
    saved.write_text(world.frazil("plan", "--json").stdout)
    world.edit(*LEVEL)
    refused = world.frazil("apply", "--plan", str(saved), "--yes")
    assert refused.exit_code == 1
    assert "does not fit any more. Since then: payments: table orders.payments: set property" in refused.stderr
    assert "note" not in columns(world)
    world.edit(LEVEL[1], LEVEL[0])
    # What was done since by the plan itself is no reason.
    assert world.frazil("schema", "apply", "payments", "--yes").exit_code == 0
    applied = world.frazil("apply", "--plan", str(saved), "--yes")
    assert applied.exit_code == 0, applied.output
    assert world.beat().attempt == 2


def test_what_is_no_plan_of_what_is_live_is_refused(world: PlanWorld, tmp_path: Path) -> None:
    world.stand_in()
    file = tmp_path / "plan.json"
    for text in ("", "{}", "[]", '{"plan": 2}', '{"plan": 1, "settings": [], "streams": [{}]}'):
        file.write_text(text)
        refused = world.frazil("apply", "--plan", str(file), "--yes")
        assert refused.exit_code == 1, text
        assert "is no plan" in refused.stderr
    file.write_text(world.frazil("plan", "--against", str(world.home), "--json").stdout)
    assert "says nothing of what is live" in world.frazil("apply", "--plan", str(file), "--yes").stderr


def test_what_an_operator_stopped_stays_so(world: PlanWorld) -> None:
    world.start()
    world.control().stop(*WHY)
    done = world.frazil("apply", "--yes")
    assert done.exit_code == 0
    assert "frazil apply has nothing to do for it." in done.stdout
    assert world.living() == []


def test_a_driver_without_a_file_ends_and_one_that_is_gone_starts(world: PlanWorld) -> None:
    world.start()
    world.write("orders")
    world.land("orders")
    (world.home / "streams" / "payments.yaml").unlink()
    facts = json.loads(world.frazil("apply", "--json", "--yes").stdout)
    assert {(each["stream"], each["step"]): each["done"] for each in facts["steps"]} == {
        ("payments", "end"): True,
        ("orders", "start"): True,
    }
    assert (world.living() == [], world.living("orders") != []) == (True, True)
    assert world.request().mode == "running"
    assert world.plan()["pending"] == 0


def test_killed_between_table_and_driver_the_same_command_goes_on(world: PlanWorld) -> None:
    world.start()
    world.edit(*NOTE)
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(world.home), "apply", "--yes"]
    killed = subprocess.run(
        command, env=os.environ | {"FRAZIL_STEPS": "after_plan_alteration=kill"}, capture_output=True, timeout=240
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert ("note" in columns(world), world.beat().attempt) == (True, 1)
    assert world.todo() == [("restart", "decode.schema", "apply"), ("restart", "driver", "apply")]
    done = world.frazil("apply", "--yes")
    assert done.exit_code == 0, done.output
    assert world.beat().attempt == 2
    assert world.plan()["pending"] == 0
