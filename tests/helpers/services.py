"""Services that tests share, and state stores on them.

Each service is started when it is first asked for, and ends with the process that asked.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.clients.state_store.chosen_store import shared_store
from jobs.clients.state_store.shared_store import SharedStore
from jobs.config.services.services import StateSettings
from tests.helpers.database_server import PASSWORD, DatabaseServer, database_server
from tests.helpers.hive_server import HiveServer, hive_server
from tests.helpers.object_server import BUCKET, KEY, SECRET, ObjectServer, object_server, warehouse_properties
from tests.helpers.rest_server import RestServer, rest_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """An S3 server; its credentials are in the environment as the settings of `objects_state` name them."""
    with object_server(tmp_path_factory.mktemp("objects")) as server, _variable("FRAZIL_TEST_S3_SECRET", SECRET):
        yield server


@pytest.fixture(scope="session")
def database() -> Iterator[DatabaseServer]:
    """A PostgreSQL server; its password is in the environment as the settings of `database_state` name it."""
    with database_server() as server, _variable("FRAZIL_TEST_PASSWORD", PASSWORD):
        yield server


@pytest.fixture(scope="session")
def rest_catalog(objects: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """A REST catalog whose tables are in the S3 server; whoever loads a table is handed the keys."""
    properties = warehouse_properties(objects, f"rest-{os.getpid()}")
    with rest_server(tmp_path_factory.mktemp("rest"), properties) as server:
        yield server


@pytest.fixture(scope="module")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveServer]:
    """A Hive metastore."""
    pytest.importorskip("thrift", reason="the extra `hive` is not installed")
    with hive_server(tmp_path_factory.mktemp("hive")) as server:
        yield server


def objects_state(server: ObjectServer, *, endpoint: str | None = None, timeout: str = "5s") -> StateSettings:
    """State below a prefix of its own; `endpoint`: of a proxy before the server."""
    return StateSettings.model_validate(
        {
            "store": f"s3://{BUCKET}/state-{os.getpid()}-{next(_numbers)}",
            "timeout": timeout,
            "properties": {
                "s3.endpoint": endpoint or server.endpoint,
                "s3.access-key-id": KEY,
                "s3.secret-access-key": "${env:FRAZIL_TEST_S3_SECRET}",
            },
        }
    )


def database_state(server: DatabaseServer, *, url: str | None = None, timeout: str = "5s") -> StateSettings:
    """State in a table of its own; `url`: of a proxy before the server."""
    return StateSettings.model_validate(
        {
            "store": url or server.url,
            "timeout": timeout,
            "properties": {"password": "${env:FRAZIL_TEST_PASSWORD}", "table": f"state_{os.getpid()}_{next(_numbers)}"},
        }
    )


def new_state(request: pytest.FixtureRequest) -> StateSettings:
    """Settings of a new store on the service that is the test's parameter."""
    server = request.getfixturevalue(request.param)
    return objects_state(server) if request.param == "objects" else database_state(server)


def new_store(request: pytest.FixtureRequest, folder: Path) -> SharedStore:
    """Open a new state store, see `new_state`, as a machine with the given folder of its own."""
    return shared_store(new_state(request), folder)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
