"""Keys on which a mirror and its source disagree: what moves on is never called wrong, what stays wrong is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirror.disagreements import Disagreement, Disagreements
from jobs.mirror.mirror_digests import MirrorRow
from jobs.mirror.source_place import MirrorPlace, SourcePlace
from jobs.mirror.source_rows import Key, SourceRow

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
    state, merged, standby = Disagreements([KEY]), 0, data.draw(st.booleans())
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
    state = Disagreements([KEY])
    mirror = {KEY: MirrorRow("1", mine)} if mine else {}
    source = {KEY: SourceRow("9", its)} if its else {}
    state.look(MirrorPlace(0, 0), place(position), mirror, source)
    assert (KEY in state.pending) is (mine != its)
    state.look(MirrorPlace(reached, reached), place(9), mirror, source)
    assert bool(state.wrong) is (mine != its and reached >= position)
    for found in (*state.wrong.values(), *filter(None, state.pending.values())):
        assert found.what == ("missing" if mine is None else "extra" if its is None else "different")


@pytest.mark.parametrize(("mine", "its"), [("a", "b"), ("a", None), (None, "b")])
def test_a_standby_is_looked_at_once_more_before_a_key_is_wrong(mine: str | None, its: str | None) -> None:
    state = Disagreements([KEY])
    mirror = {KEY: MirrorRow("1", mine)} if mine else {}
    source = {KEY: SourceRow("9", its)} if its else {}
    for each in (2, 4):
        state.look(MirrorPlace(each, each), place(each, standby=True), mirror, source)
        assert not state.wrong
    state.look(MirrorPlace(6, 6), place(6, standby=True), mirror, source)
    assert list(state.wrong) == [KEY]


@pytest.mark.parametrize("standby", [True, False])
def test_a_source_behind_the_mirror_shows_nothing_certain(standby: bool) -> None:
    state = Disagreements([KEY])
    for each in range(1, 9):
        state.look(MirrorPlace(each, each), place(0, standby=standby), {}, {KEY: SourceRow("9", "a")})
        assert state.behind and list(state.pending) == [KEY]
    # A place in the log of another one, without which nobody can say.
    state.look(MirrorPlace(None, None), place(0), {}, {KEY: SourceRow("9", "a")})
    assert not state.behind and list(state.pending) == [KEY]


def test_the_columns_that_differ_are_named() -> None:
    state = Disagreements([KEY])
    mirror = {KEY: MirrorRow("1", "a,b,c,d")}
    state.look(MirrorPlace(None, None), place(5), mirror, {KEY: SourceRow("9", "a,x,c,y")})
    assert state.pending == {KEY: Disagreement(KEY, "different", (1, 3))}
    # A row that changes at the source between the looks is looked at once more.
    state.look(MirrorPlace(6, 6), place(7), mirror, {KEY: SourceRow("10", "a,x,c,z")})
    assert not state.wrong
    state.look(MirrorPlace(7, 7), place(9), {KEY: MirrorRow("2", "a,b,c,d")}, {KEY: SourceRow("10", "a,x,c,z")})
    assert state.wrong == {KEY: Disagreement(KEY, "different", (1, 3))}


def test_a_key_with_two_rows_has_one_too_much() -> None:
    state = Disagreements([KEY])
    for position in (5, 7):
        state.look(MirrorPlace(6, 6), place(position), {KEY: MirrorRow("1", "a", 2)}, {KEY: SourceRow("9", "a")})
    state.look(MirrorPlace(7, 7), place(9), {KEY: MirrorRow("1", "a", 2)}, {KEY: SourceRow("9", "a")})
    assert state.wrong == {KEY: Disagreement(KEY, "extra")}


def place(position: int, *, standby: bool = False) -> SourcePlace:
    return SourcePlace(position, position, standby)
