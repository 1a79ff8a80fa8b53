"""Services that pages of the docs speak of, on this machine; their addresses stand for those of the pages."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.local.broker.broker import LocalBroker
from jobs.local.registry.registry import LocalRegistry
from tests.helpers.database_server import PASSWORD, database_server
from tests.helpers.object_server import BUCKET, KEY, SECRET, object_server, warehouse_properties
from tests.helpers.rest_server import rest_server

BROKER = "broker.example.com:9092"
REGISTRY = "http://registry.example.com:8081"
OBJECTS = "http://s3.example.com:8333"
CATALOG = "http://catalog.example.com:8181"
DATABASE = "postgresql://frazil@db.example.com:5432/frazil"


@contextlib.contextmanager
def world(services: Sequence[str], folder: Path) -> Iterator[dict[str, str]]:
    """Start services until the end.

    Args:
        services: Some of `kafka`, `registry`, `s3`, `rest` (which includes `s3`) and `postgres`.
        folder: Folder for their data.

    Returns:
        By the address in the docs, the address on this machine. Credentials are in the environment: `S3_ACCESS_KEY`,
        `S3_SECRET_KEY`, `PGPASSWORD`.
    """
    names: dict[str, str] = {}
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
        yield names
