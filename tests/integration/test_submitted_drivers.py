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
from typing import Any

import pytest
import yaml

from jobs.base.system.processes import session_members
from jobs.clients.install.artifacts import cache_folder
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.streaming.supervision.documents.launches import LaunchedProcess, read_launched_process
from jobs.streaming.supervision.launchers.spark_submit import SparkSubmissions
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.state.observation import Observation
from orchestration.reconcile.decide import Action, decide
from tests.helpers.catalogs import database_catalog
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.services import database_state
from tests.helpers.spark_cluster import CLUSTER_SECRET, SECRET_VARIABLE, SparkCluster, command_lines, spark_cluster
from tests.helpers.waiting import wait_for
from tests.integration.driver_group import landed_once
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]
WHY = ("a test", "tester")


@pytest.fixture
def cluster(tmp_path: Path, database: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """A master and a worker, which has what drivers need of secrets in its environment."""
    monkeypatch.setenv(SECRET_VARIABLE, CLUSTER_SECRET)
    given = {"FRAZIL_TEST_PASSWORD": PASSWORD, SECRET_VARIABLE: CLUSTER_SECRET, "FRAZIL_CACHE": str(cache_folder())}
    with spark_cluster(tmp_path / "cluster", "master", "worker1", memory="1g", given=given) as started:
        started.wait_for_workers(1)
        yield started


def submitting(made: Pipeline, cluster: SparkCluster, database: DatabaseServer, folder: Path, **more: Any) -> None:
    """Have a deployment submit its drivers, which run with their own folder, as on another machine."""
    folder.mkdir()
    file = made.home / "frazil.yaml"
    page = f"http://127.0.0.1:{cluster.ui_port}"
    own = {"master": cluster.url, "pages": ["http://127.0.0.1:1", page], "memory": "700m"}
    settings = yaml.safe_load(file.read_text()) | {
        "state": database_state(database).model_dump(mode="json", exclude_none=True),
        "drivers": {"launcher": "spark_submit", "home": str(folder), "spark_submit": own},
        **more,
    }
    file.write_text(yaml.safe_dump(settings))
    shutil.copy(file, folder)


def options(cluster: SparkCluster, database: DatabaseServer, warehouse: Path) -> dict[str, Any]:
    """Of a stream whose tasks run in its driver."""
    conf = {key: value for key, value in cluster.conf.items() if not key.startswith("spark.executor")}
    return {
        "catalog_settings": database_catalog(database, warehouse),
        "spark_settings": {
            "master": "local[2]",
            "driver_memory": "500m",
            "conf": conf | {"spark.ui.enabled": "false"},
        },
    }


@pytest.fixture
def made(
    pipeline: Callable[..., Pipeline], cluster: SparkCluster, database: DatabaseServer, tmp_path: Path
) -> Iterator[Pipeline]:
    """A stream whose drivers are submitted, and whose tasks run in them."""
    made = pipeline(**options(cluster, database, tmp_path / "warehouse"))
    submitting(made, cluster, database, tmp_path / "elsewhere")
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
    assert f"process {beat.pid}" in said or "has not reported yet" in said
    assert made.folder().root != tmp_path / "elsewhere"
    assert str(tmp_path / "elsewhere") in beat.log, "its files are where it runs"
    nothing_of_it_is_ours(beat.pid)
    nothing_secret_is_shown(cluster)
    assert "runs already" in made.control().start(*WHY).sentence

    # Killed, it is gone as soon as the master says so, and the supervisor's decision is to start another.
    os.kill(beat.pid, signal.SIGKILL)
    made.produce({GOOD: 200})
    wait_for(lambda: not any(session_members(beat.pid)), "all that it started to end")
    wait_for(lambda: submissions(cluster)[first.handle] != "RUNNING", "the master to know")

    def decided() -> Action:
        now = observed(made)
        return decide(now.desired, now.actual, time.time()).action

    wait_for(lambda: decided() is Action.START, "the supervisor to start it", 90)
    made.control().ensure_running("it is gone", "supervisor")
    made.wait_until_landed(150)
    second = noted(made)
    assert (second.attempt, submissions(cluster)[second.handle]) == (2, "RUNNING")
    assert second.handle != first.handle

    # The master kills it where it does not hear. It is asked first.
    beat = made.beat()
    assert SparkSubmissions(made.settings()).end(second, made.stream, 10.0)
    assert submissions(cluster)[second.handle] == "KILLED"
    wait_for(lambda: (last := read_heartbeat(made.folder().store)) is not None and last.final, "its last word")
    assert made.beat().state == "terminated"
    wait_for(lambda: session_members(beat.pid) == [], "all that it started to end")
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
            with urllib.request.urlopen(f"{worker['webuiaddress']}{path}", timeout=60) as answer:
                shown.append(answer.read().decode())
    shown += [path.read_text(errors="replace") for path in cluster.folder.rglob("std*") if path.is_file()]
    secrets = (PASSWORD, CLUSTER_SECRET)
    assert [text[:200] for text in shown if any(secret in text for secret in secrets)] == []


def test_a_group_is_one_submission_and_ends_when_it_has_no_stream(
    pipeline: Callable[..., Pipeline], broker: str, cluster: SparkCluster, database: DatabaseServer, tmp_path: Path
) -> None:
    given = options(cluster, database, tmp_path / "warehouse")
    one = pipeline(**given)
    two = Pipeline(one.home, broker, f"{one.stream[:50]}_two", **given)
    two.create_topic()
    submitting(one, cluster, database, tmp_path / "elsewhere", groups={"default": "small"})
    streams = (one, two)
    try:
        for each in streams:
            each.write_spec(trigger={"every": "1s"})
            each.produce({GOOD: 20, TRUNCATED: 2})
            each.control().start(*WHY)
        for each in streams:
            each.wait_until_landed(150)
        group = DriverGroup.of(one.settings(), "small")
        process = read_launched_process(group.folder.store)
        assert process is not None
        assert submissions(cluster) == {process.handle: "RUNNING"}
        assert len({each.beat().pid for each in streams}) == 1
        nothing_secret_is_shown(cluster)

        # Asked by nobody, the supervisor gives both to the next submission: whichever it starts first brings the other.
        os.kill(one.beat().pid, signal.SIGKILL)
        for each in streams:
            each.produce({GOOD: 20})

        def due() -> bool:
            now = observed(one)
            return decide(now.desired, now.actual, time.time()).action is Action.START

        wait_for(due, f"the supervisor to start {one.stream}", 120)
        for each in streams:
            each.control().ensure_running("it is gone", "supervisor")
        for each in streams:
            landed_once(each, 150)
    finally:
        for each in streams:
            each.control().stop("the test ends", "tester")
    wait_for(lambda: set(submissions(cluster).values()).isdisjoint({"RUNNING", "SUBMITTED"}), "the driver to end", 90)
    last = read_heartbeat(group.folder.store)
    assert last is not None and last.state == "finished"
