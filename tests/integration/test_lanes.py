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

from jobs.clients.registry.client import RegistryClient, registry_client
from jobs.config.services.registry import RegistrySettings
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.records.schema.iceberg_schema import schema_text
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.named_tables import with_named_tables
from tests.helpers.topics import create_topic, idempotent_producer, read_topic
from tests.integration.faults import die
from tests.integration.pipeline import Coordinates, Pipeline

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
    ) -> None:
        """Register the schema of these fields for a topic, and produce records of it, or bytes that are none."""
        topic = self.topic(name)
        producer = idempotent_producer(self.one.address, topic)
        for at, value in enumerate(self.values(f"{topic}-value", fields, records)):
            producer.produce(topic, value=value, partition=at % self.one.partitions)
        assert producer.flush(120) == 0

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


def audited(one: Pipeline) -> None:
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    found = audit(one.spec(), settings, catalog, full=True)
    assert not found.problems and not found.pending, found.problems
    assert found.route is not None and not found.route.not_judged


@pytest.mark.timeout(1800)
def test_topics_by_pattern_have_tables_of_their_own_though_drivers_are_killed_between_them(
    pipeline: Callable[..., Pipeline], registry: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(pipeline(topic=False), registry)
    one = shop.one
    orders, people = [("id", "long"), ("sum", "double")], [("id", "string")]
    shop.produce("orders", orders, [{"id": n, "sum": n / 2} for n in range(200)])
    shop.produce("people", people, [{"id": f"p{n}"} for n in range(100)])
    shop.produce("shops", [("id", "string"), ("open", "boolean")], [{"id": "s", "open": True}, b"no schema id"])
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
    # What was about to be committed is known to nobody then, and the tasks run again for some tables.
    die(one, spark, monkeypatch, "after_table_commit")
    assert one.folder().pending_records()
    one.lose_state()
    one.drain(spark)
    assert shop.columns("orders")["more"] == "long" and shop.columns("people")["more"] == "string"
    assert shop.columns("late") == {"day": "date"}
    shop.assert_exactly_once()
    assert len(one.dead()) == 1
