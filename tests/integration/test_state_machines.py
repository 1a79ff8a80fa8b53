"""Streams whose state is in SeaweedFS or PostgreSQL: taken over by another machine, and a store that is away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from jobs.spec.state import StateSettings
from jobs.state.lease_record import LeaseRecord
from jobs.supervise.heartbeat import read_heartbeat
from jobs.supervise.keeper_record import read_keeper
from jobs.supervise.termination import kill_session
from jobs.system.processes import is_alive
from tests.helpers.faulty_proxy import faulty_proxy
from tests.helpers.object_server import ObjectServer
from tests.helpers.services import new_state, objects_state
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, NULL_AMOUNT, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def share_state(one: Pipeline, state: StateSettings, folder: str = "state") -> None:
    """Let a deployment's state be in a store, with a folder of this machine."""
    file = one.home / "frazil.yaml"
    document = yaml.safe_load(file.read_text())
    shared = state.model_dump(mode="json", exclude_none=True) | {"folder": str(one.home / folder)}
    file.write_text(yaml.safe_dump(document | {"state": shared}))


@pytest.mark.parametrize("state", ["objects", "database"], indirect=True)
def test_the_next_driver_needs_nothing_that_one_left_on_its_own_disk(
    pipeline: Callable[..., Pipeline], spark: SparkSession, state: StateSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed between two commits, and its machine is gone: its folder, its processes, its clock."""
    one = pipeline(lease_ttl="2s")
    share_state(one, state)
    one.produce({GOOD: 60, NULL_AMOUNT: 3})
    one.run_and_die("after_anchor_commit")
    store = one.folder().store
    (pending,) = one.folder().pending_records()
    assert not list(one.folder().root.glob("*.json"))
    key = store.keys("lease-*.json")[-1]
    held = msgspec.json.decode(store.get(key) or b"", type=LeaseRecord)
    store.put(key, msgspec.json.encode(msgspec.structs.replace(held, host="vanished", boot="another", renewed_wall=0)))
    one.lose_state()
    share_state(one, state, "elsewhere")
    with caplog.at_level("INFO"):
        one.drain(spark)
    assert "from the pending record" in caplog.text and pending.startswith("pending-")
    assert one.folder().pending_records() == []
    one.assert_exactly_once()


@pytest.fixture
def state(request: pytest.FixtureRequest) -> StateSettings:
    return new_state(request)


@pytest.fixture
def ended() -> Iterator[list[Pipeline]]:
    """Pipelines whose drivers and keepers do not outlive the test."""
    made: list[Pipeline] = []
    yield made
    for one in made:
        keeper = read_keeper(one.folder().store.local)
        if keeper is not None and is_alive(keeper.pid, keeper.started):
            os.kill(keeper.pid, signal.SIGKILL)
        beat = read_heartbeat(one.folder().store)
        if beat is not None:
            kill_session(beat.pid, beat.started, one.stream, beat.attempt)


def test_a_driver_whose_store_is_away_waits_and_goes_on(
    pipeline: Callable[..., Pipeline], objects: ObjectServer, ended: list[Pipeline]
) -> None:
    one = pipeline(lease_ttl="3s")
    ended.append(one)
    one.write_spec(trigger="as_fast_as_possible")
    state = objects_state(objects)
    with faulty_proxy(objects.port) as proxy:
        behind = state.model_copy(
            update={"properties": {**state.properties, "s3.endpoint": f"http://127.0.0.1:{proxy.port}"}}
        )
        share_state(one, behind)
        one.produce({GOOD: 30})
        one.control().start("the test", "tester")
        one.wait_until_landed()
        first = one.beat()
        proxy.arm("refused", 10**9)
        log = Path(first.log)
        wait_for(lambda: "retrying" in log.read_text(), "the driver to wait for its store", 60)
        one.produce({GOOD: 30})
        proxy.arm("", 0)
        one.wait_until_landed()
        wait_for(lambda: one.beat().epoch > first.epoch, "its heartbeat")
        assert one.beat().pid == first.pid, "it is the same process"
        one.control().stop("the test ends", "tester")
    share_state(one, state)
    one.assert_exactly_once()
