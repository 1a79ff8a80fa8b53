"""`frazil publish` and `frazil release` of a stream with a gate: its contract is evaluated by Great Expectations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.clients.state_store.lease import stream_lease
from jobs.quality.publishing.gate import Gate
from tests.helpers.command import frazil
from tests.unit.quality.publishing.branch_world import BranchWorld


def contract(most: int, severity: str = "critical") -> dict[str, Any]:
    """Accepts so many of the stream's rows, whose ids begin at 2,000,000."""
    expected = {"column": "id", "max_value": 2_000_000 + most - 1}
    block = {"expect_column_values_to_be_between": expected, "name": "id_is_small", "severity": severity}
    also = {"expect_column_values_to_not_be_null": {"column": "id"}, "name": "id_is_set"}
    return {"expectations": [block, also]}


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home", contract=contract(3), publish={"gate": "contract"})


def gate(world: BranchWorld) -> Gate:
    return Gate.of(world.table().metadata.properties, "payments")


def test_what_the_contract_accepts_is_published(world: BranchWorld) -> None:
    ids = world.land(3)
    done = frazil(world, "publish", "payments")
    assert done.exit_code == 0, done.output
    assert "Published to main of table orders.payments" in done.stdout
    assert world.rows() == Counter(ids)


def test_what_it_does_not_is_held_until_it_is_released(world: BranchWorld) -> None:
    ids = world.land(3)
    assert frazil(world, "publish", "payments").exit_code == 0
    bad = world.land(2)
    held = frazil(world, "publish", "payments")
    assert held.exit_code == 1, held.output
    assert "Quarantined: 2 rows on ingest are not published to main of table orders.payments" in held.stdout
    assert "offsets payments-0 [3, 5)" in held.stdout
    assert "id_is_small (expect_column_values_to_be_between): 2 of 2 rows are not accepted" in held.stdout
    assert "frazil release payments --reason TEXT" in held.stdout
    assert world.rows() == Counter(ids)
    status = frazil(world, "status", "payments").stdout
    assert "quarantined since" in status
    assert "2 rows" in status
    assert "payments-0 [3, 5)" in status
    held_facts = json.loads(frazil(world, "status", "payments", "--json").stdout)["streams"][0]["branch"]["held"]
    assert (held_facts["rows"], held_facts["from"], held_facts["to"]) == (
        2,
        {"payments": {"0": 3}},
        {"payments": {"0": 5}},
    )
    facts = json.loads(frazil(world, "publish", "payments", "--json").stdout)
    assert facts["gate"]["became"] == "still held"
    assert facts["gate"]["held"]["to"] == {"payments": {"0": 5}}
    shown = frazil(world, "publish", "payments", "--dry-run")
    assert (shown.exit_code, "Quarantined: 2 rows" in shown.stdout) == (0, True)
    to_come = frazil(world, "release", "payments", "--dry-run")
    assert to_come.exit_code == 0, to_come.output
    assert "To be published to main of table orders.payments: 2 rows" in to_come.stdout
    assert "2 of 2 rows are not accepted" in to_come.stdout
    assert (world.rows(), gate(world).generation) == (Counter(ids), 0), "it is only shown"
    released = frazil(world, "release", "payments", "--yes", "--reason", "known")
    assert released.exit_code == 0, released.output
    assert world.rows() == Counter(ids + bad)
    assert gate(world) == Gate(1)
    assert frazil(world, "publish", "payments").exit_code == 0


def test_what_is_judged_is_in_the_history_of_checks(world: BranchWorld) -> None:
    world.land(3)
    assert frazil(world, "publish", "payments").exit_code == 0
    world.land(2)
    assert frazil(world, "publish", "payments").exit_code == 1
    told = json.loads(frazil(world, "check", "payments", "--history", "--json").stdout)
    small = next(each for each in told["expectations"] if each["name"] == "id_is_small")
    assert [(each["scope"], each["share"]) for each in small["results"]] == [("interval", 0.0), ("interval", 1.0)]
    assert {each["branch"] for each in small["results"]} == {"ingest"}


def test_a_corrected_contract_lets_it_pass(world: BranchWorld) -> None:
    ids = world.land(5)
    assert frazil(world, "publish", "payments").exit_code == 1
    world.write(contract=contract(5))
    done = frazil(world, "publish", "payments")
    assert done.exit_code == 0, done.output
    assert (world.rows(), gate(world)) == (Counter(ids), Gate(0))


def test_a_warning_holds_nothing(tmp_path: Path) -> None:
    world = BranchWorld(tmp_path / "home", contract=contract(1, "warning"), publish={"gate": "contract"})
    ids = world.land(3)
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == Counter(ids)


def test_reasons_show_no_value_of_a_row(world: BranchWorld) -> None:
    world.land(4)
    frazil(world, "publish", "payments")
    properties = world.table().metadata.properties
    assert "2000003" not in properties["frazil.gate.payments"]


def test_release_needs_something_that_is_held(world: BranchWorld) -> None:
    world.land(1)
    done = frazil(world, "release", "payments", "--yes", "--reason", "x")
    assert done.exit_code == 1
    assert "no rows are quarantined" in done.stderr


def test_a_file_without_the_gate_does_not_publish_what_is_held(world: BranchWorld) -> None:
    world.land(5)
    assert frazil(world, "publish", "payments").exit_code == 1
    del world.document["publish"], world.document["contract"]
    world.write(table=world.document["table"] | {"branch": "ingest"})
    for more in ([], ["--dry-run"]):
        done = frazil(world, "publish", "payments", *more)
        assert done.exit_code == 1, done.output
        assert "5 rows of branch ingest" in done.stderr and "id_is_small" in done.stderr
    assert world.rows() == Counter()


@pytest.mark.parametrize("name", ["frazil.gate.payments", "frazil.discards.payments"])
def test_a_damaged_property_is_told_and_status_says_the_rest(world: BranchWorld, name: str) -> None:
    ids = world.land(2)
    with world.table().transaction() as change:
        change.set_properties({name: "garbage"})
    for command in (
        ["publish"],
        ["publish", "--dry-run"],
        ["release", "--yes", "--reason", "x"],
        ["release", "--dry-run"],
    ):
        done = frazil(world, command[0], "payments", *command[1:])
        assert done.exit_code == 1, done.output
        if command[0] == "release" and "discards" in name:
            assert "no rows are quarantined" in done.stderr
        else:
            assert f"the property {name} of table orders.payments is damaged" in done.stderr
            assert f"UNSET TBLPROPERTIES ('{name}')" in done.stderr
    status = frazil(world, "status", "payments")
    assert status.exit_code == 0, status.output
    said = " ".join(status.stdout.split())
    assert f"? gate: stream payments: the property {name} of table orders.payments is damaged" in said
    assert f"UNSET TBLPROPERTIES ('{name}')" in said
    assert "2 rows of 1 snapshot are not in main" in status.stdout
    with world.table().transaction() as change:
        change.remove_properties(name)
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == Counter(ids)


@pytest.mark.parametrize("written", [False, True])
def test_without_its_table_nothing_is_said_to_be_gone_that_never_was(world: BranchWorld, written: bool) -> None:
    if written:
        lease = stream_lease(world.settings, "payments")
        lease.acquire(above=0)
        lease.remember({"orders.payments": str(world.table().metadata.table_uuid)})
        lease.release()
    world.catalog().drop_table("orders.payments")
    said = "table orders.payments was dropped" if written else "table orders.payments does not exist"
    reason = "--yes", "--reason", "x"
    for command in (["publish"], ["release", *reason], ["release", "--dry-run"], ["discard", *reason, "--dry-run"]):
        done = frazil(world, command[0], "payments", *command[1:])
        assert done.exit_code == 1, done.output
        assert said in done.stderr


def test_discard_asks_for_the_gate_before_the_table(tmp_path: Path) -> None:
    world = BranchWorld(tmp_path / "home")
    world.catalog().drop_table("orders.payments")
    for more in (["--dry-run"], ["--reason", "x"]):
        assert "publishes nothing by contract" in frazil(world, "discard", "payments", *more).stderr


def test_release_needs_a_gate(tmp_path: Path) -> None:
    world = BranchWorld(tmp_path / "home")
    done = frazil(world, "release", "payments", "--yes", "--reason", "x")
    assert done.exit_code == 1
    assert "publishes nothing by contract" in done.stderr
