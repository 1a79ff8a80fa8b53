"""Servers and the Spark session that tests with real parts share: one broker, one registry, one session per process.

Each is started by the first test that asks for it. Broker and registry are shared by all processes of a test run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.clients.spark.end import end_spark
from tests.helpers.shared_spark import SharedSpark, without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.local.broker.broker import LocalBroker
    from jobs.local.registry.registry import LocalRegistry

# Nobody opens the UI of a driver that lives for seconds. No JVM of a test lives long enough for C2 or a parallel
# collector to pay, and no table of a test needs 200 partitions.
SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_LOCK_SECONDS = 900


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker that all processes of this test run share; the last one stops it."""
    from jobs.local.broker.broker import LocalBroker

    root = _shared_folder(tmp_path_factory)
    with _shared(root, "broker", LocalBroker(root / "broker", detached=True)) as address:
        yield address


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the schema registry that all processes of this test run share; the last one stops it."""
    from jobs.local.registry.registry import LocalRegistry

    root = _shared_folder(tmp_path_factory)
    with _shared(root, "registry", LocalRegistry(root / "registry", detached=True, keep=False)) as url:
        yield url


@pytest.fixture(scope="session")
def spark_application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    """Small Spark application in this process, for the tests that kill nothing."""

    def start() -> SparkSession:
        from jobs.clients.spark.session import start_session
        from jobs.config.settings.settings import Settings

        settings = Settings.embedded(tmp_path_factory.mktemp("spark"))
        small = settings.spark.model_copy(update={"driver_memory": "600m", "conf": SPARK_CONF})
        return start_session(settings.model_copy(update={"spark": small}), "frazil tests")

    yield SharedSpark(start)
    end_spark()


@pytest.fixture(scope="module")
def spark(spark_application: SharedSpark) -> SparkSession:
    """Spark session for the tests of one file."""
    return spark_application.new_session()


@pytest.fixture(autouse=True)
def spark_of_other_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hide the shared application from tests that do not ask for it."""
    # A story asks for it when its first driver has been started.
    if {"spark_application", "story"} & set(request.fixturenames):
        yield
        return
    with without_spark():
        yield


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@contextlib.contextmanager
def _shared(root: Path, name: str, server: LocalBroker | LocalRegistry) -> Iterator[str]:
    from jobs.base.system.locks import exclusive

    users = root / f"{name}_users"
    users.mkdir(exist_ok=True)
    mine = users / str(os.getpid())
    # The lock keeps a process from joining while the last one stops the server.
    with exclusive(root / f"{name}.lock", deadline_seconds=_LOCK_SECONDS):
        mine.touch()
        address = server.start()
    yield address
    with exclusive(root / f"{name}.lock", deadline_seconds=_LOCK_SECONDS):
        mine.unlink()
        if not any(users.iterdir()):
            server.stop()
