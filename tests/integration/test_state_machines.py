"""Streams whose state is in SeaweedFS or PostgreSQL, taken over by another machine with real drivers and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pytest
import yaml

from jobs.spec.state import StateSettings
from jobs.state.lease_record import LeaseRecord
from tests.helpers.services import new_state
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
