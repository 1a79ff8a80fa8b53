"""Validation and status against a real catalog, without a broker."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog

from jobs.catalog import NoCatalogYet, connect_catalog, find_table, quick_catalog
from jobs.commit.errors import NothingToAcceptError
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.deadletter.table import DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from jobs.operator.accept import Answer, record_answer
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.opening import ensure_tables
from jobs.supervise.desired import StreamFiles
from jobs.supervise.observation import observe
from jobs.system.deadline import DeadlineError, within
from jobs.write.locations import state_under
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table
from orchestration.cli.main import main
from orchestration.cli.status.collect import driver_status, look_further
from orchestration.cli.status.facts import status_facts
from orchestration.cli.status.model import StreamStatus
from orchestration.cli.status.render import ago
from orchestration.cli.validate.checks import validate
from orchestration.cli.validate.finding import Finding
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in

NO_BROKER = FrazilError("The local broker is not running.")


def no_broker() -> KafkaLog:
    raise NO_BROKER


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment.at(deployment_in(tmp_path, "payments"))


@pytest.fixture
def settings(deployment: Deployment) -> Settings:
    return deployment.prepared_settings()


@pytest.fixture
def spec(deployment: Deployment) -> StreamSpec:
    return deployment.stream("payments")


def create(catalog: Catalog, spec: StreamSpec) -> None:
    schema = spec.table_schema
    by = partition_spec(spec.table.partition_by, schema)
    ensure_table(catalog, spec.table.name, schema, by, create_table_properties({}))


def of_tables(spec: StreamSpec, settings: Settings) -> list[Finding]:
    return [finding for finding in validate([spec], settings) if finding.subject == "table"]


def test_a_catalog_that_nobody_made_is_not_made_by_looking(settings: Settings) -> None:
    with pytest.raises(NoCatalogYet):
        quick_catalog(settings)
    assert list((settings.home / ".frazil").iterdir()) == []


def test_a_table_as_declared_is_fine(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create(catalog, spec)
    (finding,) = of_tables(spec, settings)
    assert (finding.verdict, finding.sentence) == ("ok", "table orders.payments holds what the stream declares")


def test_columns_that_disagree_are_wrong(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create(catalog, spec)
        with catalog.load_table(spec.table.name).update_schema() as change:
            change.delete_column("amount")
    findings = of_tables(spec, settings)
    assert [finding.verdict for finding in findings] == ["wrong"]
    assert "amount" in findings[0].sentence
    assert findings[0].fix == "correct decode.schema of stream payments, or alter table orders.payments"


def test_another_partitioning_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    other = spec.model_copy(update={"table": spec.table.model_copy(update={"partition_by": ()})})
    with connect_catalog(settings) as catalog:
        create(catalog, other)
    (finding,) = of_tables(spec, settings)
    assert finding.verdict == "wrong"
    assert "is partitioned by nothing, the stream says day(created_at)" in finding.sentence


def findings_of(deployment: Deployment, settings: Settings) -> list[Finding]:
    return list(validate(deployment.streams()[0], settings))


def wrong_of(deployment: Deployment, settings: Settings) -> list[tuple[str | None, str, str | None]]:
    """Stream, sentence and next command of what is wrong."""
    found = findings_of(deployment, settings)
    return [(each.stream, each.sentence, each.fix) for each in found if each.verdict == "wrong"]


def test_a_table_of_dead_letters_takes_no_rows(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", "refunds"))
    settings = deployment.prepared_settings()
    letters = "orders.payments"
    with connect_catalog(settings) as catalog:
        by = partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA)
        ensure_table(catalog, letters, DEAD_LETTER_SCHEMA, by, create_table_properties({}))
        Target(catalog, letters, "others").claim(1, lambda newest: Stamp("others", "claim", -1, 1, "c", {}, {}))
        create(catalog, deployment.stream("refunds"))
    assert wrong_of(deployment, settings) == [
        (
            "payments",
            "table orders.payments is the dead-letter table of stream others; rows do not go there",
            "give table.name of stream payments another name",
        )
    ]
    (fine,) = of_tables(deployment.stream("refunds"), settings)
    assert fine.verdict == "ok", "the other stream is none the worse for it"


def test_dead_letters_go_to_no_other_table(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create(catalog, spec)
        schema = spec.table_schema
        by = partition_spec(spec.table.partition_by, schema)
        ensure_table(catalog, spec.dead_letter_table, schema, by, create_table_properties({}))
    wrong, fine = of_tables(spec, settings)
    assert wrong.sentence.startswith("table orders.payments_dead, where the dead letters of stream payments would go")
    assert wrong.fix == "name another one in errors.dead_letters.table of stream payments"
    assert fine.verdict == "ok"


def test_state_within_the_warehouse_is_wrong(deployment: Deployment) -> None:
    (deployment.home / "frazil.yaml").write_text("state: .frazil/warehouse/state\n")
    ((stream, sentence, fix),) = wrong_of(deployment, deployment.prepared_settings())
    assert stream is None
    assert "/.frazil/warehouse/state with its leases and checkpoints lies within the warehouse file://" in sentence
    assert fix == "set `state` in frazil.yaml to a folder elsewhere, and move there what is in it"


def test_state_within_a_table_is_wrong_for_that_stream_only(tmp_path: Path) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", "refunds"))
    settings = deployment.prepared_settings()
    with connect_catalog(settings) as catalog:
        create(catalog, deployment.stream("refunds"))
        schema = deployment.stream("payments").table_schema
        location = f"file://{settings.state.parent}"
        catalog.create_table("orders.payments", schema, location=location)
    ((stream, sentence, _),) = [each for each in wrong_of(deployment, settings) if "state folder" in each[1]]
    assert (stream, f"lies within table orders.payments at {location}" in sentence) == ("payments", True)


@pytest.mark.parametrize(
    ("location", "state", "under"),
    [
        ("file:///data/table", "/data/table/state", True),
        ("/data/table", "/data/table", True),
        ("file:///data/a%20b", "/data/a b/state", True),
        ("file:///data/table", "/data/table2", False),
        ("file:///data/table/state", "/data/table", False),
        ("s3://data/table", "/data/table/state", False),
    ],
)
def test_what_lies_under_a_location(location: str, state: str, under: bool) -> None:
    assert state_under(location, Path(state)) is under


def test_links_do_not_hide_where_the_state_is(tmp_path: Path) -> None:
    (tmp_path / "table" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "table" / "state")
    assert state_under(f"file://{tmp_path}/table", tmp_path / "link" / "streams")


@pytest.mark.parametrize(
    ("catalog", "verdict", "sentence"),
    [
        ("{properties: {type: sql, uri: 'sqlite:////no/such/catalog.db'}}", "wrong", "there is no folder /no/such for"),
        ("{properties: {type: rest, uri: 'http://127.0.0.1:1'}}", "unchecked", "so the tables were not checked"),
        ("{properties: {type: rest}}", "wrong", "URI missing"),
        ("{properties: {type: sql, uri: 'nosuch://db/lake'}}", "wrong", "its driver is not installed: "),
        ("{properties: {type: hive, uri: 'thrift://127.0.0.1:1'}}", "wrong", "installed: No module named 'thrift'"),
        ("{properties: {py-catalog-impl: no.such.Catalog}}", "wrong", "Could not initialize Catalog: no.such.Catalog"),
    ],
)
def test_a_dead_broker_and_a_dead_catalog_are_told_once_each(
    tmp_path: Path, catalog: str, verdict: str, sentence: str
) -> None:
    deployment = Deployment.at(deployment_in(tmp_path, "payments", "refunds"))
    (tmp_path / "frazil.yaml").write_text(f"kafka: {{bootstrap_servers: '127.0.0.1:1'}}\ncatalog: {catalog}\n")
    kafka, about_catalog = findings_of(deployment, deployment.settings())
    assert (kafka.subject, kafka.verdict) == ("kafka", "unchecked")
    assert kafka.sentence.startswith("Kafka at 127.0.0.1:1: ")
    assert "kafka.bootstrap_servers in frazil.yaml" in (kafka.fix or "")
    assert (about_catalog.subject, about_catalog.verdict) == ("catalog", verdict)
    assert sentence in about_catalog.sentence
    assert "`catalog` in frazil.yaml" in (about_catalog.fix or "")
    assert all("\n" not in each.sentence for each in (kafka, about_catalog))


def test_streams_with_one_id_or_one_table_leave_the_others_alone(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds", "orders", "letters")
    (home / "streams" / "again.yaml").write_text((home / "streams" / "payments.yaml").read_text())
    letters = home / "streams" / "letters.yaml"
    letters.write_text(letters.read_text().replace("orders.letters", "orders.refunds_dead"))
    specs, errors = Deployment.at(home).streams()
    assert [spec.stream for spec in specs] == ["orders"]
    said = "\n".join(problem for error in errors for problem in error.problems)
    assert "the stream 'payments' is claimed by" in said
    assert "the table 'orders.refunds_dead' is claimed by" in said
    shown = CliRunner().invoke(main, ["--home", str(home), "validate"])
    assert shown.exit_code == 1
    assert f"Next: correct {home}/streams/again.yaml, then run `frazil validate`" in shown.output
    assert "ok          orders: spec:" in shown.output


def commit(catalog: Catalog, spec: StreamSpec) -> None:
    at = TopicPartition("payments.v1", 0)
    target = Target(catalog, spec.table.name, spec.stream)
    target.claim(3, lambda newest: Stamp(spec.stream, "claim", -1, 3, spec.config_hash, {at: 0}, {at: 0}))
    stamp = Stamp(
        spec.stream,
        "batch",
        5,
        3,
        spec.config_hash,
        {at: 0},
        {at: 40},
        valid_through_ms=1_700_000_000_000,
        counts=Counts(40, 38, 1, 1),
    )
    target.land(stamp, (), seen=target.seen(), batch={at: OffsetRange(0, 40)}, position={at: 0})


def whole_status(spec: StreamSpec, settings: Settings, catalog: Catalog | FrazilError) -> StreamStatus:
    status = driver_status(observe(spec.stream, StreamFiles({spec.stream: spec}), settings), spec)
    look_further(status, spec, catalog, NO_BROKER)
    return status


def test_status_reads_stamps_without_broker_and_jvm(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create(catalog, spec)
        commit(catalog, spec)
        status = whole_status(spec, settings, catalog)
    facts = status_facts(status)
    assert (facts["state"], facts["epoch"], facts["batch"]) == ("idle", 3, 5)
    assert facts["position"] == {"payments.v1": {"0": 40}}
    assert facts["records_passed"] == 40
    assert facts["complete_through"] == "2023-11-14T22:13:20.000+00:00"
    assert status.last_commit is not None
    assert datetime.now(UTC) - status.last_commit < timedelta(minutes=1)
    assert facts["lag"] is None
    assert facts["unknown"] == {"kafka": "The local broker is not running."}


def test_a_catalog_that_fails_costs_only_its_own_cells(settings: Settings, spec: StreamSpec) -> None:
    status = whole_status(spec, settings, FrazilError("catalog lake: no route"))
    assert status.state == "never ran"
    assert status.unknown == {"catalog": "catalog lake: no route", "kafka": "The local broker is not running."}


def test_a_table_that_is_not_there(settings: Settings) -> None:
    with connect_catalog(settings) as catalog:
        assert find_table(catalog, "no.such") is None


def test_nothing_waits_longer_than_its_deadline() -> None:
    never = threading.Event()
    with pytest.raises(DeadlineError, match=r"the silent one did not answer within 0 s"):
        within(0.2, "the silent one", lambda: never.wait(600))
    never.set()
    assert within(5, "the quick one", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, "the broken one", lambda: 1 / 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s ago"), (125, "2 min ago"), (7384, "2 h 3 min ago"), (86400 * 2, "2026-11-19 08:00 UTC"), (-3, "0 s ago")],
)
def test_times_as_a_person_reads_them(seconds: int, text: str) -> None:
    now = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert ago(now - timedelta(seconds=seconds), now) == text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("format-version", "3", "format-version 3 cannot be written"),
        ("write.format.default", "orc", "write.format.default orc cannot be written; frazil writes Parquet"),
        ("write.parquet.compression-codec", "rar", "Unsupported compression: rar"),
        ("write.parquet.compression-level", "high", "high"),
        ("write.target-file-size-bytes", "128MB", "invalid literal for int"),
        ("write.metadata.metrics.default", "some", "Unsupported metrics mode"),
    ],
)
def test_a_new_table_that_could_not_be_written_is_wrong(
    settings: Settings, spec: StreamSpec, name: str, value: str, said: str
) -> None:
    table = spec.table.model_copy(update={"properties": {name: value}})
    changed = spec.model_copy(update={"table": table})
    (found,) = [each for each in validate([changed], settings) if each.stream and each.verdict == "wrong"]
    assert found.subject == "spec"
    assert said in found.sentence
    assert "table.properties" in (found.fix or "")


def test_a_table_that_is_there_and_cannot_be_written_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    catalog = connect_catalog(settings)
    create(catalog, spec)
    table = catalog.load_table(spec.table.name)
    with table.transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "rar"})
    (found,) = of_tables(spec, settings)[:1]
    assert (found.verdict, "Unsupported compression: rar" in found.sentence) == ("wrong", True)


def test_a_table_of_format_version_3_is_wrong(settings: Settings, spec: StreamSpec) -> None:
    catalog = connect_catalog(settings)
    create(catalog, spec)
    # PyIceberg reads such metadata, and cannot write them either.
    file = Path(catalog.load_table(spec.table.name).metadata_location.removeprefix("file://"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format-version": 3, "next-row-id": 0}))
    (found,) = [each for each in of_tables(spec, settings) if each.verdict == "wrong"]
    assert "format version 3, whose manifests PyIceberg cannot write yet" in found.sentence
    with pytest.raises(FrazilError, match="format version 3"):
        create(catalog, spec)


def test_an_empty_table_of_frazils_follows_the_declaration(settings: Settings, spec: StreamSpec) -> None:
    catalog = connect_catalog(settings)
    ensure_tables(spec, catalog)
    decode = spec.decode.model_copy(update={"schema_text": "other decimal(5,2)"})
    changed = StreamSpec.model_validate(
        spec.model_dump(by_alias=True, exclude_unset=True)
        | {"decode": decode.model_dump(by_alias=True, exclude_unset=True), "table": {"name": spec.table.name}}
    )
    (found,) = of_tables(changed, settings)
    assert (found.verdict, "the next run makes it so" in found.sentence) == ("unchecked", True)
    with pytest.raises(NothingToAcceptError, match="the next run gives it those"):
        record_answer(changed, settings, no_broker, Answer(recreated_table=spec.table.name), "ada: why")
    ensure_tables(changed, catalog)
    (found,) = of_tables(changed, settings)
    assert found.verdict == "ok"
    with pytest.raises(NothingToAcceptError, match="has not been dropped; it is the one"):
        record_answer(changed, settings, no_broker, Answer(recreated_table=spec.table.name), "ada: why")
