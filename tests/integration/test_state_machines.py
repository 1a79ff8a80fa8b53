"""Streams whose state is in SeaweedFS or PostgreSQL, taken over by another machine with real drivers and tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from jobs.clients.state_store.chosen_store import shared_store
from jobs.clients.state_store.lease_record import LeaseRecord, read_lease
from jobs.config.services.services import StateSettings
from jobs.streaming.supervision.documents.keeper_record import read_keeper
from tests.helpers.database_server import DatabaseServer
from tests.helpers.faulty_proxy import faulty_proxy
from tests.helpers.services import database_state, new_state
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, NULL_AMOUNT, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


def share_state(one: Pipeline, state: StateSettings, folder: str = "state") -> None:
    """Let a deployment's state be in a store, with a folder of this machine."""
    file = one.home / "frazil.yaml"
    document = yaml.safe_load(file.read_text())
    shared = state.model_dump(mode="json", exclude_none=True) | {"folder": str(one.home / folder)}
    file.write_text(yaml.safe_dump(document | {"state": shared}))


@pytest.mark.parametrize("state", ["objects"], indirect=True)
def test_the_next_driver_needs_nothing_that_one_left_on_its_own_disk(
    pipeline: Callable[..., Pipeline], spark: SparkSession, state: StateSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed between two commits, and its machine is gone: its folder, its processes, its clock."""
    one = pipeline(lease_ttl="6s")
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


@pytest.mark.timeout(1800)
def test_a_store_that_is_away_for_longer_than_a_lease_holds_is_waited_for(
    pipeline: Callable[..., Pipeline], database: DatabaseServer, tmp_path: Path
) -> None:
    """Nothing is committed meanwhile, though the tables could be; the same driver goes on under another epoch."""
    one = pipeline(lease_ttl="8s")
    one.write_spec(trigger={"every": "1s"})
    with faulty_proxy(database.port) as proxy:
        there = database.url.replace(f":{database.port}/", f":{proxy.port}/")
        state = database_state(database, url=there)
        share_state(one, state)
        # The same documents, without the proxy.
        direct = shared_store(state.model_copy(update={"store": database.url}), tmp_path / "direct")
        documents = direct.below(f"streams/{one.stream}")
        one.produce({GOOD: 20})
        one.control().start("the test begins", "tester")
        try:
            one.wait_until_landed()
            before = one.beat()
            log = one.folder().root / "logs" / "driver.log"
            proxy.arm("refused", 10**9)
            wait_for(
                lambda: "unavailable, tries again in 1 s" in log.read_text(),
                "the driver to know that the store is away",
            )
            snapshots = len(one.table().metadata.snapshots)
            one.produce({GOOD: 20})
            said = status(one)
            assert one.stream in said and "cannot be read" in said and f"127.0.0.1:{proxy.port}" in said, said
            wait_for(lambda: "unavailable, tries again in 2 s" in log.read_text(), "it to wait on")
            wait_for(lambda: (lease := read_lease(documents, one.stream)) and lease.expired(), "its lease to run out")
            assert len(one.table().metadata.snapshots) == snapshots
            proxy.arm("", 0)
            one.wait_until_landed()
            wait_for(lambda: one.beat().state == "running", "it to say that it runs")
            beat = one.beat()
            assert (beat.pid, beat.attempt) == (before.pid, before.attempt)
            assert beat.epoch > before.epoch
            one.assert_exactly_once()
        finally:
            proxy.arm("", 0)
            one.control().stop("the test ends", "tester")
            # While the store is there, or it would wait for it.
            wait_for(lambda: not kept(one), "the end of its keeper")


def kept(one: Pipeline) -> bool:
    keeper = read_keeper(one.folder().store.local)
    return keeper is not None and keeper.lives()


def status(one: Pipeline) -> str:
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(one.home), "status"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300).stdout


@pytest.fixture
def state(request: pytest.FixtureRequest) -> StateSettings:
    return new_state(request)
