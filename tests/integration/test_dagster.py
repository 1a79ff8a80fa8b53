"""Streams as assets, through a real webserver, daemon and run worker, by Dagster's own API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.registry.client import registry_client
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.loading import load_stream
from jobs.spec.registry import RegistrySettings
from orchestration.cli.dev.child_process import session_members
from orchestration.cli.dev.graphql import FINISHED, DagsterClient
from orchestration.cli.dev.runs import end_runs, why_failed
from orchestration.cli.dev.services import DagsterServices
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline
from tests.integration.record_places import looked_up

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

EVENTS = """query($id: ID!) { logsForRun(runId: $id) { ... on EventConnection { events { __typename
  ... on MaterializationEvent { assetKey { path } metadataEntries { label
    ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } ... on JsonMetadataEntry { jsonString }
    ... on FloatMetadataEntry { floatValue }
    ... on TableSchemaMetadataEntry { schema { columns { name type } } }
    ... on TableMetadataEntry { table { records } } } }
  ... on AssetCheckEvaluationEvent { evaluation { checkName success } } } } } }"""
NODE = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  isMaterializable kinds dependencyKeys { path } latestMaterializationByPartition: assetMaterializations(limit: 1) {
    runId } } } }"""


@pytest.fixture(scope="module")
def landing(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    made = Pipeline(tmp_path_factory.mktemp("dagster"), broker, "dagster_payments")
    made.create_topic()
    other = Pipeline(made.home, broker, "no_topic")
    assert other.spec_file.exists()
    (made.home / "streams" / "broken.yaml").write_text("stream: broken\nsourc: {}\n")
    return made


CHECK = """query($key: AssetKeyInput!) { assetCheckExecutions(
  assetKey: $key, checkName: "schema_contract", limit: 1) { evaluation { success description } } }"""
PROTO = 'syntax = "proto3"; message M { string id = 1; int32 n = 2;%s }'


class Contracts:
    """Three streams without topics: of one the subject changes, of one the table, of one the file."""

    def __init__(self, deployment: Pipeline, registry: str) -> None:
        self.streams = self.subject, self.table, self.file = "by_subject", "by_table", "by_file"
        self._deployment: Pipeline = deployment
        self._registry: str = registry
        for stream in self.streams:
            self._write(stream, "registry" if stream != self.file else "id string, n int")
            spec = load_stream(self._path(stream))
            columns = spec.table_schema_of(iceberg_schema(parse_schema("id string, n int")))
            deployment.catalog().create_namespace_if_not_exists("tests")
            deployment.catalog().create_table(f"tests.{stream}", columns)

    def begin(self) -> None:
        """Name the registry in the settings, with a first version of each subject."""
        settings = yaml.safe_load((self._deployment.home / "frazil.yaml").read_text())
        settings["registry"] = {"url": self._registry}
        (self._deployment.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        for stream in (self.subject, self.table):
            self.register(stream, "")

    def register(self, stream: str, more: str) -> None:
        client = registry_client(RegistrySettings.model_validate({"url": self._registry}))
        try:
            client.register(f"{stream}-value", "PROTOBUF", PROTO % more)
        finally:
            client.close()

    def declare(self, columns: str) -> None:
        self._write(self.file, columns)

    def _write(self, stream: str, columns: str) -> None:
        document: dict[str, Any] = {
            "stream": stream,
            "source": {"topics": [stream]},
            "decode": {"value": "json" if stream == self.file else "protobuf", "schema": columns},
            "table": {"name": f"tests.{stream}"},
            "trigger": "available_now",
        }
        document |= {} if stream == self.file else {"evolve": {"add": "propose"}}
        self._path(stream).write_text(yaml.safe_dump(document))

    def _path(self, stream: str) -> Path:
        return self._deployment.home / "streams" / f"{stream}.yaml"


@pytest.fixture(scope="module")
def contracts(landing: Pipeline, registry: str) -> Contracts:
    return Contracts(landing, registry)


@pytest.fixture(scope="module")
def services(landing: Pipeline, contracts: Contracts) -> Iterator[DagsterServices]:
    running = DagsterServices(Deployment.at(landing.home))
    running.start()
    pids = [child.pid for child in running._children]
    try:
        wait_for(lambda: running.api.find(table_key(landing)) is not None, "the code location", 120)
        yield running
    finally:
        running.stop()
    assert [pid for session in pids for pid in session_members(session)] == []


def table_key(made: Pipeline) -> list[str]:
    return ["frazil", *made.table_name.split(".")]


def keys(made: Pipeline) -> list[list[str]]:
    return [table_key(made), ["frazil", *made.dead_name.split(".")]]


def launch(api: DagsterClient, made: Pipeline) -> str:
    job = api.find(table_key(made))
    assert job is not None
    return api.launch(job, keys(made))


def finished(api: DagsterClient, run: str, seconds: float = 120.0) -> str:
    deadline = time.monotonic() + seconds
    while (status := api.status(run)) not in FINISHED:
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    return status


def materializations(api: DagsterClient, run: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for event in api.ask(EVENTS, id=run)["logsForRun"]["events"]:
        if event["__typename"] == "MaterializationEvent":
            entries = {entry.pop("label"): next(iter(entry.values()), None) for entry in event["metadataEntries"]}
            found["/".join(event["assetKey"]["path"])] = entries
    return found


def test_terminating_a_run_ends_its_jvm_and_the_next_one_drains_the_topic(
    services: DagsterServices, landing: Pipeline
) -> None:
    landing.produce({GOOD: 480, TRUNCATED: 15, TOMBSTONE: 5})
    run = launch(services.api, landing)

    def spark() -> list[int]:
        members = [pid for child in services._children for pid in child.members()]
        return [pid for pid in members if b"SparkSubmit" in _command(pid)]

    wait_for(lambda: bool(spark()), "the run's JVM")
    # Whose code server it is not has no say.
    end_runs(services.home, {"/tmp/another-s-code-server"}, time.time(), 5)
    assert services.api.status(run) not in FINISHED
    end_runs(services.home, services._sockets(), time.time(), 30)
    assert finished(services.api, run) == "CANCELED"
    wait_for(lambda: not spark(), "the end of the run's JVM", 20)

    run = launch(services.api, landing)
    assert finished(services.api, run) == "SUCCESS", why_failed(services.home, run)
    landing.assert_exactly_once()

    told = materializations(services.api, run)
    table = told["frazil/tests/dagster_payments"]
    snapshot = landing.table().current_snapshot()
    assert snapshot is not None
    assert table["snapshot_id"] == str(snapshot.snapshot_id)
    assert table["look_up"] == f"frazil at dagster_payments --snapshot {snapshot.snapshot_id}"
    opened = looked_up(landing, "--snapshot", str(snapshot.snapshot_id))["opened_by"]
    assert (opened["what"], opened["run_id"]) == ("Dagster run", run)
    assert table["dagster/row_count"] == 480
    assert (table["records_read"], table["records_landed"], table["records_dead"]) == (500, 480, 15)
    assert (table["tombstones"], table["consumer_lag_records"]) == (5, 0)
    assert json.loads(table["offsets"]) == {"dagster_payments": {"0": 250, "1": 250}}
    columns = [column["name"] for column in table["dagster/column_schema"]["columns"]]
    assert columns[:4] == ["id", "amount", "created_at", "note"]
    assert columns[4:] == ["_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    dead = told["frazil/tests/dagster_payments_dead"]
    assert dead["dagster/row_count"] == 15
    assert [json.loads(record) for record in dead["reasons"]["records"]] == [
        {"error_class": "malformed_json", "records": 15}
    ]
    checks = [
        event["evaluation"]
        for event in services.api.ask(EVENTS, id=run)["logsForRun"]["events"]
        if event["__typename"] == "AssetCheckEvaluationEvent"
    ]
    assert {"checkName": "adds_up", "success": True} in checks
    assert all(check["success"] for check in checks)


def test_a_change_is_told_by_the_sensor_before_a_record_comes(
    services: DagsterServices, landing: Pipeline, contracts: Contracts
) -> None:
    def said(stream: str) -> tuple[bool, str] | None:
        key = {"path": ["frazil", "tests", stream]}
        found = services.api.ask(CHECK, key=key)["assetCheckExecutions"]
        evaluation = found[0]["evaluation"] if found else None
        return (evaluation["success"], evaluation["description"]) if evaluation else None

    def told(stream: str, passed: bool, *words: str) -> bool:
        found = said(stream)
        return found is not None and found[0] is passed and all(each in found[1] for each in words)

    contracts.begin()
    for stream in (contracts.subject, contracts.table):
        fits = f"Table tests.{stream} takes what {stream}-value version 1 brings."
        wait_for(lambda stream=stream, fits=fits: told(stream, True, fits), f"the first look at {stream}", 150)
    wait_for(lambda: told(contracts.file, True, "declares."), "the first look at the file", 60)

    contracts.register(contracts.subject, " string more = 3;")
    with landing.catalog().load_table(f"tests.{contracts.table}").update_schema(True) as update:
        update.delete_column("n")
    contracts.declare("id string, n int, more string")
    wait_for(
        lambda: told(
            contracts.subject,
            False,
            f"Records of {contracts.subject}-value version 2 would become dead letters until somebody decides: more: ",
            f"Next: frazil schema check {contracts.subject} --against {contracts.subject}-value",
        ),
        "the new version of a subject",
        90,
    )
    wait_for(lambda: told(contracts.table, False, "until somebody decides: n: "), "the altered table", 90)
    applied = f"Next: frazil schema apply {contracts.file}"
    wait_for(lambda: told(contracts.file, False, "would not start", "more: ", applied), "the changed file", 90)
    # No record, no topic, no run.
    assert all(landing.catalog().load_table(f"tests.{each}").current_snapshot() is None for each in contracts.streams)


def test_topic_table_and_dead_letters_are_one_lineage(services: DagsterServices, landing: Pipeline) -> None:
    def node(key: list[str]) -> dict[str, Any]:
        return services.api.ask(NODE, key={"path": key})["assetNodeOrError"]

    table, dead = map(node, keys(landing))
    assert table["dependencyKeys"] == [{"path": ["kafka", "dagster_payments"]}]
    assert dead["dependencyKeys"] == [{"path": table_key(landing)}]
    assert (table["isMaterializable"], node(["kafka", "dagster_payments"])["isMaterializable"]) == (True, False)
    # The broken file is shown beside the streams that it does not hide.
    assert node(["frazil", "problems"])["isMaterializable"] is False


def test_a_stop_is_told_as_a_sentence(services: DagsterServices, landing: Pipeline) -> None:
    other = Pipeline(landing.home, landing.address, "no_topic")
    run = launch(services.api, other)
    assert finished(services.api, run) == "FAILURE"
    assert why_failed(services.home, run) == (
        "stream no_topic: topic no_topic does not exist.\n"
        "  Next: create the topic, or correct source.topics in streams/no_topic.yaml"
    )


def _command(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""
