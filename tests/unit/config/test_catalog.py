"""The catalog in the settings: what it may say, and what is refused with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pyiceberg
import pytest
import yaml
from pydantic import ValidationError
from pyiceberg.catalog import rest

from jobs.config.documents.connect_keys import connect_answer, connect_keys, find_key
from jobs.config.documents.model_places import models_at
from jobs.config.documents.validation import SpecError
from jobs.config.services.catalog import CatalogSettings
from jobs.config.services.catalog_properties import known_properties, nearest_property
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import SettingsFile, load_settings
from jobs.config.stream.models import StreamSpec
from tests.helpers.spec_files import settings_problems

# Of columns in Glue, classes of Hive, and rows in DynamoDB.
_NO_PROPERTIES = ("iceberg.field.", "org.apache.", "p.")
PG = "postgresql+psycopg://frazil@db:5432/lake"


def catalog(**properties: str) -> CatalogSettings:
    return CatalogSettings.model_validate({"properties": {key.replace("__", "."): v for key, v in properties.items()}})


def problems(home: Path, *lines: str) -> list[str]:
    return settings_problems(home, "catalog:\n  properties:\n" + "".join(f"    {line}\n" for line in lines))


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        (("uri: https://c", "s3.server-side-encryption: aws:kms"), 4, "have the bucket encrypt what comes"),
        (("type: rest", "uri: thrift://c"), 4, "must begin with http:// or https:// for the type rest"),
        (("type: hive", "uri: https://c"), 4, "must begin with thrift:// for the type hive"),
        (("type: rest", "uri: https://c", "snapshot-loading-mode: refs"), 5, "must be all, or be left out"),
        (("type: rest", "uri: https://c", "password: ${env:X}"), 5, "is for a catalog of the type sql"),
        (("type: sql", "uri: postgresql://db/lake", "password: ${env:X}"), 5, "is that of the user in uri"),
        (("type: sql", "uri: 'postgresql://a:${env:X}@db/l'", "password: ${env:X}"), 5, "is that of the user in uri"),
        (("type: sql", f"uri: {PG}", "password: hunter2"), 5, "write ${env:NAME}"),
    ],
)
def test_a_property_that_cannot_be_is_told_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], line: int, said: str
) -> None:
    (problem,) = problems(tmp_path, *lines)
    assert f"frazil.yaml:{line}: catalog.properties." in problem
    assert said in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("s3.endpont", "s3.endpoint"),
        ("S3.Endpoint", "s3.endpoint"),
        ("s3.access_key_id", "s3.access-key-id"),
        ("access-key-id", "s3.access-key-id"),
        ("zzz", None),
        ("s3.some-new-switch", None),
    ],
)
def test_a_name_that_is_near_to_a_known_one_is_doubted_and_kept(name: str, near: str | None) -> None:
    made = CatalogSettings.model_validate({"properties": {"type": "rest", "uri": "https://c", name: "1"}})
    doubt = f"catalog.properties.{name} is no property of a catalog that frazil knows; did you mean '{near}'?"
    assert list(made.doubts) == ([doubt] if near else [])
    assert made.revealed()[name] == "1"


@pytest.mark.parametrize("name", ["credental", "tokn", "pasword", "s3.secretaccesskey"])
def test_a_literal_under_a_name_that_is_near_to_a_secret_one_is_refused(name: str) -> None:
    properties = {"type": "rest", "uri": "https://c", name: "hidden"}
    with pytest.raises(ValidationError, match=r"did you mean .+ If so, a secret must not be in the file") as found:
        CatalogSettings.model_validate({"properties": properties})
    assert "hidden" not in str(found.value)
    reference = CatalogSettings.model_validate({"properties": properties | {name: "${env:HIDDEN}"}})
    assert len(list(reference.doubts)) == 1


def test_a_class_of_somebody_else_has_properties_of_its_own() -> None:
    made = CatalogSettings.model_validate({"properties": {"py-catalog-impl": "a.B", "credentail": "1"}})
    assert list(made.doubts) == []


@pytest.mark.parametrize(
    "name",
    ["header.X-Iceberg-Access-Delegation", "table-default.write.format.default", "jdbc.sslmode", "rest.auth.type"],
)
def test_names_that_whoever_writes_them_chooses(name: str) -> None:
    assert nearest_property(name) is None


def test_what_pyiceberg_reads_is_known() -> None:
    """Of the names that it declares as constants, those of properties are doubted by nobody."""
    folder = Path(pyiceberg.__file__).parent
    declared: set[str] = set()
    # Not imported: their clients may not be installed.
    for module in ("io/__init__", "catalog/glue", "catalog/hive", "catalog/dynamodb", "catalog/bigquery_metastore"):
        names = re.findall(r'^[A-Z0-9_]+ = "([a-z0-9_.-]+)"$', (folder / f"{module}.py").read_text(), re.MULTILINE)
        declared |= {name for name in names if "." in name and not name.startswith(_NO_PROPERTIES)}
    assert len(declared) > 60
    assert {name for name in declared if nearest_property(name)} == set()
    assert {
        rest.OAUTH2_SERVER_URI,
        rest.SCAN_PLANNING_MODE,
        rest.PAGE_SIZE,
        rest.SIGV4,
        rest.PREFIX,
    } <= known_properties()


def test_a_password_is_put_where_the_uri_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_PG", "p@ss/w:rd%")
    made = catalog(type="sql", uri=PG, password="${env:FRAZIL_T_PG}", warehouse="file:///w")
    assert made.revealed() == {
        "type": "sql",
        "uri": "postgresql+psycopg://frazil:p%40ss%2Fw%3Ard%25@db:5432/lake",
        "warehouse": "file:///w",
    }
    assert "p@ss" not in repr(made) + made.model_dump_json()


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"type": "REST", "uri": "https://c"}, "rest"),
        ({"uri": "https://c"}, "rest"),
        ({"uri": "thrift://c:9083"}, "hive"),
        ({"uri": "sqlite:////c.db"}, "sql"),
        ({"uri": PG}, "sql"),
        ({"uri": "${env:URI}"}, ""),
        ({"type": "glue"}, "glue"),
    ],
)
def test_the_type_is_told_by_the_uri_where_it_is_left_out(properties: dict[str, str], kind: str) -> None:
    assert catalog(**properties).kind == kind


def test_a_catalog_is_frozen() -> None:
    with pytest.raises(ValidationError):
        catalog(type="glue").name = "x"  # pyright: ignore[reportAttributeAccessIssue]


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
    "iceberg.table.orders.payments.id-columns": "is mirrors[].key where rows are replaced by a key",
    "iceberg.tables.schema-force-optional": "is table.force_optional",
    "iceberg.tables.schema-case-insensitive": "is decode.case_insensitive",
    "iceberg.tables.upsert-mode-enabled": "is changes: {envelope: upsert} with a mirror",
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
        assert said.startswith(f"{tmp_path}/payments.yaml:{line}:1: {key}: this key of Kafka Connect "), said
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
    assert "frazil.yaml:2:3: kafka.sasl.jaas.config: this key of Kafka Connect is kafka.security in frazil.yaml" in said
    assert "hunter2" not in str(caught.value)


def test_what_is_no_key_of_connect_is_suggested_as_before(tmp_path: Path) -> None:
    (said,) = problems_of(tmp_path, "tigger: {every: 5s}\n")
    assert said.endswith("tigger: unknown key; did you mean 'trigger'?")
    assert connect_answer("", "qqq") is None


def test_every_answer_can_be_reached_and_names_keys_that_there_are() -> None:
    reached = {find_key(key) for key in CONNECTOR}
    assert len(reached) > 25
    for answer in (re.sub(r"iceberg\.\S+", "", entry.says) for entry in connect_keys()):
        for root, prefix in ((StreamSpec, r"\b(source|decode|table|errors|restart)\.(\w+)"),):
            for block, key in re.findall(prefix, answer):
                known = {name for model in models_at(root, (block,)) for name in _names(model)}
                assert key in known, f"{block}.{key}"
        for block, key in re.findall(r"\b(kafka|catalog|spark)\.(\w+)", answer):
            known = {name for model in models_at(SettingsFile, (block,)) for name in _names(model)}
            assert key in known, f"{block}.{key}"


def _names(model: type) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}  # type: ignore[attr-defined]
