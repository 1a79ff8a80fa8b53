"""`frazil apply`: tables, then drivers; refused where somebody has to decide; each step may be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from orchestration.cli.streams.plan import apply
from orchestration.deployment_plan.plan import make_plan
from orchestration.deployment_plan.steps import OF_TABLES, change_table, steps_of
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
    assert "a decision is needed first about 1 breaking: stream payments: table orders.payments" in refused.stderr
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


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("note string", "note string, surprise int", "add column surprise int"),
        ("id string not null", "id long not null", "id: long is another type"),
        (LEVEL[1], LEVEL[1].replace('"2"', '"3"'), "set property write.parquet.compression-level to 3"),
    ],
)
def test_a_table_gets_nothing_that_was_not_shown(world: PlanWorld, before: str, after: str, said: str) -> None:
    world.edit(*(LEVEL if before == LEVEL[1] else NOTE))
    (shown,) = [each for each in steps_of(make_plan(world.deployment)) if each.action in OF_TABLES]
    world.edit(before, after)
    with pytest.raises(FrazilError, match="has changed since the plan was shown") as refused:
        list(change_table(world.spec(), world.settings, shown, "tester"))
    assert said in refused.value.message
    assert (columns(world)[:4], level(world)) == (["id", "amount", "created_at", "_kafka_topic"], "1")


def edit_at_consent(monkeypatch: pytest.MonkeyPatch, edit: Callable[[], object]) -> None:
    """Let somebody edit while `frazil apply` asks."""
    monkeypatch.setattr(apply, "consent", lambda *_, **__: edit())


@pytest.mark.parametrize("name", ["streams/payments.yaml", "frazil.yaml", "streams/second.yaml"])
def test_nothing_is_applied_if_a_file_changes_while_it_asks(
    world: PlanWorld, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world.stand_in()
    world.edit(*NOTE)
    world.edit(*LEVEL)

    def edit() -> None:
        file = world.home / name
        former = file.read_text() if file.exists() else "lease_ttl: 40s" if name == "frazil.yaml" else "{stream: x}"
        file.write_text(f"{former}\n# another line\n")

    edit_at_consent(monkeypatch, edit)
    refused = world.frazil("apply", "payments", "--yes")
    assert refused.exit_code == 1
    said = " ".join(refused.stderr.split())
    assert f"The files have changed since the plan was shown: {name}. Nothing was applied." in said
    assert "Next: frazil apply payments" in said
    assert ("note" in columns(world), level(world), world.beat().attempt) == (False, "1", 1)


def test_a_file_of_another_stream_stops_nothing(world: PlanWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start()
    world.edit(*LEVEL)
    edit_at_consent(monkeypatch, lambda: world.write("orders"))
    done = world.frazil("apply", "payments", "--yes")
    assert done.exit_code == 0, done.output
    assert (level(world), world.beat().attempt) == ("2", 2)


def test_no_driver_starts_by_a_file_that_changed_after_the_table(
    world: PlanWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    world.edit(*NOTE)
    running = world.beat().generation

    def change_and_edit(*given: Any) -> Iterator[str]:
        yield from change_table(*given)
        world.edit("value: json", "value: json\n  case_insensitive: true")

    monkeypatch.setattr(apply, "change_table", change_and_edit)
    done = world.frazil("apply", "--json", "--yes")
    assert done.exit_code == 1
    altered, rolled = json.loads(done.stdout)["steps"]
    assert (altered["done"], rolled["done"]) == (True, False)
    assert "since the plan was shown" in rolled["sentence"]
    assert "Its driver was left as it is." in rolled["sentence"]
    assert rolled["next"] == "frazil apply payments"
    assert ("note" in columns(world), world.beat().attempt, world.beat().generation) == (True, 1, running)


def test_what_is_no_plan_of_what_is_live_is_refused(world: PlanWorld, tmp_path: Path) -> None:
    world.stand_in()
    file = tmp_path / "plan.json"
    for text in ("", "{}", "[]", '{"plan": 2}', '{"plan": 1, "settings": [], "streams": [{}]}'):
        file.write_text(text)
        refused = world.frazil("apply", "--plan", str(file), "--yes")
        assert refused.exit_code == 1, text
        assert "is no plan" in refused.stderr
    file.write_text(world.frazil("plan", "--against", str(world.home), "--json").stdout)
    assert "contains nothing about live streams" in world.frazil("apply", "--plan", str(file), "--yes").stderr


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
