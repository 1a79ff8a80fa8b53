"""Keys on which a mirror and its source disagree: what moves on is never called wrong, what stays wrong is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.mirror.disagreements import Disagreement, Disagreements
from jobs.mirror.mirror_digests import MirrorRow
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
    state, now, merged = Disagreements([KEY]), 0, 0
    for _ in range(data.draw(st.integers(1, 8))):
        # The mirror has this key through one moment, and all keys through an earlier one.
        now = data.draw(st.integers(now, len(history)))
        merged = data.draw(st.integers(merged, now))
        reached = data.draw(st.none() | st.integers(0, merged))
        have = at(history, merged)
        now = data.draw(st.integers(now, len(history)))
        there = at(history, now)
        state.look(
            reached,
            now,
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
    state.look(None, position, mirror, source)
    assert (KEY in state.pending) is (mine != its)
    state.look(reached, 9, mirror, source)
    assert bool(state.wrong) is (mine != its and reached >= position)
    for found in (*state.wrong.values(), *filter(None, state.pending.values())):
        assert found.what == ("missing" if mine is None else "extra" if its is None else "different")


def test_the_columns_that_differ_are_named() -> None:
    state = Disagreements([KEY])
    state.look(None, 5, {KEY: MirrorRow("1", "a,b,c,d")}, {KEY: SourceRow("9", "a,x,c,y")})
    assert state.pending == {KEY: Disagreement(KEY, "different", (1, 3))}
    # A row that changes at the source between the looks is looked at once more.
    state.look(6, 7, {KEY: MirrorRow("1", "a,b,c,d")}, {KEY: SourceRow("10", "a,x,c,z")})
    assert not state.wrong
    state.look(7, 9, {KEY: MirrorRow("2", "a,b,c,d")}, {KEY: SourceRow("10", "a,x,c,z")})
    assert state.wrong == {KEY: Disagreement(KEY, "different", (1, 3))}


def test_a_key_with_two_rows_has_one_too_much() -> None:
    state = Disagreements([KEY])
    for position in (5, 7):
        state.look(6, position, {KEY: MirrorRow("1", "a", 2)}, {KEY: SourceRow("9", "a")})
    assert state.wrong == {KEY: Disagreement(KEY, "extra")}
