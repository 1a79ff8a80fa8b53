"""Runs of mirrors: what they hold of the changelog, what status says of them, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from jobs.base.errors import FrazilError
from jobs.clients.state_store.mirror_problem import note_problem, noted_problem
from jobs.maintenance.run.snapshot_expiry import refuse_unless_stamps_are_kept
from jobs.mirrors.model.changelog_increment import hold_changelog, hold_property
from jobs.mirrors.model.mirror_stamp import refuse_other_rows
from jobs.mirrors.run import publication
from jobs.mirrors.run.merging import Merged, Merger
from jobs.mirrors.run.mirror_run import chosen_mirrors, rebuild_mirror, run_mirror
from jobs.mirrors.run.mirror_status import MirrorStatus, mirror_status
from jobs.tables.commit.history.lineage import line_at_head
from jobs.tables.commit.protocol.target import Target
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    MIRROR,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0, PlainMerger, copy_on_write


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    return MirrorWorld(tmp_path)


def run(world: MirrorWorld, merger: Merger | None = None) -> Merged:
    return run_mirror(world.spec, world.mirror, world.settings, world.catalog(), merger or PlainMerger())


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


def test_what_others_wrote_is_told_until_a_rebuild(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    run(world)
    merged_at = status(world).merged_at
    with copy_on_write():
        world.table().delete("id = 2")
    (theirs,) = status(world).others
    world.land(Change(1, "anna"))
    assert world.merge_killed_at("mirror_before_merge")
    assert (status(world).others, status(world).merged_at) == ((theirs,), merged_at), "a claim is no merge"
    run(world)
    assert (world.rows(), status(world).others) == ({1: "anna"}, (theirs,))
    world.land(Change(1, "a"))
    run(world)
    stamp = world.stamp()
    assert stamp is not None and stamp.others == status(world).others == (theirs,)
    rebuild_mirror(world.spec, world.mirror, world.settings, world.catalog(), PlainMerger())
    assert (world.rows(), status(world).others) == (world.source(), ())


def test_a_problem_is_told_until_a_merge_is_made(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    run(world)
    world.land(Change(1, "anna"))
    note_problem(world.settings, "customers", MIRROR, "the catalog is away", None)
    assert world.merge_killed_at("mirror_before_merge")
    note_problem(world.settings, "customers", MIRROR, "the catalog is away", None)
    found = status(world).problem
    assert found is not None and "away" in found.message
    run(world)
    assert noted_problem(world.settings, "customers", MIRROR) is None
    note_problem(world.settings, "customers", MIRROR, "the catalog is away", None)
    run(world)
    assert status(world).problem is None, "nothing new is no problem either"
    note_problem(world.settings, "customers", MIRROR, "the catalog is away", None)
    rebuild_mirror(world.spec, world.mirror, world.settings, world.catalog(), PlainMerger())
    assert status(world).problem is None


@pytest.mark.parametrize("changed", [{"where": "id > 1"}, {"deletes": "soft"}])
def test_a_file_that_says_another_mirror_is_told_though_nothing_is_new(
    world: MirrorWorld, changed: dict[str, str]
) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    run(world)
    world.document["mirrors"][0] |= changed
    world.write()
    found = status(world).problem
    assert found is not None and "was made with" in found.message and "mirror rebuild" in (found.fix or "")
    with pytest.raises(FrazilError, match="was made with"):
        run(world)
    rebuild_mirror(world.spec, world.mirror, world.settings, world.catalog(), PlainMerger())
    assert status(world).problem is None


def test_another_key_is_refused_and_what_helps_is_told(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    run(world)
    stamp = world.stamp()
    assert stamp is not None
    refuse_other_rows(world.spec, world.mirror, stamp, ("id",))
    with pytest.raises(FrazilError, match="was made with key id, and its file has name") as stopped:
        refuse_other_rows(world.spec, world.mirror, stamp, ("name",))
    assert stopped.value.fix is not None and "name another table" in stopped.value.fix
    assert "rebuild" not in stopped.value.fix
    two = replace(stamp, key=("id", "name"))
    refuse_other_rows(world.spec, world.mirror, two, ("name", "id"))


def test_a_table_of_a_mistyped_name_stays_as_it_is(world: MirrorWorld) -> None:
    columns = Schema(NestedField(1, "id", StringType(), required=True))
    before = world.catalog().create_table(MIRROR, columns, properties={"format-version": "2"})
    world.land(Change(1, "ann"))
    with pytest.raises(FrazilError, match="cannot take the columns") as stopped:
        run(world)
    assert stopped.value.fix is not None and "drop" not in stopped.value.fix
    assert world.table().metadata_location == before.metadata_location


def test_a_quiet_changelog_goes_on_and_its_snapshots_expire(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land(Change(1, "ann"))
    run(world)
    first = world.stamp()
    assert first is not None
    held = world.changelog().metadata.properties[hold_property(MIRROR)]
    world.compact(CHANGELOG)
    target, world.epoch = Target(world.catalog(), CHANGELOG, "customers"), 2
    target.claim(2, lambda newest: newest.claimed(2) if newest else pytest.fail("it has landed"))
    run(world)
    assert world.stamp() == first, "a moment later nothing is said"
    assert world.changelog().metadata.properties[hold_property(MIRROR)] == held, "what the stamp names stays"
    monkeypatch.setattr(publication, "STAMP_EVERY", timedelta(0))
    done = run(world)
    found = world.stamp()
    assert done.snapshot_id is None and found is not None and found == done.stamp
    assert found.snapshot_id == world.changelog().metadata.current_snapshot_id
    assert (found.state, found.key) == (first.state, first.key)
    expire(world)
    assert run(world).snapshot_id is None
    world.land(Change(2, "bob"))
    assert run(world).increment.why == ""
    assert world.rows() == world.source()


def test_one_whose_snapshot_has_expired_says_a_later_one(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    run(world)
    world.compact(CHANGELOG)
    table = world.changelog()
    line = line_at_head(table.metadata)
    assert line is not None
    with table.transaction() as change:
        change.set_properties({"frazil.line": line.text()})
    before = world.stamp()
    expire(world)
    run(world)
    found = world.stamp()
    assert found is not None and before is not None and found.snapshot_id != before.snapshot_id
    assert world.changelog().metadata.snapshot_by_id(found.snapshot_id) is not None


def test_maintenance_of_one_that_was_moved_back_tells_the_rebuild(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    run(world)
    former = world.table().metadata.current_snapshot_id
    assert former is not None
    world.land(Change(1, "anna"))
    run(world)
    world.table().manage_snapshots().rollback_to_snapshot(former).commit()
    with pytest.raises(FrazilError, match="was rolled back") as stopped:
        refuse_unless_stamps_are_kept(world.table().metadata, MIRROR)
    assert stopped.value.fix == f"frazil mirror rebuild customers --table {MIRROR}"


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
    with pytest.raises(FrazilError, match="does not exist yet"):
        run(world)


def test_a_mirror_that_nobody_names(world: MirrorWorld) -> None:
    with pytest.raises(FrazilError, match=f"has no mirror shop.other; it has {MIRROR}"):
        chosen_mirrors(world.spec, world.catalog(), "shop.other")
