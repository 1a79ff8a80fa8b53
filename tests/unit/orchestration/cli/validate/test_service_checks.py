"""What `frazil validate` says of topics to which the brokers give no id."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from jobs.base.system.ports import free_ports
from jobs.config.services.registry import RegistrySettings
from jobs.config.settings.settings import KafkaSettings, Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.stamp.log_state import NO_ID
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.stream_files.validate.command import live_findings
from orchestration.cli.stream_files.validate.findings import Finding
from orchestration.cli.stream_files.validate.service_checks import (
    check_cluster,
    check_registry,
    check_topics,
)
from resources.deployment import Deployment
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.orchestration.deployments import deployment_in
from tests.unit.streaming.driver.test_runner import spec


def stream(*topics: str) -> StreamSpec:
    return spec(source={"topics": list(topics)})


def kafka(identities: dict[str, str], *, epochs: bool = True) -> Any:
    """Brokers that have these topics, with one partition each."""

    def ends(partitions: Iterable[TopicPartition]) -> SimpleNamespace:
        return SimpleNamespace(leader_epochs=dict.fromkeys(partitions, 0) if epochs else {})

    return SimpleNamespace(
        topics=lambda source: {topic: [0] for topic in identities},
        identities=lambda topics: identities,
        ends=ends,
    )


def test_topics_with_ids_exist() -> None:
    finding = check_topics(stream("a"), kafka({"a": "id"}))
    assert (finding.verdict, finding.sentence) == ("ok", "topic a (1 partitions) exists")


def test_topics_without_ids_are_named() -> None:
    finding = check_topics(stream("a", "b", "c"), kafka({"a": NO_ID, "b": "id", "c": NO_ID}))
    assert (finding.verdict, finding.sentence) == (
        "ok",
        "topic a, c has no id: only leader epochs show if it is recreated",
    )
    assert "2.8 for ids" in (finding.fix or "")


def test_topics_without_ids_and_leader_epochs_are_wrong() -> None:
    finding = check_topics(stream("a", "b"), kafka({"a": NO_ID, "b": "id"}, epochs=False))
    assert finding.verdict == "wrong"
    assert finding.sentence == "the brokers give topic a neither an id nor leader epochs"


def test_a_missing_topic_is_named_before_those_without_ids() -> None:
    finding = check_topics(stream("a", "b"), kafka({"a": NO_ID}))
    assert (finding.verdict, finding.sentence) == ("wrong", "topic b does not exist")


S3 = {"name": "lake", "properties": {"type": "rest", "uri": "https://c", "warehouse": "s3://lake/w"}}
KAFKA = {"bootstrap_servers": "k:9092"}
BOUND = {"spark.driver.host": "10.1.2.3", "spark.driver.bindAddress": "0.0.0.0"}


@pytest.fixture
def master() -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"spark://127.0.0.1:{listening.getsockname()[1]}"


def told(home: Path, master: str, conf: dict[str, str] | None = None, **more: Any) -> list[tuple[str, str]]:
    document = {"kafka": KAFKA, "catalog": S3, "spark": {"master": master, "conf": conf or {}}} | more
    (home / "frazil.yaml").write_text(yaml.safe_dump({key: value for key, value in document.items() if value}))
    return [(each.verdict, each.sentence) for each in check_cluster(load_settings(None, home=home))]


def test_of_a_local_master_nothing_is_said(tmp_path: Path) -> None:
    assert told(tmp_path, "local[2]", kafka=None, catalog=None) == []


def test_one_that_answers_and_one_that_is_away(tmp_path: Path, master: str) -> None:
    assert told(tmp_path, master) == [("ok", f"the master {master} answers")]
    (port,) = free_ports(1)
    assert told(tmp_path, f"spark://127.0.0.1:{port}") == [
        ("unchecked", f"Spark's master does not answer at 127.0.0.1:{port}: Connection refused.")
    ]
    assert told(tmp_path, "spark://one:x")[0][0] == "wrong"
    assert told(tmp_path, "yarn", BOUND) == [("unchecked", "whether yarn answers was not asked")]


def test_a_driver_that_executors_do_not_find_and_a_broker_neither(tmp_path: Path) -> None:
    assert told(tmp_path, "yarn", kafka=None)[1:] == [
        ("wrong", "spark.conf: executors of yarn would look for the driver at 127.0.0.1, which is their own machine"),
        ("wrong", "the local broker listens on 127.0.0.1, where tasks on yarn do not find it"),
    ]


def test_a_warehouse_in_a_folder(tmp_path: Path, master: str) -> None:
    ((_, _), (verdict, sentence)) = told(tmp_path, master, catalog=None)
    assert verdict == "unchecked"
    assert sentence.startswith(
        f"the warehouse file://{tmp_path}/.frazil/warehouse is a folder, and tasks run on {master}"
    )


def test_secrets_that_travel_in_the_clear(tmp_path: Path, master: str) -> None:
    secret = {"name": "lake", "properties": S3["properties"] | {"token": "${env:TOKEN}"}}
    ((_, _), (verdict, sentence)) = told(tmp_path, master, catalog=secret)
    assert (verdict, "contains secrets" in sentence) == ("unchecked", True)
    assert len(told(tmp_path, master, {"spark.network.crypto.enabled": "true"}, catalog=secret)) == 1
    # A source's is no driver's.
    sources = {"shop": {"url": "postgresql://reader@db/shop", "properties": {"password": "${env:TOKEN}"}}}
    assert len(told(tmp_path, master, sources=sources)) == 1


KEY = {"format": "avro", "schema": "registry", "into": "key"}


def registry_stream(format_: str = "avro", topics: tuple[str, ...] = ("payments",), **decode: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": list(topics)},
            "decode": {"value": format_, "schema": "registry", **decode},
            "table": {"name": "orders.payments"},
        }
    )


def found(url: str | None, *specs: StreamSpec, **more: Any) -> list[tuple[str | None, str, str]]:
    registry = None if url is None else RegistrySettings.model_validate({"url": url, "timeout": "1s", **more})
    kafka = KafkaSettings(bootstrap_servers="kafka.example.com:9092")
    settings = Settings.embedded(Path("/nowhere")).model_copy(update={"registry": registry, "kafka": kafka})
    findings: list[Finding] = list(check_registry(list(specs), settings))
    assert {each.subject for each in findings} <= {"registry"}
    return [(each.stream, each.verdict, each.sentence) for each in findings]


def test_a_stream_that_needs_one_is_wrong_without() -> None:
    assert found(None) == []
    ((stream_, verdict, sentence),) = found(None, registry_stream())
    assert (stream_, verdict) == ("payments", "wrong")
    assert sentence == "values as avro name their schemas by ids of a registry; frazil.yaml names none"


def test_beside_the_local_broker_a_registry_is_started(tmp_path: Path) -> None:
    (finding,) = check_registry([registry_stream()], Settings.embedded(tmp_path))
    assert (finding.verdict, finding.fix) == ("unchecked", "frazil up")
    assert finding.sentence.endswith("the local one has not been started")


def test_one_that_is_configured_is_asked_whether_it_answers(tmp_path: Path) -> None:
    with serving(RegistryServer()) as server:
        assert found(server.url) == [(None, "ok", f"The schema registry at {server.url} answers")]
        server.authorization = lambda: "Basic x"
        ((_, verdict, sentence),) = found(server.url)
        assert verdict == "wrong"
        assert "refuses us: HTTP 401" in sentence
        server.broken = (503, "")
        assert found(server.url)[0][1] == "unchecked"
        server.broken = (200, "<html>")
        assert found(server.url)[0][1] == "wrong"
        url = server.url
    assert found(url)[0][1] == "unchecked"
    ((_, verdict, sentence),) = found(url, bearer="${env:FRAZIL_T_NOT_SET}")
    assert verdict == "unchecked"
    assert "FRAZIL_T_NOT_SET" in sentence


@pytest.mark.parametrize(
    ("spec", "verdict", "said"),
    [
        (registry_stream(), "ok", "subject payments-value is at version 3, AVRO, id 7"),
        (registry_stream("protobuf"), "wrong", "version 3, AVRO, id 7; decode.value is protobuf"),
        (
            registry_stream(topics=("refunds",)),
            "unchecked",
            "has no subject refunds-value: nothing was produced as yet, or under",
        ),
        (
            registry_stream(topics=("refunds",), subject="payments-value"),
            "ok",
            "subject payments-value is at version 3",
        ),
        (
            registry_stream("json", schema="table", key=KEY),
            "unchecked",
            "has no subject payments-key: nothing was produced",
        ),
        (
            registry_stream("json", schema="table", key=KEY | {"subject": "payments-value"}),
            "ok",
            "subject payments-value is at",
        ),
    ],
)
def test_the_subject_of_each_topic_is_looked_for(spec: StreamSpec, verdict: str, said: str) -> None:
    server = RegistryServer()
    answer = server.answer

    def with_subjects(path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        if path.startswith("/subjects/payments-value/versions/latest"):
            version = {"subject": "payments-value", "version": 3, "id": 7, "schema": '"int"'}
            return 200, json.dumps(version)
        if path.startswith("/subjects/"):
            return 404, json.dumps({"error_code": 40401, "message": "Subject not found"})
        return answer(path, headers, body)

    server.answer = with_subjects  # type: ignore[method-assign]
    with serving(server):
        (_, about_stream) = found(server.url, spec)
    assert about_stream[:2] == ("payments", verdict)
    assert said in about_stream[2]


def test_it_is_among_what_validate_checks(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments"))
    with serving(RegistryServer()) as server:
        (tmp_path / "frazil.yaml").write_text(
            f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\nregistry: {{url: '{server.url}'}}\n"
        )
        findings = list(live_findings(deployment.streams()[0], deployment.settings()))
    assert [each.sentence for each in findings if each.subject == "registry"] == [
        f"The schema registry at {server.url} answers"
    ]


PAYMENT = {"type": "record", "name": "P", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"transform": [{"compute": {"twice": "n * 2"}}], "rules": [{"name": "few", "expect": "twice < 9"}]}, None),
        ({"transform": [{"compute": {"twice": "m * 2"}}]}, "transform[0].compute.twice: the expression is wrong"),
        ({"transform": [{"compute": {"n": "1"}}]}, "transform: would take the place of the column 'n'"),
        ({"rules": [{"name": "few", "expect": "id"}]}, "rules[0].expect: "),
        ({"table": {"name": "orders.payments", "partition_by": ["day(id)"]}}, "table.partition_by[0]: "),
    ],
)
def test_steps_are_checked_on_the_newest_schema_before_there_is_a_table(
    tmp_path: Path, more: dict[str, Any], said: str | None
) -> None:
    spec = StreamSpec.model_validate(registry_stream().model_dump(mode="json", exclude_defaults=True) | more)
    newest = {"payments-value": ("AVRO", json.dumps(PAYMENT))}
    with serving(RegistryServer({1: json.dumps(PAYMENT)}, newest=newest)) as server:
        (tmp_path / "frazil.yaml").write_text(
            f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\nregistry: {{url: '{server.url}', timeout: 1s}}\n"
        )
        settings = Deployment.at(tmp_path).settings()
        found = list(live_findings([spec], settings))
    wrong = [each.sentence for each in found if each.subject == "spec" and each.verdict == "wrong"]
    if said is None:
        assert wrong == []
    else:
        (sentence,) = wrong
        assert sentence.startswith(said)
        assert "the columns are those of subject payments-value, version " in sentence


def test_a_schema_of_which_no_table_can_be_made_is_told_before_there_is_one(tmp_path: Path) -> None:
    schema = json.dumps(PAYMENT | {"fields": [*PAYMENT["fields"], {"name": "_pos", "type": "int"}]})
    with serving(RegistryServer({1: schema}, newest={"payments-value": ("AVRO", schema)})) as server:
        (tmp_path / "frazil.yaml").write_text(
            f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\nregistry: {{url: '{server.url}', timeout: 1s}}\n"
        )
        found = list(live_findings([registry_stream()], Deployment.at(tmp_path).settings()))
    (sentence,) = [each.sentence for each in found if each.subject == "spec" and each.verdict == "wrong"]
    assert "table orders.payments cannot be made: _pos is a metadata column of Iceberg" in sentence
