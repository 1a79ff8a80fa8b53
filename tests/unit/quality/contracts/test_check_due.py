"""A check is due after so many snapshots with rows, or as soon as the first of them has waited for so long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from jobs.quality.contracts.check_due import DueCheck, due_check
from tests.helpers.check_world import CONTRACT, CheckWorld
from tests.helpers.landed_table import NAME

DEAD = f"{NAME}_dead"
LETTERS = [{"expect_table_row_count_to_be_between": {"max_value": 1}, "name": "few"}]


def due(world: CheckWorld, seconds: float = 0.0) -> DueCheck:
    catalog = world.landed.catalog
    tables = {name: catalog.load_table(name).metadata for name in (NAME, DEAD) if catalog.table_exists(name)}
    return due_check(world.spec, tables, time.time() + seconds)


def world_of(home: Path, check: dict[str, Any] | None, **more: Any) -> CheckWorld:
    return CheckWorld(home, {**CONTRACT, **({"check": check} if check else {}), **more})


def test_after_snapshots(tmp_path: Path) -> None:
    world = world_of(tmp_path / "home", {"after_snapshots": 2})
    assert not due(world).due and due(world).sentence == "nothing is new"
    world.land(0, [1.0])
    world.landed.land((0, 1, 4), empty=True)
    world.landed.foreign([(7, 7)])
    assert not due(world, 10**6).due
    world.landed.replay([(0, 0)])
    assert due(world).due and "2 snapshots were not checked" in due(world).sentence
    before = due(world).position
    world.check()
    assert not due(world).due and due(world).position != before
    world.landed.compact()
    assert due(world).sentence == "nothing is new"


def test_every(tmp_path: Path) -> None:
    world = world_of(tmp_path / "home", {"every": "10m"})
    assert not due(world, 10**6).due
    world.land(0, [1.0])
    assert not due(world, 590).due and due(world, 610).due
    assert "1 snapshot was not checked" in due(world).sentence


def test_dead_letters_count_where_something_is_expected_of_them(tmp_path: Path) -> None:
    without = world_of(tmp_path / "one", {"after_snapshots": 1})
    without.landed.land_letters(DEAD, [{"offset": 0}])
    assert not due(without).due
    world = world_of(tmp_path / "two", {"after_snapshots": 1}, dead_letters=LETTERS)
    world.landed.land_letters(DEAD, [{"offset": 0}])
    assert due(world).due
    world.check("dead_letters")
    assert not due(world).due
    world.land(0, [1.0])
    assert due(world).due


def test_nothing_is_due_without_being_asked_for(tmp_path: Path) -> None:
    for name, check in (("one", None), ("two", {"schedule": "5 * * * *"})):
        world = world_of(tmp_path / name, check)
        world.land(0, [1.0])
        assert not due(world, 10**7).due
