"""Expiry in a stream over a whole database: the changes of each changelog go once its own mirror has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.maintenance.plan.results import TableResult
from jobs.maintenance.run.table_maintenance import maintain_table
from jobs.mirrors.model.errors import ExpiredChangesError
from jobs.mirrors.model.merge_plan import (
    Generation,
    MergeCounts,
    MergePlan,
    MergeResult,
    MirrorState,
    PartitionState,
)
from jobs.mirrors.run.mirror_run import chosen_mirrors, rebuild_mirror, run_mirror
from jobs.tables.commit.stamp.expired_changes import expired_changes
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.debezium.samples import samples
from tests.helpers.lane_stream import LaneStream
from tests.unit.streaming.driver.test_lane_changes import DECODE, ROUTE

ORDERS, LARGE = "postgresql.public.orders", "postgresql.public.large"


class Seen:
    """Says that it has merged all of a changelog, and has not."""

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        rows = changelog.scan().to_arrow()
        if not rows.num_rows:
            return MergeResult(plan.state, MergeCounts())
        topic, end = rows["_kafka_topic"][0].as_py(), int(pc.call_function("max", [rows["_kafka_offset"]]).as_py()) + 1
        seen = PartitionState(end, None, None, (Generation(0, 0, None),))
        return MergeResult(MirrorState({TopicPartition(topic, 0): seen}), MergeCounts(read=rows.num_rows))

    def clear(self, mirror: Table, branch: str) -> None:
        pass


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaneStream:
    log: dict[TopicPartition, list[bytes | None]] = {}
    keys: dict[tuple[str, int], bytes] = {}
    for each in samples("postgresql"):
        if each.topic in (ORDERS, LARGE):
            records = log.setdefault(TopicPartition(each.topic, 0), [])
            if each.key is not None:
                keys[each.topic, len(records)] = each.key
            records.append(each.value)
    monkeypatch.setattr(LaneStream, "keys", keys)
    more: dict[str, Any] = {
        "decode": DECODE,
        "changes": {"envelope": "debezium", "keep": "7d"},
        "mirrors": [{"table": "mirrors.{table}"}],
    }
    one = LaneStream(tmp_path / "home", ROUTE, log, monkeypatch, **more)
    one.land()
    return one


def maintained(stream: LaneStream, table: str, days: int) -> TableResult:
    def no_spark() -> Any:
        raise AssertionError("no Spark is needed")

    return maintain_table(
        stream.catalog,
        stream.settings,
        MaintainedTable(table, Policy(), "shop", "sink"),
        spark=no_spark,
        specs=[stream.spec],
        only=["changes"],
        now=lambda: datetime.now(UTC) + timedelta(days=days),
    )


def test_each_changelog_goes_by_its_own_mirror(stream: LaneStream) -> None:
    chosen = chosen_mirrors(stream.spec, stream.catalog, None)
    assert {mirror.table for _, mirror in chosen} == {"mirrors.orders_changes", "mirrors.large_changes"}
    for of, mirror in chosen:
        if mirror.table == "mirrors.orders_changes":
            run_mirror(of, mirror, stream.settings, stream.catalog, Seen())
    (gone,) = maintained(stream, "shop.orders_changes", 10).done
    assert gone.detail["expired_changes"] and stream.catalog.load_table("shop.orders_changes").scan().count() == 0
    (skip,) = maintained(stream, "shop.large_changes", 10).plan.skips
    assert "Mirror mirrors.large_changes has not merged" in skip.reason
    known = expired_changes(stream.catalog.load_table("shop.orders_changes").metadata.properties, "shop.orders_changes")
    assert known is not None and {*known.offsets} == {TopicPartition(ORDERS, 0)}
    # The other one is made anew of all its changes, this one cannot be.
    ((orders, mirror),) = chosen_mirrors(stream.spec, stream.catalog, "mirrors.orders_changes")
    with pytest.raises(ExpiredChangesError, match=r"mirror mirrors\.orders_changes cannot be made"):
        rebuild_mirror(orders, mirror, stream.settings, stream.catalog, Seen())
    ((large, other),) = chosen_mirrors(stream.spec, stream.catalog, "mirrors.large_changes")
    rebuild_mirror(large, other, stream.settings, stream.catalog, Seen())
    stream.catalog.close()
