"""When a plan has orphans looked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from jobs.maintain.maintenance_history import MaintenanceHistory
from tests.unit.maintain.plan_fixtures import (
    DAY,
    MINUTE,
    NOW,
    every,
    made,
    partition,
    skips_of,
    steps_of,
    table,
    with_snapshots,
)


def test_nothing_is_deleted_where_others_own_the_files() -> None:
    facts = replace(every(MINUTE, 400), properties={"gc.enabled": "FALSE", "frazil.stamp.a": ""})
    found = made(facts, MaintenanceHistory())
    assert [step.action for step in found.steps] == ["metadata"]
    assert all("gc.enabled=false" in skips_of(found, action)[0].reason for action in ("expire", "orphans"))


@pytest.mark.parametrize(("days", "due"), [(6.9, False), (7, True)])
def test_orphans_are_looked_for_every_so_often(days: float, due: bool) -> None:
    done = MaintenanceHistory().done("orphans", NOW - timedelta(days=days))
    found = made(table(partition("d", 120)), done)
    assert bool(steps_of(found, "orphans")) == due
    for step in found.steps:
        assert step.reason.startswith("Last looked for 7 days ago, which is done every 7d: files older than 7d")
        assert step.detail == {"older_than": (NOW - 7 * DAY).isoformat(), "max_share": 0.2, "max_files": 100_000}


def test_a_young_table_has_no_orphans_yet() -> None:
    young = table(partition("d", 120), sequence=1)
    assert "the table is younger than 7d" in skips_of(made(young, MaintenanceHistory()), "orphans")[0].reason
    assert "younger" in skips_of(made(table(snapshot_id=None), MaintenanceHistory()), "orphans")[0].reason
    for old in (replace(young, sequence=2), with_snapshots(young, [NOW - 8 * DAY])):
        assert steps_of(made(old, MaintenanceHistory()), "orphans")[0].reason.startswith("Never looked for yet")
