"""The assets that are made of stream specs."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import dagster as dg
import pytest

from assets import dagster_names
from assets.metadata import column_schema, counts_table, dead_letter_metadata, in_reading_order, landed_metadata
from assets.stream_checks import adds_up, totals_of
from assets.streams import stream_assets, topic_specs
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.process.drain import Drained
from jobs.tables.commit.stamp.event_times import EventCounts
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from resources.deployment import NO_STREAMS_FIX
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource, SparkResource


def spec(**changes: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "card-payments",
            "description": "Card payments.",
            "owner": "team:payments",
            "source": {"topics": ["payments.v1"]},
            "decode": {"value": "json", "schema": "id string not null, amount decimal(12,2)"},
            "table": {"name": "lake.orders.payments"},
            "freshness": {"warn": "5m", "fail": "15m"},
        }
        | changes
    )


def settings(home: Path) -> Settings:
    return Settings.embedded(home)


# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

TABLE = dg.AssetKey(["frazil", "lake", "orders", "payments"])
DEAD = dg.AssetKey(["frazil", "lake", "orders", "payments_dead"])
LATE = dg.AssetKey(["frazil", "lake", "orders", "payments_late"])


def test_table_and_dead_letters_stand_behind_the_topic(tmp_path: Path) -> None:
    assets = stream_assets(spec(), settings(tmp_path))
    by_key = {each.key: each for each in assets.specs}
    table, dead = by_key[TABLE], by_key[DEAD]
    assert [dep.asset_key for dep in table.deps] == [dg.AssetKey(["kafka", "payments.v1"])]
    # Behind the table Dagster would call them unsynced with each report of it.
    assert [dep.asset_key for dep in dead.deps] == [dg.AssetKey(["kafka", "payments.v1"])]
    assert table.kinds == {"spark", "iceberg", "table"}
    assert list(table.owners) == ["team:payments"]
    assert "Card payments." in (table.description or "")
    assert table.freshness_policy is not None
    assert dead.freshness_policy is None
    assert assets.op.pool == "frazil.card-payments"
    assert [check.name for check in assets.check_specs] == ["adds_up"]
    assert not any(check.blocking for check in assets.check_specs)


def test_late_rows_that_have_a_table_are_an_asset_behind_the_topics(tmp_path: Path) -> None:
    timed = spec(event_time={"column": "_kafka_timestamp", "late": "table"})
    late = {each.key: each for each in stream_assets(timed, settings(tmp_path)).specs}[LATE]
    assert [dep.asset_key for dep in late.deps] == [dg.AssetKey(["kafka", "payments.v1"])]
    assert late.metadata["dagster/table_name"] == "lake.orders.payments_late"
    assert late.freshness_policy is None, "nothing says how often a row is late"
    assert "before the watermark" in (late.description or "")


def test_a_page_leads_to_the_checks_and_to_all_streams(tmp_path: Path) -> None:
    table = next(each for each in stream_assets(spec(), settings(tmp_path)).specs)
    links = re.findall(r"\]\((.*?)\)", table.description or "")
    page = "http://here/prefix/assets/" + "/".join(table.key.path)
    assert [urljoin(page, link) for link in links] == [
        f"{page}?view=checks&checkDetail=driver_alive",
        f"{page}?view=events",
        "http://here/prefix/assets/frazil/supervisor",
    ]


def test_every_column_of_the_dead_letters_is_described(tmp_path: Path) -> None:
    dead = {each.key: each for each in stream_assets(spec(), settings(tmp_path)).specs}[DEAD]
    assert [each.name for each in dead.metadata["dagster/column_schema"].columns if not each.description] == []


def test_an_owner_that_dagster_does_not_know_is_told_in_the_description(tmp_path: Path) -> None:
    table = next(each for each in stream_assets(spec(owner="Jo in accounts"), settings(tmp_path)).specs)
    assert list(table.owners) == []
    assert "Owner: Jo in accounts." in (table.description or "")


def test_a_topic_that_two_streams_read_is_one_asset() -> None:
    other = spec(stream="other", table={"name": "a.b"})
    (topic,) = topic_specs([spec(), other])
    assert topic.key == dg.AssetKey(["kafka", "payments.v1"])
    assert "read by streams `card-payments`, `other`" in (topic.description or "")
    assert (topic.kinds, list(topic.owners)) == ({"kafka", "topic"}, ["team:payments"])


def test_topics_by_pattern_are_one_asset_with_a_safe_name() -> None:
    daily = spec(source={"topics_pattern": r"payments\.\d{8}"})
    (topic,) = topic_specs([daily])
    assert topic.key == dg.AssetKey(["kafka", "payments_._d_8"])
    assert r"payments\.\d{8}" in (topic.description or "")


def test_streams_of_one_deployment_make_one_loadable_code_location(tmp_path: Path) -> None:
    both = [spec(), spec(stream="card_payments", table={"name": "a.b"})]
    defs = dg.Definitions(
        assets=[*topic_specs(both), *(stream_assets(each, settings(tmp_path)) for each in both)],
        resources=resources(tmp_path),
    )
    dg.Definitions.validate_loadable(defs)


def resources(home: Path) -> dict[str, Any]:
    paths = DeploymentResource(home=str(home))
    return {
        "deployment": paths,
        "catalog": CatalogResource(deployment=paths),
        "kafka": KafkaResource(deployment=paths),
        "spark": SparkResource(deployment=paths),
    }


def test_an_error_is_told_as_a_sentence_with_the_next_command(tmp_path: Path) -> None:
    result = dg.materialize(
        [stream_assets(spec(), settings(tmp_path))], resources=resources(tmp_path), raise_on_error=False
    )
    assert not result.success
    (event,) = result.get_step_failure_events()
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.metadata["message"].value == f"There are no streams in {tmp_path}: it has no folder `streams`."
    assert failure.metadata["next"].value == NO_STREAMS_FIX
    assert (failure.description or "").endswith(f"\n  Next: {failure.metadata['next'].value}")


class FakeSnapshot:
    snapshot_id = 7_000_000_000_000_000_001

    class Summary:
        additional_properties = {"total-records": "97"}  # noqa: RUF012

    summary = Summary()


class FakeTable:
    """As much of a PyIceberg table as metadata asks for; the real one is in the integration tests."""

    def __init__(self, stamp: Stamp | None = None) -> None:
        class Metadata:
            properties = {property_key(stamp.stream): stamp.to_json()} if stamp else {}
            snapshots: list[Any] = []  # noqa: RUF012
            refs: dict[str, Any] = {}  # noqa: RUF012

        self.metadata = Metadata()

    def current_snapshot(self) -> Any:
        return FakeSnapshot()

    def schema(self) -> Any:
        return spec().resolved.schema

    def location(self) -> str:
        return "file:///warehouse/orders/payments"


def drained(counts: Counts) -> Drained:
    batch = BatchDone(0, counts, 2.0, 1.5, 0.25, {}, None, reasons={"wrong_type": 2, "missing_field": 3}, files=4)
    return Drained(
        "card-payments",
        3,
        counts,
        [batch],
        {TopicPartition("payments.v1", 1): 60, TopicPartition("payments.v1", 0): 40},
        {TopicPartition("payments.v1", 0): 5},
        valid_through_ms=1_700_000_000_000,
        seconds=4.0,
    )


def test_metadata_has_stable_names_with_units_and_dagsters_own() -> None:
    metadata = landed_metadata(spec(), drained(Counts(100, 92, 5, 3)), FakeTable())  # type: ignore[arg-type]
    assert metadata["dagster/row_count"] == 97
    assert metadata["dagster/table_name"] == "lake.orders.payments"
    assert metadata["dagster/uri"] == "file:///warehouse/orders/payments"
    assert [column.name for column in metadata["dagster/column_schema"].columns] == ["id", "amount"]
    # Greater than what JavaScript counts to exactly, so it is text.
    assert metadata["snapshot_id"] == "7000000000000000001"
    assert metadata["look_up"] == "frazil at card-payments --snapshot 7000000000000000001"
    assert (metadata["records_landed"], metadata["records_dead"], metadata["tombstones"]) == (92, 5, 3)
    assert metadata["consumer_lag_records"] == 5
    assert metadata["offsets"].value == {"payments.v1": {"0": 40, "1": 60}}
    assert (metadata["batches"], metadata["records_per_second"], metadata["commit_ms"]) == (1, 25, 250)
    for value in metadata.values():
        dg.MaterializeResult(metadata={"checked": value})


def test_a_watermark_is_told_with_how_far_it_is_behind() -> None:
    done = drained(Counts(100, 92, 5, 3))
    done.watermark_ms = round((time.time() - 100) * 1000)
    events = EventCounts(1_700_000_000_000, 1_700_003_600_500, late=(3, 0, 0, 0, 1), latest_ms=90_000_500, aside=3)
    done.batches[0] = replace(done.batches[0], events=events)
    timed = spec(event_time={"column": "_kafka_timestamp", "late": "table"})
    metadata = landed_metadata(timed, done, FakeTable())  # type: ignore[arg-type]
    assert (metadata["event_time_least"].value, metadata["event_time_greatest"].value) == (1.7e9, 1_700_003_600.5)
    assert metadata["latest_late_s"] == 90_000.5
    assert [record.data for record in metadata["late_by"].records if record.data["records"]] == [
        {"late_by": "1m", "records": 3},
        {"late_by": "more", "records": 1},
    ]
    assert metadata["watermark"].value == done.watermark_ms / 1000
    assert 100 <= metadata["watermark_lag_s"] < 130
    assert metadata["records_late"] == 4
    early = landed_metadata(timed, drained(Counts(1, 1)), FakeTable())  # type: ignore[arg-type]
    assert (early["records_late"], early["latest_late_s"]) == (0, 0.0)
    without = landed_metadata(spec(), drained(Counts(1, 1)), FakeTable())  # type: ignore[arg-type]
    assert not {"watermark", "watermark_lag_s", "records_late"} & set(without)


def test_dead_letters_are_told_by_reason_the_most_frequent_first() -> None:
    metadata = dead_letter_metadata(spec(), drained(Counts(100, 92, 5, 3)), FakeTable())  # type: ignore[arg-type]
    assert [record.data for record in metadata["reasons"].records] == [
        {"error_class": "missing_field", "records": 3},
        {"error_class": "wrong_type", "records": 2},
    ]


def test_types_are_told_without_the_ids_of_their_fields() -> None:
    text = "id string not null, items array<struct<sku: string, n: int not null>>, tags map<string, array<double>>"
    nested = spec(decode={"value": "json", "schema": text}, table={"name": "a.b"})
    told = {each.name: each for each in column_schema(nested.table_schema, nested.kafka_columns).columns}
    assert told["items"].type == "list<struct<sku: string, n: int not null>>"
    assert told["tags"].type == "map<string, list<double>>"
    assert not any(char.isdigit() for each in told.values() for char in each.type)
    assert all(told[name].description for name in told if name.startswith("_kafka_"))


def test_required_columns_are_not_nullable() -> None:
    key, amount = column_schema(spec().resolved.schema).columns
    assert (key.type, key.constraints.nullable) == ("string", False)
    assert (amount.type, amount.constraints.nullable) == ("decimal(12, 2)", True)


@pytest.mark.parametrize(
    ("run", "totals", "passed"),
    [
        (Counts(100, 92, 5, 3), Counts(100, 92, 5, 3), True),
        (Counts(100, 92, 5, 2), Counts(100, 92, 5, 3), False),
        (Counts(100, 92, 5, 3), Counts(200, 192, 5, 2), False),
        (Counts(), Counts(), True),
    ],
)
def test_the_check_adds_up_this_run_and_all_runs(run: Counts, totals: Counts, passed: bool) -> None:
    stamp = Stamp("card-payments", "batch", 0, 1, "c", {}, {}, totals=totals)
    told = totals_of(FakeTable(stamp), "card-payments")  # type: ignore[arg-type]
    assert told == totals
    verdict = adds_up("card-payments", told, run)
    assert verdict.passed is passed
    assert verdict.sentence.endswith("Next: frazil status card-payments") is not passed
    assert (verdict.figures["records_unaccounted_for"] == 0) is passed
    assert f"| in this run | {run.read} |" in verdict.figures["totals"].value  # type: ignore[union-attr]


def test_a_table_that_is_not_there_adds_up() -> None:
    assert totals_of(None, "card-payments") == totals_of(FakeTable(), "card-payments") == Counts()  # type: ignore[arg-type]
    assert adds_up("card-payments", Counts()).passed


def test_counts_as_a_table() -> None:
    assert [record.data for record in counts_table("field", {"b": 1, "a": 1, "c": 9}).records] == [
        {"field": "c", "records": 9},
        {"field": "a", "records": 1},
        {"field": "b", "records": 1},
    ]


@pytest.mark.parametrize(
    ("text", "made"), [("payments.v1", "payments.v1"), (r"a\.\d+", "a_._d"), ("^$", "topics"), ("ä b", "b")]
)
def test_safe_names(text: str, made: str) -> None:
    assert dagster_names.dagster_safe(text) == made


def test_what_an_operator_reads_first_stands_first() -> None:
    given = {"epoch": 1, "commit_ms": 2, "next": "frazil start a", "consumer_lag_records": 3, "state": "halted"}
    assert list(in_reading_order(given)) == ["state", "next", "consumer_lag_records", "commit_ms", "epoch"]
