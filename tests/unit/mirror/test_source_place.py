"""Places in a source's log: what a mirror's stamp says of them, of one partition and of several."""

from __future__ import annotations

import pytest

from jobs.commit.offsets import TopicPartition
from jobs.mirror.merge_plan import Generation, MirrorState, PartitionState
from jobs.mirror.mirror_stamp import MirrorStamp
from jobs.mirror.source_place import MirrorPlace, databases_of, place_of


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
    assert place_of(stamp(*partitions), "customers") == MirrorPlace(*found)


def test_the_databases_of_its_changes() -> None:
    assert databases_of(stamp(("1/1", "postgresql/shop/a/b restored 2"), ("1/1", "postgresql/shop/c"))) == ["a/b", "c"]
    assert databases_of(stamp(("1/1", "mysql/shop"), (None, None))) == []
