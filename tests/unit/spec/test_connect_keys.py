"""Whoever brings a key of Kafka Connect along is told what it is called here, or why it is not needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.settings import SettingsFile, load_settings
from jobs.spec.validation import SpecError, _models_at, connect_answer, connect_answers

STREAM = """\
stream: payments
source: {topics: [payments]}
decode: {value: json, schema: id string}
table: {name: orders.payments}
"""


def problems_of(tmp_path: Path, more: str) -> tuple[str, ...]:
    path = tmp_path / "payments.yaml"
    path.write_text(STREAM + more)
    with pytest.raises(SpecError) as caught:
        load_stream(path)
    return caught.value.problems


# A connector's whole configuration, as its documentation has it; of each key what its answer says.
CONNECTOR = {
    "connector.class": "there is one sink",
    "tasks.max": "is spark.master in frazil.yaml",
    "topics.regex": "is source.topics_pattern",
    "iceberg.tables": "is table.name; several are the tables of a route, route: {by: …",
    "iceberg.tables.dynamic-enabled": "a route names its tables",
    "iceberg.tables.route-field": "is by of a route",
    "iceberg.table.orders.payments.route-regex": "is match of that table in a route, of the whole value",
    "iceberg.tables.auto-create-enabled": "the first run creates the table",
    "iceberg.tables.auto-create-props.write.format.default": "is table.properties",
    "iceberg.tables.evolve-schema-enabled": "declare the column in decode.schema, and",
    "iceberg.tables.default-partition-by": "is table.partition_by",
    "iceberg.table.orders.payments.partition-by": "is table.partition_by",
    "iceberg.table.orders.payments.id-columns": "is table.identifier_fields, a list; frazil appends",
    "iceberg.tables.schema-force-optional": "is table.force_optional",
    "iceberg.tables.schema-case-insensitive": "is decode.case_insensitive",
    "iceberg.tables.upsert-mode-enabled": "rewrites no rows by a key",
    "iceberg.control.topic": "there is no control topic",
    "iceberg.control.commit.interval-ms": "is trigger",
    "iceberg.catalog": "is catalog.name in frazil.yaml",
    "iceberg.catalog.type": "is catalog.properties in frazil.yaml",
    "iceberg.catalog.s3.endpoint": "is catalog.properties in frazil.yaml",
    "iceberg.hadoop.fs.s3a.endpoint": "is not needed: PyIceberg",
    "iceberg.kafka.bootstrap.servers": "there is no control topic",
    "key.converter": "is decode.key: {format: string, into: key}",
    "key.converter.schemas.enable": "the columns of a key are in decode.key.schema",
    "value.converter": "is decode.value: json, connect_json",
    "value.converter.schema.content": "is schema.content of decode.value: {format: connect_json}",
    "value.converter.replace.null.with.default": "is replace.null.with.default of decode.value",
    "value.converter.decimal.format": "a decimal is read in either form",
    "value.converter.schemas.cache.size": "is not needed",
    "value.converter.schemas.enable": "is decode.value: connect_json where it is true",
    "value.converter.schema.registry.url": "is url, one or a list, under registry in frazil.yaml",
    "key.converter.schema.registry.url": "is url, one or a list, under registry",
    "value.converter.basic.auth.credentials.source": "is basic: {user",
    "value.converter.schema.registry.basic.auth.user.info": "is basic: {user",
    "value.converter.bearer.auth.token": "is bearer: '${env:NAME}' under registry",
    "value.converter.bearer.auth.credentials.source": "is bearer or oauth under registry",
    "value.converter.bearer.auth.issuer.endpoint.url": "is token_url of oauth under registry",
    "value.converter.bearer.auth.client.id": "is client_id of oauth",
    "value.converter.bearer.auth.client.secret": "is client_secret of oauth",
    "value.converter.bearer.auth.scope": "is scope of oauth",
    "value.converter.bearer.auth.logical.cluster": "is logical_cluster of oauth or bearer",
    "value.converter.bearer.auth.identity.pool.id": "is identity_pool_id of oauth or bearer",
    "value.converter.schema.registry.ssl.truststore.location": "is tls, with PEM files",
    "value.converter.schema.registry.request.timeout.ms": "is url, basic, bearer, oauth, tls or timeout under",
    "value.converter.auto.register.schemas": "is not needed: nothing is registered",
    "header.converter": "is decode.headers, where headers are wanted as columns",
    "transforms": "is transform, a list of steps in their order: {smt: {type: CLASS, …}}",
    "transforms.route.type": "is transform, a list of steps",
    "predicates.isTest.type": "is predicates: {ALIAS: {type: CLASS, …}}",
    "predicates.isTest.pattern": "any other step has the condition when",
    "errors.tolerance": "is tolerance under errors",
    "errors.retry.timeout": "is timeout under errors.retry",
    "errors.retry.delay.max.ms": "is max_delay under errors.retry",
    "errors.log.enable": "every failed record is in the dead letters",
    "errors.deadletterqueue.topic.name": "is topic under errors.dead_letters",
    "errors.deadletterqueue.topic.replication.factor": "is replication_factor under errors.dead_letters.topic",
    "errors.deadletterqueue.context.headers.enable": "always have the headers",
    "consumer.override.group.id": "is source.group",
    "consumer.override.auto.offset.reset": "is source.start",
    "consumer.override.isolation.level": "is kafka.isolation in frazil.yaml",
    "consumer.override.max.poll.records": "source.max_records_per_batch",
    "consumer.override.sasl.jaas.config": "is kafka.security in frazil.yaml",
    "producer.override.compression.type": "has no counterpart",
    "autoRestart": "is restart",
}


def test_every_key_of_a_connector_has_an_answer_and_all_are_told_at_once(tmp_path: Path) -> None:
    told = problems_of(tmp_path, yaml.safe_dump(CONNECTOR, sort_keys=False, width=1000))
    assert len(told) == len(CONNECTOR)
    for line, (said, (key, expected)) in enumerate(zip(told, CONNECTOR.items(), strict=True), 5):
        assert said.startswith(f"{tmp_path}/payments.yaml:{line}: {key}: this key of Kafka Connect "), said
        assert expected in said, said


@pytest.mark.parametrize(
    ("more", "place", "expected"),
    [
        ("errors: {deadletterqueue: {topic: dead}}\n", "errors.deadletterqueue", "is dead_letters under errors"),
        ("iceberg: {tables: orders.payments}\n", "iceberg", "the table is table"),
        ("errors:\n  errors.tolerance: all\n", "errors.errors.tolerance", "is tolerance under errors"),
    ],
)
def test_also_where_they_are_nested(tmp_path: Path, more: str, place: str, expected: str) -> None:
    (said,) = problems_of(tmp_path, more)
    assert f": {place}: this key of Kafka Connect " in said
    assert expected in said


def test_in_the_settings_too_and_no_value_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text("kafka:\n  sasl.jaas.config: PlainLoginModule password=hunter2\n")
    with pytest.raises(SpecError) as caught:
        load_settings(None, home=tmp_path)
    (said,) = caught.value.problems
    assert "frazil.yaml:2: kafka.sasl.jaas.config: this key of Kafka Connect is kafka.security in frazil.yaml" in said
    assert "hunter2" not in str(caught.value)


def test_what_is_no_key_of_connect_is_suggested_as_before(tmp_path: Path) -> None:
    (said,) = problems_of(tmp_path, "tigger: {every: 5s}\n")
    assert said.endswith("tigger: unknown key; did you mean 'trigger'?")
    assert connect_answer("", "qqq") is None


def test_every_answer_can_be_reached_and_names_keys_that_there_are() -> None:
    reached = {next(pattern for pattern, _ in connect_answers() if re.fullmatch(pattern, key)) for key in CONNECTOR}
    assert len(reached) > 25
    for _, answer in connect_answers():
        for root, prefix in ((StreamSpec, r"\b(source|decode|table|errors|restart)\.(\w+)"),):
            for block, key in re.findall(prefix, answer):
                known = {name for model in _models_at(root, (block,)) for name in _names(model)}
                assert key in known, f"{block}.{key}"
        for block, key in re.findall(r"\b(kafka|catalog|spark)\.(\w+)", answer):
            known = {name for model in _models_at(SettingsFile, (block,)) for name in _names(model)}
            assert key in known, f"{block}.{key}"


def _names(model: type) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}  # type: ignore[attr-defined]
