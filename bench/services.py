"""Services of a deployment that several machines share, as processes of this one: `shared_deployment`.

Kafka, Iceberg's REST catalog or PostgreSQL's tables as one, S3 (SeaweedFS), PostgreSQL, and a standalone cluster of
Spark whose workers have nothing of the driver's folders. They listen on free ports of the loopback and end with
whoever asked for them. PostgreSQL runs without fsync, as it does in tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from jobs.local.broker.broker import LocalBroker
from tests.helpers.bucket_listing import keys_with
from tests.helpers.database_server import DATABASE, PASSWORD, USER, DatabaseServer, database_server
from tests.helpers.object_server import BUCKET, KEY, SECRET, ObjectServer, object_server, warehouse_properties
from tests.helpers.rest_server import rest_server
from tests.helpers.spark_cluster import CLUSTER_SECRET, SECRET_VARIABLE, SparkCluster, spark_cluster

CatalogKind = Literal["rest", "postgresql"]
StateKind = Literal["postgresql", "s3", "folder"]

_SECRETS = {"FRAZIL_BENCH_S3_SECRET": SECRET, "FRAZIL_BENCH_PASSWORD": PASSWORD, SECRET_VARIABLE: CLUSTER_SECRET}
_S3 = {
    "s3.region": "us-east-1",
    "s3.access-key-id": KEY,
    "s3.secret-access-key": "${env:FRAZIL_BENCH_S3_SECRET}",
}


@dataclass(frozen=True, slots=True)
class SharedDeployment:
    """A deployment whose services run.

    Attributes:
        home: Folder of the deployment, with `frazil.yaml`.
        broker: Address of Kafka.
        environment: Environment that its drivers need: the secrets that the settings name.
        cluster: Spark's cluster; None where drivers run their tasks themselves.
    """

    home: Path
    broker: str
    environment: dict[str, str]
    objects: ObjectServer
    database: DatabaseServer
    cluster: SparkCluster | None

    @property
    def settings_file(self) -> Path:
        """The settings."""
        return self.home / "frazil.yaml"

    def left(self, name: str) -> list[str]:
        """The leftovers that still have a name: objects of the bucket, and tables of the database."""
        import psycopg

        found = keys_with(self.objects, name)
        with psycopg.connect(self.database.url, password=PASSWORD) as connection:
            rows = connection.execute("SELECT tablename FROM pg_tables WHERE strpos(tablename, %s) > 0", (name,))
            return sorted([*found, *(row[0] for row in rows)])


@contextmanager
def shared_deployment(
    folder: Path, *, catalog: CatalogKind, state: StateKind, workers: int, spark: dict[str, Any]
) -> Iterator[SharedDeployment]:
    """Run the services of a deployment, with its settings written, until the end.

    Args:
        folder: Folder for all files.
        catalog: Kind of catalog; its tables are in S3 with either.
        state: Place of the state.
        workers: Number of workers of a standalone cluster, each of one core; with 0 drivers run their tasks themselves.
        spark: The settings' block, to which a cluster's master and secrets are added.
    """
    home = folder / "home"
    (home / "streams").mkdir(parents=True)
    with ExitStack() as services:
        objects = services.enter_context(object_server(folder / "objects"))
        database = services.enter_context(database_server())
        cluster = None
        if workers:
            names = ["master", *(f"worker{number + 1}" for number in range(workers))]
            cluster = services.enter_context(spark_cluster(folder / "cluster", *names))
            cluster.wait_for_workers(workers)
            spark = {**spark, "master": cluster.url, "conf": {**cluster.conf, **spark.get("conf", {})}}
        properties = _rest(services, folder, objects) if catalog == "rest" else _postgresql(database, objects)
        broker = services.enter_context(LocalBroker(folder / "broker")).status().address or ""
        document: dict[str, Any] = {
            "kafka": {"bootstrap_servers": broker},
            "catalog": {"name": "lake", "properties": properties},
            "spark": spark,
            **({"state": _state(state, database, objects)} if state != "folder" else {}),
        }
        made = SharedDeployment(home, broker, {**os.environ, **_SECRETS}, objects, database, cluster)
        made.settings_file.write_text(yaml.safe_dump(document, sort_keys=False))
        yield made


def _rest(services: ExitStack, folder: Path, objects: ObjectServer) -> dict[str, str]:
    """A REST catalog that hands out the keys of its tables' files."""
    server = services.enter_context(rest_server(folder / "rest", warehouse_properties(objects, "warehouse")))
    return {"type": "rest", "uri": server.uri, "s3.endpoint": objects.endpoint, "s3.region": "us-east-1"}


def _postgresql(database: DatabaseServer, objects: ObjectServer) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"postgresql+psycopg://{USER}@127.0.0.1:{database.port}/{DATABASE}",
        "password": "${env:FRAZIL_BENCH_PASSWORD}",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": objects.endpoint,
        **_S3,
    }


def _state(kind: StateKind, database: DatabaseServer, objects: ObjectServer) -> dict[str, Any]:
    if kind == "s3":
        return {"store": f"s3://{BUCKET}/state", "properties": {"s3.endpoint": objects.endpoint, **_S3}}
    return {"store": database.url, "properties": {"password": "${env:FRAZIL_BENCH_PASSWORD}"}}
