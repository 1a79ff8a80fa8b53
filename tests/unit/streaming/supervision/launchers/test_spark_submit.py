"""Drivers submitted to Spark: what is submitted, what its master's page says, and the environment of the driver."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.ports import free_ports
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.launchers.driver_identity import submission_of
from jobs.streaming.supervision.launchers.launcher import NotLaunchedError
from jobs.streaming.supervision.launchers.spark_submit import SparkSubmissions, look_in
from jobs.streaming.supervision.launchers.submitted_driver import driver_environment
from tests.unit.streaming.supervision.launchers.orders import order, settings_with

ID = "driver-20261126181850-0000"
SECRET = "a-secret-of-the-cluster"


def launcher(folder: Path, master: str = "spark://spark.internal:7077", **chosen: Any) -> SparkSubmissions:
    own = {"pages": ["http://127.0.0.1:1"], "memory": "3g", "cores": 2, "python": "/opt/frazil/bin/python"} | chosen
    conf = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "${env:FRAZIL_TEST_CLUSTER_SECRET}",
        "spark.network.crypto.enabled": "true",
        "spark.executor.memory": "1g",
    }
    drivers = {"launcher": "spark_submit", "home": "/srv/lake", "environment": {"TZ": "UTC"}, "spark_submit": own}
    return SparkSubmissions(settings_with(folder, drivers, spark={"master": master, "conf": conf}))


def submitted(handle: str, problem: str = "") -> LaunchedProcess:
    return LaunchedProcess(3, "g", 0, "", "", "", 0.0, None, "spark_submit", handle, problem)


def test_what_is_submitted_has_nothing_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_TEST_CLUSTER_SECRET", SECRET)
    monkeypatch.setenv("STATE_SECRET", "a-secret-of-this-machine")
    made = launcher(tmp_path)
    words = made.submission(order(tmp_path), made.master)
    options = dict(itertools.pairwise(words))
    assert options["--class"] == "org.apache.spark.deploy.PythonRunner"
    assert (options["--driver-memory"], options["--driver-cores"]) == ("3g", "2")
    told = ("jobs.streaming.driver.main", "--home", "/srv/lake", "--stream", "orders", "--attempt", "3")
    assert words[-10:] == ["-m", "", "jobs.streaming.supervision.launchers.submitted_driver", *told]
    conf = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    assert "spark.authenticate=true" in conf
    assert "spark.pyspark.python=/opt/frazil/bin/python" in conf
    assert not [each for each in conf if each.startswith("spark.executor")], "the driver has its own settings"
    environment = made._environment(order(tmp_path))
    assert environment == {
        "TZ": "UTC",
        "FRAZIL_KEEPER": "off",
        "FRAZIL_LAUNCHER": "spark_submit",
        "FRAZIL_DRIVER": "orders:3",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "_SPARK_AUTH_SECRET": SECRET,
    }, "Spark hands on what its client has, so it has nothing of this machine"
    assert not [word for word in words if SECRET in word]


@pytest.mark.parametrize(
    ("page", "life", "reason"),
    [
        ({"activedrivers": [{"id": ID, "state": "RUNNING", "worker": "worker-20261126-10.0.0.7-7078"}]}, "alive", ""),
        (
            {"activedrivers": [{"id": ID, "state": "SUBMITTED"}]},
            "alive",
            "no worker has enough free cores or memory for it",
        ),
        (
            {"completeddrivers": [{"id": ID, "state": "KILLED"}]},
            "ended",
            "it was killed by the master's order (KILLED)",
        ),
        ({"completeddrivers": [{"id": ID, "state": "FAILED"}]}, "ended", "it has ended with an error (FAILED)"),
        (
            {"completeddrivers": [{"id": ID, "state": "ERROR"}]},
            "ended",
            "its worker could not run it, or is lost (ERROR)",
        ),
        (
            {"activedrivers": [{"id": "driver-1-1", "state": "RUNNING"}]},
            "ended",
            "the master does not know it any more",
        ),
    ],
)
def test_what_a_page_says_of_a_submission(page: dict[str, Any], life: str, reason: str) -> None:
    looked = look_in(page, ID)
    assert (looked.life, looked.reason) == (life, reason)
    assert looked.place == ("10.0.0.7" if page.get("activedrivers", [{}])[0].get("worker") else "")


@pytest.fixture
def pages() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where a page is served, and what it says."""
    said: list[dict[str, Any]] = [{"status": "STANDBY"}]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            assert self.path == "/json/"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(said[0]).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", said
        server.shutdown()
        thread.join()


def test_only_the_master_in_charge_is_believed(tmp_path: Path, pages: tuple[str, list[dict[str, Any]]]) -> None:
    address, said = pages
    made = launcher(tmp_path, pages=["http://127.0.0.1:1", address])
    assert made.look(submitted(ID)).life == "unknown"
    assert made.look(submitted("", "there is no master")).reason == "there is no master"
    said[0] = {"status": "ALIVE", "activedrivers": [{"id": ID, "state": "RUNNING"}]}
    assert made.look(submitted(ID)).life == "alive"
    said[0] = {"status": "RECOVERING", "activedrivers": []}
    assert made.look(submitted(ID)).life == "unknown", "it may not know all yet"
    with pytest.raises(FrazilError, match=r"does not answer at spark\.internal:7077"):
        made.check()
    said[0] = {"status": "ALIVE"}
    assert made.look(submitted(ID)).life == "ended"
    assert made.end(submitted(ID), "orders", 1.0), "what has ended is not ended again"


def test_a_master_that_is_away_takes_nothing(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    made = launcher(tmp_path, f"spark://127.0.0.1:{port}")
    with pytest.raises(NotLaunchedError, match=f"does not answer at 127.0.0.1:{port}"):
        made.start(order(tmp_path))


def test_a_local_master_takes_no_driver(tmp_path: Path) -> None:
    with pytest.raises(FrazilError, match="to which no driver can be submitted"):
        _ = launcher(tmp_path, "local[2]").master
    drivers = {"launcher": "spark_submit", "spark_submit": {"pages": ["http://a:8080"], "master": "spark://a:7077"}}
    assert SparkSubmissions(settings_with(tmp_path, drivers)).master == "spark://a:7077", "and tasks run in the driver"


def test_the_driver_has_nothing_of_the_jvm_between() -> None:
    given = {
        "PATH": "/bin",
        "STATE_SECRET": "of the worker",
        "PYSPARK_GATEWAY_PORT": "1",
        "PYSPARK_GATEWAY_SECRET": "2",
        "_SPARK_AUTH_SECRET": "3",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip:/srv/own",
    }
    assert driver_environment(given, ID) == {
        "PATH": "/bin",
        "STATE_SECRET": "of the worker",
        "PYTHONPATH": "/srv/own",
        "FRAZIL_DRIVER_HANDLE": ID,
    }
    assert submission_of(Path("/work") / ID) == ID
    assert submission_of(Path("/srv/lake")) == ""
