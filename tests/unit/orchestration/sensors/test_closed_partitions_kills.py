"""The sensor of closed hours is killed before it reports, between two reports, and before its cursor is kept."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from assets.closed_partitions import closed_key
from resources.deployment import Deployment
from tests.helpers.closed_tick import tick
from tests.helpers.event_stream import EventStream, hour, write_file
from tests.helpers.forked import Forked

HOURS = ["2026-03-01-10:00", "2026-03-01-11:00"]


def run(home: Path, reported: int | None = None, step: str = "") -> int:
    """A tick in a process of its own; its exit status."""
    steps = f"{step}=kill" if step else ""
    process = Forked(tick, str(home), reported, env={"FRAZIL_STEPS": steps}, folder=home)
    status = process.wait()
    assert status in (0, -signal.SIGKILL), process.said()
    return status


def materialized(home: Path, key: dg.AssetKey) -> Counter[str | None]:
    """How often Dagster's record has each hour."""
    with dg.DagsterInstance.local_temp(str(home / "dagster")) as instance:
        records = instance.fetch_materializations(key, limit=100).records
    return Counter(each.partition_key for each in records)


@pytest.mark.parametrize(
    ("reported", "step", "told"),
    [
        (None, "closed_before_report", []),
        (1, "", HOURS[:1]),
        # The check's result is the third.
        (3, "", HOURS),
    ],
    ids=["before it reports", "between two reports", "before its cursor is kept"],
)
def test_killed_it_reports_each_hour_once(tmp_path: Path, reported: int | None, step: str, told: list[str]) -> None:
    write_file(tmp_path, "closes: hour", "hour(at)")
    deployment = Deployment.at(tmp_path)
    settings, spec = deployment.prepared_settings(), deployment.stream("payments")
    stream, key = EventStream(settings, spec), closed_key(settings, spec)
    stream.land([hour(10), hour(12)], hour(12))
    assert run(tmp_path, reported, step) == -signal.SIGKILL
    assert not (tmp_path / "cursor.json").exists()
    assert materialized(tmp_path, key) == Counter(told)
    assert run(tmp_path) == 0
    assert materialized(tmp_path, key) == Counter(HOURS)
    stream.land([hour(13, 1)], hour(13, 1))
    assert run(tmp_path) == 0
    assert run(tmp_path) == 0
    assert materialized(tmp_path, key) == Counter([*HOURS, "2026-03-01-12:00"])
