"""Through when a stream is complete while a batch is in its coordinator and not in all other tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.commit.stamp_history import history
from jobs.stream.completeness import settled_through
from tests.helpers.evolving_stream import SINK
from tests.helpers.opened_stream import OpenedStream

DEAD = f"{SINK}_dead"


@pytest.mark.parametrize("lacking", ["orders.changes", DEAD])
def test_it_stays_before_a_half_committed_batch(tmp_path: Path, lacking: str) -> None:
    one = OpenedStream(tmp_path / "home")

    def stamped() -> int | None:
        newest = history(one.table.metadata, "payments").newest
        return newest.valid_through_ms if newest else None

    one.land_elsewhere()
    first = stamped()
    assert first is not None and settled_through(one.spec, one.catalog, one.table.metadata) == first
    one.killed_before(lacking)
    second = stamped()
    assert second is not None and second > first
    assert settled_through(one.spec, one.catalog, one.table.metadata) == first
    with one.opened():
        pass
    assert settled_through(one.spec, one.catalog, one.table.metadata) == second
