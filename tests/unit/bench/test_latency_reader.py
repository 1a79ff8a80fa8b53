from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from bench.latency_reader import Reader
from bench.payment_batches import Payments
from bench.timed_target import TimedTarget, payments_spec
from jobs.streaming.driver.opening.opening import ensure_tables

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_reader_sees_what_each_snapshot_brought(tmp_path: Path) -> None:
    catalog = SqlCatalog("bench", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    spec = payments_spec()
    ensure_tables(spec, catalog)
    payments = Payments(TimedTarget(catalog, spec))
    payments.target.take_over()
    with Reader(catalog, spec.table.name) as reader:
        for rows in (24, 36):
            payments.land([DAY], rows)
            reader.wait_for(payments.written.rows, 30.0)
        first, second = reader.arrivals()
    assert [len(first.records), len(second.records)] == [24, 36]
    assert len({*first.records, *second.records}) == 60
    assert first.committed <= first.seen < second.seen < time.time()
    catalog.close()
