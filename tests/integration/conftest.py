"""The real parts that integration tests share: one broker and one registry for the whole run, one Spark session."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.local_broker.broker import LocalBroker
from jobs.local_registry.registry import LocalRegistry
from jobs.maintain.iceberg_procedures import Procedures
from jobs.system.locks import exclusive
from tests.integration.pipeline import SPARK_CONF, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The suite takes as long as the process that ends last, so the files that take longest begin; but the three that start
# Dagster, of which every start is half a minute of CPU, do not begin together. Whoever has a file of one test gets the
# next file as well, so no long one stands where that would be.
LONGEST = tuple(
    f"test_{name}.py"
    for name in (
        *("supervision", "certify", "cluster", "keeper", "broker", "faults_world", "demo", "driver", "faults_state"),
        *("dagster", "shared_catalogs", "cli", "stops", "continues", "faults_tables", "letter_publishing"),
        *("certify_settings",),
        *("faults_topics", "topic_identities"),
        *("security", "kill", "replay", "outbox"),
        "earlier_release",
        *("submitted_drivers", "groups", "mirror_source", "change_streams", "state_supervision", "remake", "publish"),
        "store_faults",
    )
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def begins(item: pytest.Item) -> int:
        return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)

    items.sort(key=begins)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker that all processes of this test run share; the last one stops it."""
    root = _shared_folder(tmp_path_factory)
    with _shared(root, "broker", LocalBroker(root / "broker", detached=True)) as address:
        yield address


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the schema registry that all processes of this test run share; the last one stops it."""
    root = _shared_folder(tmp_path_factory)
    with _shared(root, "registry", LocalRegistry(root / "registry", detached=True, keep=False)) as url:
        yield url


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@contextlib.contextmanager
def _shared(root: Path, name: str, server: LocalBroker | LocalRegistry) -> Iterator[str]:
    users = root / f"{name}_users"
    users.mkdir(exist_ok=True)
    mine = users / str(os.getpid())
    # Nobody comes while the last one goes.
    with exclusive(root / f"{name}.lock", deadline_seconds=300):
        mine.touch()
        address = server.start()
    yield address
    with exclusive(root / f"{name}.lock", deadline_seconds=300):
        mine.unlink()
        if not any(users.iterdir()):
            server.stop()


@pytest.fixture
def pipeline(broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Pipeline]:
    """Makes a pipeline of the test's own, with its topic."""

    def make(*, topic: bool = True, **options: Any) -> Pipeline:
        name = re.sub(r"[^a-z0-9_]", "_", request.node.name.removeprefix("test_").lower())
        if len(name) > 60:
            # Cases of one test have the same beginning.
            name = f"{name[:51]}_{zlib.crc32(name.encode()):08x}"
        made = Pipeline(tmp_path / "deployment", broker, name, **options)
        if topic:
            made.create_topic()
        return made

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small Spark session in this process, for the tests that kill nothing."""
    from jobs.spark.end import end_spark
    from jobs.spark.session import start_session
    from jobs.spec.settings import Settings

    settings = Settings.embedded(tmp_path_factory.mktemp("spark"))
    small = settings.spark.model_copy(update={"driver_memory": "600m", "conf": SPARK_CONF})
    yield start_session(settings.model_copy(update={"spark": small}), "frazil tests")
    end_spark()


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Iceberg take what lies there for older: it sweeps nothing of the last day, and no object can be aged."""
    remove, ago = Procedures.remove_files, timedelta(days=30)

    def removed(self: Procedures, files: Sequence[tuple[str, datetime]], older_than: datetime) -> list[str]:
        return remove(self, [(path, changed - ago) for path, changed in files], older_than - ago)

    monkeypatch.setattr(Procedures, "remove_files", removed)
