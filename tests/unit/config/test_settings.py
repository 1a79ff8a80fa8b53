# ruff: noqa: E501 (a table reads best with one case a line)
import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from jobs.config.documents.validation import SpecError
from jobs.config.services.catalog_properties import CATALOG_TYPES
from jobs.config.settings.settings import Settings, load_settings, secret_references
from tests.helpers.spec_files import settings_of, settings_problems

FULL = """\
kafka:
  bootstrap_servers: broker-1:9092, broker-2:9092
  security:
    protocol: SASL_SSL
    mechanism: SCRAM-SHA-512
    user: alice
    password: ${env:FRAZIL_T_KAFKA}
    ca: certificates/ca.pem
    certificate: ~/client.crt
    key: /etc/client.key
    key_password: ${env:FRAZIL_T_KEY}
  isolation: read_uncommitted
  request_timeout: 5s
catalog:
  name: lake
  properties:
    type: sql
    uri: postgresql+psycopg2://me:${env:FRAZIL_T_PG}@db/lake
    s3.secret-access-key: ${env:FRAZIL_T_S3}
    s3.path-style-access: true
    clients: 5
spark:
  master: spark://m:7077
  driver_memory: 2g
  conf:
    spark.hadoop.fs.s3a.secret.key: ${env:FRAZIL_T_S3}
    spark.sql.shuffle.partitions: 4
state: state
lease_ttl: 1m
"""
VALUES = {
    "FRAZIL_T_KAFKA": "kafka-hunter2",
    "FRAZIL_T_KEY": "key-hunter2",
    "FRAZIL_T_PG": "pg-hunter2",
    "FRAZIL_T_S3": "s3-hunter2",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_without_a_file_all_is_embedded(home: Path) -> None:
    settings = load_settings(None, home=home)
    assert settings == Settings.embedded(home)
    assert settings.is_embedded
    assert settings.catalog.name == "frazil"
    assert settings.catalog.revealed() == {
        "type": "sql",
        "uri": f"sqlite:///{home}/.frazil/catalog.db",
        "warehouse": f"file://{home}/.frazil/warehouse",
    }
    assert settings.state == home / ".frazil/state"
    assert (settings.spark.master, settings.spark.driver_memory, settings.spark.conf) == ("local[2]", "1g", {})
    assert settings.kafka.isolation == "read_committed"
    assert settings.kafka.request_timeout == timedelta(seconds=20)
    assert settings.lease_ttl == timedelta(seconds=30)
    assert settings.ledger.table == "frazil.ledger"


def test_the_ledger_may_have_another_name(home: Path) -> None:
    assert settings_of(home, "ledger: {table: ops.frazil_ledger}\n").ledger.table == "ops.frazil_ledger"
    (problem,) = settings_problems(home, "ledger: {table: ledger}\n")
    assert problem.startswith("frazil.yaml:1: ledger.table: must be namespace.table")
    (problem,) = settings_problems(home, "ledger: {tabel: a.b}\n")
    assert "unknown key; did you mean 'table'?" in problem


def test_a_relative_home_is_made_absolute(home: Path) -> None:
    assert Settings.embedded(Path()).catalog == Settings.embedded(home).catalog


def test_the_local_broker_is_never_guessed(home: Path) -> None:
    settings = load_settings(None, home=home)
    assert settings.kafka.bootstrap_servers is None
    with pytest.raises(FrazilError) as told:
        settings.kafka.require_bootstrap()
    assert str(told.value) == "The local broker is not running.\n  Next: frazil up"


def test_the_local_broker_is_found_where_it_is_now(home: Path) -> None:
    before = load_settings(None, home=home)
    address = home / ".frazil/broker/address"
    address.parent.mkdir(parents=True)
    address.write_text("127.0.0.1:40001\n")
    assert before.kafka.require_bootstrap() == "127.0.0.1:40001"
    assert load_settings(None, home=home).kafka.bootstrap_servers == "127.0.0.1:40001"
    address.write_text("127.0.0.1:40002\n")
    assert before.kafka.require_bootstrap() == "127.0.0.1:40002"
    address.write_text("")
    with pytest.raises(FrazilError, match="not running"):
        before.kafka.require_bootstrap()


def test_a_full_file(home: Path) -> None:
    settings = settings_of(home, FULL)
    assert not settings.is_embedded
    assert not settings.kafka.is_embedded
    assert settings.kafka.require_bootstrap() == "broker-1:9092,broker-2:9092"
    security = settings.kafka.security
    assert security is not None
    assert security.ca == home / "certificates/ca.pem"
    assert security.certificate == Path("~/client.crt").expanduser()
    assert security.key == Path("/etc/client.key")
    assert security.password == Secret("${env:FRAZIL_T_KAFKA}")
    assert settings.kafka.request_timeout == timedelta(seconds=5)
    assert settings.catalog.properties["uri"] == Secret("postgresql+psycopg2://me:${env:FRAZIL_T_PG}@db/lake")
    assert settings.catalog.revealed() == {
        "type": "sql",
        "uri": "postgresql+psycopg2://me:pg-hunter2@db/lake",
        "s3.secret-access-key": "s3-hunter2",
        "s3.path-style-access": "true",
        "clients": "5",
    }
    assert settings.spark.revealed_conf() == {
        "spark.hadoop.fs.s3a.secret.key": "s3-hunter2",
        "spark.sql.shuffle.partitions": "4",
    }
    assert settings.state == home / "state"
    assert settings.lease_ttl == timedelta(minutes=1)
    assert {name for secret in secret_references(settings) for name in secret.names} == set(VALUES)


def test_no_form_of_the_settings_shows_a_secret(home: Path) -> None:
    settings = settings_of(home, FULL)
    settings.catalog.revealed()
    forms = [
        repr(settings), str(settings), f"{settings}", repr(settings.model_dump()), settings.model_dump_json(),
        repr(settings.model_dump(mode="json")), repr(pickle.dumps(settings)), repr(vars(settings)), repr(settings.catalog),
        repr(settings.kafka.security), repr(list(secret_references(settings))), repr(settings.model_copy(deep=True)),
    ]  # fmt: skip
    for form in forms:
        assert "hunter2" not in form
    assert "${env:FRAZIL_T_PG}" in settings.model_dump_json()


def test_settings_survive_json_and_pickle(home: Path) -> None:
    settings = settings_of(home, FULL)
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    assert pickle.loads(pickle.dumps(settings)).catalog.revealed() == settings.catalog.revealed()
    embedded = Settings.embedded(home)
    assert Settings.model_validate_json(embedded.model_dump_json()).is_embedded


def test_a_variable_that_is_not_set_is_told_with_its_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(home, FULL)
    monkeypatch.delenv("FRAZIL_T_PG")
    with pytest.raises(FrazilError, match=r"FRAZIL_T_PG, which frazil.yaml:18 refers to, is not set"):
        settings.catalog.revealed()


def test_a_section_left_out_is_the_embedded_one(home: Path) -> None:
    settings = settings_of(home, "spark: {driver_memory: 3g}\n")
    assert settings.is_embedded
    assert settings.spark.driver_memory == "3g"
    settings = settings_of(home, "kafka: {bootstrap_servers: 'b:1'}\n")
    assert not settings.is_embedded
    assert settings.catalog == Settings.embedded(home).catalog
    settings = settings_of(home, "kafka: {isolation: read_uncommitted}\n")
    assert settings.is_embedded
    assert settings.kafka.isolation == "read_uncommitted"


def test_a_file_that_is_named_wins_over_the_one_at_home(home: Path) -> None:
    (home / "frazil.yaml").write_text("lease_ttl: 10s\n")
    (home / "conf").mkdir()
    (home / "conf/other.yaml").write_text("lease_ttl: 20s\nstate: s\n")
    assert load_settings(None, home=home).lease_ttl == timedelta(seconds=10)
    settings = load_settings(home / "conf/other.yaml", home=home)
    assert settings.lease_ttl == timedelta(seconds=20)
    assert settings.state == home / "conf/s"
    assert settings.home == home
    with pytest.raises(SpecError, match=r"missing.yaml: cannot be read: No such file"):
        load_settings(home / "missing.yaml", home=home)


ONE_PROBLEM = [
    ("kafka:\n", "kafka:\n  bootstrap: a:1\n", 2, "kafka.bootstrap", "did you mean 'bootstrap_servers'?"),
    ("lease_ttl: 1m", "lease_tll: 1m", 29, "lease_tll", "unknown key; did you mean 'lease_ttl'?"),
    ("lease_ttl: 1m", "home: /x", 29, "home", "unknown key"),
    ("lease_ttl: 1m", "lease_ttl: 30", 29, "lease_ttl", "needs a unit; write 30s"),
    ("lease_ttl: 1m", "properties: {a: b}", 29, "properties", "it belongs under 'catalog'"),
    ("broker-1:9092, broker-2:9092", "broker-1", 2, "kafka.bootstrap_servers", "must be host:port"),
    ("broker-1:9092, broker-2:9092", "PLAINTEXT://broker:9092", 2, "kafka.bootstrap_servers", "without a scheme"),
    ("broker-1:9092, broker-2:9092", "broker:99999", 2, "kafka.bootstrap_servers", "must be host:port"),
    ("broker-1:9092, broker-2:9092", "${env:FRAZIL_T_PG}", 2, "kafka.bootstrap_servers", "must be host:port"),
    ("broker-1:9092, broker-2:9092", "','", 2, "kafka.bootstrap_servers", "at least one"),
    ("  isolation: read_uncommitted", "  address_file: x", 12, "kafka.address_file", "leave it out beside bootstrap_servers"),
    ("read_uncommitted", "read_commited", 12, "kafka.isolation", "did you mean 'read_committed'?"),
    ("SASL_SSL", "SASL-SSL", 4, "kafka.security.protocol", "did you mean 'SASL_SSL'?"),
    ("    mechanism: SCRAM-SHA-512\n", "", 3, "kafka.security.mechanism", "is required for the protocol SASL_SSL"),
    ("    protocol: SASL_SSL\n", "", 3, "kafka.security.protocol", "is required and missing"),
    ("${env:FRAZIL_T_KAFKA}", "hunter2", 7, "kafka.security.password", "write ${env:NAME}"),
    ("${env:FRAZIL_T_KAFKA}", "17", 7, "kafka.security.password", "write ${env:NAME}"),
    ("${env:FRAZIL_T_KAFKA}", "[hunter2]", 7, "kafka.security.password", "write ${env:NAME}"),
    ("${env:FRAZIL_T_KAFKA}", "$hunter2", 7, "kafka.security.password", "write ${env:NAME}"),
    ("${env:FRAZIL_T_KAFKA}", "'${hunter2}'", 7, "kafka.security.password", "reference that cannot be read"),
    ("${env:FRAZIL_T_KAFKA}", "*hunter2", 7, "", "is not YAML: found undefined alias '…'"),
    ("${env:FRAZIL_T_KAFKA}", "!hunter2", 7, "", "is not YAML: could not determine a constructor for the tag '…'"),
    ("${env:FRAZIL_T_KAFKA}", "'hunter2", 30, "", "is not YAML"),
    ("${env:FRAZIL_T_KAFKA}", "%hunter2", 7, "", "is not YAML"),
    ("${env:FRAZIL_T_KEY}", "hunter2", 11, "kafka.security.key_password", "write ${env:NAME}"),
    ("certificates/ca.pem", "${env:FRAZIL_T_PG}", 8, "kafka.security.ca", "is not possible in a path"),
    ("  name: lake", "  name: my lake", 15, "catalog.name", "must be a name of letters, digits and _"),
    ("${env:FRAZIL_T_PG}", "hunter2", 18, "catalog.properties.uri", "a password must not be in the file"),
    ("${env:FRAZIL_T_S3}\n    s3.path", "hunter2\n    s3.path", 19, "catalog.properties.s3.secret-access-key", "write ${env:NAME}"),
    ("    clients: 5", "    token: hunter2", 21, "catalog.properties.token", "write ${env:NAME}"),
    ("    clients: 5", "    credential: id:hunter2", 21, "catalog.properties.credential", "write ${env:NAME}"),
    ("    clients: 5", "    clients: [hunter2]", 21, "catalog.properties.clients", "must be a single value"),
    ("    clients: 5", "    clients:", 21, "catalog.properties.clients", "must be a single value"),
    ("    clients: 5", "    clients: '${env:1}'", 21, "catalog.properties.clients", "reference that cannot be read"),
    ("    clients: 5", "    5: x", 21, "catalog.properties.5", "a property's name must be text"),
    ("secret.key: ${env:FRAZIL_T_S3}", "secret.key: hunter2", 26, "spark.conf.spark.hadoop.fs.s3a.secret.key", "write ${env:NAME}"),
    ("driver_memory: 2g", "driver_memory: 2 GB", 24, "spark.driver_memory", "must be a size, such as 512m or 1g"),
    ("state: state", "state: s3://bucket/state", 28, "state", "must be a path of this machine, not a URI"),
    ("state: state", "state: 5", 28, "state", "must be a path"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "told"), ONE_PROBLEM, ids=lambda value: str(value)[:30])
def test_a_problem_names_file_line_and_field(home: Path, old: str, new: str, line: int, field: str, told: str) -> None:
    assert old in FULL
    (problem,) = settings_problems(home, FULL.replace(old, new, 1))
    assert problem.startswith(f"frazil.yaml:{line}: {field}: " if field else f"frazil.yaml:{line}: ")
    assert told in problem


def test_all_problems_are_told(home: Path) -> None:
    text = FULL.replace("${env:FRAZIL_T_KAFKA}", "hunter2").replace("${env:FRAZIL_T_S3}", "hunter2").replace("1m", "1")
    assert [problem.split(": ")[1] for problem in settings_problems(home, text)] == [
        "kafka.security.password",
        "catalog.properties.s3.secret-access-key",
        "spark.conf.spark.hadoop.fs.s3a.secret.key",
        "lease_ttl",
    ]


def test_a_catalog_needs_properties(home: Path) -> None:
    assert settings_problems(home, "catalog: {name: a}\n") == [
        "frazil.yaml:1: catalog.properties: is required and missing; "
        "write properties: {type: rest, uri: 'https://catalog.example'}"
    ]


def test_the_types_of_catalogs_are_pyicebergs() -> None:
    from pyiceberg.catalog import CatalogType

    assert set(CATALOG_TYPES) == {each.value for each in CatalogType}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("type: resst", "catalog.properties.type: is no type of catalog; did you mean 'rest'? known: rest, sql, hive"),
        ("type: hunter2", "is no type of catalog; known: rest"),
        ("{type: rest, py-catalog-impl: a.B}", "leave it out beside py-catalog-impl"),
    ],
)
def test_a_catalog_of_no_known_type_is_named_with_its_line(home: Path, properties: str, said: str) -> None:
    text = properties if properties.startswith("{") else "{" + properties + "}"
    (problem,) = settings_problems(home, f"catalog:\n  properties: {text}\n")
    assert said in problem


def test_types_are_read_in_either_case(home: Path) -> None:
    assert (
        settings_of(home, "catalog: {properties: {type: SQL, uri: 'sqlite:///x.db'}}").catalog.properties["type"]
        == "SQL"
    )


@pytest.mark.parametrize("given", ["127.0.0.1", "0.0.0.0", "10.1.2.3", "::", "::1"])
def test_the_ui_listens_where_the_settings_say(home: Path, given: str) -> None:
    (home / "frazil.yaml").write_text(f"spark: {{ui_address: '{given}'}}\n")
    assert load_settings(None, home=home).spark.ui_address == given


@pytest.mark.parametrize("given", ["localhost", "all", "10.1.2", "0", "true", "", "[]", "10.1.2.3:4040"])
def test_an_address_of_the_ui_that_is_none_is_refused(home: Path, given: str) -> None:
    (home / "frazil.yaml").write_text(f"spark:\n  ui_address: {given}\n")
    with pytest.raises(SpecError, match=r"frazil.yaml:2:3: spark.ui_address: must be an IP address of this machine"):
        load_settings(None, home=home)
