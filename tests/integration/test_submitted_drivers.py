"""Drivers that a standalone cluster of Spark runs, with the state in PostgreSQL.

The deployment's folder is another one where they run, as on another machine: the state folder has nothing for them.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from jobs.install.artifacts import cache_folder
from jobs.supervise.heartbeat import read_heartbeat
from jobs.supervise.launchers.spark_submit import SparkSubmissions
from jobs.supervise.launches import LaunchedProcess, read_launched_process
from jobs.supervise.observation import Observation
from jobs.system.processes import session_members
from orchestration.reconcile.decide import decide
from orchestration.reconcile.decision import Action
from tests.helpers.catalogs import database_catalog
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.services import database_state
from tests.helpers.spark_cluster import CLUSTER_SECRET, SECRET_VARIABLE, SparkCluster, command_lines, spark_cluster
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.timeout(500)]
WHY = ("a test", "tester")


@pytest.fixture
def cluster(tmp_path: Path, database: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """A master and a worker, which has what drivers need of secrets in its environment."""
    monkeypatch.setenv(SECRET_VARIABLE, CLUSTER_SECRET)
    given = {"FRAZIL_TEST_PASSWORD": PASSWORD, SECRET_VARIABLE: CLUSTER_SECRET, "FRAZIL_CACHE": str(cache_folder())}
    with spark_cluster(tmp_path / "cluster", "master", "worker1", memory="1g", given=given) as started:
        started.wait_for_workers(1)
        yield started


@pytest.fixture
def made(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster, database: DatabaseServer, tmp_path: Path
) -> Iterator[Pipeline]:
    """A stream whose drivers are submitted, and whose tasks run in them."""
    conf = {key: value for key, value in cluster.conf.items() if not key.startswith("spark.executor")}
    made = pipeline(
        catalog_settings=database_catalog(database, tmp_path / "warehouse"),
        spark_settings={"master": "local[2]", "driver_memory": "500m", "conf": conf | {"spark.ui.enabled": "false"}},
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = made.home / "frazil.yaml"
    page = f"http://127.0.0.1:{cluster.ui_port}"
    own = {"master": cluster.url, "pages": ["http://127.0.0.1:1", page], "memory": "700m"}
    settings = yaml.safe_load(file.read_text()) | {
        "state": database_state(database).model_dump(mode="json", exclude_none=True),
        "drivers": {"launcher": "spark_submit", "home": str(elsewhere), "spark_submit": own},
    }
    file.write_text(yaml.safe_dump(settings))
    shutil.copy(file, elsewhere)
    made.write_spec(trigger={"every": "1s"})
    yield made
    made.control().stop("the test ends", "tester")


def submissions(cluster: SparkCluster) -> dict[str, str]:
    """What the master has been given, with the state of each."""
    page = cluster.state()
    return {each["id"]: each["state"] for kind in ("activedrivers", "completeddrivers") for each in page[kind]}


def noted(made: Pipeline) -> LaunchedProcess:
    process = read_launched_process(made.folder().store)
    assert process is not None
    return process


def observed(made: Pipeline) -> Observation:
    return made.control().observe()


def test_a_driver_that_is_submitted_lands_is_started_again_and_ended(
    made: Pipeline, cluster: SparkCluster, tmp_path: Path
) -> None:
    made.produce({GOOD: 300, TRUNCATED: 3})
    said = made.control().start(*WHY).sentence
    made.wait_until_landed(150)
    first, beat = noted(made), made.beat()
    assert (first.launcher, submissions(cluster)) == ("spark_submit", {first.handle: "RUNNING"})
    driver = observed(made).driver
    assert driver is not None
    assert not driver.local
    assert driver.name == f"process {beat.pid} on {beat.host}, submission {first.handle}"
    assert f"process {beat.pid}" in said or "has not said anything yet" in said
    assert made.folder().root != tmp_path / "elsewhere"
    assert str(tmp_path / "elsewhere") in beat.log, "its files are where it runs"
    nothing_of_it_is_ours(beat.pid)
    nothing_secret_is_shown(cluster)
    assert "runs already" in made.control().start(*WHY).sentence

    # Killed, it is gone as soon as the master says so, and the supervisor's decision is to start another.
    os.kill(beat.pid, signal.SIGKILL)
    made.produce({GOOD: 200})
    wait_for(lambda: not any(session_members(beat.pid)), "all that it started to end", 60)
    wait_for(lambda: submissions(cluster)[first.handle] != "RUNNING", "the master to know", 60)

    def decided() -> Action:
        now = observed(made)
        return decide(now.desired, now.actual, time.time()).action

    wait_for(lambda: decided() is Action.START, "the supervisor to start it", 90)
    made.control().ensure_running("it is gone", "supervisor")
    made.wait_until_landed(150)
    second = noted(made)
    assert (second.attempt, submissions(cluster)[second.handle]) == (2, "RUNNING")
    assert second.handle != first.handle

    # Asked to end, it ends after its batch, and the master sees that.
    beat = made.beat()
    assert "is stopped: attempt 2 ended after its batch" in made.control().stop(*WHY).sentence
    wait_for(lambda: submissions(cluster)[second.handle] == "FINISHED", "the submission's end", 60)
    wait_for(lambda: session_members(beat.pid) == [], "all that it started to end", 60)

    # By the master's word, as where it does not hear: asked first.
    made.control().start(*WHY)
    made.produce({GOOD: 50})
    made.wait_until_landed(150)
    third, beat = noted(made), made.beat()
    assert SparkSubmissions(made.settings()).end(third, made.stream, 10.0)
    assert submissions(cluster)[third.handle] == "KILLED"
    wait_for(lambda: (last := read_heartbeat(made.folder().store)) is not None and last.final, "its last word", 60)
    assert made.beat().state == "terminated"
    wait_for(lambda: session_members(beat.pid) == [], "all that it started to end", 60)
    made.assert_exactly_once()


def nothing_of_it_is_ours(pid: int) -> None:
    """Its parents are the worker's: whoever asked for it, such as a run of Dagster, may end."""
    ours = os.getsid(0)
    for _ in range(3):
        assert os.getsid(pid) != ours
        assert pid != os.getpid()
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert "deploy.worker.Worker" in command_lines()[pid]


def nothing_secret_is_shown(cluster: SparkCluster) -> None:
    """No command line, page or log has a secret; Spark's own is where Spark keeps it."""
    shown = [*command_lines().values(), cluster.page("/"), cluster.page("/json/")]
    for worker in cluster.state()["workers"]:
        for path in ("/", "/json/"):
            with urllib.request.urlopen(f"{worker['webuiaddress']}{path}", timeout=10) as answer:
                shown.append(answer.read().decode())
    shown += [path.read_text(errors="replace") for path in cluster.folder.rglob("std*") if path.is_file()]
    secrets = (PASSWORD, CLUSTER_SECRET)
    assert [text[:200] for text in shown if any(secret in text for secret in secrets)] == []
