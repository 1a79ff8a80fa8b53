"""`frazil plan`: against tables and drivers that are live, and against other files; its forms and exit status."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.types import StringType

from jobs.base.system.deadline import DeadlineError
from jobs.clients.state_store.epochs import keep_settings
from jobs.clients.state_store.local_store import LocalStore
from jobs.config.settings.generation import generation, settings_of_generation
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from orchestration.deployment_plan import live
from orchestration.deployment_plan.change import Saved
from orchestration.deployment_plan.plan import make_plan
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.plan_world import PlanWorld

NOTE = ("created_at timestamptz not null", "created_at timestamptz not null, note string")


@pytest.fixture
def world(tmp_path: Path) -> PlanWorld:
    return PlanWorld(tmp_path)


def test_a_new_stream_is_told_with_its_table_and_its_start(world: PlanWorld) -> None:
    plan = world.plan()
    (stream,) = plan["streams"]
    assert stream["status"] == "new"
    assert world.todo() == [("metadata only", "orders.payments", "frazil"), ("restart", "driver", "apply")]
    sentences = [each["sentence"] for each in stream["changes"]]
    assert "table orders.payments is created with 7 columns, partitioned by day(created_at)" in sentences
    assert "the stream begins at the earliest records" in sentences
    assert [each["part"] for each in stream["unknown"]] == ["kafka"]
    assert not (world.home / ".frazil" / "catalog.db").exists()


def test_a_saved_plan_of_a_new_stream_is_of_its_file(world: PlanWorld) -> None:
    saved = Saved.of(world.plan())
    assert saved.new_in(make_plan(world.deployment)) == []
    world.edit("value: json", "value: json\n  case_insensitive: true")
    assert [each.sentence for each in saved.new_in(make_plan(world.deployment))] == ["a driver starts"]


def test_a_table_that_was_rolled_back_waits_for_its_answer(world: PlanWorld) -> None:
    world.land()
    with world.catalog() as catalog:
        table = catalog.load_table("orders.payments")
        first = table.metadata.snapshots[0].snapshot_id
        back = {"ref-name": "main", "type": "branch", "snapshot-id": first}
        catalog.commit_table(table, (), (SetSnapshotRefUpdate.model_validate(back),))
    assert ("breaking", "orders.payments", "operator") in world.todo()
    shown = world.frazil("plan", "--check")
    assert shown.exit_code == 4
    assert "table orders.payments was rolled back" in shown.stdout
    assert "frazil accept payments --rollback" in shown.stdout


def test_a_stream_that_runs_as_its_file_says_has_nothing_to_do(world: PlanWorld) -> None:
    world.land()
    world.stand_in()
    shown = world.frazil("plan", "--check")
    assert shown.exit_code == 0
    assert shown.stdout == "Nothing to do: 1 stream is as the files say.\n"
    assert world.plan()["streams"] == [{"stream": "payments", "status": "unchanged", "changes": [], "unknown": []}]


def test_a_changed_file_is_told_by_key_table_and_driver(world: PlanWorld) -> None:
    world.land()
    world.stand_in()
    world.edit(*NOTE)
    world.edit("fail: 15m", "fail: 20m")
    world.edit("[day(created_at)]}", '["bucket(4, id)"], properties: {write.parquet.compression-level: "2"}}')
    assert world.todo() == [
        ("restart", "decode.schema", "apply"),
        ("restart", "table.partition_by", "apply"),
        ("metadata only", "orders.payments", "apply"),
        ("metadata only", "orders.payments", "operator"),
        ("metadata only", "orders.payments", "apply"),
        ("restart", "driver", "apply"),
    ]
    shown = world.frazil("plan", "payments", "--check")
    assert shown.exit_code == 3
    assert "table orders.payments: add column note string" in shown.stdout
    assert "(from payments.v1-0 40)" in shown.stdout
    assert "ALTER TABLE orders.payments ADD PARTITION FIELD bucket(4, id)" in shown.stdout
    assert "set property write.parquet.compression-level to 2, which is 1" in shown.stdout
    assert "freshness.fail: 15m → 20m. Dagster's checks go by it once they have loaded the file" in shown.stdout
    assert "  Next: frazil apply" in shown.stdout
    page = world.frazil("plan", "--markdown").stdout
    assert page.startswith("### frazil plan\n\n6 changes, in 1 of 1 stream: ")
    assert (
        "| `payments` (changed) | metadata only | table orders.payments: add column note string | by frazil apply |"
        in page
    )


def keep_settings_of_driver(world: PlanWorld) -> None:
    """Keep the settings as a driver does when it opens the stream."""
    spec, settings = world.spec(), world.settings
    keep_settings(LocalStore(world.folder()), generation(spec, settings), settings_of_generation(spec, settings))


def test_settings_that_changed_since_the_launch_are_told_by_key(world: PlanWorld) -> None:
    file = world.home / "frazil.yaml"
    file.write_text("{lease_ttl: 30s, spark: {conf: {spark.x: '${env:WORD}'}}}\n")
    world.land()
    world.stand_in()
    keep_settings_of_driver(world)
    file.write_text("{lease_ttl: 60s, spark: {conf: {spark.x: '${env:OTHER}'}}}\n")
    plan = world.plan()
    assert [(each["place"], each["class"], each["by"], each["before"], each["after"]) for each in plan["settings"]] == [
        ("spark.conf.spark.x", "restart", "apply", "${env:WORD}", "${env:OTHER}"),
        ("lease_ttl", "restart", "apply", "30s", "1m"),
    ]
    shown = world.frazil("plan")
    assert "lease_ttl: 30s → 1m. Every driver renews its lease by it" in shown.stdout
    assert "the settings have changed since it was launched (spark.conf.spark.x, lease_ttl)" in shown.stdout


def test_another_address_of_the_same_catalog_only_restarts(world: PlanWorld) -> None:
    world.land()
    world.stand_in()
    keep_settings_of_driver(world)
    kept = world.folder() / "settings" / f"{generation(world.spec(), world.settings)}.json"
    kept.write_text(kept.read_text().replace("sqlite:///", "sqlite:////elsewhere"))
    runs = "0" * 12
    (world.folder() / "settings" / f"{runs}.json").write_text(kept.read_text())
    heartbeat = world.folder() / "heartbeat.json"
    heartbeat.write_text(heartbeat.read_text().replace(generation(world.spec(), world.settings), runs))
    (change,) = world.plan()["settings"]
    assert (change["place"], change["class"]) == ("catalog.properties.uri", "restart")
    assert "in this catalog, too" in change["sentence"]


def test_what_no_change_of_the_table_can_do_is_breaking(world: PlanWorld) -> None:
    world.land()
    world.stand_in()
    world.edit("id string not null", "id long not null")
    shown = world.frazil("plan", "--check")
    assert shown.exit_code == 4
    assert "breaking       table orders.payments cannot take the rows: id: long is another type" in shown.stdout
    assert "decide about what is breaking first: correct streams/payments.yaml" in shown.stdout


@pytest.mark.parametrize("kept", [True, False])
def test_another_table_is_a_reset_also_where_the_former_file_is_not_kept(world: PlanWorld, kept: bool) -> None:
    world.land()
    world.stand_in()
    (lease,) = world.folder().glob("lease-*.json")
    lease.write_text(json.dumps(json.loads(lease.read_text()) | {"targets": {"orders.payments": "a-uuid"}}))
    if not kept:
        for name in ("launch.json", "launched.yaml"):
            (world.folder() / name).unlink()
    world.edit("name: orders.payments", "name: orders.others")
    assert ("reset", "table.name", "operator") in world.todo()
    assert world.frazil("plan", "--check").exit_code == 4


def test_a_table_that_was_dropped_is_breaking_and_drift(world: PlanWorld) -> None:
    world.land()
    world.stand_in()
    with world.catalog() as catalog:
        identity = str(catalog.load_table("orders.payments").metadata.table_uuid)
        catalog.drop_table("orders.payments")
    (lease,) = world.folder().glob("lease-*.json")
    lease.write_text(json.dumps(json.loads(lease.read_text()) | {"targets": {"orders.payments": identity}}))
    (change,) = [each for each in world.changes() if each["place"] == "orders.payments"]
    assert (change["class"], change["drift"]) == ("breaking", True)
    assert "catalog frazil has it no more" in change["sentence"]


def test_a_column_that_somebody_added_and_a_property_that_somebody_changed_are_drift(world: PlanWorld) -> None:
    world.edit("[day(created_at)]}", "[day(created_at)], properties: {write.metadata.previous-versions-max: '50'}}")
    world.land()
    world.stand_in()
    with world.catalog() as catalog:
        table = catalog.load_table("orders.payments")
        with table.update_schema() as change:
            change.add_column("by_hand", StringType())
        with table.transaction() as change:
            change.set_properties({"write.metadata.previous-versions-max": "5"})
    column, changed = world.changes()
    assert column["drift"] and changed["drift"]
    assert "schema 1 is not by frazil: + by_hand" in column["sentence"]
    assert changed["sentence"].endswith("set property write.metadata.previous-versions-max to 50, which is 5")
    assert world.todo() == [("metadata only", "orders.payments", "apply")]


def test_a_stopped_stream_is_drift_with_who_stopped_it(world: PlanWorld) -> None:
    world.land()
    asked = ControlRequest(mode="stopped", action="stop", by="tester@here", reason="a test", at=time.time())
    write_control(LocalStore(world.folder()), asked)
    (change,) = world.changes()
    assert (change["by"], change["drift"], change["next"]) == ("operator", True, "frazil start payments")
    assert "stopped by tester@here: a test" in change["sentence"]
    assert world.frazil("plan", "--check").exit_code == 3


def test_a_stream_whose_file_is_gone_ends_and_another_name_lands_twice(world: PlanWorld) -> None:
    world.land()
    world.stand_in()
    file = world.home / "streams" / "payments.yaml"
    world.write("orders")
    (world.home / "streams" / "money.yaml").write_text(file.read_text().replace("stream: payments", "stream: money"))
    file.unlink()
    plan = {each["stream"]: each for each in world.plan()["streams"]}
    assert (plan["payments"]["status"], plan["money"]["status"]) == ("removed", "new")
    (ended,) = [each for each in plan["payments"]["changes"] if each["subject"] == "driver"]
    assert (ended["step"], ended["next"]) == ("end", "frazil stop payments")
    (renamed,) = [each for each in plan["money"]["changes"] if each["place"] == "stream"]
    assert renamed["class"] == "breaking"
    assert '{"payments.v1": {"0": 40}}' in renamed["detail"]
    assert renamed["next"].startswith("write `stream: payments` into the file")


def test_a_new_name_that_begins_where_the_former_one_stands_is_no_break(world: PlanWorld) -> None:
    world.land()
    file = world.home / "streams" / "payments.yaml"
    text = file.read_text().replace("stream: payments", "stream: money")
    start = text.replace("{topics: [payments.v1]}", "{topics: [payments.v1], start: {offsets: {payments.v1: {0: 40}}}}")
    (world.home / "streams" / "money.yaml").write_text(start)
    file.unlink()
    (goes_on,) = [each for each in world.changes(stream="money") if each["place"] == "stream"]
    assert (goes_on["class"], goes_on["by"]) == ("restart", "frazil")


def test_a_bad_file_is_told_and_the_others_are_planned(world: PlanWorld) -> None:
    world.write("orders")
    world.edit("value: json", "value: jsn")
    shown = world.frazil("plan")
    assert shown.exit_code == 1
    assert "+ orders: new" in shown.stdout
    assert "payments" not in shown.stdout
    assert "payments.yaml:" in shown.stderr
    assert world.frazil("plan", "nobody").exit_code == 1
    assert world.frazil("plan", "--json", "--markdown").exit_code == 2


def git(home: Path, *words: str) -> None:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", "-C", str(home), *named, *words], check=True, capture_output=True)


def test_a_git_revision_is_compared_without_asking_anybody(tmp_path: Path) -> None:
    world = PlanWorld(tmp_path / "lake")
    (world.home / "frazil.yaml").write_text("{lease_ttl: 30s, spark: {conf: {spark.x: '${env:WORD}'}}}\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "before")
    assert world.frazil("plan", "--against", "HEAD", "--check").exit_code == 0
    world.edit(*NOTE)
    world.write("orders")
    (world.home / "frazil.yaml").write_text("{lease_ttl: 60s, spark: {conf: {spark.x: '${env:OTHER}'}}}\n")
    plan = world.plan("--against", "HEAD")
    assert [(each["place"], each["class"]) for each in plan["settings"]] == [
        ("spark.conf.spark.x", "restart"),
        ("lease_ttl", "restart"),
    ]
    assert {each["stream"]: each["status"] for each in plan["streams"]} == {"orders": "new", "payments": "changed"}
    assert ("restart", "decode.schema", "apply") in world.todo("--against", "HEAD")
    assert world.frazil("plan", "--against", "HEAD", "--check").exit_code == 3
    assert world.frazil("plan", "orders", "--against", "HEAD", "--json").exit_code == 0
    assert not (world.home / ".frazil" / "catalog.db").exists()
    for wrong in ("nowhere", "--output=x"):
        refused = world.frazil("plan", "--against", wrong)
        assert refused.exit_code == 1
        assert "is no folder, and no revision" in refused.stderr


def test_another_folder_is_compared_and_another_name_is_breaking(tmp_path: Path) -> None:
    before, after = PlanWorld(tmp_path / "before"), PlanWorld(tmp_path / "after")
    after.edit("stream: payments", "stream: money")
    plan = after.plan("--against", str(before.home))
    statuses = {each["stream"]: each["status"] for each in plan["streams"]}
    assert statuses == {"money": "new", "payments": "removed"}
    assert ("breaking", "stream", "operator") in after.todo("--against", str(before.home), stream="money")
    assert after.frazil("plan", "--against", str(before.home), "--check").exit_code == 4
    page = after.frazil("plan", "--against", str(before.home), "--markdown").stdout
    assert "| `money` (new) | **breaking** |" in page
    assert after.plan("--against", str(after.home))["pending"] == 0


def answer_slowly(monkeypatch: pytest.MonkeyPatch, slow: str, meanwhile: str = "") -> list[str]:
    """Let a catalog take longer for some tables than a plan waits; returns the names that it is asked for.

    Args:
        slow: Part of the names of the tables that it does not answer about.
        meanwhile: Part of a name that it is asked about while it does not answer, as eight tables are asked at once.
    """
    asked, find = list[str](), live.find_table

    def find_late(catalog: Catalog, name: str, branch: str, seconds: float) -> Table | None:
        asked.append(name)
        if slow in name:
            wait_for(lambda: any(meanwhile in each for each in asked), f"a question about {meanwhile}")
            raise DeadlineError(f"catalog {catalog.name} did not answer within {seconds:.0f} s")
        return find(catalog, name, branch, seconds)

    monkeypatch.setattr(live, "find_table", find_late)
    return asked


def test_a_slow_table_makes_its_stream_unknown_and_no_other(world: PlanWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (world.home / "streams" / "payments.yaml").read_text()
    (world.home / "streams" / "others.yaml").write_text(text.replace("payments", "others"))
    for stream in ("others", "payments"):
        world.land(stream)
        world.stand_in(stream)
    assert world.frazil("plan", "--check").exit_code == 0
    answer_slowly(monkeypatch, "others", meanwhile="payments")
    shown = world.frazil("plan", "--check")
    assert shown.exit_code == 4
    assert shown.stdout == (
        "? others: not known\n"
        "  not known      catalog frazil did not answer within 30 s about table orders.others, so the tables of others "
        "were not looked at\n"
        "                 Next: frazil doctor, and frazil plan again once the catalog answers\n"
        "Not known whether anything is to be done: stream others could not be looked at completely. "
        "1 other is as the files say.\n"
        "  Next: frazil doctor, and frazil plan again once the catalog answers\n"
    )
    assert "not everything could be looked at" in world.frazil("apply", "--yes").stderr


def test_a_catalog_that_answers_nothing_in_time_is_asked_no_more(
    world: PlanWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land()
    world.stand_in()
    for number in range(30):
        world.write(f"s{number}")
    asked = answer_slowly(monkeypatch, "")
    shown = world.frazil("plan", "--check")
    assert shown.exit_code == 4
    assert len(asked) < 20
    assert shown.stdout.count("so the tables of ") == 31
    assert "streams payments, s0, s1, s10, s11 and 26 more could not be looked at completely" in shown.stdout
