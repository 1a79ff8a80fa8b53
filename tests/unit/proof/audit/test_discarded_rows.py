"""Audits of streams with discarded rows, on a real catalog: they add up, and what is wrong with them is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from tests.unit.quality.publishing.branch_world import NAME, AtStep, Killed
from tests.unit.quality.publishing.discard_world import DiscardWorld


@pytest.fixture
def world(tmp_path: Path) -> DiscardWorld:
    """Two good rows are in main, three bad ones are discarded."""
    made = DiscardWorld(tmp_path / "home")
    made.land(2)
    made.publish_gated()
    made.bad = set(made.land(3))
    made.publish_gated()
    return made


def audited(world: DiscardWorld) -> StreamAudit:
    return audit(world.spec, world.settings, world.catalog(), full=True)


def problems(found: StreamAudit) -> list[tuple[str, str, int]]:
    return [(each.kind, each.table, each.records) for each in found.problems]


def test_rows_and_letters_add_up_at_every_stage(world: DiscardWorld) -> None:
    assert problems(audited(world)) == []
    for name in ("discard_after_mark", "discard_after_letters"):
        with AtStep(name), pytest.raises(Killed):
            world.discard()
        found = audited(world)
        assert problems(found) == []
        assert any("`frazil discard payments` finishes it" in each for each in found.notes)
    world.discard()
    found = audited(world)
    assert (problems(found), found.read) == ([], 5)
    said = "3 of the landed rows were discarded in one discard: they are 3 more dead letters"
    assert any(each.startswith(said) for each in found.notes)
    world.correct()
    world.replay()
    assert problems(audited(world)) == [], "the rows that came back stand on the branch"
    world.publish_gated()
    assert problems(audited(world)) == []


def test_a_discarded_row_in_main_is_found(world: DiscardWorld) -> None:
    world.discard()
    stray = world.data_file([2_000_003])
    commit_once(world.table(), Append([stray]), summary={}, properties={})
    (found,) = audited(world).problems
    assert (found.kind, found.table, found.records) == ("unexpected", f"main of {NAME}", 1)
    assert found.where == ((3, 4),)


def test_letters_that_are_gone_are_found(world: DiscardWorld) -> None:
    world.discard()
    letters = world.catalog().load_table(world.spec.dead_letter_table)
    letters.delete("offset = 3")
    assert problems(audited(world)) == [("dead_letters", world.spec.dead_letter_table, 1)]


def test_a_letter_of_another_reason_counts_as_ever(world: DiscardWorld) -> None:
    """A letter that no batch wrote is still one too many."""
    world.discard()
    letters = world.catalog().load_table(world.spec.dead_letter_table)
    one = letters.scan(row_filter="offset = 3").to_arrow()
    at = one.schema.get_field_index("error_class")
    letters.append(one.set_column(at, one.schema.field(at), [["wrong_type"]]))
    assert problems(audited(world)) == [("unexpected", world.spec.dead_letter_table, 1)]


def test_discarded_twice_and_replayed_twice(world: DiscardWorld) -> None:
    world.discard()
    world.replay()
    world.publish_gated()
    world.discard()
    assert problems(audited(world)) == []
    world.correct()
    world.replay()
    world.publish_gated()
    assert problems(audited(world)) == []
