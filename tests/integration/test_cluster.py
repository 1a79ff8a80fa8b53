"""Driver on a standalone cluster of Spark whose workers share nothing with it but Kafka, the catalog and the store.

The worker and the master are killed in turn, and every record is counted by topic, partition and offset.
`test_certify_settings.py` kills the executor and the driver.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.catalogs import bucket_folder, database_catalog, objects_properties
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.object_server import SECRET, ObjectServer
from tests.helpers.spark_cluster import (
    CLUSTER_SECRET,
    SECRET_VARIABLE,
    SparkCluster,
    command_lines,
    environment_of,
    folder_of,
    packed_environment,
    spark_cluster,
)
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2400)]

MASK_KEY = "a-mask-key-of-the-tests"
SECRETS = (CLUSTER_SECRET, PASSWORD, SECRET, MASK_KEY)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the driver alone; the cluster's processes do not inherit them."""
    monkeypatch.setenv(SECRET_VARIABLE, CLUSTER_SECRET)
    monkeypatch.setenv("FRAZIL_TEST_MASK_KEY", MASK_KEY)


@pytest.fixture
def stream_on(
    pipeline: Callable[..., Pipeline], database: DatabaseServer, objects: ObjectServer
) -> Iterator[Callable[..., Pipeline]]:
    """Starts a stream whose driver runs on a cluster; it ends with the test."""
    streams: list[Pipeline] = []

    def start(cluster: SparkCluster, **conf: str) -> Pipeline:
        made = pipeline(
            catalog_settings=database_catalog(database, bucket_folder(), **objects_properties(objects)),
            spark_settings={"master": cluster.url, "driver_memory": "600m", "conf": cluster.conf | conf},
        )
        hashed = {"mask": {"columns": ["note"], "hash": "${env:FRAZIL_TEST_MASK_KEY}"}}
        made.write_spec(trigger={"every": "1s"}, transform=[hashed])
        made.produce({GOOD: 120, TRUNCATED: 3, TOMBSTONE: 2})
        made.control().start("the test begins", "tester")
        streams.append(made)
        return made

    try:
        yield start
    finally:
        for each in streams:
            each.control().stop("the test ends", "tester")


def ui(made: Pipeline, path: str) -> Any:
    """What the UI of the stream's driver says of its application, as JSON."""
    beat = made.beat()
    with urllib.request.urlopen(
        f"{beat.ui_url}/api/v1/applications/{beat.application_id}/{path}", timeout=20
    ) as answer:
        return json.loads(answer.read())


def test_a_stream_survives_its_worker_and_its_master(stream_on: Callable[..., Pipeline], tmp_path: Path) -> None:
    """Its tasks run in a packed environment."""
    archive = packed_environment(tmp_path)
    with spark_cluster(tmp_path / "cluster") as cluster:
        # Nothing of the cluster runs yet: the driver waits for its master.
        packed = {"spark.archives": f"{archive}#environment", "spark.pyspark.python": "./environment/bin/python"}
        made = stream_on(cluster, **packed)
        address = cluster.url.removeprefix("spark://")
        refused = f"Spark's master does not answer at {address}: Connection refused"
        wait_for(lambda: says(made, refused), "the driver to name the absent master")
        cluster.start("master")
        cluster.start("worker1")
        made.wait_until_landed(120)
        nothing_secret_is_shown(made, cluster)
        workers, lines = cluster.python_workers(), command_lines()
        assert {lines[pid].split()[0] for pid in workers if pid in lines} == {"./environment/bin/python"}

        # The worker, with its executor.
        cluster.kill("worker1")
        made.produce({GOOD: 200})
        cluster.start("worker1")
        made.wait_until_landed(120)
        cluster.wait_for_workers(1)

        # The master: the application goes on without it, and with the one that comes after it.
        application = made.beat().application_id
        cluster.kill("master")
        made.produce({GOOD: 200})
        made.wait_until_landed(120)
        cluster.start("master")
        cluster.wait_for_workers(1)
        wait_for(lambda: [app["id"] for app in cluster.state()["activeapps"]] == [application], "the application")
        made.produce({GOOD: 200})
        made.wait_until_landed(120)
        assert made.beat().application_id == application

        # A master without a memory has the workers end what it does not know.
        cluster.kill("master")
        shutil.rmtree(cluster.folder / "master" / "recovery")
        cluster.start("master")
        wait_for(lambda: not cluster.executors(), "the executors' end")
        made.produce({GOOD: 200, TRUNCATED: 2})
        missing = f"Spark has no executor of {cluster.url}"
        wait_for(lambda: says(made, missing), "the driver to say that it has no executor")
        made.wait_until_landed(120)
        assert made.beat().attempt == 1, "the same driver"
        assert made.beat().application_id != application
        made.assert_exactly_once()
        notes = made.table().scan(selected_fields=("note",)).to_arrow()["note"].unique().to_pylist()
        assert [len(note) for note in notes] == [64], "hashed with the key that the driver alone has"


def nothing_secret_is_shown(made: Pipeline, cluster: SparkCluster) -> None:
    """No command line, page or file of the cluster has a secret; its own is where Spark keeps it."""
    lines = command_lines()
    shown = [*lines.values(), cluster.page("/"), cluster.page("/json/"), json.dumps(ui(made, "environment"))]
    shown += [cluster.page(f"/app/?appId={made.beat().application_id}")]
    for worker in cluster.state()["workers"]:
        with urllib.request.urlopen(f"{worker['webuiaddress']}/json/", timeout=60) as answer:
            shown.append(answer.read().decode())
    assert [text[:200] for text in shown if any(secret in text for secret in SECRETS)] == []
    executors = cluster.executors()
    assert executors
    for pid in [*executors, *cluster.python_workers()]:
        environment = environment_of(pid)
        assert [secret for secret in (PASSWORD, SECRET, MASK_KEY) if secret in environment.values()] == []
        assert environment["HOME"].startswith(str(cluster.folder))
        assert folder_of(pid).startswith(str(cluster.folder))
    files = [path for path in cluster.folder.rglob("*") if path.is_file() and path.name != "spark-defaults.conf"]
    assert [path for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS)] == []


def says(made: Pipeline, text: str) -> bool:
    """Whether the driver is waiting, and says so."""
    with contextlib.suppress(AssertionError):
        beat = made.beat()
        return beat.state == "retrying" and beat.error is not None and text in beat.error.message
    return False
