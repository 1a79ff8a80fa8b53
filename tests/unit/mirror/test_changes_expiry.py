"""Changes that expire: what goes of a changelog, what holds it, and what its mirrors are made of from then on."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.commit.expired_changes import expired_changes
from jobs.commit.stamp_history import history_of
from jobs.deadletter.table import DEAD_LETTER_SCHEMA
from jobs.mirror.errors import ExpiredChangesError
from jobs.mirror.rebuilding import refuse_incomplete
from jobs.time_travel.tagging import delete_tag
from tests.unit.mirror.expiry import LATER, bases, bases_at, maintained, said
from tests.unit.mirror.mirror_world import AT, CHANGELOG, MIRROR, P0, Change, MirrorWorld


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    made = MirrorWorld(tmp_path)
    made.write(changes={"envelope": "debezium", "keep": "30d"})
    return made


def test_changes_that_a_base_stands_for_go_and_the_mirror_goes_on(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.land(Change(1, None), Change(3, "cid"))
    world.merge()
    assert f"Mirror {MIRROR} has no base" in said(maintained(world, CHANGELOG))
    (made,) = maintained(world, MIRROR).done
    assert made.step.action == "base" and bases(world) == [made.detail["tag"]]
    assert "another one is made each day" in said(maintained(world, MIRROR, bases_at(world)))
    world.at = LATER - timedelta(days=1)
    world.land(Change(2, "bert"))

    assert "4 changes from before 2026-11-11 in 2 data files" in said(maintained(world, CHANGELOG, dry_run=True))
    (gone,) = maintained(world, CHANGELOG).done
    assert (gone.files_before, gone.files_after, gone.detail["expired_changes"]) == (3, 1, 4)
    assert world.changelog().scan().count() == 1
    known = expired_changes(world.changelog().metadata.properties, CHANGELOG)
    assert known is not None and (known.rows, known.offsets) == (4, {P0: 4})
    # Exactly once goes on: the stream stands where it stood, and its next batch lands behind that.
    past = history_of(world.changelog(), "customers")
    assert past.newest is not None and not past.rolled_back and past.newest.position == {P0: 5}
    world.land(Change(4, "dan"))
    assert "No data file holds changes alone" in said(maintained(world, CHANGELOG))
    refuse_incomplete(world.spec, world.mirror, world.changelog())
    world.merge()
    assert world.rows() == world.source() == {2: "bert", 3: "cid", 4: "dan"}

    # Made anew it has what is gone from its base.
    before = world.stamp()
    world.merge(how="anew")
    after = world.stamp()
    assert world.rows() == world.source()
    assert before is not None and after is not None and after.numbers == before.numbers
    # A day later there is another base, and the first is none any more.
    (first,) = bases(world)
    (again,) = maintained(world, MIRROR, LATER + timedelta(days=2)).done
    assert again.detail["untagged"] == first and len(bases(world)) == 1
    world.merge(how="anew")
    assert world.rows() == world.source()


def test_without_its_base_a_mirror_is_made_of_what_is_left_only_by_an_operators_word(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR)
    world.at = LATER
    world.land(Change(3, "cid"))
    maintained(world, CHANGELOG)
    (base,) = bases(world)
    delete_tag(world.catalog(), MIRROR, base)
    with pytest.raises(ExpiredChangesError, match=r"2 of its changes, from before 2026-11-11"):
        world.merge(how="anew")
    world.merge()
    assert world.rows() == world.source()
    assert f"Mirror {MIRROR} has no base" in said(maintained(world, CHANGELOG, LATER + timedelta(days=60)))
    world.merge(how="incomplete")
    assert world.rows() == {3: "cid"}
    # Another mirror, of which nothing was made yet.
    world.write(mirrors=[{"table": "shop.others"}])
    with pytest.raises(ExpiredChangesError, match=r"mirror shop\.others cannot be made"):
        world.merge()


def test_changes_stay_for_a_mirror_that_lags_for_letters_and_for_younger_ones(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.land(Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR)
    world.land(Change(1, "anna"))
    world.at = LATER - timedelta(days=1)
    world.land(Change(5, "eve"))
    letters = world.catalog().create_table(world.spec.dead_letter_table, DEAD_LETTER_SCHEMA)
    letters.append(pa.Table.from_pylist([letter(1, "new"), letter(0, "dismissed")], letters.schema().as_arrow()))
    # The first goes; the second is behind a letter that may come back, and the base lacks the third.
    result = maintained(world, CHANGELOG)
    assert "2 older ones stay in files with others" in said(result)
    assert result.done[0].detail["expired_changes"] == 1
    assert "No data file holds" in said(maintained(world, CHANGELOG))
    letters.overwrite(pa.Table.from_pylist([letter(1, "replayed")], letters.schema().as_arrow()))
    assert maintained(world, CHANGELOG).done[0].detail["expired_changes"] == 1
    world.merge()
    assert maintained(world, CHANGELOG).done == ()
    maintained(world, MIRROR, LATER + timedelta(days=2))
    assert maintained(world, CHANGELOG).done[0].detail["expired_changes"] == 1
    world.merge(how="anew")
    assert world.rows() == world.source()


def test_changes_stay_for_a_week_behind_what_the_stream_has_not_read(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.at = AT + timedelta(days=5)
    # It reads a backlog: all that is a day older than its last record has come.
    world.valid_through_ms = int((AT + timedelta(days=8)).timestamp() * 1000)
    world.land(Change(2, "bob"))
    world.merge()
    maintained(world, MIRROR)
    assert maintained(world, CHANGELOG).done[0].detail["expired_changes"] == 1
    world.valid_through_ms += timedelta(days=5) // timedelta(milliseconds=1)
    world.land(Change(3, "cid"))
    assert maintained(world, CHANGELOG).done[0].detail["expired_changes"] == 1


def test_changes_stay_while_a_batch_that_bases_have_is_not_committed_everywhere(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    pending = world.settings.state / "streams" / "customers" / "pending-0.json"
    pending.parent.mkdir(parents=True, exist_ok=True)
    pending.write_text(json.dumps({"targets": {CHANGELOG: {"uuid": "u", "files": []}}}))
    os.utime(pending, (0, 0))
    maintained(world, MIRROR)
    assert "was not committed to all of its tables before the bases" in said(maintained(world, CHANGELOG))
    # That of a batch that was made later than the bases holds nothing.
    later = LATER.timestamp() + 10 * 365 * 86_400
    os.utime(pending, (later, later))
    assert maintained(world, CHANGELOG).done[0].detail["expired_changes"] == 1


def letter(offset: int, state: str) -> dict[str, Any]:
    return {
        "stream": "customers", "topic": "customers", "partition": 0, "offset": offset, "stage": "decode",
        "error_class": "not_json", "first_seen": AT, "state": state,
    }  # fmt: skip
