"""Streams that `frazil import` makes of S3, JDBC and Debezium connectors, run on a real broker as they were written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import load_settings
from jobs.mirrors.run.mirror_run import IncrementMerger, chosen_mirrors, run_mirror
from jobs.streaming.driver.process.drain import drain
from tests.helpers.topics import create_topic, idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "imported"
JSON = "org.apache.kafka.connect.json.JsonConverter"
Record = tuple[object, object]
_ROW = [{"type": "int32", "field": "id"}, {"type": "string", "optional": True, "field": "name"}]
_SOURCE = [
    *({"type": "string", "field": name} for name in ("connector", "name", "db", "schema", "table", "sequence")),
    {"type": "int64", "field": "lsn"},
    {"type": "int64", "field": "ts_ms"},
]


def connectors() -> Mapping[str, Mapping[str, str]]:
    """Connectors by name, as they run in one worker."""
    source = f"{PREFIX}.public.customers"
    return {
        "doors-to-s3": {
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "topics": f"{PREFIX}.doors",
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "s3.bucket.name": "doors",
            "aws.secret.access.key": "plain-s3",
            "flush.size": "1000",
            "rotate.schedule.interval.ms": "600000",
            "timezone": "UTC",
            "partitioner.class": "io.confluent.connect.storage.partitioner.DailyPartitioner",
            "timestamp.extractor": "Record",
        },
        "prices-to-db": {
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": f"{PREFIX}.prices",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "connection.url": "jdbc:postgresql://dwh.example/dwh?password=plain-url",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "pk.fields": "sku",
            "delete.enabled": "true",
            "auto.evolve": "true",
            "table.name.format": "dwh.prices",
        },
        "crm-source": {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "topic.prefix": PREFIX,
            "table.include.list": "public.customers",
            "database.password": "plain-source",
        },
        "crm-to-db": {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "topics": source,
            "connection.password": "plain-jdbc",
            "insert.mode": "upsert",
            "primary.key.mode": "record_key",
            "delete.enabled": "true",
            "schema.evolution": "basic",
            "collection.name.format": "dwh.customers",
        },
    }


def enveloped(name: str, fields: Iterable[Mapping[str, Any]], payload: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A value of Kafka Connect's JsonConverter with its schema."""
    return {"schema": {"type": "struct", "name": name, "fields": list(fields)}, "payload": payload}


def change(op: str, lsn: int, before: tuple[int, str] | None, after: tuple[int, str] | None) -> Record:
    """A change of the table `customers` as Debezium's PostgreSQL connector sends it."""
    rows = [{"type": "struct", "optional": True, "fields": _ROW, "field": side} for side in ("before", "after")]
    fields = [
        *rows,
        {"type": "struct", "fields": _SOURCE, "field": "source"},
        {"type": "string", "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    payload = {
        "before": before and dict(zip(("id", "name"), before, strict=True)),
        "after": after and dict(zip(("id", "name"), after, strict=True)),
        "source": {
            "connector": "postgresql",
            "name": PREFIX,
            "db": "crm",
            "schema": "public",
            "table": "customers",
            "sequence": json.dumps([str(lsn - 1), str(lsn)]),
            "lsn": lsn,
            "ts_ms": 1_790_000_000_000 + lsn,
        },
        "op": op,
        "ts_ms": 1_790_000_000_100 + lsn,
    }
    row = after or before
    assert row is not None
    key = enveloped(f"{PREFIX}.Key", _ROW[:1], {"id": row[0]})
    return key, enveloped(f"{PREFIX}.Envelope", fields, payload)


def price(sku: str, amount: int | None) -> Record:
    """A price under its key, or the tombstone of one."""
    fields = [{"type": "string", "field": "sku"}, {"type": "int64", "field": "amount"}]
    return sku, None if amount is None else enveloped("price", fields, {"sku": sku, "amount": amount})


def produce(address: str, topic: str, records: Iterable[Record]) -> None:
    create_topic(address, topic, 1)
    producer = idempotent_producer(address, topic)
    for key, value in records:
        encoded = key.encode() if isinstance(key, str) else json.dumps(key).encode()
        producer.produce(topic, key=encoded, value=None if value is None else json.dumps(value).encode())
    assert producer.flush(60) == 0


@pytest.mark.timeout(300)
def test_imported_streams_do_what_the_connectors_did(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    produce(
        broker, f"{PREFIX}.doors", [(str(number), {"door": number, "open": number % 2 == 0}) for number in range(50)]
    )
    produce(broker, f"{PREFIX}.prices", [price("a", 1), price("b", 2), price("a", 3), price("c", 4), price("b", None)])
    ann, anna, bob = (1, "ann"), (1, "anna"), (2, "bob")
    changes = [
        change("c", 10, None, ann),
        change("c", 20, None, bob),
        change("u", 30, ann, anna),
        change("d", 40, bob, None),
    ]
    produce(broker, f"{PREFIX}.public.customers", changes)
    sources, home = tmp_path / "connect", tmp_path / "deployment"
    sources.mkdir()
    (sources / "worker.properties").write_text(
        f"bootstrap.servers={broker}\ngroup.id=workers\nkey.converter={JSON}\nvalue.converter={JSON}\n"
    )
    for name, config in connectors().items():
        (sources / f"{name}.json").write_text(json.dumps({"name": name, "config": config}))

    done = subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "import", str(sources), "--into", str(home)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    written = "".join(path.read_text() for path in home.rglob("*") if path.is_file())
    assert "plain-" not in done.stdout + written
    assert sorted(path.name for path in (home / "streams").iterdir()) == [
        "crm-to-db.yaml",
        "doors-to-s3.yaml",
        "prices-to-db.yaml",
    ]
    tables = run(home, spark)

    doors = tables["imported.doors"]
    assert len(doors) == 50
    assert {row["open"] for row in doors} == {True, False}
    assert {(row["sku"], row["amount"]) for row in tables["dwh.prices"]} == {("a", 3), ("c", 4)}
    assert {(row["id"], row["name"]) for row in tables["dwh.customers"]} == {anna}
    assert len(tables["dwh.customers_changes"]) == 4


def run(home: Path, spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Land and merge every stream of a deployment once; rows of all tables but dead letters, which are empty."""
    settings = load_settings(None, home=home)
    log = KafkaLog(settings.kafka)
    for file in sorted((home / "streams").iterdir()):
        spec = load_stream(file)
        drain(spec, settings, log, lambda: spark, on_progress=lambda _: None)
        with connect_catalog(settings) as catalog:
            merger = IncrementMerger(settings, lambda: spark)
            for changes, mirror in chosen_mirrors(spec, catalog) if spec.mirrors else ():
                run_mirror(changes, mirror, settings, catalog, merger)
    with connect_catalog(settings) as catalog:
        names = [".".join(name) for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)]
        rows = {name: catalog.load_table(name).scan().to_arrow().to_pylist() for name in names}
        days = catalog.load_table("imported.doors").spec().fields
    assert [str(field.transform) for field in days] == ["day"]
    assert {name: found for name, found in rows.items() if name.endswith("_dead") and found} == {}
    return rows
