"""`frazil check`, a contract's checks in Dagster, and what starts them by itself, on real tables."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from jobs.tables.dead_letter_table.masking import MARK
from orchestration.cli.main import main
from orchestration.definitions import build_definitions
from orchestration.jobs.contract import CHECKED_TAG, JOB
from orchestration.sensors.contracts import SENSOR, ContractsCursor, run_contracts_tick
from resources.deployment import Deployment
from tests.helpers.check_world import CONTRACT, CheckWorld
from tests.helpers.landed_table import NAME
from tests.unit.orchestration.deployments import connections

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

KEY = dg.AssetKey(["frazil", "lake", "orders"])
DEAD_KEY = dg.AssetKey(["frazil", "lake", "orders_dead"])
WHOLE: dict[str, Any] = {
    **CONTRACT,
    "check": {"after_snapshots": 2, "every": "10m"},
    "dead_letters": [{"expect_table_row_count_to_be_between": {"max_value": 1}, "name": "few_letters"}],
}

OPS = ("check_orders", "dead_check_orders")
NAMES = {"amount_is_set", "amount_is_positive", "few_letters"}


@pytest.fixture
def orders(tmp_path: Path) -> CheckWorld:
    return CheckWorld(tmp_path / "home", WHOLE)


def command(orders: CheckWorld, *arguments: str) -> Result:
    # Wide enough for all columns of a table.
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["--home", str(orders.home), "check", "orders", *arguments])


def facts(orders: CheckWorld, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = command(orders, "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)


def definitions(orders: CheckWorld) -> dg.Definitions:
    return build_definitions(Deployment.at(orders.home))


def executed(
    orders: CheckWorld, instance: dg.DagsterInstance, *names: str, config: dict[str, Any] | None = None
) -> dict[str, dg.AssetCheckEvaluation]:
    """The job's run; with names, of these checks alone."""
    job = definitions(orders).resolve_job_def(JOB)
    keys = job.asset_layer.asset_graph.asset_check_keys
    part = job.get_subset(asset_check_selection={key for key in keys if key.name in names}) if names else job
    result = part.execute_in_process(
        instance=instance,
        run_config={"ops": {op: {"config": config} for op in OPS}} if config else None,
        raise_on_error=False,
    )
    return {each.check_name: each for each in result.get_asset_check_evaluations()}


def test_the_command_shows_what_is_not_as_expected(orders: CheckWorld) -> None:
    orders.land(0, [1.0, None, -3.0])
    result = command(orders, "--dry-run")
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "All rows of lake.orders: no check of its rows is recorded. 3 rows, by pandas."
    assert lines[1].split()[:4] == ["expectation", "severity", "result", "rows"]
    assert lines[2].split()[:7] == ["amount_is_set", "critical", "failed", "3", "1", "33.33%", "–"]
    assert "! amount_is_set: expect_column_values_to_not_be_null (column: amount)" in result.stdout
    assert "_kafka_offset 1" in result.stdout and "SELECT * FROM frazil.lake.orders WHERE" in result.stdout
    assert "? The next check looks at the same rows: nothing is recorded in a dry run." in result.stdout
    assert "Table lake.orders_dead does not exist yet." in result.stdout
    assert lines[-1] == "2 of 2 expectations are not met, 1 of them critical."


def test_the_history_has_checks_of_the_command_and_of_dagster(orders: CheckWorld, instance: dg.DagsterInstance) -> None:
    early = command(orders, "--history")
    assert early.exit_code == 1 and "no check of stream orders is kept" in early.output
    orders.land(0, [1.0, 2.0])
    assert command(orders).exit_code == 0
    orders.land(2, [None, 2.0, 3.0, 4.0])
    executed(orders, instance)
    orders.land(6, [None, None])
    assert command(orders, "--only", "amount_is_set").exit_code == 1
    result = command(orders, "--history")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("lake.orders: checks from ")
    assert lines[1].split() == [
        "expectation", "severity", "checks", "failed", "share", "over", "time", "greatest", "last", "result",
    ]  # fmt: skip
    is_set, positive = lines[2].split(), lines[3].split()
    assert is_set == ["amount_is_set", "critical", "3", "2", "▁▃█", "100.00%", "100.00%", "failed"]
    assert positive == ["amount_is_positive", "warning", "2", "0", "▁▁", "0.00%", "0.00%", "passed"]
    document = json.loads(command(orders, "--history", "--json").stdout)
    facts_of = {each["name"]: each for each in document["expectations"]}
    assert set(facts_of) == NAMES and facts_of["few_letters"]["results"] == []
    first, second, third = facts_of["amount_is_set"]["results"]
    assert "Dagster, run " in second["by"] and "@" in first["by"] and "@" in third["by"]
    assert [each["share"] for each in (first, second, third)] == [0.0, 0.25, 1.0]
    assert [each["since_snapshot"] for each in (second, third)] == [first["head_snapshot"], second["head_snapshot"]]


def test_the_history_of_one_expectation_has_a_line_for_each_check(orders: CheckWorld) -> None:
    for number in range(3):
        orders.land(2 * number, [1.0, None if number else 2.0])
        command(orders)
    result = command(orders, "--history", "--expectation", "amount_is_set", "--last", "2")
    assert result.exit_code == 0, result.output
    _, named, _, second, third = result.stdout.splitlines()
    assert named == "amount_is_set: expect_column_values_to_not_be_null, critical"
    assert all("50.00%" in line and "failed" in line for line in (second, third))
    assert "1 snapshot to " in third
    unknown = command(orders, "--history", "--expectation", "amount_is_se")
    assert unknown.exit_code == 1 and "did you mean 'amount_is_set'" in unknown.output
    for wrong in (["--history", "--all"], ["--history", "--engine", "spark"], ["--last", "3"]):
        refused = command(orders, *wrong)
        assert refused.exit_code == 1 and "--history" in refused.output


def test_the_facts_and_the_status(orders: CheckWorld) -> None:
    orders.land(0, [1.0, -3.0])
    orders.landed.land_letters(f"{NAME}_dead", [{"offset": 7}])
    code, document = facts(orders)
    # No critical one failed.
    assert code == 0
    table, letters = document["tables"]
    assert (table["rows"], table["recorded"], table["scope"], table["engine"]) == (2, True, "increment", "pandas")
    assert table["increment"]["found_by"] == "table"
    is_set, positive = table["expectations"]
    assert is_set["passed"] and not positive["passed"] and positive["severity"] == "warning"
    assert positive["samples"][0]["coordinates"]["_kafka_offset"] == 1 and positive["sql"].startswith("SELECT")
    assert letters["role"] == "dead_letters" and letters["expectations"][0]["passed"]
    orders.land(2, [5.0])
    code, document = facts(orders)
    table, letters = document["tables"]
    assert table["increment"]["ranges"] == [{"topic": "orders", "partition": 0, "start": 2, "end": 3}]
    (few,) = letters["expectations"]
    assert few["passed"] and few["observed"] == "0" and letters["not_recorded"] == "there is nothing new"
    status = CliRunner().invoke(main, ["--home", str(orders.home), "status", "orders"])
    assert "last check" in status.stdout and "1 rows, all 2 expectations met" in status.stdout, status.output


def test_wrong_commands_say_what_to_type(orders: CheckWorld, tmp_path: Path) -> None:
    orders.land(0, [1.0])
    for arguments, message in (
        (("--all", "--where", "amount > 0"), "--all looks at all rows"),
        (("--only", "amount"), "has no expectation 'amount'"),
        (
            ("--where", "amount >"),
            "is no condition on table lake.orders: it cannot be read from character 1 on: amount >",
        ),
        (("--dead-letters", "--only", "amount_is_set"), "expects nothing of that"),
    ):
        result = command(orders, *arguments)
        assert result.exit_code == 1 and message in result.stderr and "Next: " in result.stderr, result.output
    document = yaml.safe_load(orders.file.read_text())
    del document["contract"]
    orders.file.write_text(yaml.safe_dump(document))
    result = command(orders)
    assert result.exit_code == 1 and "stream orders has no contract" in result.stderr
    assert "Next: write contract: into streams/orders.yaml" in result.stderr


def test_each_expectation_is_a_check(orders: CheckWorld) -> None:
    graph = definitions(orders).resolve_asset_graph()
    keys = graph.asset_check_keys
    assert {dg.AssetCheckKey(KEY, name) for name in ("amount_is_set", "amount_is_positive")} <= keys
    assert dg.AssetCheckKey(DEAD_KEY, "few_letters") in keys
    blocking = {
        name: graph.get_check_spec(dg.AssetCheckKey(KEY, name)).blocking
        for name in ("amount_is_set", "amount_is_positive")
    }
    assert blocking == {"amount_is_set": True, "amount_is_positive": False}


def test_every_job_of_the_deployment_can_be_made(orders: CheckWorld) -> None:
    found = definitions(orders)
    dg.Definitions.validate_loadable(found)
    names = {job.name for job in found.get_repository_def().get_all_jobs()}
    assert JOB in names and any(name.startswith("__ASSET_JOB") for name in names)


def test_a_stream_without_a_contract_has_no_such_checks(orders: CheckWorld) -> None:
    document = yaml.safe_load(orders.file.read_text())
    del document["contract"]
    orders.file.write_text(yaml.safe_dump(document))
    found = definitions(orders)
    assert not [each for each in found.sensors or () if each.name == SENSOR]
    assert not any(key.name == "amount_is_set" for key in found.resolve_asset_graph().asset_check_keys)


def test_a_name_that_a_check_has_anyway_is_told_apart(tmp_path: Path) -> None:
    contract = {"expectations": [{"expect_column_to_exist": {"column": "id"}, "name": "exactly_once"}]}
    orders = CheckWorld(tmp_path / "home", contract)
    keys = {key for key in definitions(orders).resolve_asset_graph().asset_check_keys if key.asset_key == KEY}
    assert {dg.AssetCheckKey(KEY, "exactly_once"), dg.AssetCheckKey(KEY, "contract_exactly_once")} <= keys


def test_the_checks_say_what_they_found(orders: CheckWorld, instance: dg.DagsterInstance) -> None:
    orders.land(0, [1.0, None])
    orders.land(2, [-3.0, 4.0])
    orders.landed.land_letters(f"{NAME}_dead", [{"offset": 7}])
    found = executed(orders, instance)
    assert set(found) == NAMES
    is_set = found["amount_is_set"]
    assert not is_set.passed and is_set.severity is dg.AssetCheckSeverity.ERROR
    assert found["amount_is_positive"].severity is dg.AssetCheckSeverity.WARN and found["few_letters"].passed
    assert (is_set.description or "").startswith("1 of 4 rows (25.00%) are not as expected.")
    told: dict[str, Any] = {name: each.value for name, each in is_set.metadata.items()}
    assert (told["rows_checked"], told["elements"], told["unexpected_rows"], told["unexpected_share"]) == (
        4,
        4,
        1,
        0.25,
    )
    assert told["snapshots_checked"] == 2 and told["counts_as_checked"] is True
    assert told["samples"].records[0].data["_kafka_offset"] == 1
    assert "SELECT * FROM frazil.lake.orders" in told["rows_sql"]
    assert told["offsets"] == [{"partition": "orders-0", "start": 0, "end": 4}]
    # Nothing is new: what was said stands, and does not turn green.
    again = executed(orders, instance)
    assert not again["amount_is_set"].passed and (again["amount_is_set"].description or "").startswith("As of ")
    orders.land(4, [5.0])
    third = executed(orders, instance)
    assert third["amount_is_set"].passed and third["amount_is_set"].metadata["rows_checked"].value == 1


def test_some_checks_alone_count_for_nothing(orders: CheckWorld, instance: dg.DagsterInstance) -> None:
    orders.land(0, [1.0, None])
    found = executed(orders, instance, "amount_is_positive")
    assert set(found) == {"amount_is_positive"} and orders.recorded is None
    assert found["amount_is_positive"].metadata["counts_as_checked"].value is False
    some = executed(orders, instance, config={"where": "_kafka_offset = 0"})
    assert some["amount_is_set"].passed and orders.recorded is None
    executed(orders, instance)
    assert orders.recorded is not None


def test_what_a_mask_hides_stands_in_no_event_of_a_check(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    contract = {
        "expectations": [
            {"expect_column_values_to_be_between": {"column": "amount", "max_value": 10}, "name": "small"},
            {"expect_column_max_to_be_between": {"column": "amount", "max_value": 10}, "name": "least"},
            {"frazil_keys_to_be_unique": {"columns": ["amount"]}, "name": "keys"},
            {"expect_column_values_to_be_between": {"column": "id", "max_value": 0}, "name": "other"},
        ]
    }
    orders = CheckWorld(tmp_path / "home", contract, errors={"dead_letters": {"mask": {"columns": ["amount"]}}})
    orders.land(0, [271828.25, 271828.25])
    found = executed(orders, instance)
    assert set(found) == {"small", "least", "keys", "other"} and not any(each.passed for each in found.values())
    for name in ("small", "keys"):
        told: Any = found[name].metadata["samples"].value
        assert [each.data["value"] for each in told.records] == [MARK, MARK]
        assert [each.data["_kafka_offset"] for each in told.records] == [0, 1]
    # What is not masked is shown.
    shown: Any = found["other"].metadata["samples"].value
    assert [each.data["value"] for each in shown.records] == ["1"]
    records = instance.all_logs(next(iter(instance.get_runs())).run_id)
    assert len(records) > 10
    assert "271828" not in repr(records) and "271828" not in repr(found)
    # Not later either, where it is repeated.
    again = executed(orders, instance)
    assert "271828" not in repr(again) and (again["small"].description or "").startswith("As of ")


def test_a_stream_whose_file_broke_is_checked_as_it_was(orders: CheckWorld, instance: dg.DagsterInstance) -> None:
    orders.land(0, [None])
    job = definitions(orders).resolve_job_def(JOB)
    orders.file.write_text("stream: [")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert {each.check_name: each.passed for each in result.get_asset_check_evaluations()} == {
        # There are no dead letters yet, and nothing was ever said of them.
        "amount_is_set": False, "amount_is_positive": True,
    }  # fmt: skip


def test_the_sensor_asks_for_a_check_when_enough_is_new(orders: CheckWorld, instance: dg.DagsterInstance) -> None:
    found = definitions(orders)
    (sensor,) = (each for each in found.sensors or () if each.name == SENSOR)

    def tick(cursor: str | None) -> dg.SensorResult:
        resources = connections(Deployment.at(orders.home))
        del resources["kafka"]
        with dg.build_sensor_context(
            instance=instance, cursor=cursor, repository_def=found.get_repository_def(), resources=resources
        ) as context:
            made = sensor(context)
        assert isinstance(made, dg.SensorResult)
        return made

    orders.land(0, [1.0])
    first = tick(None)
    assert not first.run_requests and "1 snapshot was not checked" in str(first.skip_reason)
    orders.land(1, [None])
    second = tick(first.cursor)
    (request,) = second.run_requests or []
    assert request.job_name == JOB and request.tags[CHECKED_TAG] == "orders"
    assert {key.name for key in request.asset_check_keys or []} == {
        "amount_is_set",
        "amount_is_positive",
        "few_letters",
    }
    third = tick(second.cursor)
    assert not third.run_requests and "did not count" in str(third.skip_reason)
    # As the daemon launches it.
    job = found.resolve_job_def(JOB).get_subset(asset_check_selection=set(request.asset_check_keys or []))
    job.execute_in_process(instance=instance, tags=request.tags, raise_on_error=False)
    assert orders.recorded is not None
    fourth = tick(third.cursor)
    assert not fourth.run_requests and "nothing is new" in str(fourth.skip_reason)


def test_the_sensor_asks_once_rows_have_waited(orders: CheckWorld) -> None:
    deployment = Deployment.at(orders.home)
    memory = ContractsCursor()

    def tick(now: float, under_way: tuple[str, ...] = ()) -> list[str]:
        found = run_contracts_tick(deployment, lambda: orders.landed.catalog, memory, under_way, now)
        return [spec.stream for spec, _ in found.start]

    now = time.time()
    assert tick(now) == []
    orders.land(0, [1.0])
    assert tick(now + 590) == []
    assert tick(now + 700, under_way=("orders",)) == []
    assert tick(now + 700) == ["orders"]
    # What comes to nothing is asked for again, ever more seldom.
    assert [n for n in range(1, 40) if tick(now + 700 + n * 30)] == [2, 6, 14, 30]
    assert ContractsCursor.from_cursor(memory.to_cursor()) == memory and len(memory.to_cursor()) < 150
    assert ContractsCursor.from_cursor("{").streams == {}
    orders.check()
    orders.land(1, [1.0])
    assert tick(time.time() + 5000) == ["orders"]


SILENT = {
    "check": {"every": "30m"},
    "expectations": [
        {"expect_table_row_count_to_be_between": {"min_value": 1}, "name": "some"},
        {"expect_column_values_to_not_be_null": {"column": "amount"}, "name": "amount_is_set"},
    ],
}


def test_where_nothing_comes_the_count_is_red_and_the_rest_stands(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    orders = CheckWorld(tmp_path / "home", SILENT)
    # A table without rows: nothing was ever said of its rows, and nothing is.
    (some,) = executed(orders, instance).values()
    assert (some.check_name, some.passed, some.severity) == ("some", False, dg.AssetCheckSeverity.ERROR)
    assert some.metadata["rows_checked"].value == 0 and some.metadata["observed"].value == "0"
    orders.land(0, [None])
    found = executed(orders, instance)
    assert (found["some"].passed, found["amount_is_set"].passed) == (True, False)
    silent = executed(orders, instance)
    assert (silent["some"].passed, silent["amount_is_set"].passed) == (False, False)
    assert "Nothing is new in lake.orders" in (silent["some"].description or "")
    assert (silent["amount_is_set"].description or "").startswith("As of ")
    result = command(orders)
    assert result.exit_code == 1, result.output
    assert "1 expectations are about rows, and keep their results: no row is new." in result.stdout
    assert result.stdout.splitlines()[-1] == "1 of 1 expectations are not met, 1 of them critical."
    _, document = facts(orders)
    assert document["tables"][0]["nothing_new"] == ["amount_is_set"]


@pytest.mark.parametrize(
    ("expectation", "asked"),
    [
        ({"expect_table_row_count_to_be_between": {"min_value": 1}}, True),
        ({"expect_table_row_count_to_equal": {"value": 5}}, True),
        ({"frazil_volume_per_hour_to_be_usual": {"min_ratio": 0.5}}, True),
        ({"expect_table_row_count_to_be_between": {"max_value": 9}}, False),
        ({"frazil_volume_per_hour_to_be_usual": {"max_ratio": 2}}, False),
        ({"expect_column_values_to_not_be_null": {"column": "amount"}}, False),
    ],
)
def test_the_sensor_asks_where_nothing_comes(tmp_path: Path, expectation: dict[str, Any], asked: bool) -> None:
    orders = CheckWorld(tmp_path / "home", {"check": {"every": "30m"}, "expectations": [expectation]})
    orders.land(0, [1.0])
    orders.check()
    deployment, memory, now = Deployment.at(orders.home), ContractsCursor(), time.time()

    def tick(minutes: float) -> bool:
        found = run_contracts_tick(deployment, lambda: orders.landed.catalog, memory, (), now + 60 * minutes)
        return bool(found.start)

    assert [tick(minutes) for minutes in (0, 1, 29, 31, 59, 62)] == [asked, False, False, asked, False, asked]
    assert ContractsCursor.from_cursor(memory.to_cursor()) == memory
    orders.land(1, [1.0])
    assert tick(63), "what has come is asked for as ever"


def test_a_schedule_asks_at_its_times(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    orders = CheckWorld(tmp_path / "home", {**CONTRACT, "check": {"schedule": "5 * * * *"}})
    found = definitions(orders)
    (schedule,) = (each for each in found.schedules or () if each.name == "frazil_check_orders")
    assert isinstance(schedule, dg.ScheduleDefinition) and schedule.cron_schedule == "5 * * * *"
    at = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    context = dg.build_schedule_context(
        instance, scheduled_execution_time=at, repository_def=found.get_repository_def()
    )
    (request,) = schedule.evaluate_tick(context).run_requests or []
    assert {key.name for key in request.asset_check_keys or []} == {"amount_is_set", "amount_is_positive"}
    tick = run_contracts_tick(Deployment.at(orders.home), lambda: orders.landed.catalog, ContractsCursor(), (), 0.0)
    assert not tick.start and not tick.sentences
