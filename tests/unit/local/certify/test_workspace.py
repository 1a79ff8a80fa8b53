"""A certificate's own things: no secret's value in its settings, nothing of it left, nothing else touched."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.documents.secrets import Secret
from jobs.config.settings.settings import Settings, load_settings
from jobs.local.certify import fixtures
from jobs.local.certify.certificate import new_id
from jobs.local.certify.fixtures import create_fixtures, remove_fixtures, require_absent
from jobs.local.certify.shapes import SHAPES, TYPES, Shape
from jobs.local.certify.workspace import STREAM, prepare_workspace, settings_shown

SECRETIVE = """
kafka:
  bootstrap_servers: broker.example:9093
  request_timeout: 7s
  security: {protocol: SASL_SSL, mechanism: PLAIN, user: me, password: '${env:KAFKA_PASS}', ca: certs/ca.pem}
catalog:
  name: lake
  properties: {type: sql, uri: 'postgresql://me:${env:PG_PASS}@db/lake', warehouse: 's3://lake', s3.region: here}
spark: {master: 'local[1]', conf: {spark.hadoop.some.token: '${env:SOME_TOKEN}'}}
lease_ttl: 45s
"""


@pytest.fixture
def secretive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("KAFKA_PASS", "PG_PASS", "SOME_TOKEN"):
        monkeypatch.setenv(name, f"the value of {name}")
    (tmp_path / "frazil.yaml").write_text(SECRETIVE)
    return load_settings(None, home=tmp_path)


def test_secrets_stay_references(secretive: Settings, tmp_path: Path) -> None:
    workspace = prepare_workspace(secretive, "run")
    text = workspace.settings_file.read_text()
    assert "the value of" not in text
    assert stat.S_IMODE(workspace.settings_file.stat().st_mode) == 0o600
    derived = workspace.settings
    assert derived.catalog == secretive.catalog
    assert isinstance(derived.catalog.properties["uri"], Secret)
    assert derived.catalog.revealed()["uri"] == "postgresql://me:the value of PG_PASS@db/lake"
    assert derived.kafka == secretive.kafka, "its certificates' paths as well, though the file lies elsewhere"
    assert derived.spark == secretive.spark, "a user's Spark is certified as it is"
    assert derived.state == workspace.folder / "state"
    assert derived.state != secretive.state
    assert derived.ledger.table.startswith(workspace.name), "nor the user's ledger"
    assert "the value of" not in str(settings_shown(derived))


STORES = {
    "s3": (
        "{store: 's3://ops/frazil', properties: {s3.access-key-id: k, s3.secret-access-key: '${env:S3_SECRET}'}}",
        "s3://ops/frazil/frazil_certify_run",
        None,
    ),
    "postgresql": (
        "{store: 'postgresql://me@db/ops', timeout: 3s, properties: {password: '${env:S3_SECRET}', table: ops.frazil}}",
        "postgresql://me@db/ops",
        "ops.frazil_certify_run",
    ),
}


@pytest.mark.parametrize("kind", STORES)
def test_a_state_store_stays_on_its_service_in_a_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("S3_SECRET", "the value")
    block, place, table = STORES[kind]
    (tmp_path / "frazil.yaml").write_text(f"state: {block}\ngroups: {{default: small}}\n")
    users = load_settings(None, home=tmp_path)
    workspace = prepare_workspace(users, "run")
    own = workspace.settings.state_store
    assert own is not None
    assert users.state_store is not None
    assert (own.store, own.properties.get("table"), own.timeout) == (place, table, users.state_store.timeout)
    assert own.folder == workspace.settings.state == workspace.folder / "state"
    assert "the value" not in workspace.settings_file.read_text()
    assert "the value" in own.revealed().values()
    assert settings_shown(workspace.settings)["state"] == kind
    assert workspace.settings.groups.default is None, "its stream has a driver of its own"


def test_on_a_standalone_cluster_a_driver_takes_one_core_unless_the_settings_say_how_many(tmp_path: Path) -> None:
    for number, (conf, cores) in enumerate({"{}": "1", "{spark.cores.max: '4'}": "4"}.items()):
        (tmp_path / "frazil.yaml").write_text(f"spark: {{master: 'spark://spark:7077', conf: {conf}}}\n")
        derived = prepare_workspace(load_settings(None, home=tmp_path), f"run{number}").settings
        assert derived.spark.conf["spark.cores.max"] == cores
        assert settings_shown(derived)["on_a_cluster"] is True
    (tmp_path / "frazil.yaml").write_text("spark: {master: 'local[1]'}\n")
    assert prepare_workspace(load_settings(None, home=tmp_path), "local").settings.spark.conf == {}


def test_the_embedded_default(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    workspace = prepare_workspace(settings, "run")
    assert workspace.settings.catalog == settings.catalog
    assert workspace.settings.kafka.address_file == settings.kafka.address_file
    assert workspace.settings.kafka.is_embedded
    assert workspace.settings.spark.driver_memory == "600m"
    assert workspace.settings.spark.conf["spark.ui.enabled"] == "false"


def test_its_stream(tmp_path: Path) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run")
    spec = workspace.spec()
    assert (spec.stream, spec.table.name, spec.dead_letter_table) == (STREAM, workspace.table, workspace.dead_letters)
    assert spec.source.topics == (workspace.name,)
    assert spec.continuous
    workspace.write_spec(7)
    assert workspace.spec().config_hash == spec.config_hash
    assert workspace.spec() != spec, "a roll needs another generation"


@pytest.mark.parametrize("shape", SHAPES)
def test_its_stream_of_another_shape(tmp_path: Path, shape: Shape) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run", shape)
    spec = workspace.spec()
    if shape == "named":
        # Those of its types are made as records come.
        spec = spec.with_named_tables(workspace.row_tables)
    assert set(spec.target_names) == {*workspace.row_tables, workspace.dead_letters}
    assert spec.coordinator == workspace.table == f"{workspace.name}.payments"
    assert spec.branch_of(workspace.table) == ("ingest" if shape == "gated" else "main")
    assert [each.table for each in spec.mirrors] == ([workspace.mirror] if shape == "mirrored" else [])
    assert (spec.publish is not None, spec.route is not None) == (shape == "gated", shape in ("routed", "named"))
    workspace.write_spec(7)
    assert workspace.spec().config_hash == spec.config_hash


def test_a_routed_stream_s_file_says_what_the_comparison_expects(tmp_path: Path) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run", "routed")
    route = workspace.spec().route
    assert route is not None
    found = {type_: set(route.destinations(type_)) for type_ in TYPES}
    assert found == {type_: {name for name, types in workspace.row_tables.items() if type_ in types} for type_ in TYPES}
    assert max(map(len, found.values())) == 2, "some records are in two tables"
    assert min(map(len, found.values())) == 1, "each has one"


def test_ids_are_names(tmp_path: Path) -> None:
    first, second = new_id(), new_id()
    assert first != second
    assert re.fullmatch(r"[0-9a-z_]+", first)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        yield catalog


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_left(tmp_path: Path, catalog: Catalog, shape: Shape) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run", shape)
    schema = Schema(NestedField(1, "id", StringType()))
    catalog.create_namespace("orders")
    kept = catalog.create_table("orders.payments", schema)
    catalog.create_namespace(workspace.name)
    mirrors = [workspace.mirror] if workspace.mirror else []
    for name in (*workspace.row_tables_of((*TYPES, "new_1")), workspace.dead_letters, *mirrors):
        folder = Path(catalog.create_table(name, schema).location().removeprefix("file://"))
        (folder / "data").mkdir()
        # What a killed driver leaves: nothing refers to it.
        (folder / "data" / "orphan.parquet").write_bytes(b"x")
    assert remove_fixtures(workspace, catalog) == []
    assert catalog.list_namespaces() == [("orders",)]
    assert catalog.load_table("orders.payments").metadata == kept.metadata
    assert not workspace.folder.exists()
    left = [path for path in tmp_path.rglob("*") if workspace.name in str(path) or "orphan" in path.name]
    assert left == []
    # A second time, as after an interrupt in the middle of it.
    assert remove_fixtures(workspace, catalog) == []


def test_a_driver_that_tidies_up_meanwhile(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM of a driver just killed takes its own files away, which are then gone from under the one who looks."""
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run")
    catalog.create_namespace(workspace.name)
    (workspace.folder / "state" / "spark" / "local").mkdir(parents=True)
    whole, tidied = shutil.rmtree, list[Path]()

    def tidying(folder: Path) -> None:
        if not tidied:
            tidied.append(folder)
            whole(workspace.folder / "state" / "spark")
            raise FileNotFoundError(2, "No such file or directory", "local")
        whole(folder)

    monkeypatch.setattr(shutil, "rmtree", tidying)
    assert remove_fixtures(workspace, catalog) == []
    assert tidied == [workspace.folder]
    assert not workspace.folder.exists()


def test_what_cannot_be_removed_is_named(tmp_path: Path, catalog: Catalog) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run")
    catalog.create_namespace(workspace.name)
    catalog.create_table(f"{workspace.name}.of_somebody_else", Schema(NestedField(1, "id", StringType())))
    left = remove_fixtures(workspace, catalog)
    assert len(left) == 1
    assert left[0].startswith(f"namespace {workspace.name}: ")


def test_a_catalog_that_refuses_is_told(tmp_path: Path, catalog: Catalog) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run")
    catalog.create_namespace(workspace.name)
    with pytest.raises(FrazilError) as refused:
        create_fixtures(workspace, catalog)
    assert refused.value.message.startswith(f"frazil certify cannot create namespace {workspace.name} in catalog")
    assert "let this user create" in str(refused.value.fix)


def test_what_is_there_already_is_not_touched(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics: dict[str, object] = {"payments": object()}
    admin = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=topics))
    monkeypatch.setattr(fixtures, "_admin", lambda settings: admin)
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run")
    require_absent(workspace, catalog)
    topics[workspace.name] = object()
    catalog.create_namespace(workspace.name)
    with pytest.raises(FrazilError) as refused:
        require_absent(workspace, catalog)
    assert refused.value.message == (
        f"frazil certify touches nothing that exists already: namespace {workspace.name}, topic {workspace.name}."
    )


def test_settings_of_a_certificate_can_be_read_by_others(secretive: Settings) -> None:
    """The file is what drivers get, so it has to be whole YAML without what only this program knows."""
    document = yaml.safe_load(prepare_workspace(secretive, "run").settings_file.read_text())
    assert document["kafka"]["security"]["password"] == "${env:KAFKA_PASS}"
    assert document["lease_ttl"] == "5s"
