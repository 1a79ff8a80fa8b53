"""Services that pages of the docs speak of, on this machine; their addresses stand for those of the pages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jobs.clients.install.artifacts import resolve_jars
from jobs.local.broker.broker import LocalBroker
from jobs.local.registry.registry import LocalRegistry
from tests.docs.lake import PAYMENTS, produce
from tests.helpers.connect_worker import SMALL_JVM, ConnectWorker
from tests.helpers.database_server import PASSWORD, database_server
from tests.helpers.object_server import BUCKET, KEY, SECRET, object_server, warehouse_properties
from tests.helpers.rest_server import rest_server

BROKER = "broker.example.com:9092"
REGISTRY = "http://registry.example.com:8081"
OBJECTS = "http://s3.example.com:8333"
CATALOG = "http://catalog.example.com:8181"
DATABASE = "postgresql://frazil@db.example.com:5432/frazil"
CONNECT = "http://connect.example.com:8083"
CONNECTOR = "payments-sink"


@contextlib.contextmanager
def world(services: Sequence[str], folder: Path) -> Iterator[dict[str, str]]:
    """Start services until the end.

    Args:
        services: Some of `kafka`, `registry`, `s3`, `rest` (which includes `s3`), `postgres`, and `connect`: a Kafka
            Connect worker whose Iceberg sink `payments-sink` lands the topic `payments` (includes `kafka` and `rest`).
        folder: Folder for their data.

    Returns:
        By the address in the docs, the address on this machine. Credentials are in the environment: `S3_ACCESS_KEY`,
        `S3_SECRET_KEY`, `PGPASSWORD`.
    """
    names: dict[str, str] = {}
    if "connect" in services:
        services = [*services, "kafka", "rest"]
    with contextlib.ExitStack() as stack:
        if "kafka" in services:
            broker = LocalBroker(folder / "kafka", detached=True)
            names[BROKER] = broker.start()
            stack.callback(broker.stop)
        if "registry" in services:
            registry = LocalRegistry(folder / "registry", detached=True, keep=False)
            names[REGISTRY] = registry.start()
            stack.callback(registry.stop)
        if "s3" in services or "rest" in services:
            server = stack.enter_context(object_server(folder / "s3"))
            names[OBJECTS] = server.endpoint
            names["s3://lake"] = f"s3://{BUCKET}"
            os.environ.update(S3_ACCESS_KEY=KEY, S3_SECRET_KEY=SECRET)
            if "rest" in services:
                properties = warehouse_properties(server, "docs")
                names[CATALOG] = stack.enter_context(rest_server(folder / "rest", properties)).uri
        if "postgres" in services:
            database = stack.enter_context(database_server())
            names[DATABASE] = database.url
            os.environ["PGPASSWORD"] = PASSWORD
        if "connect" in services:
            # A record that its converter or its table refuses would end the sink's task.
            produce(names[BROKER], "payments", [record for record in PAYMENTS if "-566,000" not in str(record.value)])
            worker = stack.enter_context(_sink_worker(folder / "connect", names))
            worker.wait_until_running()
            names[CONNECT] = worker.rest
        yield names


def _sink_worker(folder: Path, names: Mapping[str, str]) -> ConnectWorker:
    """Worker whose connector an operator would have: rows as the sink makes them, without coordinates."""
    connector = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "1",
        "topics": "payments",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "iceberg.tables": "orders.payments",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.control.commit.interval-ms": "2000",
        "iceberg.catalog": "lake",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": names[CATALOG],
        "iceberg.catalog.warehouse": f"s3://{BUCKET}/docs",
        "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "iceberg.catalog.client.region": "us-east-1",
        "iceberg.catalog.s3.endpoint": names[OBJECTS],
        "iceberg.catalog.s3.path-style-access": "true",
        "iceberg.catalog.s3.access-key-id": KEY,
        "iceberg.catalog.s3.secret-access-key": SECRET,
    }
    return ConnectWorker(
        folder,
        names[BROKER],
        [*resolve_jars("connect"), *resolve_jars("aws"), *_store_client()],
        settings={
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "offset.flush.interval.ms": "1000",
            "plugin.discovery": "service_load",
        },
        connectors={CONNECTOR: connector},
        options=(*SMALL_JVM, "-Xmx384m"),
    )


def _store_client() -> list[Path]:
    """Iceberg's own classes for S3, which the set of the sink lacks."""
    return [jar for jar in resolve_jars("rest_catalog") if jar.name.startswith("iceberg-aws-1")]
