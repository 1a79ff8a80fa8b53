"""Deployment for each run: the catalog, the stream and the tables, made for both sides by the same code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bench.versus.formats import PAYMENT_FORMATS, Format
from bench.versus.records import Size, schema_text
from bench.versus.topic_load import Load
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.opening.opening import ensure_tables
from resources.deployment import Deployment

STREAM = "payments"
TABLE = "orders.payments"


@dataclass(frozen=True, slots=True)
class BenchDeployment:
    """A fresh deployment: an embedded catalog (SQLite, files in a local folder) and one stream.

    Args:
        path: Folder of the deployment.
    """

    path: Path

    @staticmethod
    def make(
        path: Path,
        address: str,
        topic: str,
        size: Size,
        *,
        batch: int = 1_000_000,
        kafka_columns: bool = True,
        format_: Format = "json",
        registry: str | None = None,
    ) -> BenchDeployment:
        """Write its files.

        Args:
            path: A folder that does not exist yet.
            address: The broker.
            topic: Topic that the stream reads.
            size: Size of the payments in the topic.
            batch: The most that one batch of frazil's reads.
            kafka_columns: Whether the table has the four columns that say where a row came from.
            format_: Format of the payments.
            registry: The URL of the schema registry, for formats that need one.
        """
        spec = {
            "stream": STREAM,
            "source": {"topics": [topic], "start": "earliest", "max_records_per_batch": batch},
            "decode": {"value": format_, "schema": schema_text(size)},
            "table": {"name": TABLE, "partition_by": ["day(created_at)"], "kafka_columns": kafka_columns},
            "errors": {"tolerance": "data", "dead_letters": {"table": f"{TABLE}_dead"}},
            "trigger": "available_now",
        }
        (path / "streams").mkdir(parents=True)
        settings: dict[str, Any] = {"kafka": {"bootstrap_servers": address}}
        if PAYMENT_FORMATS[format_].registry_kind:
            settings["registry"] = {"url": registry}
        (path / "frazil.yaml").write_text(yaml.safe_dump(settings))
        (path / "streams" / f"{STREAM}.yaml").write_text(yaml.safe_dump(spec))
        return BenchDeployment(path)

    @staticmethod
    def of(
        path: Path,
        load: Load,
        address: str,
        *,
        batch: int = 1_000_000,
        kafka_columns: bool = True,
        registry: str | None = None,
    ) -> BenchDeployment:
        """Make a deployment for a loaded topic, see `make`."""
        return BenchDeployment.make(
            path,
            address,
            load.topic,
            load.size,
            batch=batch,
            kafka_columns=kafka_columns,
            format_=load.format,
            registry=registry,
        )

    @property
    def deployment(self) -> Deployment:
        """Deployment, as the command line finds it."""
        return Deployment.at(self.path)

    @property
    def spec(self) -> StreamSpec:
        """The stream."""
        return self.deployment.stream(STREAM)

    def catalog(self) -> Catalog:
        """The deployment's catalog."""
        return connect_catalog(self.deployment.settings())

    def create_table(self) -> Table:
        """Make the table as frazil's first run would."""
        catalog = self.catalog()
        ensure_tables(self.spec, catalog)
        return catalog.load_table(TABLE)
