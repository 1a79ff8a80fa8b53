"""Runs of mirrors: what they hold of the changelog, what status says of them, and what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from jobs.errors import FrazilError
from jobs.mirror.changelog_hold import hold_changelog, hold_property
from jobs.mirror.errors import RestoredSourceError
from jobs.mirror.main import merge_while
from jobs.mirror.merge_plan import MergePlan, MergeResult
from jobs.mirror.merging import Merged
from jobs.mirror.mirror_run import chosen_mirrors, rebuild_mirror, run_mirror
from jobs.mirror.mirror_stamp import abandoned_branches
from jobs.mirror.mirror_status import MirrorStatus, mirror_status
from tests.unit.mirror.mirror_world import CHANGELOG, MIRROR, P0, Change, MirrorWorld, PlainMerger


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    return MirrorWorld(tmp_path)


def run(world: MirrorWorld) -> Merged:
    return run_mirror(world.spec, world.mirror, world.settings, world.catalog(), PlainMerger())


def status(world: MirrorWorld) -> MirrorStatus:
    return mirror_status(world.spec, world.mirror, world.settings, world.catalog())


def expire(world: MirrorWorld) -> None:
    """Somebody expires all snapshots of the changelog but its head."""
    table = world.changelog()
    head = table.metadata.current_snapshot_id
    old = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_the_changelog_keeps_what_a_mirror_has_not_merged(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    first = run(world).increment.until
    assert first is not None
    assert world.changelog().metadata.properties[hold_property(MIRROR)] == str(first.snapshot_id)
    world.land(Change(2, "bob"))
    second = run(world).increment.until
    assert second is not None
    assert world.changelog().metadata.properties[hold_property(MIRROR)] == str(first.snapshot_id), "it moves seldom"
    catalog = world.catalog()
    hold = [catalog, CHANGELOG, "customers", MIRROR, second.snapshot_id]
    from datetime import timedelta

    assert hold_changelog(*hold, every=timedelta(0))
    assert not hold_changelog(*hold, every=timedelta(0))


def test_snapshots_of_the_changelog_have_expired(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    run(world)
    world.land(Change(1, "anna"), Change(2, "bob"))
    world.land(Change(2, None), Change(3, "cid"))
    expire(world)
    done = run(world)
    assert "have expired" in done.increment.why
    assert world.rows() == world.source() == {1: "anna", 3: "cid"}
    expire(world)
    assert run(world).snapshot_id is None, "nothing came since"
    world.land(Change(1, "a"))
    assert run(world).increment.why == "", "the snapshot before the new one is where it stood"


def test_what_status_says(world: MirrorWorld) -> None:
    assert (status(world).lag_rows, status(world).stamp) == (0, None)
    world.land(Change(1, "ann"), Change(2, "bob"))
    assert status(world).lag_rows == 2
    run(world)
    world.land(Change(3, "cid"))
    found = status(world)
    assert found.offsets == {P0: 2} and found.lag_rows == 1 and found.lag_since is not None
    assert found.position is not None and found.position.lineage == "db"
    world.land()
    world.compact(CHANGELOG)
    run(world)
    assert (status(world).lag_rows, status(world).others, status(world).problem) == (0, (), None)
    world.compact(MIRROR)
    table = world.table()
    table.append(pa.Table.from_pylist([{"id": 77, "name": "x"}], schema=table.schema().as_arrow()))
    assert len(status(world).others) == 2, "what others write, a rewrite by an overwrite among it"


def test_a_changelog_that_lacks_rows_makes_no_mirror(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    run(world)
    world.changelog().delete("id = 1")
    world.land(Change(3, "cid"))
    run(world)
    assert world.rows() == {1: "ann", 2: "bob", 3: "cid"}, "what is merged since needs no more"
    world.land(Change(3, None))
    world.land(Change(3, "cid"))
    expire(world)
    with pytest.raises(FrazilError, match="has 4 rows, and 5 were landed there"):
        run(world)
    again = (world.spec, world.mirror, world.settings, world.catalog(), PlainMerger())
    with pytest.raises(FrazilError, match="has 4 rows, and 5 were landed there"):
        rebuild_mirror(*again)
    assert world.rows() == {1: "ann", 2: "bob", 3: "cid"}
    rebuild_mirror(*again, incomplete=True)
    assert world.rows() == {2: "bob", 3: "cid"}


def test_a_table_that_was_there_is_adopted(world: MirrorWorld) -> None:
    columns = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=False),
        NestedField(3, "more", StringType(), required=False),
    )
    table = world.catalog().create_table(MIRROR, columns, properties={"format-version": "2"})
    table.append(pa.Table.from_pylist([{"id": 1, "name": "old"}, {"id": 9, "name": "old"}], columns.as_arrow()))
    world.land(Change(1, "ann"))
    run(world)
    assert world.rows() == {1: "ann", 9: "old"}


def test_a_table_that_a_stream_lands_in_is_not_adopted(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    mirror = world.mirror.model_copy(update={"table": CHANGELOG})
    with pytest.raises(FrazilError, match="cannot become a mirror: a stream lands in it"):
        run_mirror(world.spec, mirror, world.settings, world.catalog(), PlainMerger())


def test_before_the_stream_has_landed_there_is_nothing(world: MirrorWorld) -> None:
    assert run(world).increment.until is None
    world.catalog().drop_table(CHANGELOG)
    with pytest.raises(FrazilError, match="is not there yet"):
        run(world)


def test_a_mirror_that_nobody_names(world: MirrorWorld) -> None:
    with pytest.raises(FrazilError, match=f"has no mirror shop.other; it has {MIRROR}"):
        chosen_mirrors(world.spec, world.catalog(), "shop.other")


class Stopping(PlainMerger):
    """Merges, but for as many times as it is told, and ends the process after the last."""

    def __init__(self, ending: threading.Event, *before: Callable[[], None]) -> None:
        self.ending, self.before = ending, list(before)

    def merge(
        self, changelog: Table, files: Sequence[DataFile], mirror: Table, branch: str, plan: MergePlan
    ) -> MergeResult:
        action = self.before.pop(0)
        if not self.before:
            self.ending.set()
        action()
        return super().merge(changelog, files, mirror, branch, plan)


def test_beside_a_driver_what_fails_is_noted_and_tried_again(world: MirrorWorld) -> None:
    world.document["mirrors"][0]["every"] = "5s"
    world.write()
    world.land(Change(1, "ann"))

    def fails() -> None:
        raise RestoredSourceError("customers", P0, 1, "0", "1")

    ending = threading.Event()
    merge_while(world.spec, world.settings, Stopping(ending, fails), ending)
    found = status(world)
    assert found.problem is not None and "restored" in found.problem.message
    assert found.problem.fix is not None and "--new-generation" in found.problem.fix
    assert not abandoned_branches(world.table().metadata)
    ending = threading.Event()
    merge_while(world.spec, world.settings, Stopping(ending, lambda: None), ending)
    assert status(world).problem is None
    assert world.rows() == {1: "ann"}


def test_beside_a_driver_whose_stream_has_landed_nothing(world: MirrorWorld) -> None:
    world.document["mirrors"][0]["every"] = "5s"
    world.write()
    world.catalog().drop_table(CHANGELOG)
    ending = threading.Event()
    later = threading.Timer(0.5, ending.set)
    later.start()
    merge_while(world.spec, world.settings, PlainMerger(), ending)
    later.join()
    assert status(world).problem is None
    with pytest.raises(NoSuchTableError):
        world.table()
