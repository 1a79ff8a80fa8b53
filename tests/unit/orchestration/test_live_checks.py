"""Validation and status against a real catalog, without a broker."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.stamps import Counts, Stamp
from jobs.commit.target import Target
from jobs.errors import FrazilError
from jobs.runtime.opening import connect_catalog
from jobs.schema.table_schema import iceberg_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table
from orchestration.commands.status import ago
from orchestration.deadline import DeadlineError, within
from orchestration.live import NoCatalogYet, find_table, quick_catalog
from orchestration.stream_status import status_facts, stream_status
from orchestration.validation import Finding, validate
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in

NO_BROKER = FrazilError("The local broker is not running.")


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
    schema = iceberg_schema(spec.declared, kafka_columns=True)
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
    target.commit(stamp, (), seen=target.seen(), batch={at: OffsetRange(0, 40)}, position={at: 0})


def test_status_reads_stamps_without_broker_and_jvm(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create(catalog, spec)
        commit(catalog, spec)
        status = stream_status(spec, settings, catalog, NO_BROKER)
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
    status = stream_status(spec, settings, FrazilError("catalog lake: no route"), NO_BROKER)
    assert status.state == "never ran"
    assert status.unknown == {"catalog": "catalog lake: no route", "kafka": "The local broker is not running."}


def test_a_table_that_is_not_there(settings: Settings) -> None:
    with connect_catalog(settings) as catalog:
        assert find_table(catalog, "no.such") is None


def test_nothing_waits_longer_than_its_deadline() -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineError, match=r"the sleeper did not answer within 0 s"):
        within(0.2, "the sleeper", lambda: time.sleep(5))
    assert time.monotonic() - began < 2
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
