"""Topics by pattern, each into a table with the columns of its own records: real broker, registry and Spark."""

from __future__ import annotations

import io
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
import yaml

from jobs.commit.branch import stream_table
from jobs.commit.named_tables import with_named_tables
from jobs.registry.client import RegistryClient, registry_client
from jobs.replay.connect.importer import import_queue
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from jobs.schema.iceberg_schema import schema_text
from jobs.spec.registry import RegistrySettings
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
from tests.integration.faults import die
from tests.integration.pipeline import Coordinates, Pipeline
from tests.integration.topics import create_topic, idempotent_producer, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


class Shop:
    """A deployment whose stream reads topics by pattern, each with Avro schemas of its own."""

    def __init__(self, one: Pipeline, url: str, **route: Any) -> None:
        self.one: Pipeline = one
        self.client: RegistryClient = registry_client(RegistrySettings.model_validate({"url": url}))
        settings = yaml.safe_load((one.home / "frazil.yaml").read_text())
        registry = {"url": url, "timeout": "5s", "lag": "300ms"}
        (one.home / "frazil.yaml").write_text(yaml.safe_dump(settings | {"registry": registry}))
        one.write_spec(
            source={"topics_pattern": rf"{re.escape(one.stream)}\..*"},
            decode={"value": "avro", "schema": "registry"},
            table={"name": one.table_name},
            route={"by": "regexp_replace(_topic, '^.*[.]', '')", "to": f"tests.{one.stream}_{{value}}", **route},
        )
        self.topics: list[str] = []

    def topic(self, name: str) -> str:
        topic = f"{self.one.stream}.{name}"
        if topic not in self.topics:
            create_topic(self.one.address, topic, self.one.partitions)
            self.topics.append(topic)
        return topic

    def produce(
        self,
        name: str,
        fields: Sequence[tuple[str, Any]],
        records: Sequence[dict[str, Any] | bytes],
        subject: str | None = None,
    ) -> None:
        """Register the schema of these fields for a topic, and produce records of it, or bytes that are none."""
        topic = self.topic(name)
        producer = idempotent_producer(self.one.address, topic)
        for at, value in enumerate(self.values(subject or f"{topic}-value", fields, records)):
            producer.produce(topic, value=value, partition=at % self.one.partitions)
        assert producer.flush(30) == 0

    def values(
        self, subject: str, fields: Sequence[tuple[str, Any]], records: Sequence[dict[str, Any] | bytes]
    ) -> Iterator[bytes]:
        """Records of a schema that is registered under a subject, as producers write them."""
        columns = [{"name": each, "type": kind} for each, kind in fields]
        columns = [c | {"default": None} if isinstance(c["type"], list) else c for c in columns]
        schema = {"type": "record", "name": re.sub(r"\W", "_", subject), "fields": columns}
        number = self.client.register(subject, "AVRO", json.dumps(schema))
        for each in records:
            if isinstance(each, bytes):
                yield each
                continue
            made = io.BytesIO()
            fastavro.schemaless_writer(made, fastavro.parse_schema(schema), each)
            yield b"\x00" + struct.pack(">I", number) + made.getvalue()

    def columns(self, name: str) -> dict[str, str]:
        fields = self.one.catalog().load_table(f"tests.{self.one.stream}_{name}").schema().fields
        return {each.name: schema_text(each.field_type) for each in fields if each.name[:6] != "_kafka"}

    def rows(self, name: str) -> Counter[Coordinates]:
        return rows_of(self.one, f"tests.{self.one.stream}_{name}")

    def assert_exactly_once(self) -> None:
        """Every record is in its topic's table, or among the dead letters, once; and the audit says so."""
        dead = self.one.dead()
        assert rows_of(self.one, self.one.table_name) == Counter()
        for topic in self.topics:
            records = {(topic, p, at) for p, at, value in read_topic(self.one.address, topic) if value is not None}
            letters = {at for at in dead if at[0] == topic}
            assert self.rows(topic.rpartition(".")[2]) == Counter(records - letters), topic
        assert set(dead.values()) <= {1}
        audited(self.one)


def rows_of(one: Pipeline, table: str) -> Counter[Coordinates]:
    names = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
    found = stream_table(one.catalog(), with_named_tables(one.spec(), one.catalog()), table)
    scanned = found.scan(selected_fields=names).to_arrow()
    return Counter(zip(*(scanned.column(name).to_pylist() for name in names), strict=True))


def audited(one: Pipeline, *, came_back: bool = False) -> None:
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    found = audit(one.spec(), settings, catalog, full=True)
    assert not found.problems and not found.pending, found.problems
    assert found.route is not None and bool(found.route.not_judged) == came_back


@pytest.mark.timeout(600)
def test_topics_by_pattern_have_tables_of_their_own_though_drivers_are_killed_between_them(
    pipeline: Callable[..., Pipeline], registry: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(pipeline(topic=False), registry)
    one = shop.one
    orders, people = [("id", "long"), ("sum", "double")], [("id", "string")]
    shop.produce("orders", orders, [{"id": n, "sum": n / 2} for n in range(200)])
    shop.produce("people", people, [{"id": f"p{n}"} for n in range(100)])
    shop.produce("shops", [("id", "string"), ("open", "boolean")], [{"id": "s", "open": True}, b"no schema id"])
    # Killed once its tables are made, and then between the commits of two of them.
    die(one, spark, monkeypatch, "after_new_tables")
    assert with_named_tables(one.spec(), one.catalog()).named_tables == ()
    die(one, spark, monkeypatch, "after_table_commit")
    assert one.folder().pending_records()
    one.lose_state()
    one.drain(spark)
    assert shop.columns("orders") == {"id": "long", "sum": "double"}
    assert shop.columns("people") == {"id": "string"}
    assert shop.columns("shops") == {"id": "string", "open": "boolean"}
    shop.assert_exactly_once()
    # Two topics' schemas grow by a field of one name and two types, and a fourth topic appears.
    shop.produce("orders", [*orders, ("more", ["null", "long"])], [{"id": n, "sum": 1.5, "more": n} for n in range(50)])
    shop.produce("people", [*people, ("more", ["null", "string"])], [{"id": f"q{n}", "more": "m"} for n in range(50)])
    shop.produce("late", [("day", {"type": "int", "logicalType": "date"})], [{"day": 20_000 + n} for n in range(20)])
    die(one, spark, monkeypatch, "after_schema_commit")
    grown = ["more" in shop.columns(name) for name in ("orders", "people")]
    assert sorted(grown) == [False, True], "killed between two tables' changes"
    die(one, spark, monkeypatch, "after_table_commit")
    one.lose_state()
    one.drain(spark)
    assert shop.columns("orders")["more"] == "long" and shop.columns("people")["more"] == "string"
    assert shop.columns("late") == {"day": "date"}
    shop.assert_exactly_once()
    assert len(one.dead()) == 1


@pytest.mark.timeout(300)
def test_topics_of_a_day_each_are_one_table_beside_that_of_another_topic(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline(topic=False)
    base = one.stream
    tables = [
        {"match": rf"{re.escape(base)}\.events\..*", "table": f"tests.{base}_events"},
        {"match": [f"{base}.other"], "table": f"tests.{base}_other"},
        {"match": [f"{base}.never"], "table": f"tests.{base}_never"},
    ]
    one.write_spec(
        source={"topics_pattern": rf"{re.escape(base)}\..*"},
        decode={"value": "json", "schema": "infer"},
        table={"name": one.table_name},
        route={"by": "topic", "tables": tables},
    )

    def produce(topic: str, documents: Sequence[dict[str, Any]]) -> None:
        create_topic(one.address, topic, one.partitions)
        producer = idempotent_producer(one.address, topic)
        for at, each in enumerate(documents):
            producer.produce(topic, value=json.dumps(each).encode(), partition=at % one.partitions)
        assert producer.flush(30) == 0

    produce(f"{base}.events.20240101", [{"id": f"a{n}"} for n in range(60)])
    produce(f"{base}.other", [{"id": n} for n in range(30)])
    one.drain(spark)
    produce(f"{base}.events.20240102", [{"id": f"b{n}", "size": n} for n in range(40)])
    one.drain(spark)
    events, other = rows_of(one, f"tests.{base}_events"), rows_of(one, f"tests.{base}_other")
    assert set(events.values()) | set(other.values()) == {1}
    assert Counter(topic for topic, _, _ in events) == {f"{base}.events.20240101": 60, f"{base}.events.20240102": 40}
    assert len(other) == 30 and one.dead() == {} and not one.catalog().table_exists(f"tests.{base}_never")
    schema = one.catalog().load_table(f"tests.{base}_events").schema()
    assert str(schema.find_field("size").field_type) == "long" and "size" not in one.table().schema().column_names
    audited(one)


ORDER = [("id", "long"), ("card", "string")]
PAID = [("id", "long"), ("paid", "double")]
PERSON = [("id", "string")]


@pytest.mark.timeout(600)
def test_topics_without_subjects_have_columns_and_branches_of_their_own_and_connects_letters_come_home(
    pipeline: Callable[..., Pipeline], registry: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(pipeline(topic=False), registry)
    one, base = shop.one, shop.one.stream
    orders, people = f"tests.{base}_orders", f"tests.{base}_people"
    entry = {"match": "orders", "table": orders, "columns": {"drop": ["card", "**.card"]}, "branch": "main"}
    one.write_spec(
        source={"topics_pattern": rf"{re.escape(base)}\..*"},
        decode={"value": "avro", "schema": "registry"},
        table={"name": one.table_name, "branch": "ingest"},
        route={"by": "regexp_replace(_topic, '^.*[.]', '')", "tables": [entry], "to": f"tests.{base}_{{value}}"},
        event_time={"column": "_kafka_timestamp", "grace": "1h", "late": "dead_letter"},
    )
    # RecordNameStrategy: subjects are called as record types are, of which a topic may have several.
    order, paid, person = (f"{base}.shop.{name}" for name in ("Order", "Paid", "Person"))
    shop.produce("orders", ORDER, [{"id": n, "card": "c"} for n in range(60)], order)
    shop.produce("orders", PAID, [{"id": n, "paid": n / 2} for n in range(40)], paid)
    shop.produce("people", PERSON, [*({"id": f"p{n}"} for n in range(50)), b"no schema id"], person)
    die(one, spark, monkeypatch, "after_new_tables")
    die(one, spark, monkeypatch, "after_table_commit")
    one.lose_state()
    one.drain(spark)
    assert shop.columns("orders") == {"id": "long", "paid": "double"} and shop.columns("people") == {"id": "string"}
    shop.assert_exactly_once()
    # The type that is dropped from grows, by a field that is kept and one that is not.
    more = [*ORDER, ("note", ["null", "string"])]
    shop.produce("orders", more, [{"id": n, "card": "c", "note": "n"} for n in range(30)], order)
    shop.produce("people", [*PERSON, ("card", ["null", "string"])], [{"id": "q", "card": "c"}], person)
    die(one, spark, monkeypatch, "after_schema_commit")
    die(one, spark, monkeypatch, "after_table_commit")
    one.drain(spark)
    assert shop.columns("orders") == {"id": "long", "paid": "double", "note": "string"}
    assert shop.columns("people") == {"id": "string", "card": "string"}
    shop.assert_exactly_once()
    assert one.catalog().load_table(people).scan().to_arrow().num_rows == 0, "people are on the branch alone"
    # What a sink of Connect has set aside of topics that nobody reads any more: each by its own topic's table.
    queue = f"{base}_dlq"
    create_topic(one.address, queue, 1)
    producer = idempotent_producer(one.address, queue)
    letters = [
        *((f"old.{base}.orders", value) for value in shop.values(order, ORDER, [{"id": 7, "card": "x"}] * 3)),
        *((f"old.{base}.people", value) for value in shop.values(person, PERSON, [{"id": "z"}, b"none"])),
        (f"old.{base}.never", b"no table"),
    ]
    for at, (topic, value) in enumerate(letters):
        origin = {"topic": topic, "partition": "0", "offset": str(at)}
        headers: list[tuple[str, str | bytes | None]] = [
            (f"__connect.errors.{name}", text.encode()) for name, text in origin.items()
        ]
        producer.produce(queue, value=value, headers=headers)
    assert producer.flush(30) == 0
    done = import_queue(one.spec(), one.settings(), one.catalog(), queue, ReplayRequest())
    assert (done.read, done.landed, done.dead) == (6, 4, 2)
    assert Counter(topic for topic, _, _ in rows_of(one, orders))[f"old.{base}.orders"] == 3
    assert Counter(topic for topic, _, _ in rows_of(one, people))[f"old.{base}.people"] == 1
    assert import_queue(one.spec(), one.settings(), one.catalog(), queue, ReplayRequest()).read == 0
    audited(one)


@pytest.mark.timeout(480)
def test_a_topics_table_that_is_dropped_is_parked_undecoded_and_comes_home(
    pipeline: Callable[..., Pipeline], registry: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(pipeline(topic=False), registry, on_table_error="park")
    one, gone = shop.one, f"tests.{shop.one.stream}_orders"
    orders, people = [("id", "long")], [("id", "string")]
    shop.produce("orders", orders, [{"id": n} for n in range(60)])
    shop.produce("people", people, [{"id": f"p{n}"} for n in range(40)])
    one.drain(spark)
    one.catalog().drop_table(gone)
    more = [*orders, ("more", ["null", "string"])]
    shop.produce("orders", more, [*({"id": n, "more": "m"} for n in range(50)), b"no schema id"])
    shop.produce("people", [*people, ("more", ["null", "long"])], [{"id": f"q{n}", "more": n} for n in range(30)])
    one.run_and_die("after_parking")
    one.lose_state()
    die(one, spark, monkeypatch, "after_anchor_commit")
    one.drain(spark)
    assert shop.columns("people") == {"id": "string", "more": "long"} and sum(shop.rows("people").values()) == 70
    assert not one.catalog().table_exists(gone)
    rows = one.dead_table().scan().to_arrow().to_pylist()
    waiting = Counter((each["topic"], each["partition"], each["offset"]) for each in rows if each["target"] == gone)
    # Nobody can say whether it had the batch before it was dropped.
    assert len(rows) == len(waiting) == 111 and set(waiting.values()) == {1}
    one.accept(unpark=gone)
    assert shop.columns("orders") == {"id": "long", "more": "string"}, "by the newest version of its subject"
    shop.produce("orders", more, [{"id": n, "more": "n"} for n in range(10)])
    one.drain(spark)
    found = replay(one.spec(), one.settings(), one.catalog(), ReplayRequest())
    assert (found.replayed, found.failed_again) == (110, 1)
    assert replay(one.spec(), one.settings(), one.catalog(), ReplayRequest()).replayed == 0
    home = shop.rows("orders")
    assert sum(home.values()) == 120 and set(home.values()) == {1} and len(waiting - home) == 1
    audited(one, came_back=True)
