"""Secrets in unusual places of a configuration: none is in a file of the import, in its report or in a message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.migration.connectors.reading import UnreadableSource, read_sources
from jobs.migration.conversion.conversion import convert
from jobs.migration.files.plan import plan_import, report_text
from jobs.migration.report.markdown import report_markdown

SECRET = "hunter2"
CATALOG = "iceberg.catalog."
AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
JDBC = {f"{CATALOG}type": "jdbc"}
BASE = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "iceberg.tables": "shop.orders",
    f"{CATALOG}type": "rest",
    f"{CATALOG}uri": "http://catalog:8181",
    "consumer.override.bootstrap.servers": "kafka:9092",
}
APICURIO = {"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}
OAUTH = {"consumer.override.security.protocol": "SASL_SSL", "consumer.override.sasl.mechanism": "OAUTHBEARER"}
UNUSUAL = {
    "cookie": {f"{CATALOG}header.Cookie": "sid=hunter2"},
    "own-header": {f"{CATALOG}header.x-functions-key": "hunter2"},
    "shell-default": {f"{CATALOG}token": "${TOKEN:-hunter2}"},
    "spring-default": {f"{CATALOG}token": "${TOKEN:hunter2}"},
    "default-of-env": {f"{CATALOG}token": "${env:TOKEN:-hunter2}"},
    "helm-default": {"consumer.override.ssl.x": '{{ .Values.t | default "hunter2" }}'},
    "placeholder-in-password": {"consumer.override.ssl.x.password": "a<hunter2>b"},
    "registry-slash": AVRO | {"value.converter.schema.registry.url": "https://u:hunter2/x@registry"},
    "registry-hash": AVRO | {"value.converter.schema.registry.url": "https://u:hunter2#x@registry"},
    "registry-query": AVRO | {"value.converter.schema.registry.url": "https://registry?token=hunter2"},
    "registry-comma": AVRO | {"value.converter.schema.registry.url": "https://u:x,hunter2@registry"},
    "apicurio": APICURIO | {"value.converter.apicurio.registry.url": "https://u:hunter2@registry/apis/registry/v2"},
    "token-endpoint": OAUTH | {"consumer.override.sasl.oauthbearer.token.endpoint.url": "https://u:hunter2@idp/token"},
    "catalog-slash": {f"{CATALOG}uri": "https://u:hunter2/x@catalog"},
    "catalog-token": {f"{CATALOG}uri": "https://hunter2@catalog"},
    "warehouse": {f"{CATALOG}warehouse": "s3a://AKIA:hunter2/x@bucket/wh"},
    "adls": {f"{CATALOG}adls.connection-string.account": "AccountKey=hunter2"},
    "pwd": {f"{CATALOG}pwd": "hunter2"},
    "customer-key": {f"{CATALOG}s3.sse.type": "custom", f"{CATALOG}s3.sse.key": "hunter2"},
    "encryption-key": {f"{CATALOG}gcs.encryption-key": "hunter2", f"{CATALOG}gcs.decryption-key": "hunter2"},
    "secretkey": {f"{CATALOG}s3.secretkey": "hunter2"},
    "service-account": {f"{CATALOG}gcs.service-account-json": '{"private_key":"hunter2"}'},
    "jdbc-slash": JDBC | {f"{CATALOG}uri": "jdbc:postgresql://u:hunter2/x@pg/db"},
    "jdbc-semicolon": JDBC | {f"{CATALOG}uri": "jdbc:postgresql://pg/db;password=hunter2"},
    "jdbc-mysql": JDBC | {f"{CATALOG}uri": "jdbc:mysql://address=(host=h)(user=u)(password=hunter2)/db"},
    "table-property": {"iceberg.tables.auto-create-props.s3.secret-access-key": "hunter2"},
    "write-property": {"iceberg.tables.write-props.encryption.password": "hunter2"},
    "comment-as-key": {"# sasl.password=hunter2": "x"},
}


def outputs(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    plan = plan_import(convert(read_sources([str(folder / name)])), folder / "home")
    files = "".join(f"{file.path}\n{file.text}" for file in plan.files)
    return files + report_markdown(plan.document) + report_text(plan.document)


@pytest.mark.parametrize("keys", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_a_secret_in_an_unusual_place_is_in_no_output(keys: dict[str, str], tmp_path: Path) -> None:
    text = outputs(tmp_path, "c.json", json.dumps({"name": "c", "config": BASE | keys}))

    assert SECRET not in text
    assert [name for name in keys if name.split("=")[0] not in text] == []


def test_the_id_of_a_key_is_no_secret(tmp_path: Path) -> None:
    keys = {f"{CATALOG}s3.sse.type": "kms", f"{CATALOG}s3.sse.key": "arn:aws:kms:eu-west-1:1:key/x"}
    assert "s3.sse.key: arn:aws:kms:eu-west-1:1:key/x" in outputs(tmp_path, "c.json", json.dumps(BASE | keys))


@pytest.mark.parametrize("name", ["x-iceberg-access-delegation", "User-Agent"])
def test_headers_without_secrets_stay_as_they_are(name: str, tmp_path: Path) -> None:
    text = outputs(tmp_path, "c.json", json.dumps(BASE | {f"{CATALOG}header.{name}": "vended-credentials"}))
    assert f"header.{name}: vended-credentials" in text


def test_a_private_key_whose_lines_would_be_keys_is_refused(tmp_path: Path) -> None:
    broken = "ssl.keystore.key=-----BEGIN PRIVATE KEY-----\nMIIEhunter2\n-----END PRIVATE KEY-----\n"
    lines = "".join(f"{key}={value}\n" for key, value in BASE.items())
    with pytest.raises(UnreadableSource, match=r"without a backslash at the end of each line: line 9") as raised:
        outputs(tmp_path, "c.properties", lines + broken)
    assert SECRET not in str(raised.value)

    whole = broken.replace("\nMIIE", "\\\nMIIE").replace("\n-----END", "\\\n-----END")
    assert SECRET not in outputs(tmp_path, "c.properties", lines + whole)


@pytest.mark.parametrize(
    "keys",
    [
        AVRO | {"value.converter.schema.registry.url": "https://[::1"},
        JDBC | {f"{CATALOG}uri": "jdbc:postgresql://[::1/db"},
        {"iceberg.control.commit.interval-ms": "999999999999999999"},
        {"errors.retry.timeout": "99999999999999999"},
    ],
)
def test_values_that_cannot_be_read_are_left_to_a_person(keys: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(BASE | keys))
    (one,) = convert(read_sources([str(tmp_path / "c.json")])).connectors
    (heading,) = [str(answer.heading) for answer in one.answers if answer.key == list(keys)[-1]]
    assert heading in ("decide", "approximated")


def test_a_reference_alone_is_no_user_of_the_registry(tmp_path: Path) -> None:
    keys = AVRO | {
        "value.converter.schema.registry.url": "https://registry",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "${file:/x.properties:login}",
    }
    (tmp_path / "c.json").write_text(json.dumps(BASE | keys))
    basic = convert(read_sources([str(tmp_path / "c.json")])).settings["registry"]["basic"]
    assert basic == {"user": "${env:REGISTRY_USER}", "password": "${env:REGISTRY_PASSWORD}"}
