"""Deployments in temporary folders for tests that start nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from jobs.config.stream.models import StreamSpec
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource

STREAM = """\
stream: {stream}
description: Card payments.
owner: team:payments
source: {{topics: [{topic}]}}
decode:
  value: json
  schema: id string not null, amount decimal(12,2) not null, created_at timestamptz not null
table: {{name: orders.{stream}, partition_by: [day(created_at)]}}
freshness: {{warn: 5m, fail: 15m}}
"""


def deployment_in(home: Path, *streams: str) -> Path:
    """A deployment with these streams, each with a topic and a table of its own name."""
    folder = home / "streams"
    folder.mkdir(parents=True)
    for stream in streams:
        (folder / f"{stream}.yaml").write_text(STREAM.format(stream=stream, topic=f"{stream}.v1"))
    return home


def connections(deployment: Deployment) -> dict[str, Any]:
    """The resources of a deployment that connect to nothing before they are asked."""
    paths = DeploymentResource.of(deployment)
    return {
        "deployment": paths,
        "catalog": CatalogResource(deployment=paths),
        "kafka": KafkaResource(deployment=paths),
    }


def create_table(catalog: Catalog, spec: StreamSpec) -> None:
    """The table of a stream, as it declares it."""
    schema = spec.table_schema
    by = partition_spec(spec.table.partition_by, schema)
    ensure_table(catalog, spec.table.name, schema, by, create_table_properties({}))
