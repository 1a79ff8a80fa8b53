"""Bases of mirrors: which one is made, what it is kept by, and mirrors that have none of what has expired."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform

from jobs.commit.errors import RolledBackError
from jobs.commit.expired_changes import EXPIRED_CHANGES, ExpiredChanges
from jobs.commit.offsets import OffsetRange
from jobs.commit.proposals import ProposalOutcome
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.maintain.base_making import make_base
from jobs.maintain.mirror_bases import BASE_PREFIX, MirrorBase, former_bases, newest_published
from jobs.maintain.plan import Step
from jobs.maintain.table_context import TableContext
from jobs.mirror.errors import ExpiredChangesError, MissedChangesError, StaleExpiryError
from jobs.mirror.history_start import history_start
from jobs.mirror.mirror_stamp import mirror_id
from jobs.spec.maintenance_policy import Policy
from jobs.time_travel.tags import delete_tag, tags_of
from tests.unit.mirror.expiry import KEEP, LATER, bases, bases_at, expire, maintained, no_spark, said
from tests.unit.mirror.mirror_world import AT, CHANGELOG, COLUMNS, MIRROR, Change, MirrorWorld
from tests.unit.mirror.plain_merger import P0
from tests.unit.mirror.test_changed_topics import answer


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    made = MirrorWorld(tmp_path)
    made.write(changes=KEEP)
    return made


def test_a_mirror_that_the_file_did_not_name_meanwhile_does_not_go_on_without_what_has_expired(
    world: MirrorWorld,
) -> None:
    world.write(mirrors=[{"table": MIRROR}, {"table": "shop.others"}])
    world.land(Change(1, "ann"))
    world.merge()
    named = world.document["mirrors"]
    world.write(mirrors=[{"table": "shop.others"}])
    world.land(Change(2, "bob"))
    world.merge()
    maintained(world, "shop.others")
    assert maintained(world, CHANGELOG).done[0].detail["expired_changes"] == 2
    world.write(mirrors=named)
    with pytest.raises(MissedChangesError, match=r"changes that mirror shop\.customers does not have yet"):
        world.merge()
    with pytest.raises(ExpiredChangesError, match="has no base"):
        world.merge(how="anew")
    assert world.rows() == {1: "ann"}
    # It holds what comes from now on, as long as it is named.
    world.land(Change(3, "cid"))
    assert f"Mirror {MIRROR} has no base" in said(maintained(world, CHANGELOG))
    # Changes that have expired before do not stop the one that has them.
    world.write(mirrors=[{"table": "shop.others"}])
    world.merge()
    assert world.catalog().load_table("shop.others").scan().count() == 3


def test_each_mirror_of_a_changelog_holds_its_changes(world: MirrorWorld) -> None:
    world.write(mirrors=[{"table": MIRROR}, {"table": "shop.others", "deletes": "soft"}])
    world.land(Change(1, "ann"))
    world.merge()
    maintained(world, MIRROR)
    assert "Mirror shop.others has no base" in said(maintained(world, CHANGELOG))


def test_a_base_is_of_the_newest_merge_when_it_is_made(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    context = TableContext(world.catalog(), world.settings, [world.spec], MIRROR, Policy(), no_spark)
    planned = Step("base", "", None, "planned", detail={"snapshot_id": str(world.table().metadata.current_snapshot_id)})
    world.land(Change(2, "bob"))
    world.merge()
    # Another process has made a later one meanwhile, by which changes have expired.
    maintained(world, MIRROR)
    expire(world)
    before = bases(world)
    assert not make_base(context, planned).done
    assert bases(world) == before
    world.merge(how="anew")
    assert world.rows() == {1: "ann", 2: "bob"}


def test_no_property_of_the_table_lets_a_base_go(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    with world.table().transaction() as change:
        change.set_properties({"history.expire.max-ref-age-ms": "1000"})
    maintained(world, MIRROR)
    (tag,) = tags_of(world.table().metadata)
    assert tag.until is None


def test_a_mirror_has_bases_as_long_as_changes_of_its_changelog_are_gone(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    expire(world)
    world.write(changes={"envelope": "debezium"})
    world.land(Change(2, "bob"))
    world.merge()
    (first,) = bases(world)
    (again,) = maintained(world, MIRROR, bases_at(world) + timedelta(days=9)).done
    assert again.detail["untagged"] == first
    world.merge(how="anew")
    assert world.rows() == {1: "ann", 2: "bob"}
    with world.changelog().transaction() as change:
        change.remove_properties(EXPIRED_CHANGES)
    assert maintained(world, MIRROR, LATER + timedelta(days=90)).plan.skips == ()


def test_a_mirror_that_is_made_of_what_is_left_has_its_base_where_there_is_one(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    expire(world)
    world.land(Change(2, "bob"))
    world.merge(how="incomplete")
    assert world.rows() == {1: "ann", 2: "bob"}


def test_nothing_is_left_of_a_mirror_that_was_moved_back_whose_rebuild_was_killed(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    former = world.merge().snapshot_id
    assert former is not None
    world.land(Change(1, None))
    expire(world)
    world.land(Change(3, "cid"))
    world.merge()
    world.table().manage_snapshots().set_current_snapshot(snapshot_id=former).commit()
    with pytest.raises(RolledBackError):
        world.merge()
    assert world.merge_killed_at("mirror_before_merge", how="anew")
    assert world.rows() == {1: "ann", 2: "bob"}
    world.merge()
    assert world.rows() == world.source() == {2: "bob", 3: "cid"}


def test_changes_of_a_changelog_by_days_go_by_partitions(world: MirrorWorld) -> None:
    catalog = world.catalog()
    catalog.drop_table(CHANGELOG)
    day = PartitionField(COLUMNS.find_field("_kafka_timestamp").field_id, 1000, DayTransform(), "day")
    catalog.create_table(CHANGELOG, COLUMNS, partition_spec=PartitionSpec(day))
    for days in range(3):
        world.at = LATER - timedelta(days=32 - days)
        world.land(Change(days, f"n{days}"), Change(7, f"m{days}"))
    world.merge()
    maintained(world, MIRROR)
    (gone,) = maintained(world, CHANGELOG).done
    assert (gone.files_before, gone.files_after) == (3, 1)
    assert world.changelog().scan().to_arrow()["_kafka_offset"].to_pylist() == [4, 5]
    world.merge(how="anew")
    assert world.rows() == world.source()


def test_changes_stay_where_a_replay_or_another_log_has_come_since_the_bases(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR)
    replays = Target(world.catalog(), CHANGELOG, "customers~replay")
    replays.claim(1, lambda newest: Stamp("customers~replay", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    replays.read()
    # One that has only begun holds nothing up.
    assert "2 changes from before" in said(maintained(world, CHANGELOG, dry_run=True))
    stamp = Stamp("customers~replay", "batch", 0, 1, "c", start={P0: 0}, position={P0: 1})
    files = world.data_files(replays.table, [{"id": 1, "name": "late", "_change_op": "u", "_kafka_offset": 0}])
    batch = {P0: OffsetRange(0, 1)}
    done = replays.land(stamp, files, seen=replays.seen(), batch=batch, position={P0: 0})
    assert done is ProposalOutcome.LANDED
    assert "customers~replay has landed changes since the bases" in said(maintained(world, CHANGELOG))
    world.merge()
    maintained(world, MIRROR, LATER + timedelta(days=2))
    answer(world, "recreated_topic", landed=2)
    assert "Topic customers was deleted and made again since" in said(maintained(world, CHANGELOG))


def test_a_changelog_that_was_moved_back_to_before_what_has_expired_is_not_merged(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    first = world.changelog().metadata.current_snapshot_id
    assert first is not None
    world.land(Change(2, "bob"))
    expire(world)
    world.changelog().manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(ExpiredChangesError, match="moved back to before its base"):
        world.merge(how="anew")
    with pytest.raises(StaleExpiryError, match=r"customers-0 up to offset 1, .* changes before 2 have expired"):
        world.merge(how="incomplete")
    assert world.rows() == {1: "ann", 2: "bob"}


def test_a_mirror_is_made_anew_of_an_earlier_base_where_the_changelog_was_moved_back(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    expire(world)
    head = world.changelog().metadata.current_snapshot_id
    assert head is not None
    world.land(Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR, bases_at(world) + timedelta(days=2))
    assert len(bases(world)) == 2
    world.changelog().manage_snapshots().set_current_snapshot(snapshot_id=head).commit()
    world.merge(how="anew")
    assert world.rows() == {1: "ann"}


def test_bases_stay_for_as_long_as_each_key_takes_to_be_compared_and_one_from_before(world: MirrorWorld) -> None:
    world.land(Change(0, "n"))
    world.merge()
    metadata = world.table().metadata
    (first,) = [newest_published(metadata, mirror_id("customers", MIRROR))]
    assert first is not None

    def made(day: int, **other: str) -> MirrorBase:
        stamped = {**first.stamped, "seq": day, **other}
        return replace(first, tag=f"d{day}", snapshot_id=day, at=AT + timedelta(days=day), stamped=stamped)

    days = [made(day) for day in range(1, 12)]
    gone = former_bases(days[:-1], days[-1], AT + timedelta(days=11))
    assert [each.tag for each in gone] == ["d1", "d2"]
    assert former_bases(days[:2], days[2], AT + timedelta(days=3)) == []
    # One of before the mirror was made anew of all changes is none.
    assert former_bases([made(1, numbers="others")], days[1], AT + timedelta(days=3))
    assert [each.tag for each in former_bases(days[:2], days[2], AT + timedelta(days=30))] == ["d1", "d2"]


def test_a_comparison_goes_by_the_oldest_base_that_stands_for_what_is_gone(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    maintained(world, MIRROR)
    world.land(Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR, bases_at(world) + timedelta(days=2))
    known, table = world.stamp(), world.table()
    first, second = sorted(tag.snapshot_id for tag in tags_of(table.metadata))
    assert known is not None and {first, second} == {each.snapshot_id for each in tags_of(table.metadata)}
    order = [each.snapshot_id for each in table.metadata.snapshots]
    first, second = sorted((first, second), key=order.index)
    for through, oldest in ((1, first), (2, second)):
        # What expires with the second change is not in the first base.
        head = world.changelog().current_snapshot()
        assert head is not None and head.sequence_number is not None
        said = ExpiredChanges(LATER.isoformat(), through, head.sequence_number - 2 + through, {P0: through})
        with world.changelog().transaction() as change:
            change.set_properties({EXPIRED_CHANGES: said.to_json()})
        start = history_start(world.spec, world.changelog(), table, known, oldest=True)
        assert start is not None and start.snapshot_id == oldest
        start = history_start(world.spec, world.changelog(), table, known)
        assert start is not None and start.snapshot_id == second


@pytest.mark.parametrize("clock", ["ahead", "right"])
def test_a_base_from_the_future_does_not_stop_bases(world: MirrorWorld, clock: str) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    maintained(world, MIRROR)
    at = bases_at(world) - (timedelta(days=400) if clock == "ahead" else timedelta(0))
    world.land(Change(2, "bob"))
    world.merge()
    assert len(maintained(world, MIRROR, at).done) == (clock == "ahead")


def test_a_branch_of_a_bases_name_is_not_overwritten(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    table = world.table()
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, f"{BASE_PREFIX}{head.timestamp_ms}").commit()
    (refused,) = maintained(world, MIRROR).done
    assert refused.error is not None and "has a branch frazil-base-" in refused.error
    assert bases(world) == []


def test_a_rebuild_that_is_refused_leaves_a_mirror_that_can_be_brought_back(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    before = world.table().metadata.current_snapshot_id
    world.land(Change(1, None))
    expire(world)
    head, (base,) = world.table().metadata.current_snapshot_id, bases(world)
    assert before is not None and head is not None
    delete_tag(world.catalog(), MIRROR, base)
    world.table().manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    with pytest.raises(ExpiredChangesError):
        world.merge(how="anew")
    world.table().manage_snapshots().set_current_snapshot(snapshot_id=head).commit()
    world.land(Change(3, "cid"))
    world.merge()
    assert world.rows() == {2: "bob", 3: "cid"}
    assert maintained(world, MIRROR, LATER + timedelta(days=90)).done
