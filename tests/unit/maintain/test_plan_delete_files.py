"""Which delete files a plan has brought together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs.maintain.table_properties import MIRROR_PROPERTY
from tests.unit.maintain.plan_fixtures import (
    HOUR,
    LOOKED,
    MB,
    MINUTE,
    NOW,
    OURS,
    made,
    partition,
    skips_of,
    steps_of,
    table,
)


def test_small_delete_files_are_brought_together_where_nothing_else_comes() -> None:
    few: dict[str, Any] = {"delete_files": 5, "delete_bytes": 5_000, "position_deletes": 50}
    hot = partition("hot", 100, 100, ago=MINUTE, **few)
    fewer = partition("fewer", 100, 100, **{**few, "delete_files": 4})
    equality = partition("equality", 100, 100, equality_deletes=1, **few)
    found = made(table(hot, fewer, equality, partition("cold", 100, 100, **few)))
    (step,) = found.steps
    assert (step.action, step.scope, step.files_before, step.files_after, step.bytes) == (
        "position_deletes", "cold", 5, 1, 5_000,
    )  # fmt: skip
    assert [skip.scope for skip in skips_of(found, "position_deletes")] == ["hot"]
    done = LOOKED.done("position_deletes", NOW - HOUR, spec_id=0, scope="cold")
    assert made(table(partition("cold", 100, 100, **few)), done).steps == ()


def test_many_delete_files_are_brought_together_from_two_on() -> None:
    big: dict[str, Any] = {"delete_files": 6, "delete_bytes": 90 * MB, "position_deletes": 50}
    facts = table(
        *(partition(f"d{n}", 100, 100, **big) for n in range(17)),
        partition("two", 100, 100, **{**big, "delete_files": 2}),
    )
    assert len(steps_of(made(facts), "position_deletes")) == 18
    assert steps_of(made(replace(facts, partitions=(facts.partitions or ())[:3])), "position_deletes") == []


def test_what_a_compaction_leaves_of_deletes_is_dropped() -> None:
    one = partition("d", 100, 100, delete_files=20, delete_bytes=20_000, position_deletes=900)
    assert [step.action for step in made(table(one)).steps] == ["compact", "position_deletes"]
    third = made(table(one, format_version=3))
    assert [step.action for step in third.steps] == ["compact"]
    assert "deletion vector" in skips_of(third, "position_deletes")[0].reason
    off = made(table(one), compact={"enabled": False})
    assert off.steps == ()
    assert "is not to be compacted" in skips_of(off, "position_deletes")[0].reason


def test_a_mirror_is_kept_while_merges_come() -> None:
    """Its merges and its maintenance take turns, so neither has to wait until the other is over for good."""
    mirror = {"properties": {**OURS, MIRROR_PROPERTY: "{}"}}
    one_each = partition("d", *[100] * 5, ago=MINUTE, delete_files=5, delete_bytes=5_000, position_deletes=2)
    kept = made(table(one_each, **mirror))
    assert steps_of(kept, "position_deletes") == []
    assert "merges bring them together" in skips_of(kept, "position_deletes")[0].reason
    many = partition("d", 100, 100, ago=MINUTE, delete_files=20, delete_bytes=20_000, position_deletes=900)
    assert steps_of(made(table(many)), "compact") == []
    assert [step.scope for step in steps_of(made(table(many, **mirror)), "compact")] == ["d"]
    few = partition("d", 100, 100, ago=MINUTE, delete_files=5, delete_bytes=5_000, position_deletes=50)
    assert [step.action for step in made(table(few, **mirror)).steps] == ["position_deletes"]
    for ago, due in ((2 * HOUR, True), (MINUTE, False)):
        done = LOOKED.done("compact", NOW - ago, spec_id=0, scope="d")
        assert bool(steps_of(made(table(many, **mirror), done), "compact")) == due
