"""Check of a mirror against its source: what is on its way is never called wrong, and how far a mirror has come."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.mirrors.check.compared_rows import Key, MirrorRow, SourceRow
from jobs.mirrors.check.source_check import (
    Disagreement,
    Look,
    MirrorPlace,
    disagreements,
    mirror_place,
    refuse_behind,
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


def look(mirror: MirrorRow | None, source: SourceRow | None, before: int) -> Look:
    """A look at one key; rows that agree are in none."""
    if mirror and source and mirror.count == 1 and mirror.columns == source.columns:
        return Look({}, {}, before)
    return Look({KEY: mirror} if mirror else {}, {KEY: source} if source else {}, before)


@given(HISTORY, st.data())
def test_a_mirror_that_only_lags_is_never_wrong(history: list[str | None], data: st.DataObject) -> None:
    """The n-th change ends at place 2n; the source is read after the mirror."""
    looks, merged, reached, through = list[Look](), 0, None, 0
    for _ in range(2):
        # The mirror has this key through one moment, and all keys through an earlier one.
        merged = data.draw(st.integers(merged, len(history)))
        reached = data.draw(st.none() | st.integers(0, max(0, 2 * merged - 2)))
        have = at(history, merged)
        through = data.draw(st.integers(max(through, 2 * merged), 2 * len(history) + 1))
        there = at(history, through // 2)
        looks.append(
            look(
                MirrorRow(f"{have[0]:04}", have[1]) if have else None,
                SourceRow(str(there[0]), there[1]) if there else None,
                data.draw(st.integers(through, through + 3)),
            )
        )
    assert not any(each.certain for each in disagreements(looks[0], looks[1], reached))


@given(st.sampled_from([None, "a", "b"]), st.sampled_from([None, "a", "b"]), st.integers(0, 5), st.integers(0, 5))
def test_what_disagrees_behind_the_first_look_is_wrong(
    mine: str | None, its: str | None, reached: int, position: int
) -> None:
    mirror, source = MirrorRow("1", mine) if mine else None, SourceRow("9", its) if its else None
    found = disagreements(look(mirror, source, position), look(mirror, source, 9), reached)
    assert bool(found) is (mine != its)
    for each in found:
        assert each.what == ("missing" if mine is None else "extra" if its is None else "different")
        assert each.certain is (reached >= position)


def test_keys_of_a_mirror_without_positions_are_never_called_wrong() -> None:
    one = look(None, SourceRow("9", "a"), 5)
    assert disagreements(one, one, None) == [Disagreement(KEY, "missing")]


def test_a_key_that_agrees_once_is_right() -> None:
    differ, agree = look(None, SourceRow("9", "a"), 5), look(MirrorRow("1", "a"), SourceRow("9", "a"), 6)
    assert disagreements(differ, agree, 9) == disagreements(agree, differ, 9) == []


def test_the_columns_that_differ_are_named() -> None:
    first = look(MirrorRow("1", "a,b,c,d"), SourceRow("9", "a,x,c,y"), 5)
    assert disagreements(first, first, 5) == [Disagreement(KEY, "different", (1, 3), certain=True)]
    # A row that changes on either side between the looks may be on its way.
    later = look(MirrorRow("1", "a,b,c,d"), SourceRow("10", "a,x,c,z"), 7)
    assert disagreements(first, later, 7) == [Disagreement(KEY, "different", (1, 3))]
    extra = look(MirrorRow("1", "a"), None, 5)
    assert disagreements(extra, look(MirrorRow("2", "b"), None, 7), 7) == [Disagreement(KEY, "extra")]


def test_a_key_with_two_rows_has_one_too_much() -> None:
    both = look(MirrorRow("1", "a", 2), SourceRow("9", "a"), 6)
    assert disagreements(both, both, 6) == [Disagreement(KEY, "extra", certain=True)]


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


def test_a_source_that_has_less_than_the_mirror_is_refused() -> None:
    known = stamp(("10/1f", "postgresql/shop/db"))
    refuse_behind("customers", "shop.customers", "shop", 0x1F, known)
    refuse_behind("customers", "shop.customers", "shop", 0, stamp(("10/1f", "mysql/shop")))
    with pytest.raises(FrazilError, match=r"come to 0/1E of its log, and mirror .* up to 0/1F\. It is another") as stop:
        refuse_behind("customers", "shop.customers", "shop", 0x1E, known)
    assert stop.value.fix == "name the mirror's source in sources.shop.url of frazil.yaml"


@pytest.mark.parametrize(
    ("reached", "why"), [(0x20, "as the mirror has come to 0/20"), (None, "as the mirror names no position")]
)
def test_why_keys_are_unsettled(tmp_path: Path, reached: int | None, why: str) -> None:
    found = SourceConsistency(
        "shop.customers", "shop, table public.customers", 64, 5, 4, 0x10, reached, {}, {"missing": 1}, 1, 0,
        (), ("id",), (),
    )  # fmt: skip
    assert f"1 missing, perhaps by changes on their way, {why}" in source_sentence(found)
    assert str(source_fix(spec(tmp_path), found, changelog_agrees=True, letters=0)).startswith("frazil mirror status")
