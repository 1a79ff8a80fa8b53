"""Discarding on a real catalog: what is held becomes letters, once; main never has it, and replays bring it back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import LeaseHeldError, stream_lease
from jobs.dead_letters.replay.landed import stand_in_table
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.quality.incremental_scan.increment import increment_since, snapshots_since
from jobs.quality.incremental_scan.validated_position import CheckSummary, ValidatedPosition
from jobs.quality.publishing.discard_decision import plan_discard
from jobs.quality.publishing.publishing import answer_rollback
from jobs.quality.publishing.remake import remake
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.discards import DISCARDED_KEY
from jobs.tables.commit.history.publications import published_through
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.dead_letter_table.reader import DEAD_LETTER_ARROW
from jobs.tables.dead_letter_table.selection import Selection
from tests.unit.quality.publishing.branch_world import NAME, BranchWorld, Killed
from tests.unit.quality.publishing.branch_world import AtStep as At
from tests.unit.quality.publishing.discard_world import BEGAN, DiscardWorld

STEPS = "discard_after_mark", "discard_before_letters", "discard_after_letters", "discard_after_commit", "inside_hold"


@pytest.fixture
def world(tmp_path: Path) -> DiscardWorld:
    return DiscardWorld(tmp_path / "home")


def held(world: DiscardWorld, rows: int = 3) -> list[int]:
    """Land rows that the contract refuses, and have them held."""
    ids = world.land(rows)
    world.bad = set(ids)
    assert world.publish_gated().became == "held"
    return ids


def standing(world: DiscardWorld) -> list[bool]:
    """Of each letter, whether its record has a row that counts."""
    letters = pa.Table.from_pylist(world.letters(), DEAD_LETTER_ARROW).combine_chunks().to_batches()[0]
    sink = stream_table(world.catalog(), world.spec, world.spec.table.name)
    columns = world.spec.kafka_columns.instant_coordinates
    return stand_in_table(sink, letters, "payments", columns=columns).tolist()


def test_what_is_held_becomes_letters_and_main_goes_on(world: DiscardWorld) -> None:
    good = world.land(2)
    assert world.publish_gated().became == "published"
    bad = held(world)
    behind = world.land(2)
    done = world.discard()
    assert (done.letters.letters, done.letters.as_rows, done.resumed, done.discard.rows) == (3, 0, False, 3)
    assert (world.gate.held, world.gate.generation, world.discards.unfinished) == (None, 1, None)
    assert world.rows() == Counter(good)
    letters = world.letters()
    assert [(each["offset"], json.loads(each["value"])) for each in letters] == [
        (2 + n, {"id": each}) for n, each in enumerate(bad)
    ]
    first = letters[0]
    assert (first["stage"], first["error_class"], first["key"], first["state"]) == (
        "discarded",
        "discarded",
        b"k",
        None,
    )
    assert first["message"].startswith(f"discarded by ann: a load test; id {bad[0]} is not accepted")
    assert first["headers"] == [{"key": "trace", "value": b"1"}]
    assert world.publish_gated().became == "published"
    assert world.rows() == Counter(good + behind), "what came behind it was judged by itself"
    assert world.rows("ingest") == Counter(good + bad + behind), "the branch keeps all"
    assert world.publish_gated().became == "nothing new"


def test_main_says_who_discarded_what_and_why(world: DiscardWorld) -> None:
    held(world)
    done = world.discard()
    snapshot = world.table().metadata.snapshot_by_id(done.snapshot_id or 0)
    assert snapshot is not None
    assert snapshot.summary is not None
    said = json.loads(snapshot.summary.additional_properties[DISCARDED_KEY])
    assert (said["by"], said["why"], said["rows"], said["letters"]) == ("ann", "a load test", 3, 3)
    assert said["ranges"] == [["payments", 0, 0, 3]]
    (one,) = world.discards.each
    assert (one.finished, one.letters, one.reasons) == (
        True,
        3,
        tuple(f"id {each} is not accepted" for each in world.bad),
    )
    assert published_through(world.table().metadata, "payments", "ingest") == one.until


@pytest.mark.parametrize("name", STEPS)
def test_killed_at_each_step(world: DiscardWorld, name: str) -> None:
    good = world.land(1)
    world.publish_gated()
    bad = held(world)
    with At(name), pytest.raises(Killed):
        world.discard()
    world.lose_state()
    if name == "discard_after_commit":
        with pytest.raises(FrazilError, match="no rows are quarantined"):
            world.discard()
    else:
        if name != "inside_hold":
            for act in (world.publish_gated, world.release, world.publish):
                with pytest.raises(FrazilError, match="ann has decided to discard 3 rows of branch ingest"):
                    act()
            assert world.rows() == Counter(good)
        done = world.discard(by="ben", why="another reason")
        assert (done.resumed, done.discard.by) == ((False, "ben") if name == "inside_hold" else (True, "ann"))
    assert world.lettered() == Counter({1: 1, 2: 1, 3: 1})
    assert (world.rows(), world.gate.held) == (Counter(good), None)
    more = world.land(1)
    assert world.publish_gated().became == "published"
    assert world.rows() == Counter(good + more)
    assert world.rows("ingest") == Counter(good + bad + more)


def test_only_a_part_of_what_is_held(world: DiscardWorld) -> None:
    bad = world.land(2)
    first = world.table().metadata.refs["ingest"].snapshot_id
    good = world.land(2)
    world.bad = set(bad)
    world.publish_gated()
    with pytest.raises(FrazilError, match="snapshot 17 brought no quarantined rows"):
        world.discard(17)
    assert world.discard(first).letters.letters == 2
    assert world.publish_gated().became == "published"
    assert (world.rows(), world.lettered()) == (Counter(good), Counter({0: 1, 1: 1}))


def test_records_that_kafka_has_no_more_are_kept_as_rows(world: DiscardWorld) -> None:
    bad = held(world)
    world.log.first = 2
    done = world.discard()
    assert (done.letters.letters, done.letters.as_rows) == (3, 2)
    stages = [(each["offset"], each["stage"], json.loads(each["value"]), each["key"]) for each in world.letters()]
    assert stages == [
        (0, "discarded_row", {"id": bad[0]}, None),
        (1, "discarded_row", {"id": bad[1]}, None),
        (2, "discarded", {"id": bad[2]}, b"k"),
    ]
    world.correct()
    assert world.replay().replayed == 3
    world.publish_gated()
    assert world.rows() == Counter(bad)


def test_another_record_at_the_same_offset_is_not_taken_for_it(world: DiscardWorld) -> None:
    held(world)
    world.log.again = True
    assert world.discard().letters.as_rows == 3


def test_a_record_with_several_rows_has_one_letter(world: DiscardWorld) -> None:
    world.bad = {*world.land(2), *world.land(1, "payments~replay")}
    world.publish_gated()
    done = world.discard()
    assert (done.discard.rows, done.letters.letters, world.lettered()) == (3, 2, Counter({0: 1, 1: 1}))


class TestReplay:
    def test_a_row_comes_back_once_and_is_published(self, world: DiscardWorld) -> None:
        bad = held(world)
        world.discard()
        assert world.replay("wrong_type").selected == 0
        world.correct()
        found = world.replay()
        assert (found.replayed, found.standing) == (3, 0)
        assert world.rows("ingest") == Counter(bad * 2)
        assert world.rows() == Counter()
        assert world.publish_gated().became == "published"
        assert world.rows() == Counter(bad), "the first rows stay where they are"
        assert {each["state"] for each in world.letters()} == {"replayed"}
        assert world.replay().selected == 0

    def test_no_plain_replay_takes_them(self, world: DiscardWorld) -> None:
        held(world)
        world.discard()
        assert replay(world.spec, world.settings, world.catalog(), ReplayRequest(Selection())).selected == 0

    def test_once_the_row_is_in_main_a_letter_is_settled_by_it(self, world: DiscardWorld) -> None:
        bad = held(world)
        world.discard()
        assert standing(world) == [False] * 3
        world.correct()
        world.replay()
        world.publish_gated()
        assert standing(world) == [True] * 3
        assert world.rows() == Counter(bad)

    def test_replayed_discarded_and_replayed_again(self, world: DiscardWorld) -> None:
        bad = held(world, 2)
        world.discard()
        assert world.replay().replayed == 2
        assert world.publish_gated().became == "held", "the contract is the same"
        world.discard()
        assert world.lettered() == Counter({0: 2, 1: 2})
        world.correct()
        assert world.replay().replayed == 2
        world.publish_gated()
        assert (world.rows(), world.rows("ingest")) == (Counter(bad), Counter(bad * 3))

    def test_while_the_discard_is_not_finished_its_rows_do_not_count(self, world: DiscardWorld) -> None:
        bad = held(world, 2)
        with At("discard_after_letters"), pytest.raises(Killed):
            world.discard()
        assert world.replay().replayed == 2
        assert world.discard().resumed
        world.correct()
        world.publish_gated()
        assert world.rows() == Counter(bad)

    def test_a_row_waits_for_its_publication(self, world: DiscardWorld) -> None:
        """A replay is interrupted, and its letters do not know yet: the row on the way to main says it."""
        held(world, 2)
        world.discard()
        world.correct()
        world.replay()
        assert standing(world) == [True] * 2


class TestRefusals:
    def test_nothing_is_held(self, world: DiscardWorld) -> None:
        world.land(1)
        with pytest.raises(FrazilError, match="no rows are quarantined"):
            world.discard()
        world.publish_gated()
        with pytest.raises(FrazilError, match="no rows are quarantined"):
            plan_discard(world.spec, world.settings, world.catalog(), "x", "y")

    def test_no_gate(self, tmp_path: Path) -> None:
        world = BranchWorld(tmp_path / "home")
        world.land(1)
        with pytest.raises(FrazilError, match="publishes nothing by contract"):
            plan_discard(world.spec, world.settings, world.catalog(), "x", "y")

    def test_rows_that_do_not_say_whose_they_are(self, tmp_path: Path) -> None:
        not_null = {"expect_column_values_to_not_be_null": {"column": "id"}}
        gated = {"contract": {"expectations": [not_null]}, "publish": {"gate": "contract"}}
        world = BranchWorld(tmp_path / "home", **gated)
        world.land(1)
        with pytest.raises(FrazilError, match="do not name their records") as refused:
            plan_discard(world.spec, world.settings, world.catalog(), "x", "y")
        assert "frazil release payments" in (refused.value.fix or "")

    def test_somebody_else_publishes(self, world: DiscardWorld) -> None:
        held(world)
        lease = stream_lease(world.settings, "payments~publish")
        lease.acquire(above=99)
        with pytest.raises(LeaseHeldError, match="is being published by process"):
            world.discard()
        lease.release()
        assert world.letters() == []


def test_the_plan_changes_nothing(world: DiscardWorld) -> None:
    held(world)
    before = world.table().metadata_location
    plan = plan_discard(world.spec, world.settings, world.catalog(), "ann", "why")
    assert (plan.discard.rows, plan.letters.letters, plan.snapshot_id, plan.resumed) == (3, 3, None, False)
    assert (world.table().metadata_location, world.letters()) == (before, [])


def test_a_check_that_began_before_publishes_nothing_after(world: DiscardWorld) -> None:
    bad = held(world)
    world.correct()
    judge = world.judge

    def meanwhile(interval):
        verdict = judge(interval)
        world.lose_state()
        if not world.letters():
            world.discard()
        return verdict

    world.judge = meanwhile  # pyright: ignore[reportAttributeAccessIssue]
    assert world.publish_gated().became == "nothing new"
    assert (world.rows(), world.lettered()) == (Counter(), Counter({0: 1, 1: 1, 2: 1}))
    assert world.rows("ingest") == Counter(bad)


def test_a_rollback_of_main_does_not_bring_them_back(world: DiscardWorld) -> None:
    kept = world.append_to_main(1)
    good = world.land(1)
    world.publish_gated()
    before = world.table().metadata.current_snapshot_id or 0
    held(world)
    world.discard()
    more = world.land(1)
    world.correct()
    world.publish_gated()
    with world.table().manage_snapshots() as change:
        change.rollback_to_snapshot(before)
    with pytest.raises(RolledBackError):
        world.publish_gated()
    answer_rollback(world.spec, world.settings, world.catalog(), "again", "tester: tried out")
    assert world.publish_gated().became == "published"
    assert world.rows() == Counter(kept + good + more)


def test_the_mask_holds_for_them(tmp_path: Path) -> None:
    world = DiscardWorld(tmp_path / "home", errors={"dead_letters": {"mask": {"columns": ["id"]}}})
    held(world, 2)
    world.log.first = 1
    assert world.discard().letters.masked == 2
    assert [each["value"] for each in world.letters()] == [b'{"id":"[masked]"}', b'{"id":"[masked]"}']
    world.correct()
    found = world.replay()
    assert (found.replayed, found.failed_again) == (0, 2)


@pytest.mark.parametrize(
    ("schema", "transform", "kept"),
    [
        ("secret long not null", {"rename": {"secret": "id"}}, '{"id":"[masked]"}'),
        ("secret long not null", {"compute": {"id": "secret"}}, '{"id":"[masked]"}'),
        ("id long not null", {"where": "id >= 0"}, '{"id":2000000}'),
    ],
)
def test_the_mask_holds_for_what_steps_have_made_of_a_record(
    tmp_path: Path, schema: str, transform: dict[str, Any], kept: str
) -> None:
    errors = {"dead_letters": {"mask": {"columns": ["secret"]}}}
    steps = [transform, *([{"drop": ["secret"]}] if "compute" in transform else [])]
    world = DiscardWorld(tmp_path / "home", schema=schema, transform=steps, errors=errors)
    held(world, 2)
    world.log.first = 1
    world.discard()
    assert [each["value"].decode() for each in world.letters() if each["stage"] == "discarded_row"] == [kept]


def test_what_was_discarded_is_not_checked_again(world: DiscardWorld) -> None:
    world.land(2)
    head = world.table().metadata.refs["ingest"].snapshot_id
    snapshot = world.table().metadata.snapshot_by_id(head)
    assert snapshot is not None
    checked = ValidatedPosition(head, snapshot.sequence_number or 0, {}, BEGAN, CheckSummary())
    world.publish_gated()
    held(world)
    world.discard()
    more = world.land(1)
    table = world.table()
    found = increment_since(table.metadata, table.io, "payments", checked, branch="ingest")
    assert world.ids_in(found.files) == more
    since = snapshots_since(table.metadata, "payments", checked.sequence, "ingest")
    assert [each.snapshot_id for each in since] == [table.metadata.refs["ingest"].snapshot_id]


def test_a_branch_that_was_made_anew_has_none_of_it(world: DiscardWorld) -> None:
    world.append_to_main(1)
    good = world.land(2)
    world.publish_gated()
    bad = held(world)
    world.discard()
    more = world.land(1)
    done = remake(world.catalog(), NAME, [world.spec], "ingest", needed=lambda snapshot, stamp: False)
    assert done.rows == 1
    assert not set(bad) & set(world.rows("ingest"))
    world.correct()
    assert world.replay().replayed == 3
    assert world.publish_gated().became == "published"
    assert +(world.rows() - world.rows("ingest")) == Counter()
    assert Counter({each: n for each, n in world.rows().items() if each >= 0}) == Counter(good + bad + more)


class TestMoreThanAreRemembered:
    """Each keeps its interval and its rows, for as long as the branch has them."""

    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiscardWorld:
        monkeypatch.setattr("jobs.tables.commit.history.discards.MOST_KEPT", 1)
        return DiscardWorld(tmp_path / "home")

    def discarded_thrice(self, world: DiscardWorld) -> tuple[list[int], list[int]]:
        good, bad = world.land(2), list[int]()
        world.publish_gated()
        for rows in (3, 1, 2):
            bad += held(world, rows)
            world.discard()
            if rows == 3:
                good += world.land(1)
                world.publish_gated()
        assert len(world.discards.each) == 1
        return good, bad

    def test_a_rollback_of_main_does_not_bring_them_back(self, world: DiscardWorld) -> None:
        kept = world.append_to_main(1)
        before = world.table().metadata.current_snapshot_id or 0
        good, bad = self.discarded_thrice(world)
        good += world.land(1)
        world.correct()
        world.publish_gated()
        with world.table().manage_snapshots() as change:
            change.rollback_to_snapshot(before)
        with pytest.raises(RolledBackError):
            world.publish_gated()
        answer_rollback(world.spec, world.settings, world.catalog(), "again", "tester: tried out")
        assert world.publish_gated().became == "published"
        assert world.rows() == Counter(kept + good)
        assert world.rows("ingest") == Counter(kept + good + bad)

    def test_the_branch_can_be_made_anew_and_nothing_is_kept_of_them_then(self, world: DiscardWorld) -> None:
        world.append_to_main(1)
        good, bad = self.discarded_thrice(world)
        good += world.land(1)
        assert [(each.rows, len(each.ranges)) for each in world.discards.on("ingest")] == [(3, 0), (1, 0), (2, 1)]
        assert remake(world.catalog(), NAME, [world.spec], "ingest", needed=lambda snapshot, stamp: False).rows == 1
        assert not set(bad) & set(world.rows("ingest"))
        assert [each.rows for each in world.discards.on("ingest")] == [2]
        world.correct()
        assert world.publish_gated().became == "published"
        assert Counter({each: n for each, n in world.rows().items() if each >= 0}) == Counter(good)
