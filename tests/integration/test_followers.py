"""Rows of one topic into tables by a column, with columns that a registry says: real broker, registry and Spark."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
import yaml
from pyiceberg.types import StringType

from jobs.commit.errors import TableUnableError
from jobs.registry.client import RegistryClient, registry_client
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from jobs.schema.iceberg_schema import schema_text
from jobs.spec.registry import RegistrySettings
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
from tests.integration.faults import die
from tests.integration.pipeline import Coordinates, Pipeline
from tests.integration.topics import idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FIELDS: list[tuple[str, Any]] = [("id", "int"), ("type", "string"), ("sum", ["null", "float"])]


class Events:
    """A deployment whose stream lands one topic of Avro in a table for each type."""

    def __init__(self, one: Pipeline, url: str, **route: Any) -> None:
        self.one: Pipeline = one
        self.client: RegistryClient = registry_client(RegistrySettings.model_validate({"url": url}))
        settings = yaml.safe_load((one.home / "frazil.yaml").read_text())
        registry = {"url": url, "timeout": "5s", "lag": "300ms"}
        (one.home / "frazil.yaml").write_text(yaml.safe_dump(settings | {"registry": registry}))
        tables = [
            {"match": "a|b", "table": self.name("ab"), "partition_by": ["type"]},
            {"match": "b", "table": self.name("b"), "columns": {"drop": ["sum"]}},
        ]
        one.write_spec(
            decode={"value": "avro", "schema": "registry"},
            table={"name": one.table_name},
            route={"by": "type", "tables": tables, "to": self.name("{value}"), **route},
        )
        self.sent: dict[str, set[Coordinates]] = {}
        self.ends: Counter[int] = Counter()

    def name(self, table: str) -> str:
        return f"tests.{self.one.stream}_of_{table}"

    def produce(self, fields: Sequence[tuple[str, Any]], records: Sequence[dict[str, Any] | bytes]) -> None:
        """Register the schema of these fields, and produce records of it, or bytes that are none."""
        columns = [{"name": each, "type": kind} for each, kind in fields]
        columns = [c | {"default": None} if isinstance(c["type"], list) else c for c in columns]
        schema = {"type": "record", "name": "Event", "fields": columns}
        topic = self.one.stream
        number = self.client.register(f"{topic}-value", "AVRO", json.dumps(schema))
        producer = idempotent_producer(self.one.address, topic)
        for at, each in enumerate(records):
            value, partition = each if isinstance(each, bytes) else b"", at % self.one.partitions
            if isinstance(each, dict):
                made = io.BytesIO()
                fastavro.schemaless_writer(made, fastavro.parse_schema(schema), each)
                value = b"\x00" + struct.pack(">I", number) + made.getvalue()
            producer.produce(topic, value=value, partition=partition)
            kind = each["type"] if isinstance(each, dict) else "dead"
            self.sent.setdefault(kind, set()).add((topic, partition, self.ends[partition]))
            self.ends[partition] += 1
        assert producer.flush(30) == 0

    def columns(self, table: str) -> dict[str, str]:
        fields = self.one.catalog().load_table(table).schema().fields
        return {each.name: schema_text(each.field_type) for each in fields if each.name[:6] != "_kafka"}

    def rows(self, table: str) -> Counter[Coordinates]:
        names = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
        scanned = self.one.catalog().load_table(table).scan(selected_fields=names).to_arrow()
        return Counter(zip(*(scanned.column(name).to_pylist() for name in names), strict=True))

    def assert_exactly_once(self, back: int = 0) -> None:
        """Every record is in each table that its type names, once, and in no other; and the audit proves it.

        Args:
            back: Rows that a replay has brought home, whose route nobody judges.
        """
        one, sent = self.one, self.sent
        expected = {self.name("ab"): sent["a"] | sent["b"], self.name("b"): sent["b"], one.table_name: set()}
        expected |= {self.name(kind): at for kind, at in sent.items() if kind not in ("a", "b", "dead")}
        for table, records in expected.items():
            assert self.rows(table) == Counter(records), table
        letters = one.dead_table().scan().to_arrow().to_pylist()
        failed = [each for each in letters if each["target"] is None]
        assert Counter((each["topic"], each["partition"], each["offset"]) for each in failed) == Counter(sent["dead"])
        settings, catalog = one.settings(), one.catalog()
        fill_ledger(catalog, settings, [one.spec()])
        found = audit(one.spec(), settings, catalog, full=True)
        assert not found.problems and not found.pending, found.problems
        assert found.route is not None and found.route.judged == sum(map(len, expected.values())) - back


def events(types: str, count: int, **more: Any) -> list[dict[str, Any] | bytes]:
    return [{"id": n, "type": types[n % len(types)], "sum": n / 2, **more} for n in range(count)]


@pytest.mark.timeout(600)
def test_tables_by_a_column_follow_the_registry_though_drivers_are_killed_between_their_changes(
    pipeline: Callable[..., Pipeline], registry: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Events(pipeline(), registry)
    one = shop.one
    shop.produce(FIELDS, [*events("abcd", 120), b"no schema id"])
    one.drain(spark)
    first = {"id": "int", "type": "string", "sum": "float"}
    assert shop.columns(shop.name("ab")) == shop.columns(shop.name("c")) == shop.columns(one.table_name) == first
    assert shop.columns(shop.name("b")) == {"id": "int", "type": "string"}
    shop.assert_exactly_once()
    # A field more, and wider ones: killed behind the change of the own table, then behind that of the first other one.
    wider = [("id", "long"), ("type", "string"), ("sum", ["null", "double"]), ("more", ["null", "string"])]
    shop.produce(wider, [*events("abcde", 100, more="m"), {"id": 2**40, "type": "c", "sum": None, "more": None}])
    tables = [one.table_name, *(shop.name(each) for each in ("ab", "b", "c", "d"))]

    def grown() -> list[str]:
        return [each for each in tables if shop.columns(each)["id"] == "long" and "more" in shop.columns(each)]

    die(one, spark, monkeypatch, "after_schema_commit")
    assert grown() == tables[:1]
    die(one, spark, monkeypatch, "after_follower_change")
    assert grown() == tables[:2], "killed between the changes of two tables, as the stream was opened"
    one.lose_state()
    die(one, spark, monkeypatch, "after_table_commit")
    assert grown() == tables
    one.lose_state()
    one.drain(spark)
    every = {"id": "long", "type": "string", "sum": "double", "more": "string"}
    assert all(shop.columns(shop.name(each)) == every for each in ("ab", "c", "d", "e"))
    assert shop.columns(shop.name("b")) == {"id": "long", "type": "string", "more": "string"}
    shop.assert_exactly_once()
    # Within a batch, a driver that is a process of its own is killed between two changes of others.
    shop.produce([*wider, ("last", ["null", "long"])], events("abcdef", 60, more="m", last=1))
    one.run("after_follower_change=kill@2", expect=-9)
    assert [each for each in tables if "last" in shop.columns(each)] == tables[:3]
    one.run()
    assert all("last" in shop.columns(each) for each in [*tables, shop.name("f")])
    shop.assert_exactly_once()


@pytest.mark.timeout(480)
def test_one_that_cannot_follow_is_parked_while_the_own_table_evolves_and_comes_home(
    pipeline: Callable[..., Pipeline], registry: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Events(pipeline(), registry, on_table_error="park")
    one, lost = shop.one, shop.name("c")
    shop.produce(FIELDS, [*events("abc", 60), b"no schema id"])
    one.drain(spark)
    # Somebody gives it a column that is no row's.
    with one.catalog().load_table(lost).update_schema() as update:
        update.delete_column("sum")
    with one.catalog().load_table(lost).update_schema() as update:
        update.add_column("sum", StringType())
    had = shop.rows(lost)
    wider = [*FIELDS, ("more", ["null", "string"])]
    shop.produce(wider, events("abcd", 80, more="m"))
    die(one, spark, monkeypatch, "between_parking")
    with pytest.raises(TableUnableError, match=f"{lost} takes no commits, and is parked"):
        one.drain(spark)
    one.lose_state()
    one.drain(spark)
    assert all("more" in shop.columns(each) for each in (one.table_name, shop.name("ab"), shop.name("d")))
    assert shop.rows(lost) == had and "more" not in shop.columns(lost)
    with one.catalog().load_table(lost).update_schema() as update:
        update.delete_column("sum")
    one.accept(unpark=lost)
    assert shop.columns(lost) == shop.columns(one.table_name)
    shop.produce(wider, events("abcd", 20, more="n"))
    one.drain(spark)
    assert replay(one.spec(), one.settings(), one.catalog(), ReplayRequest()).replayed == 20
    assert replay(one.spec(), one.settings(), one.catalog(), ReplayRequest()).replayed == 0
    shop.assert_exactly_once(back=20)
