"""Bases of a mirror with rows that wait for changes of their former keys, for a week at most."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobs.commit.target import Target
from jobs.maintain.snapshot_retention import snapshot_time
from jobs.mirror import publication
from jobs.mirror.merging import merge_new
from jobs.mirror.waiting_rows import aged
from tests.unit.mirror.expiry import KEEP, bases, maintained, said
from tests.unit.mirror.mirror_world import CHANGELOG, MIRROR, Change, MirrorWorld
from tests.unit.mirror.plain_merger import WaitingMerger

WEEK = timedelta(days=7)


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    """With a row that waits."""
    made = MirrorWorld(tmp_path)
    made.write(changes=KEEP)
    made.land(Change(1, "ann"))
    with made.session() as session:
        merge_new(session, WaitingMerger())
    return made


def _merged_at(world: MirrorWorld) -> datetime:
    return snapshot_time(world.changelog().snapshots()[-1])


def test_no_base_is_made_while_rows_wait_for_changes_of_their_former_keys(world: MirrorWorld) -> None:
    """What they have now would stand for those changes for ever."""
    now = _merged_at(world)
    for waited in (timedelta(0), WEEK - timedelta(hours=1)):
        assert "wait for changes of their former keys" in said(maintained(world, MIRROR, now + waited))
    assert bases(world) == []
    world.land(Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR, now)
    assert len(bases(world)) == 1


def test_a_base_is_made_once_they_have_waited_for_a_week_also_while_nothing_comes(world: MirrorWorld) -> None:
    (made,) = maintained(world, MIRROR, _merged_at(world) + WEEK).done
    assert bases(world) == [made.detail["tag"]]


def test_a_stamp_without_a_merge_says_that_they_are_not_waited_for_any_more(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "STAMP_EVERY", timedelta(0))

    def told() -> tuple[int, int]:
        target, world.epoch = Target(world.catalog(), CHANGELOG, "customers"), world.epoch + 1
        target.claim(world.epoch, lambda newest: newest.claimed(world.epoch) if newest else pytest.fail("no stamp"))
        assert world.merge().snapshot_id is None
        stamp = world.stamp()
        assert stamp is not None
        assert stamp.snapshot_id == world.changelog().metadata.current_snapshot_id
        return len(stamp.state.waiting), stamp.unresolved

    assert told() == (1, 2)
    week = int(WEEK.total_seconds() * 1000)
    monkeypatch.setattr(publication, "aged", lambda waiting, now_ms: aged(waiting, now_ms + week))
    assert told() == (0, 3) == told()
