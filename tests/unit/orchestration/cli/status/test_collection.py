"""Status by the stamps on the tables, where no driver tells it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog

from jobs.catalog import connect_catalog
from jobs.commit.event_times import EventCounts, EventTimes
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.supervise.desired import StreamFiles
from jobs.supervise.observation import observe
from orchestration.cli.status.collection import add_tables_and_topics, status_from_state
from orchestration.cli.status.stream_status import StreamStatus, status_facts
from tests.unit.orchestration.deployments import create_table

NO_BROKER = FrazilError("The local broker is not running.")


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
        event_time=EventTimes("created_at", 1_699_999_000_000, batch=EventCounts(1_699_998_000_000, 1_699_999_600_000)),
    )
    target.land(stamp, (), seen=target.seen(), batch={at: OffsetRange(0, 40)}, position={at: 0})


def whole_status(spec: StreamSpec, settings: Settings, catalog: Catalog | FrazilError) -> StreamStatus:
    status = status_from_state(observe(spec.stream, StreamFiles({spec.stream: spec}), settings), spec)
    add_tables_and_topics(status, spec, catalog, NO_BROKER)
    return status


def test_status_reads_stamps_without_broker_and_jvm(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        commit(catalog, spec)
        status = whole_status(spec, settings, catalog)
    facts = status_facts(status)
    assert (facts["state"], facts["epoch"], facts["batch"]) == ("idle", 3, 5)
    assert facts["position"] == {"payments.v1": {"0": 40}}
    assert facts["records_passed"] == 40
    assert facts["complete_through"] == "2023-11-14T22:13:20.000+00:00"
    assert facts["watermark"] == "2023-11-14T21:56:40.000+00:00"
    assert facts["newest_event_times"] == ["2023-11-14T21:40:00.000+00:00", "2023-11-14T22:06:40.000+00:00"]
    assert facts["late_by"] is None, "no driver tells"
    assert status.last_commit is not None
    assert datetime.now(UTC) - status.last_commit < timedelta(minutes=1)
    assert facts["lag"] is None
    assert facts["unknown"] == {"kafka": "The local broker is not running."}


def test_a_catalog_that_fails_costs_only_its_own_cells(settings: Settings, spec: StreamSpec) -> None:
    status = whole_status(spec, settings, FrazilError("catalog lake: no route"))
    assert status.state == "never ran"
    assert status.unknown == {"catalog": "catalog lake: no route", "kafka": "The local broker is not running."}
