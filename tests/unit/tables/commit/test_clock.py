"""Clocks that jump: what a table's log, a lease and a stamp make of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from jobs.clients.state_store.lease import Lease, LeaseHeldError
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.context.completeness import ObservedEnds, valid_through
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.unit.tables.commit.conftest import NAME

HOUR = 3600.0


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the host's clock so many seconds away from the true time."""
    real = time.time

    def set_clock(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)

    return set_clock


def test_a_tables_log_never_goes_back(
    catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog], jump: Callable[[float], None]
) -> None:
    # Java's Iceberg loads no table whose log goes back by more than a minute.
    def claimed(newest: Stamp | None, epoch: int) -> Stamp:
        return newest.claimed(epoch) if newest else Stamp("s", "claim", -1, epoch, "c", start={}, position={})

    for epoch, seconds in enumerate((0.0, 2 * HOUR, -HOUR, -HOUR, 0.0), start=1):
        jump(seconds)
        Target(new_catalog(), NAME, "s").claim(epoch, partial(claimed, epoch=epoch))
    metadata = catalog.load_table(NAME).metadata
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert times == sorted(set(times))
    assert len(times) == 5
    assert [snapshot.timestamp_ms for snapshot in metadata.snapshots] == times
    assert metadata.last_updated_ms == times[-1]
    written = [entry.timestamp_ms for entry in metadata.metadata_log]
    assert written == sorted(written)


def test_a_lease_on_this_host_asks_no_wall_clock(tmp_path: Path, jump: Callable[[float], None]) -> None:
    holder = Lease(LocalStore(tmp_path), "payments", 30.0)
    holder.acquire(above=0)
    try:
        for seconds in (HOUR, -HOUR):
            jump(seconds)
            assert holder.lost is None
            holder.verify()
            with pytest.raises(LeaseHeldError):
                Lease(LocalStore(tmp_path), "payments", 30.0).acquire(above=0)
    finally:
        holder.release()


def test_complete_through_stays_until_the_clock_has_passed_it() -> None:
    at = {TopicPartition("t", 0): 5}
    assert valid_through(at, ObservedEnds(5_000, at), [], 7_000) == 7_000
    assert valid_through(at, ObservedEnds(8_000, at), [], 7_000) == 8_000
