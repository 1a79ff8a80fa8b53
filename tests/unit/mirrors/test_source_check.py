"""Check of a mirror against its source: what is on its way is never called wrong, and how far a mirror has come."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.check.compared_rows import (
    Key,
    MirrorRow,
    SourcePlace,
    SourceRow,
)
from jobs.mirrors.check.source_check import (
    Disagreement,
    Disagreements,
    MirrorPlace,
    mirror_place,
)
from jobs.mirrors.check.source_report import SourceConsistency, source_fix, source_sentence
from jobs.mirrors.model.merge_plan import Generation, MirrorState, PartitionState
from jobs.mirrors.model.mirror_stamp import MirrorStamp
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.unit.config.test_mirror import spec

KEY: Key = ("1:7",)
# What happened to a row, and when: its digest then, or that it is gone.
HISTORY = st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=12)


def at(history: list[str | None], moment: int) -> tuple[int, str] | None:
    """The change that a row is from at a moment, and what it has; the n-th change comes at moment n."""
    past = [(n, each) for n, each in enumerate(history, 1) if n <= moment]
    return (past[-1][0], past[-1][1]) if past and past[-1][1] is not None else None


@given(HISTORY, st.data())
def test_a_mirror_that_only_lags_is_never_wrong(history: list[str | None], data: st.DataObject) -> None:
    """The n-th change ends at place 2n, and began anywhere before; the source may lag too, and come back to before."""
    state, merged, standby = Disagreements(), 0, data.draw(st.booleans())
    begun = [data.draw(st.integers(0, 2 * n - 1)) for n in range(1, len(history) + 1)]
    for _ in range(data.draw(st.integers(1, 8))):
        # The mirror has this key through one moment, and all keys through an earlier one.
        merged = data.draw(st.integers(merged, len(history)))
        greatest = max(2 * merged - 2, begun[merged - 1]) if merged else 0
        reached = data.draw(st.none() | st.integers(0, max(0, 2 * merged - 2)))
        have = at(history, merged)
        through = data.draw(st.integers(0 if standby else 2 * merged, 2 * len(history) + 1))
        there = at(history, through // 2)
        state.look(
            MirrorPlace(reached, None if reached is None else greatest),
            SourcePlace(through, data.draw(st.integers(through, through + 3)), standby),
            {KEY: MirrorRow(f"{have[0]:04}", have[1])} if have else {},
            {KEY: SourceRow(str(there[0]), there[1])} if there else {},
        )
        assert not state.wrong


@given(st.sampled_from([None, "a", "b"]), st.sampled_from([None, "a", "b"]), st.integers(0, 5), st.integers(0, 5))
def test_what_disagrees_behind_the_first_look_is_wrong(
    mine: str | None, its: str | None, reached: int, position: int
) -> None:
    state = Disagreements()
    mirror = {KEY: MirrorRow("1", mine)} if mine else {}
    source = {KEY: SourceRow("9", its)} if its else {}
    state.look(MirrorPlace(0, 0), place(position), mirror, source)
    assert (KEY in state.pending) is (mine != its)
    state.look(MirrorPlace(reached, reached), place(9), mirror, source)
    assert bool(state.wrong) is (mine != its and reached >= position)
    for found in (*state.wrong.values(), *filter(None, state.pending.values())):
        assert found.what == ("missing" if mine is None else "extra" if its is None else "different")


def test_no_key_is_wrong_by_what_a_standby_shows() -> None:
    state = Disagreements()
    for each in range(1, 9):
        state.look(MirrorPlace(each, each), place(each, standby=True), {}, {KEY: SourceRow("9", "a")})
        assert not state.wrong and not state.behind


@pytest.mark.parametrize("standby", [True, False])
def test_a_source_behind_the_mirror_shows_nothing_certain(standby: bool) -> None:
    state = Disagreements()
    for each in range(1, 9):
        state.look(MirrorPlace(each, each), place(0, standby=standby), {}, {KEY: SourceRow("9", "a")})
        assert state.behind and list(state.pending) == [KEY]
    # A place in the log of another one, without which nobody can say.
    state.look(MirrorPlace(None, None), place(0), {}, {KEY: SourceRow("9", "a")})
    assert not state.behind and list(state.pending) == [KEY]


def test_the_columns_that_differ_are_named() -> None:
    state = Disagreements()
    mirror = {KEY: MirrorRow("1", "a,b,c,d")}
    state.look(MirrorPlace(None, None), place(5), mirror, {KEY: SourceRow("9", "a,x,c,y")})
    assert state.pending == {KEY: Disagreement(KEY, "different", (1, 3))}
    # A row that changes at the source between the looks is looked at once more.
    state.look(MirrorPlace(6, 6), place(7), mirror, {KEY: SourceRow("10", "a,x,c,z")})
    assert not state.wrong
    state.look(MirrorPlace(7, 7), place(9), {KEY: MirrorRow("2", "a,b,c,d")}, {KEY: SourceRow("10", "a,x,c,z")})
    assert state.wrong == {KEY: Disagreement(KEY, "different", (1, 3))}


def test_a_key_with_two_rows_has_one_too_much() -> None:
    state = Disagreements()
    for position in (6, 8):
        state.look(MirrorPlace(6, 6), place(position), {KEY: MirrorRow("1", "a", 2)}, {KEY: SourceRow("9", "a")})
    assert state.wrong == {KEY: Disagreement(KEY, "extra")}


def place(position: int, *, standby: bool = False) -> SourcePlace:
    return SourcePlace(position, position, standby)


def stamp(*partitions: tuple[str | None, str | None]) -> MirrorStamp:
    """Each with its greatest position, and what that belongs to."""
    known = {
        TopicPartition("shop.public.customers", n): PartitionState(5, position, None, (Generation(0, 0, lineage),))
        for n, (position, lineage) in enumerate(partitions)
    }
    return MirrorStamp("c", 1, 1, 0, ("id",), state=MirrorState(known))


@pytest.mark.parametrize(
    ("partitions", "found"),
    [
        ([("10/1f", "postgresql/shop/db")], (0x10, 0x1F)),
        ([("10/1f", "postgresql/shop/db"), ("30/2f", "postgresql/shop/db")], (0x10, 0x30)),
        ([("10/1f", "postgresql/shop/db"), (None, None)], (None, None)),
        ([("10/1f", "mysql/shop")], (None, None)),
        ([], (None, None)),
    ],
)
def test_how_far_a_mirror_is(
    partitions: list[tuple[str | None, str | None]], found: tuple[int | None, int | None]
) -> None:
    assert mirror_place(stamp(*partitions), "customers") == MirrorPlace(*found)


@pytest.mark.parametrize(
    ("behind", "reached", "why", "fix"),
    [
        (False, 0x20, "perhaps by changes on their way, as the mirror has come to 0/20", "frazil mirror status"),
        (False, None, "perhaps by changes on their way, as the mirror names no position", "frazil mirror status"),
        (True, 0x20, "the source that was asked is behind the mirror: a standby that lags", "see that source shop is"),
    ],
)
def test_why_keys_are_unsettled(tmp_path: Path, behind: bool, reached: int | None, why: str, fix: str) -> None:
    found = SourceConsistency(
        "shop.customers", "shop, table public.customers", 64, 5, 4, 0x10, reached, behind, {}, {"missing": 1}, 1, 0,
        (), ("id",), (),
    )  # fmt: skip
    assert why in source_sentence(found)
    assert str(source_fix(spec(tmp_path), found, changelog_agrees=True, letters=0)).startswith(fix)
