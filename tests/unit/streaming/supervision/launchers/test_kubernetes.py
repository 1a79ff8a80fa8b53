"""Drivers in pods, against a server that answers as Kubernetes does; a real one was not asked."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, write_heartbeat
from jobs.streaming.supervision.documents.launches import (
    LaunchedProcess,
    read_launch,
    read_launched_process,
)
from jobs.streaming.supervision.launchers.choice import looker
from jobs.streaming.supervision.launchers.kubernetes import KubernetesPods, look_at
from jobs.streaming.supervision.launchers.launcher import DriverOrder, NotLaunchedError
from jobs.streaming.supervision.processes.actual import read_actual
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.processes.launcher import launched_driver
from tests.helpers.fake_kubernetes import FakeKubernetes, fake_kubernetes
from tests.unit.streaming.supervision.launchers.orders import order, settings_with


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    with fake_kubernetes() as served:
        yield served


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


@pytest.fixture
def pods(cluster: FakeKubernetes, token: Path, tmp_path: Path) -> KubernetesPods:
    own = {"image": "frazil:1", "namespace": "lake", "api": cluster.address, "token_file": str(token), "timeout": "2s"}
    return KubernetesPods(settings_with(tmp_path, {"launcher": "kubernetes", "kubernetes": own}))


def ordered(pods: KubernetesPods, home: Path, label: str = "orders", attempt: int = 3) -> DriverOrder:
    made = order(home, label, attempt)
    handle = pods.handle(label, attempt)
    return dataclasses.replace(made, launch=msgspec.structs.replace(made.launch, handle=handle))


def test_a_driver_is_started_looked_at_and_ended(pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path) -> None:
    process = pods.start(ordered(pods, tmp_path))
    namespace, name = process.handle.split("/")
    assert namespace == "lake"
    assert name.startswith("frazil-orders-3-")
    assert (process.launcher, process.pid, process.process_lives()) == ("kubernetes", 0, None)
    assert pods.look(process).life == "alive"
    cluster.becomes("Running")
    cluster.pod()["spec"]["nodeName"] = "node-7"
    assert (pods.look(process).life, pods.look(process).place) == ("alive", "node-7")
    assert pods.end(process, "orders", 10.0)
    assert cluster.graces == [10]
    assert pods.look(process).life == "ended"
    assert pods.end(process, "orders", 0.0) is False, "one that is gone already has ended"


@pytest.mark.parametrize("fault", [(500, True), (503, True), (504, False), (429, False), (599, True), (599, False)])
def test_a_request_whose_answer_is_lost_makes_one_pod(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path, fault: tuple[int, bool]
) -> None:
    """Each is sent again; the name is of this launch alone, so what exists already is what was asked for."""
    cluster.faults += [(0, True), fault]
    process = pods.start(ordered(pods, tmp_path))
    assert len(cluster.pods) == 1
    assert pods.look(process).life == "alive"
    cluster.faults += [(500, True)]
    pods.end(process, "orders", 10.0)
    assert cluster.pods == {}


def test_a_token_that_was_replaced_is_read_again(
    pods: KubernetesPods, cluster: FakeKubernetes, token: Path, tmp_path: Path
) -> None:
    process = pods.start(ordered(pods, tmp_path))
    cluster.token = "second"
    looked = pods.look(process)
    assert looked.life == "unknown"
    assert "401" in looked.reason
    token.write_text("second")
    assert pods.look(process).life == "alive"
    token.unlink()
    assert "cannot be read" in pods.look(process).reason


def test_whether_it_answers_is_asked_without_starting_anything(pods: KubernetesPods, cluster: FakeKubernetes) -> None:
    assert pods.check() == "Kubernetes answers, and shows the pods of lake"
    assert cluster.pods == {}
    cluster.faults += [(403, False)]
    with pytest.raises(FrazilError, match="answers 403"):
        pods.check()


def test_what_is_refused_was_not_launched(pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path) -> None:
    cluster.faults += [(0, True), (403, False)]
    with pytest.raises(NotLaunchedError, match="answers 403: a fault of the test") as refused:
        pods.start(ordered(pods, tmp_path))
    assert refused.value.fix is not None
    assert "service account" in refused.value.fix
    assert cluster.pods == {}
    assert pods.look(LaunchedProcess(3, "g", 0, "", "", "", 0.0, None, "kubernetes", "", "no")).life == "ended"


def test_a_run_that_is_ended_while_it_waits_takes_no_pod_with_it(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path
) -> None:
    folder = StreamFolder.at(tmp_path / "state")
    with pytest.raises(KeyboardInterrupt), launched_driver(folder, order(tmp_path), "stream: orders", pods):
        raise KeyboardInterrupt
    launch, noted = read_launch(folder.store), read_launched_process(folder.store)
    assert launch is not None
    assert noted is not None
    assert (launch.launcher, launch.handle) == (noted.launcher, noted.handle)
    assert pods.look(noted).life == "alive"
    assert cluster.graces == []


def test_no_stream_is_given_to_the_pod_of_a_group_that_has_just_ended(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path
) -> None:
    folder = StreamFolder.at(tmp_path / "state")
    group = DriverGroup("small", folder, pods.settings)
    with launched_driver(folder, order(tmp_path, "group:small"), "", pods):
        pass
    now, clock = time.time(), boot_clock()
    who = ("group:small", "g", 3, 17, "1", "another boot", "node-7")
    write_heartbeat(folder.store, Heartbeat(*who, now, "running", now, clock, now))
    cluster.becomes("Running")
    assert group.asked(group.actual()).driver is not None
    cluster.becomes("Failed", reason="Evicted")
    assert group.actual().driver is not None, "its heartbeat is fresh"
    assert group.asked(group.actual()).driver is None


def test_why_a_launch_was_refused_is_kept(pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path) -> None:
    folder = StreamFolder.at(tmp_path / "state")
    cluster.faults += [(0, True), (422, False)]
    with pytest.raises(NotLaunchedError), launched_driver(folder, order(tmp_path), "stream: orders", pods):
        pass
    noted = read_launched_process(folder.store)
    assert noted is not None
    assert "answers 422" in pods.look(noted).reason
    assert read_actual(folder.store, "orders", pods.look).driver is None


def test_without_an_answer_nobody_knows_and_nothing_is_concluded(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path
) -> None:
    process = pods.start(ordered(pods, tmp_path))
    cluster.faults += [(503, False)] * 50
    assert pods.look(process).life == "unknown"
    cluster.faults[:] = [(0, True)] + [(503, False)] * 50
    with pytest.raises(FrazilError, match="503") as unknown:
        pods.start(ordered(pods, tmp_path, attempt=4))
    assert not isinstance(unknown.value, NotLaunchedError)


def test_a_pod_that_does_not_end_is_not_taken_for_ended(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.streaming.supervision.launchers.kubernetes._GONE_SECONDS", 1.0)
    process = pods.start(ordered(pods, tmp_path))
    cluster.deaf = True
    with pytest.raises(FrazilError, match="it is unknown whether it has") as problem:
        pods.end(process, "orders", 0.0)
    assert cluster.graces == [1], "never 0, which would only take it off the books"
    assert problem.value.fix is not None
    assert problem.value.fix.startswith("kubectl -n lake describe pod frazil-orders-3-")


@pytest.mark.parametrize(("now", "life"), [("10:00:29", "alive"), ("10:00:31", "unknown")])
def test_of_a_pod_that_was_to_be_gone_nobody_knows(now: str, life: str) -> None:
    """Its node is lost, so what it said last stays, which is that the pod runs."""
    pod = {
        "metadata": {"deletionTimestamp": "2026-11-26T10:00:00Z"},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    assert look_at(pod, datetime.fromisoformat(f"2026-11-26T{now}Z").timestamp()).life == life


def test_a_conflict_with_something_else_has_made_no_pod(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path
) -> None:
    cluster.faults += [(409, False)]
    pods.start(ordered(pods, tmp_path))
    assert len(cluster.pods) == 1, "it was asked for again"


def test_one_pod_that_nobody_knows_of_says_nothing_of_the_others(
    pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path
) -> None:
    first = pods.start(ordered(pods, tmp_path))
    cluster.becomes("Unknown")
    second = pods.start(ordered(pods, tmp_path, "others", 1))
    look = looker(pods.settings)
    assert [look(first).life, look(second).life] == ["unknown", "alive"]


def test_pods_that_have_ended_stay_for_a_while(pods: KubernetesPods, cluster: FakeKubernetes, tmp_path: Path) -> None:
    for attempt in range(1, 6):
        pods.start(ordered(pods, tmp_path, attempt=attempt))
        for pod in cluster.pods.values():
            pod["status"] = {"phase": "Failed"}
    pods.start(ordered(pods, tmp_path, "others", 1))
    mine = [pod for pod in cluster.pods.values() if pod["metadata"]["labels"]["frazil/stream"] == "orders"]
    assert [pod["metadata"]["labels"]["frazil/attempt"] for pod in mine] == ["3", "4", "5"]


CONTAINER = "containerStatuses"
LOOKS: list[tuple[dict[str, Any] | None, str, str]] = [
    (None, "ended", "there is no such pod"),
    ({}, "alive", "the pod waits to be started"),
    ({"phase": "Running"}, "alive", ""),
    (
        {"phase": "Pending", "conditions": [{"status": "False", "reason": "Unschedulable", "message": "0/3 nodes."}]},
        "alive",
        "Unschedulable (0/3 nodes)",
    ),
    (
        {"phase": "Pending", CONTAINER: [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
        "alive",
        "ImagePullBackOff",
    ),
    (
        {"phase": "Failed", CONTAINER: [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]},
        "ended",
        "OOMKilled, exit status 137",
    ),
    (
        {"phase": "Failed", CONTAINER: [{"state": {"terminated": {"exitCode": 1, "message": "a\nerror: no state\n"}}}]},
        "ended",
        "ended, exit status 1 (error: no state)",
    ),
    ({"phase": "Failed", "reason": "Evicted", "message": "low on disk."}, "ended", "Evicted (low on disk)"),
    ({"phase": "Succeeded"}, "ended", "the pod has succeeded"),
    ({"phase": "Unknown"}, "unknown", "node n does not say how the pod is"),
]


@pytest.mark.parametrize(("status", "life", "reason"), LOOKS)
def test_what_a_pod_says_of_its_driver(status: dict[str, Any] | None, life: str, reason: str) -> None:
    looked = look_at(None if status is None else {"spec": {"nodeName": "n"}, "status": status}, 0.0)
    assert (looked.life, looked.reason) == (life, reason)
