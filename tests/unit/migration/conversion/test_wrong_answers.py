"""Keys whose answer in the report has to be what becomes of them: each case had another answer before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import ConvertedConnector, convert
from jobs.migration.files.plan import plan_import
from tests.unit.migration.test_import_secrets import BASE

TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"
CATALOG = "iceberg.catalog."
SSL = "consumer.override.ssl."


def converted(tmp_path: Path, keys: dict[str, str], settings: dict[str, Any] | None = None) -> ConvertedConnector:
    """The connector; settings that it made are put into a given mapping."""
    written = {key: value for key, value in (BASE | keys).items() if value}
    (tmp_path / "c.json").write_text(json.dumps({"name": "c", "config": written}))
    plan = plan_import(convert(read_sources([str(tmp_path / "c.json")])), tmp_path / "home")
    if settings is not None:
        settings |= plan.conversion.settings
    return plan.conversion.connectors[0]


def headings(one: ConvertedConnector) -> dict[str, str]:
    return {answer.key: str(answer.heading) for answer in one.answers}


@pytest.mark.parametrize(
    ("keys", "key", "heading"),
    [
        (
            {"value.converter": "com.example.OwnConverter", "value.converter.own.region": "x"},
            "value.converter.own.region",
            "impossible",
        ),
        (
            {
                "consumer.override.security.protocol": "SSL",
                f"{SSL}truststore.location": "/t.p12",
                f"{SSL}truststore.password": "${file:/x.properties:p}",
            },
            f"{SSL}truststore.password",
            "not_needed",
        ),
        (
            {"connector.class": TABULAR, "iceberg.tables.upsert-mode-enabled": "true"}
            | {"iceberg.tables.default-partition-by": "days(at)"},
            "iceberg.tables.default-partition-by",
            "approximated",
        ),
        (
            {"iceberg.tables.auto-create-props.write.format.default": "orc"},
            "iceberg.tables.auto-create-props.write.format.default",
            "approximated",
        ),
    ],
)
def test_the_heading_says_what_becomes_of_a_key(keys: dict[str, str], key: str, heading: str, tmp_path: Path) -> None:
    one = converted(tmp_path, keys)
    assert headings(one)[key] == heading
    assert "orc" not in json.dumps(one.streams)


def test_a_password_in_a_login_that_stands_elsewhere_needs_no_decision(tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${file:/x:p}";'
    own = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    one = converted(tmp_path, {f"consumer.override.{key}": value for key, value in own.items()})
    assert one.outcome == "converted"


@pytest.mark.parametrize("key", ["topics ", " topics"])
def test_a_key_with_a_blank_is_named_as_such(key: str, tmp_path: Path) -> None:
    (answer,) = [answer for answer in converted(tmp_path, {key: "x"}).answers if answer.key == key]
    assert answer.says == "a blank beside it makes it another key than topics"


@pytest.mark.parametrize(
    ("class_", "family", "outcome"),
    [
        ("IcebergSinkConnector", "iceberg-sink", "decide"),
        ("PostgresConnector", "debezium-source", "decide"),
        ("SqlServer", "debezium-source", "decide"),
        ("S3Sink", "s3-sink", "decide"),
        ("JdbcSink", "jdbc-sink", "decide"),
        ("HttpSinkConnector", None, "refused"),
    ],
)
def test_classes_without_their_package(class_: str, family: str | None, outcome: str, tmp_path: Path) -> None:
    one = converted(tmp_path, {"connector.class": class_})
    assert (one.family, one.outcome) == (family, outcome)


@pytest.mark.parametrize(
    ("written", "decoded"), [("JsonConverter", "json"), ("Json", "json"), ("StringConverter", "string")]
)
def test_converters_without_their_package(written: str, decoded: str, tmp_path: Path) -> None:
    assert converted(tmp_path, {"value.converter": written}).streams[0]["decode"]["value"] == decoded


def test_the_generation_of_a_class_without_its_package_is_asked_for(tmp_path: Path) -> None:
    one = converted(tmp_path, {"connector.class": "IcebergSinkConnector", "iceberg.control.group-id": "g"})
    assert one.generation == "tabular"
    assert any("written without its package, taken for one of tabular's" in each.text for each in one.questions)


@pytest.mark.parametrize("key", ["iceberg.control.topic", "iceberg.connect.group-id", "consumer.override.group.id"])
def test_a_position_that_stands_elsewhere_is_not_guessed(key: str, tmp_path: Path) -> None:
    one = converted(tmp_path, {key: "${env:NAME}"})
    assert one.takeover is not None
    assert None in (one.takeover.group, one.takeover.control_topic)
    assert one.takeover.snapshot_key is None
    assert any(question.text.startswith(key) for question in one.questions)


def test_names_of_javas_clients_become_those_that_are_read(tmp_path: Path) -> None:
    given = {
        "adls.auth.shared-key.account.name": "lake",
        "adls.auth.shared-key.account.key": "hunter2",
        "client.assume-role.arn": "arn:aws:iam::1:role/x",
    }
    settings: dict[str, Any] = {}
    one = converted(tmp_path, {f"{CATALOG}{name}": value for name, value in given.items()}, settings)
    properties = settings["catalog"]["properties"]
    assert not given.keys() & properties.keys()
    assert (properties["adls.account-name"], properties["client.role-arn"]) == ("lake", "arn:aws:iam::1:role/x")
    assert properties["adls.account-key"] == "${env:CATALOG_ADLS_ACCOUNT_KEY}"
    places = {answer.key: answer.at for answer in one.answers}
    assert places[f"{CATALOG}client.assume-role.arn"] == "catalog.properties.client.role-arn"


def test_the_place_of_an_old_name_has_the_number_of_its_step(tmp_path: Path) -> None:
    own = {"transforms": "a,b", "transforms.a.type": "org.apache.kafka.connect.transforms.Flatten$Value"}
    own |= {
        "transforms.b.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.b.blacklist": "x",
    }
    places = {answer.key: answer.at for answer in converted(tmp_path, own).answers}
    assert places["transforms.b.blacklist"] == "transform[1].smt.blacklist"


def test_a_property_that_a_transform_does_not_read(tmp_path: Path) -> None:
    above = "transforms.a."
    own = {"transforms": "a", f"{above}type": "org.apache.kafka.connect.transforms.InsertField$Value"}
    own |= {f"{above}static.field": "x", f"{above}static.value": "y", f"{above}statik.value": "z"}
    one = converted(tmp_path, own)
    assert headings(one)[f"{above}statik.value"] == "no_effect"
    assert one.streams[0]["transform"][0]["smt"].keys() == {"type", "static.field", "static.value"}


def test_a_transform_without_what_it_needs_is_left_out(tmp_path: Path) -> None:
    own = {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    one = converted(tmp_path, own | {"transforms.a.regex": "x", "transforms.a.delete.handling.mode": "wrong"})
    assert "transform" not in one.streams[0]
    assert headings(one)["transforms.a.type"] == "impossible"


def test_strimzis_tls_without_a_certificate(tmp_path: Path) -> None:
    spec = {"bootstrapServers": "k:9093", "tls": {}, "authentication": {"type": "tls"}}
    connector = {"class": BASE["connector.class"], "config": BASE}
    labels = {"strimzi.io/cluster": "lake"}
    items = [resource("KafkaConnect", "lake", spec), resource("KafkaConnector", "c", connector, labels=labels)]
    (tmp_path / "c.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    (one,) = convert(read_sources([str(tmp_path / "c.json")])).connectors
    assert any("write certificate and key of kafka.security" in question.text for question in one.questions)


def test_options_of_a_workers_consumers_are_no_misspelt_ones(tmp_path: Path) -> None:
    lines = ["bootstrap.servers=k:9092", "consumer.partition.assignment.strategy=x", "consumer.client.rack=a"]
    (tmp_path / "worker.properties").write_text("\n".join(lines))
    (worker,) = convert(read_sources([str(tmp_path / "worker.properties")])).workers
    found = {answer.key: str(answer.heading) for answer in worker.answers}
    assert found["consumer.partition.assignment.strategy"] == "not_needed"
    assert found["consumer.client.rack"] == "approximated"


def test_the_resource_counts_before_its_configuration(tmp_path: Path) -> None:
    config = {key: value for key, value in BASE.items() if key != "connector.class"}
    spec = {"class": BASE["connector.class"], "tasksMax": 4, "config": config | {"tasks.max": 1}}
    resource = {"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaConnector", "metadata": {"name": "c"}}
    (tmp_path / "c.json").write_text(json.dumps(resource | {"spec": spec}))
    assert convert(read_sources([str(tmp_path / "c.json")])).settings["spark"] == {"master": "local[4]"}


def resource(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


@pytest.mark.parametrize("sasl", [True, False])
def test_a_login_that_strimzi_does_not_know(sasl: bool, tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=hunter2;"
    config = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    trusted = [{"secretName": "one", "certificate": "ca.crt"}, {"secretName": "two", "pattern": "*.crt"}]
    authentication = {"type": "custom", "sasl": sasl, "config": config}
    spec = {"bootstrapServers": "k:9093", "tls": {"trustedCertificates": trusted}, "authentication": authentication}
    connector = {"class": BASE["connector.class"], "config": BASE | {"consumer.override.bootstrap.servers": "k:9093"}}
    labels = {"strimzi.io/cluster": "lake"}
    items = [resource("KafkaConnect", "lake", spec), resource("KafkaConnector", "c", connector, labels=labels)]
    (tmp_path / "c.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    found = convert(read_sources([str(tmp_path / "c.json")]))
    answers = {answer.key: answer for answer in found.workers[0].answers}
    security = found.settings["kafka"]["security"]
    assert security["protocol"] == ("SASL_SSL" if sasl else "SSL")
    assert security.get("password") == ("${env:KAFKA_PASSWORD}" if sasl else None)
    assert str(answers["spec.authentication.type"].heading) == ("same" if sasl else "decide")
    assert "with that of secret two behind it" in answers["spec.tls.trustedCertificates"].says


def test_the_time_in_names_of_aivens_files_is_known(tmp_path: Path) -> None:
    own = {"connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector"}
    own |= {"file.name.timestamp.timezone": "Europe/Oslo", "file.name.timestamp.source": "wallclock"}
    found = headings(converted(tmp_path, own))
    assert {found["file.name.timestamp.timezone"], found["file.name.timestamp.source"]} == {"approximated"}
