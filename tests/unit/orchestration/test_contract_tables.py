"""A contract of a stream with a route: each table is held against its own expectations, by command and in Dagster."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.contract_checks import contract_checks
from assets.dagster_names import target_keys
from jobs.config.stream.models import StreamSpec
from jobs.quality.incremental_scan.validated_position import ValidatedPosition, validated_position
from orchestration.definitions import build_definitions
from orchestration.jobs.contract import JOB
from orchestration.sensors.contracts import ContractsCursor, run_contracts_tick
from resources.deployment import Deployment
from tests.helpers.command import frazil as command
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

CHANGES, DELETES, DEAD = "orders.changes", "orders.deletes", f"{SINK}_dead"
N_IS_SET = "orders_changes_column_values_to_not_be_null_n"
CONTRACT: dict[str, Any] = {
    "check": {"after_snapshots": 2},
    "expectations": [{"expect_column_values_to_not_be_null": {"column": "n"}, "name": "own_n_is_set"}],
    "tables": {
        CHANGES: [
            {"expect_column_values_to_not_be_null": {"column": "n"}},
            {
                "expect_column_values_to_be_between": {"column": "n", "max_value": 9},
                "severity": "warning",
                "name": "low",
            },
            {"frazil_keys_to_be_unique": {"columns": ["id"]}, "name": "changes_once"},
        ],
        DELETES: [{"expect_column_values_to_be_in_set": {"column": "id", "value_set": ["a", "b"]}, "name": "known"}],
    },
    "dead_letters": [{"expect_table_row_count_to_be_between": {"max_value": 0}, "name": "no_letters"}],
}


@pytest.fixture
def stream(tmp_path: Path) -> RoutedStream:
    mask = {"dead_letters": {"table": DEAD, "mask": {"columns": ["id"]}}, "stop_above": "off"}
    return RoutedStream(tmp_path / "home", ROUTE, contract=CONTRACT, errors=mask)


def row(kind: str, number: int | None, name: str = "a") -> dict[str, Any]:
    return {"id": name, "type": kind, "n": number}


def checked(stream: RoutedStream, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is reported of each table."""
    result = command(stream, "check", "payments", "--json", *arguments)
    assert result.stdout, result.output
    return result.exit_code, {each["table"]: each for each in json.loads(result.stdout)["tables"]}


def failed(table: dict[str, Any]) -> set[str]:
    return {each["name"] for each in table["expectations"] if not each["passed"]}


def position(stream: RoutedStream, table: str) -> ValidatedPosition | None:
    return validated_position(stream.catalog.load_table(table).metadata.properties, "payments")


def test_each_table_is_held_against_its_own_expectations(stream: RoutedStream) -> None:
    stream.land(row("INS", None), row("OWN", 5), row("UPD", 11, "b"), row("DEL", None, "z"))
    code, tables = checked(stream)
    assert code == 1 and list(tables) == [SINK, CHANGES, DELETES, DEAD]
    assert [each["rows"] for each in tables.values()] == [1, 2, 2, 0]
    assert [failed(each) for each in tables.values()] == [set(), {N_IS_SET, "low"}, {"known"}, set()]
    (is_set,) = [each for each in tables[CHANGES]["expectations"] if each["name"] == N_IS_SET]
    assert (is_set["unexpected"], is_set["samples"][0]["coordinates"]["_kafka_offset"]) == (1, 0)
    assert f"SELECT * FROM frazil.{CHANGES} WHERE" in is_set["sql"]
    (known,) = tables[DELETES]["expectations"]
    # The id is masked in dead letters, so no sample of any table shows it.
    assert known["unexpected"] == 1 and "'z'" not in json.dumps(tables) and '"z"' not in json.dumps(tables)


def test_each_table_has_a_position_of_its_own(stream: RoutedStream) -> None:
    stream.land(row("INS", 1), row("DEL", 1))
    checked(stream)
    heads = {name: stream.catalog.load_table(name).metadata.current_snapshot_id for name in (SINK, CHANGES, DELETES)}
    for name in (CHANGES, DELETES):
        found = position(stream, name)
        assert found is not None and found.snapshot_id == heads[name]
    stream.land(row("INS", 10, "c"), batch=1)
    code, tables = checked(stream)
    assert code == 0 and (tables[CHANGES]["rows"], tables[DELETES]["expectations"]) == (1, [])
    assert failed(tables[CHANGES]) == {"low"} and tables[CHANGES]["recorded"]
    assert tables[CHANGES]["increment"]["ranges"] == [{"topic": "payments", "partition": 0, "start": 2, "end": 3}]
    # A key that the table has already, in rows that were checked before.
    stream.land(row("INS", 2, "c"), row("DEL", 2, "c"), batch=2)
    code, tables = checked(stream)
    assert code == 1 and (failed(tables[CHANGES]), failed(tables[DELETES])) == ({"changes_once"}, {"known"})


def test_what_has_expired_is_sought_by_the_ledger_of_the_table(stream: RoutedStream) -> None:
    from jobs.proof.audit.ledger_fill import fill_ledger

    stream.land(row("INS", 1), row("DEL", 1))
    checked(stream)
    stream.land(row("INS", None, "b"), row("OWN", 1), batch=1)
    stream.land(row("INS", 3, "c"), batch=2)
    fill_ledger(stream.catalog, stream.settings, [stream.spec])
    table = stream.catalog.load_table(CHANGES)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()][:-1]).commit()
    _, tables = checked(stream)
    assert tables[CHANGES]["increment"]["found_by"] == "offsets" and tables[CHANGES]["rows"] == 2
    assert failed(tables[CHANGES]) == {N_IS_SET}


def test_one_table_is_asked_for(stream: RoutedStream) -> None:
    stream.land(row("INS", None), row("DEL", 1))
    for arguments, names in (
        (("--table", DELETES), [DELETES]),
        (("--table", "rows"), [SINK]),
        (("--table", "dead_letters"), [DEAD]),
        (("--dead-letters",), [DEAD]),
        (("--only", "low"), [CHANGES]),
    ):
        assert list(checked(stream, "--dry-run", *arguments)[1]) == names
    assert checked(stream, "--table", DELETES)[0] == 0 and position(stream, DELETES) is not None
    assert position(stream, CHANGES) is None
    for arguments, message in (
        (("--table", "orders.delete"), "Next: --table orders.deletes"),
        (("--table", DELETES, "--dead-letters"), "--dead-letters is a table, and --table another"),
        (("--table", DELETES, "--only", "low"), "expects nothing of that"),
        (("--only", "lo"), "did you mean 'low'"),
    ):
        refused = command(stream, "check", "payments", *arguments)
        assert refused.exit_code == 1 and message in refused.stderr, refused.output
    assert position(stream, CHANGES) is None


def test_history_and_status_tell_of_each_table(stream: RoutedStream) -> None:
    stream.land(row("INS", 1), row("DEL", 1))
    checked(stream)
    stream.land(row("INS", None, "b"), row("DEL", 1), batch=1)
    checked(stream)
    said = command(stream, "check", "payments", "--history").stdout
    # Of tables without new rows, what counts rows has been evaluated.
    assert [line.split(": ")[0] for line in said.splitlines() if "checks from" in line] == [CHANGES, DELETES, DEAD]
    document = json.loads(command(stream, "check", "payments", "--history", "--json").stdout)
    of = {each["name"]: each for each in document["expectations"]}
    assert [each["share"] for each in of[N_IS_SET]["results"]] == [0.0, 1.0]
    assert (of[N_IS_SET]["table"], of["known"]["table"], of["own_n_is_set"]["table"]) == (CHANGES, DELETES, SINK)
    alone = json.loads(command(stream, "check", "payments", "--history", "--table", DELETES, "--json").stdout)
    assert [each["name"] for each in alone["expectations"]] == ["known"]
    status = command(stream, "status", "payments").stdout
    assert f"  {CHANGES}" in status and "1 critical of 3 expectations not met" in status, status
    facts = json.loads(command(stream, "status", "payments", "--json").stdout)
    (one,) = facts["streams"]
    assert one["last_checks"][CHANGES]["failed"] == {"critical": 1} and one["last_checks"][DELETES]["failed"] == {}


def key_of(table: str) -> dg.AssetKey:
    return dg.AssetKey(["frazil", *table.split(".")])


def executed(stream: RoutedStream, instance: dg.DagsterInstance) -> dict[str, dg.AssetCheckEvaluation]:
    job = build_definitions(Deployment.at(stream.home)).resolve_job_def(JOB)
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    return {each.check_name: each for each in result.get_asset_check_evaluations()}


def test_in_dagster_each_expectation_is_a_check_of_its_tables_asset(
    stream: RoutedStream, instance: dg.DagsterInstance
) -> None:
    stream.land(row("INS", None), row("OWN", 5), row("UPD", 1, "b"), row("DEL", 1, "z"))
    found = executed(stream, instance)
    where = {name: each.asset_key for name, each in found.items()}
    assert where == {
        "own_n_is_set": key_of(SINK),
        **dict.fromkeys((N_IS_SET, "low", "changes_once"), key_of(CHANGES)),
        "known": key_of(DELETES),
        "no_letters": key_of(DEAD),
    }
    assert {name for name, each in found.items() if not each.passed} == {N_IS_SET, "known"}
    told: dict[str, Any] = {name: each.value for name, each in found[N_IS_SET].metadata.items()}
    assert (told["rows_checked"], told["unexpected_rows"]) == (2, 1)
    assert told["samples"].records[0].data["_kafka_offset"] == 0 and f"frazil.{CHANGES}" in told["rows_sql"]
    assert "'z'" not in str({name: each.metadata for name, each in found.items()})
    assert position(stream, CHANGES) is not None and position(stream, DELETES) is not None


def test_ops_of_tables_whose_names_differ_in_a_dot_are_told_apart() -> None:
    names = ["a.b_c", "a.b.c", "a.b-c"]
    spec = StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["s"]},
            "decode": {"value": "json", "schema": "id string, type string"},
            "table": {"name": "a.own"},
            "route": {"by": "type", "tables": [{"match": name, "table": name} for name in names]},
            "contract": {"tables": {name: [{"expect_column_to_exist": {"column": "id"}, "name": f"n{at}"}]
                                    for at, name in enumerate(names)}},
        }
    )  # fmt: skip
    from jobs.config.settings.settings import Settings

    made = list(contract_checks(spec, target_keys(Settings.embedded(Path("/nowhere")), spec)))
    assert len(made) == 3 and len({each.op.name for each in made}) == 3


def test_what_is_new_in_any_table_is_due(stream: RoutedStream) -> None:
    deployment, memory = Deployment.at(stream.home), ContractsCursor()

    def due() -> list[str]:
        found = run_contracts_tick(deployment, lambda: stream.catalog, memory, (), time.time())
        return [spec.stream for spec, _ in found.start]

    stream.land(row("DEL", 1))
    assert due() == []
    stream.land(row("INS", 1), batch=1)
    assert due() == [], "each table has one snapshot that was not checked"
    stream.land(row("DEL", 1, "b"), batch=2)
    assert due() == ["payments"]
    checked(stream)
    assert due() == []
