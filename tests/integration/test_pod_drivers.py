"""Drivers in pods, whose containers are processes of this machine, with the state in PostgreSQL.

What answers as Kubernetes is a server of the tests. The deployment's folder is another one in the pods.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.clients.install.artifacts import cache_folder
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.processes.termination import Timeouts
from orchestration.reconcile.decide import Action, Decision, decide
from tests.helpers.catalogs import database_catalog
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.fake_kubernetes import FakeKubernetes, fake_kubernetes
from tests.helpers.services import database_state
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, ROOT, TRUNCATED, Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
NOBODY = "127.0.0.1:1"
WHY = ("a test", "tester")
STANDIN = (sys.executable, "-m", "tests.helpers.standin_driver")
TIMEOUTS = Timeouts(grace_seconds=60, term_seconds=2, ready_seconds=120)


@pytest.fixture
def kubernetes() -> Iterator[FakeKubernetes]:
    with fake_kubernetes() as served:
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        cache = {"FRAZIL_CACHE": str(cache_folder())}
        served.given = kept | cache | {"FRAZIL_TEST_PASSWORD": PASSWORD, "PYTHONPATH": str(ROOT)}
        yield served


@pytest.fixture
def deployment(database: DatabaseServer, kubernetes: FakeKubernetes, tmp_path: Path) -> Callable[..., list[Pipeline]]:
    """Makes streams whose drivers are pods; without a broker, if they only beat."""
    home, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (token := tmp_path / "token").write_text(kubernetes.token)
    own = {"image": "frazil:1", "command": [sys.executable], "api": kubernetes.address, "token_file": str(token)}

    def make(
        *names: str, broker: str = "", environment: dict[str, str] | None = None, **settings: Any
    ) -> list[Pipeline]:
        catalog = database_catalog(database, tmp_path / "warehouse")
        made = [Pipeline(home, broker or NOBODY, name, lease_ttl="15s", catalog_settings=catalog) for name in names]
        drivers = {"launcher": "kubernetes", "home": str(elsewhere), "kubernetes": own}
        written = yaml.safe_load((home / "frazil.yaml").read_text()) | settings
        written |= {"drivers": drivers | {"environment": environment or {}}}
        written |= {"state": database_state(database).model_dump(mode="json", exclude_none=True)}
        (home / "frazil.yaml").write_text(yaml.safe_dump(written))
        elsewhere.mkdir()
        shutil.copy(home / "frazil.yaml", elsewhere)
        for each in made:
            if broker:
                each.create_topic()
            each.write_spec(trigger={"every": "1s"})
        return made

    return make


def decided(made: Pipeline) -> Decision:
    now = made.control().observe()
    return decide(now.desired, now.actual, time.time())


def test_one_that_does_not_hear_is_removed_and_one_that_cannot_start_tells_why(
    deployment: Callable[..., list[Pipeline]], kubernetes: FakeKubernetes
) -> None:
    (made,) = deployment("poddeaf", environment={"STANDIN": "deaf"})
    timeouts = replace(TIMEOUTS, grace_seconds=6)
    control = StreamControl(made.home, None, made.stream, timeouts=timeouts, command=STANDIN)
    control.start(*WHY)
    pid = made.beat().pid
    assert "did not listen and was killed" in control.stop(*WHY).sentence
    assert kubernetes.graces == [2]
    assert not Path(f"/proc/{pid}").exists()
    text = (made.home / "frazil.yaml").read_text().replace("STANDIN: deaf", "STANDIN: die")
    (made.home / "frazil.yaml").write_text(text)
    with pytest.raises(FrazilError, match=r"ended before its first heartbeat: pod default/frazil-poddeaf-2-\w+: Error"):
        control.start(*WHY)


def test_a_group_is_a_pod_and_is_followed_by_another_with_all_its_streams(
    deployment: Callable[..., list[Pipeline]], kubernetes: FakeKubernetes, broker: str
) -> None:
    """With drivers as they are: a JVM, and both streams."""
    streams = deployment("podone", "podtwo", broker=broker, groups={"default": "small"})
    for each in streams:
        each.produce({GOOD: 20, TRUNCATED: 2})
        each.control().start(*WHY)
    for each in streams:
        each.wait_until_landed(120)
    group = DriverGroup.of(streams[0].settings(), "small")
    process = read_launched_process(group.folder.store)
    assert process is not None
    assert process.handle.startswith("default/frazil-group-small-1-")
    assert len(kubernetes.pods) == 1
    names = {driver.name for each in streams if (driver := each.control().observe().driver) is not None}
    assert names == {f"process {streams[0].beat().pid} on {streams[0].beat().host}, pod {process.handle}"}

    (running,) = kubernetes.processes.values()
    os.killpg(running.pid, signal.SIGKILL)
    wait_for(lambda: decided(streams[0]).action is Action.START, "the supervisor to start the group's driver", 90)
    assert "exit status 137" in decided(streams[0]).sentence
    for each in streams:
        each.produce({GOOD: 20})

        def due(each: Pipeline = each) -> bool:
            # The pod that the first stream is given has the other one as well, and may have told so by now.
            return decided(each).action in (Action.START, Action.ADOPT)

        wait_for(due, f"the supervisor to start {each.stream}: {decided(each)}", 90)
        each.control().ensure_running("it is gone", "supervisor")
    for each in streams:
        each.wait_until_landed(120)
        each.assert_exactly_once()
        assert "ended after its batch" in each.control().stop(*WHY).sentence
    # Without a stream it ends by itself.
    wait_for(lambda: all(each.poll() is not None for each in kubernetes.processes.values()), "the pods' end", 60)
    last = read_heartbeat(group.folder.store)
    assert last is not None
    assert last.state == "finished"
