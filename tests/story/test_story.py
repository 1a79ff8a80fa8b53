"""The story of one deployment: streams land, break, come back, evolve and are published, maintained and audited.

Everything is real: broker, schema registry, catalog, Spark, drivers and Dagster. The steps build on each other, so they
are one test; a failure says in which step the story stopped.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, LongType

from jobs.clients.registry.client import RegistryClient, registry_client
from tests.helpers.waiting import wait_for
from tests.story.customers import CustomerDatabase
from tests.story.dagster_view import DagsterView, dagster_view, verdicts
from tests.story.deployment import Deployment, assert_rows
from tests.story.one_session import one_session
from tests.story.records import (
    INVOICE_V1,
    INVOICE_V2,
    Place,
    Row,
    Topic,
    invoices,
    orders,
    payments,
    refunds,
    wider_invoices,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)
LONG = 300.0
"""Seconds that a slow machine may take for one thing."""
KILLED_AT = "after_anchor_commit"
UNKNOWN_SCHEMA = 424_242
STREAMS = ("payments", "invoices", "orders", "refunds", "customers")


@dataclass
class Story:
    """What the steps hand on.

    Attributes:
        deployment: The one deployment of the story.
        killed: Process of the driver that is killed while it commits orders.
        topics: The topics by stream, with all that was produced.
        registry: The schema registry.
        seconds: How long each step took.
    """

    deployment: Deployment
    killed: subprocess.Popen[str]
    topics: dict[str, Topic]
    registry: RegistryClient
    seconds: dict[str, float] = field(default_factory=dict)

    def tell(self, steps: tuple[Callable[[Story], None], ...]) -> None:
        """Take the steps in turn, and say in which one the story stopped."""
        for number, step in enumerate(steps, 1):
            began = time.monotonic()
            try:
                step(self)
            except BaseException as problem:
                problem.add_note(f"The story stopped in step {number} of {len(steps)}: {step.__name__}.")
                raise
            finally:
                self.seconds[step.__name__] = time.monotonic() - began
                print(f"{self.seconds[step.__name__]:7.1f} s  {step.__name__}", flush=True)

    def land(self, stream: str, *produced: Any) -> dict[str, Any]:
        """Produce records to the topic of a stream, and land them; returns the facts of `frazil run`."""
        self.topics[stream].produce(produced)
        return self.deployment.frazil("run", stream, "--json").facts


@pytest.fixture
def story(broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Story]:
    deployment = Deployment(tmp_path / "deployment", broker)
    registry: RegistryClient | None = None
    try:
        # The driver that is to be killed starts at once: it starts Spark while registry and session are made.
        placed = Topic(broker, "story.orders")
        placed.produce(orders(range(100)))
        deployment.add_stream("orders")
        killed = deployment.start_process("run", "orders", failpoint=KILLED_AT)
        spark: SparkSession = request.getfixturevalue("spark")
        deployment.use_registry(request.getfixturevalue("registry"))
        registry = registry_client(deployment.settings.registry)
        with one_session(spark):
            yield Story(deployment, killed, {"orders": placed}, registry)
    finally:
        deployment.end("orders")
        if registry is not None:
            registry.close()


def json_lands_and_bad_records_become_dead_letters(story: Story) -> None:
    topic = story.topics["payments"] = Topic(story.deployment.broker, "story.payments")
    story.deployment.add_stream("payments")
    facts = story.land("payments", *payments(range(240)))
    assert facts["records"] == topic.counts and facts["adds_up"]
    assert topic.counts == {"read": 240, "landed": 200, "dead": 32, "tombstones": 8, "filtered": 0}
    assert facts["position"] == topic.position and facts["batches"] > 2
    assert facts["dead_letters"] == {"malformed_json": 8, "null_in_required": 8, "wrong_type": 16}
    assert facts["unknown_fields"] == {"$.no_column_for_this": 200}
    assert_rows(story.deployment.rows("shop.payments"), topic.rows)
    letters = story.deployment.dead_letters("shop.payments_dead")
    assert story.deployment.errors("shop.payments_dead") == topic.errors
    assert all(letter["value"] == topic.records[place].value for place, letter in letters.items())
    fields = {letter["field"] for letter in letters.values() if letter["error_class"] != "malformed_json"}
    assert fields == {"$.amount", "$.created_at"}


def avro_lands_through_the_registry(story: Story) -> None:
    topic = story.topics["invoices"] = Topic(story.deployment.broker, "story.invoices")
    story.deployment.add_stream("invoices")
    schema_id = register(story, INVOICE_V1)
    facts = story.land("invoices", *invoices(range(80), schema_id, UNKNOWN_SCHEMA))
    assert facts["records"] == topic.counts and facts["adds_up"]
    assert facts["dead_letters"] == {"malformed_avro": 4, "no_schema_id": 4, "unknown_schema": 4}
    assert_rows(story.deployment.rows("shop.invoices"), topic.rows)
    assert story.deployment.errors("shop.invoices_dead") == topic.errors


def another_driver_completes_the_batch_of_a_killed_one(story: Story) -> None:
    output, _ = story.killed.communicate(timeout=LONG)
    assert story.killed.returncode == -signal.SIGKILL, output
    assert f"step {KILLED_AT}: SIGKILL" in output
    # The coordinator table has its part of the batch, and the other tables have nothing.
    topic, found = story.topics["orders"], orders_of(story)
    assert_rows(found["shop.orders"], expected_orders(topic)["shop.orders"])
    assert found["shop.card_orders"] == found["shop.bank_orders"] == {}
    assert story.deployment.errors("shop.orders_dead") == {}
    story.deployment.frazil("start", "orders", "--reason", "take over")
    assert_orders_land(story)


def dead_letters_come_back_with_a_correction(story: Story) -> None:
    topic = story.topics["payments"]
    file = yaml.safe_load((story.deployment.home / "streams" / "payments.yaml").read_text())
    schema = file["decode"]["schema"].replace("timestamptz not null", "timestamptz as epoch_ms not null")
    correction = story.deployment.home / "milliseconds.yaml"
    correction.write_text(yaml.safe_dump({"decode": {"schema": schema}}))
    replay = ("replay", "payments", "--field", "$.created_at", "--correction", str(correction), "--json")
    dry = story.deployment.frazil(*replay, "--dry-run").facts
    assert (dry["selected"], dry["replayed"], dry["problems"]) == (8, 8, [])
    assert_rows(story.deployment.rows("shop.payments"), topic.rows)
    done = story.deployment.frazil(*replay).facts
    assert (done["selected"], done["replayed"], done["problems"]) == (8, 8, [])
    assert_rows(story.deployment.rows("shop.payments"), topic.rows | topic.corrected)
    letters = story.deployment.dead_letters("shop.payments_dead")
    replayed = {place for place, letter in letters.items() if letter["state"] == "replayed"}
    assert letters.keys() == topic.errors.keys() and replayed == topic.corrected.keys()
    assert all("epoch_ms" in letters[place]["correction"] for place in replayed)
    again = story.deployment.frazil(*replay).facts
    assert (again["selected"], again["replayed"]) == (0, 0)


def a_table_follows_its_schema(story: Story) -> None:
    topic = story.topics["invoices"]
    before = story.deployment.rows("shop.invoices")
    facts = story.land("invoices", *wider_invoices(range(80, 120), register(story, INVOICE_V2)))
    assert (facts["records"]["landed"], facts["records"]["dead"]) == (40, 0)
    schema = story.deployment.table("shop.invoices").schema()
    assert schema.find_type("quantity") == LongType()
    assert schema.find_type("discount") == DecimalType(5, 2) and not schema.find_field("discount").required
    # Rows that were there have no discount.
    expected = {place: {"discount": None} | row for place, row in topic.rows.items()}
    assert len(before) == len(expected) - 40
    assert_rows(story.deployment.rows("shop.invoices"), expected)


def a_topic_is_routed_into_three_tables(story: Story) -> None:
    before = orders_of(story)
    story.topics["orders"].produce(orders(range(100, 160)))
    assert_orders_land(story)
    assert all(len(rows) >= len(before[name]) + 10 for name, rows in orders_of(story).items())
    # The driver of a group carries the stream, and commits its position for dashboards of consumer lag.
    topic = story.topics["orders"]
    wait_for(lambda: topic.committed("story-orders") == topic.position, "the group's offsets", LONG)


def only_what_meets_its_contract_is_published(story: Story) -> None:
    topic, rows = Topic(story.deployment.broker, "story.refunds"), story.deployment.rows
    story.topics["refunds"] = topic
    story.deployment.add_stream("refunds")
    story.land("refunds", *refunds(range(1_000, 1_040)))
    good = topic.rows
    assert_rows(rows("shop.refunds", "ingest"), good)
    assert rows("shop.refunds") == {}
    published = story.deployment.frazil("publish", "refunds", "--json").facts
    assert (published["rows"], published["gate"]["became"]) == (40, "published")
    assert_rows(rows("shop.refunds"), good)
    # Amounts above 500 are not accepted, and hold back the whole interval that they are in.
    story.land("refunds", *refunds(range(49_990, 50_010)))
    held = story.deployment.frazil("publish", "refunds", "--json", status=1).facts["gate"]
    assert (held["became"], held["held"]["rows"]) == ("held", 20)
    assert "amount_is_usual" in held["held"]["reasons"][0] and "9 of 20 rows" in held["held"]["reasons"][0]
    assert_rows(rows("shop.refunds"), good)
    assert_rows(rows("shop.refunds", "ingest"), topic.rows)


def a_mirror_is_what_its_source_is(story: Story) -> None:
    database = CustomerDatabase()
    story.topics["customers"] = Topic(story.deployment.broker, "story.customers", partitions=1)
    story.deployment.add_stream("customers")
    database.snapshot(*range(1, 13))
    merge_customers(story, database)
    database.insert(20)
    database.update(1, name="another name", credit=None)
    database.update(2, email="new@example.com")
    database.delete(3)
    database.change_key(4, 40)
    database.update(40, name="behind a new key")
    database.delete(20)
    database.insert(3)
    merge_customers(story, database)
    assert len(database.rows) == 12 and database.rows[40]["notes"] == "notes of 4"


def maintenance_changes_files_and_no_row(story: Story) -> None:
    rows, before = story.deployment.rows("shop.payments"), story.deployment.table("shop.payments")
    (plan, *_) = story.deployment.frazil("maintain", "shop.payments", "--plan", "--json").facts["tables"]
    assert {step["action"] for step in plan["plan"]["steps"]} >= {"compact", "expire"}
    assert story.deployment.table("shop.payments").metadata == before.metadata
    (done,) = story.deployment.frazil("maintain", "shop.payments", "--json").facts["tables"]
    assert done["problems"] == [] and done["before"]["data_files"] == files_of(before)
    after = story.deployment.table("shop.payments")
    days = {row["created_at"].date() for row in rows.values()}
    assert files_of(after) == done["after"]["data_files"] == len(days) < files_of(before)
    assert len(after.snapshots()) < len(before.snapshots())
    assert_rows(story.deployment.rows("shop.payments"), rows)


def every_audit_is_complete(story: Story) -> None:
    for stream in STREAMS:
        audited = story.deployment.frazil("audit", stream, "--json").facts
        assert (audited["verdict"], audited["problems"], audited["pending"]) == ("complete", [], []), stream
        assert audited["records_audited"] == len(story.topics[stream].records), stream


def dagster_shows_what_status_says(story: Story) -> None:
    with dagster_view(story.deployment) as dagster:
        a_run_lands_payments(story, dagster)
        a_run_sees_that_orders_have_their_driver(story, dagster)
        assert verdicts(dagster.run_job("frazil_publish")) == {("shop.refunds", "published"): False}
        assert story.deployment.status_of("refunds")["branch"]["unpublished_rows"] == 20
        tables = ("shop.payments", "shop.invoices", "shop.orders", "shop.refunds", "shop.customers_changes")
        assert verdicts(dagster.run_job("frazil_audit")) == {(table, "exactly_once"): True for table in tables}
        stop = {"stream": "orders", "action": "stop", "reason": "the day is over", "by": "tester"}
        assert dagster.run_job("frazil_control", {"ops": {"control": {"config": stop}}}).success
        status = story.deployment.status_of("orders")
        assert status["wish"] == {"state": "stopped", "by": "tester", "reason": "the day is over"}
        assert (status["state"], status["driver"]["pid"]) == ("stopped", None)
        # The command that started the driver is a run as well.
        assert dagster.finished_runs("frazil_control") == [
            ("start", "take over", "SUCCESS"),
            ("stop", "the day is over", "SUCCESS"),
        ]


def a_run_lands_payments(story: Story, dagster: DagsterView) -> None:
    topic, rows = story.topics["payments"], len(story.deployment.rows("shop.payments"))
    topic.produce(payments(range(240, 300)))
    landed = dagster.materialize("shop.payments", "shop.payments_dead")
    assert landed.success
    table, dead = dagster.metadata("shop.payments"), dagster.metadata("shop.payments_dead")
    counts = {name: table[name] for name in ("records_read", "records_landed", "records_dead", "tombstones")}
    assert counts == {"records_read": 60, "records_landed": 50, "records_dead": 8, "tombstones": 2}
    status = story.deployment.status_of("payments")
    assert table["dagster/row_count"] == status["rows"] == rows + 50 == len(story.deployment.rows("shop.payments"))
    assert dead["dagster/row_count"] == status["dead"] == len(topic.errors)
    assert (dead["dead_letters_replayed"], dead["dead_letters_waiting"]) == (8, len(topic.errors) - 8)
    assert table["offsets"] == status["position"] == topic.position
    assert table["consumer_lag_records"] == status["lag"] == 0
    assert table["epoch"] == status["epoch"]
    passed = ("adds_up", "exactly_once", "schema_contract", "table_health", "configuration", "driver_alive")
    expected = {("shop.payments", name): True for name in passed}
    # A field without a column, and many dead letters: these two checks are red.
    expected |= {("shop.payments", "unknown_fields"): False, ("shop.payments_dead", "letters_waiting"): False}
    assert expected.items() <= verdicts(landed).items()


def a_run_sees_that_orders_have_their_driver(story: Story, dagster: DagsterView) -> None:
    topic = story.topics["orders"]
    assert dagster.materialize("shop.orders", "shop.card_orders", "shop.bank_orders", "shop.orders_dead").success
    table, status = dagster.metadata("shop.orders"), story.deployment.status_of("orders")
    assert status["state"] in ("running", "waiting") and status["wish"]["reason"] == "take over"
    assert table["driver_pid"] == status["driver"]["pid"]
    assert (table["epoch"], table["attempt"]) == (status["epoch"], status["attempt"])
    assert table["offsets"] == status["position"] == topic.position
    assert table["dagster/row_count"] == status["rows"] == len(story.deployment.rows("shop.orders"))
    assert status["landed"] == len(topic.rows)


def a_row_that_somebody_deletes_is_missed(story: Story) -> None:
    topic = story.topics["invoices"]
    (name, partition, offset), row = sorted(topic.rows.items())[17]
    story.deployment.table("shop.invoices").delete(f"id = '{row['id']}'")
    audited = story.deployment.frazil("audit", "invoices", "--full", "--json", status=1).facts
    assert audited["verdict"] != "complete"
    (problem,) = audited["problems"]
    assert (problem["kind"], problem["table"], problem["records"]) == ("missing", "shop.invoices", 1)
    assert (problem["topic"], problem["partition"]) == (name, partition)
    assert (problem["offsets"], problem["exact"]) == ([[offset, offset + 1]], True)


def test_story(story: Story) -> None:
    story.tell(
        (
            json_lands_and_bad_records_become_dead_letters,
            avro_lands_through_the_registry,
            another_driver_completes_the_batch_of_a_killed_one,
            dead_letters_come_back_with_a_correction,
            a_table_follows_its_schema,
            a_topic_is_routed_into_three_tables,
            only_what_meets_its_contract_is_published,
            a_mirror_is_what_its_source_is,
            maintenance_changes_files_and_no_row,
            every_audit_is_complete,
            dagster_shows_what_status_says,
            a_row_that_somebody_deletes_is_missed,
        )
    )


def register(story: Story, schema: dict[str, Any]) -> int:
    """Register a schema of invoices; returns its id."""
    return story.registry.register("story.invoices-value", "AVRO", json.dumps(schema))


def expected_orders(topic: Topic) -> dict[str, dict[Place, Row]]:
    """The rows of each table of orders, by what the orders were paid with."""
    expected: dict[str, dict[Place, Row]] = {"shop.orders": {}, "shop.card_orders": {}, "shop.bank_orders": {}}
    for place, row in topic.rows.items():
        match row["paid_by"]:
            case "card" | "wallet":
                expected["shop.card_orders"][place] = row
            case "bank" | "bank transfer":
                expected["shop.bank_orders"][place] = {"id": row["id"], "total": row["total"]}
            case _:
                expected["shop.orders"][place] = row
    return expected


def orders_of(story: Story) -> dict[str, dict[Place, Row]]:
    """The rows that each table of orders has."""
    return {name: story.deployment.rows(name) for name in ("shop.orders", "shop.card_orders", "shop.bank_orders")}


def assert_orders_land(story: Story) -> None:
    """Wait until the driver of orders has landed all of them: each is where it belongs, once."""
    topic, expected = story.topics["orders"], expected_orders(story.topics["orders"])

    def all_landed() -> bool:
        letters = story.deployment.errors("shop.orders_dead")
        return letters == topic.errors and all(
            rows.keys() >= expected[name].keys() for name, rows in orders_of(story).items()
        )

    wait_for(all_landed, "all orders to land", LONG)
    for name, rows in orders_of(story).items():
        assert_rows(rows, expected[name])


def merge_customers(story: Story, database: CustomerDatabase) -> None:
    """Land the changes of the database and merge them: changelog and mirror have what they must."""
    story.land("customers", *database.take_records())
    assert story.deployment.rows("shop.customers_changes").keys() == story.topics["customers"].rows.keys()
    story.deployment.frazil("mirror", "run", "customers")
    found = story.deployment.table("shop.customers").scan().to_arrow().drop_columns(["_change_order"]).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [row for _, row in sorted(database.rows.items())]
    (status,) = story.deployment.frazil("mirror", "status", "customers", "--json").facts["mirrors"]
    assert (status["lag_rows"], status["problem"], status["others_wrote"]) == (0, None, [])


def files_of(table: Table) -> int:
    """How many data files a table has."""
    return sum(1 for _ in table.scan().plan_files())
