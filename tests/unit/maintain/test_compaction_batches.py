"""Which compactions one run of Spark does together, and whose its results are."""

from __future__ import annotations

from decimal import Decimal

import pytest

from jobs.maintain.compaction import batches, step_shares
from tests.unit.maintain.contexts import MB, rewritten, step


def test_what_a_single_step_took_along_of_other_specs_is_not_its_own() -> None:
    of_partition, earlier = rewritten("a"), rewritten(None, 7 * MB)
    (only,) = step_shares([step("a")], [of_partition, earlier], 9.0, 0)
    assert (only.groups, only.beside) == ([of_partition], 7 * MB)
    # Of an earlier spec: the group without a key is its own, those of the present spec are not.
    (only,) = step_shares([step("a")], [of_partition, earlier], 9.0, 1)
    assert (only.groups, only.beside) == ([earlier], MB)


def test_files_of_other_specs_count_and_are_nobodys() -> None:
    steps = [step("a"), step(Decimal("1.50"))]
    first, second = step_shares(steps, [rewritten("a"), rewritten(None, 7 * MB), rewritten(Decimal("1.50"))], 9.0)
    assert (len(first.groups), first.beside, len(second.groups), second.beside) == (1, 7 * MB, 1, 0)
    # Of one step everything is its own.
    (only,) = step_shares(steps[:1], [rewritten(1.25), rewritten(None)], 9.0)
    assert (len(only.groups), only.beside, only.seconds) == (2, 0, 9.0)


@pytest.mark.parametrize(
    ("values", "together"),
    [
        ((1, 2), True),
        (("a", None), True),
        ((True, False), True),
        ((Decimal(1), Decimal(2)), True),
        ((1.100000023841858, 2.5), False),
        ((b"a", b"b"), False),
        ((1, 2.5), False),
    ],
)
def test_only_what_java_writes_alike_goes_together(values: tuple[object, object], together: bool) -> None:
    found = batches([step(value) for value in values], 0)
    assert len(found) == (1 if together else 2)


def test_of_an_earlier_spec_each_goes_alone() -> None:
    assert len(batches([step(1), step(2)], 1)) == 2


@pytest.mark.parametrize(("most", "sizes"), [(None, [3]), (3 * MB, [3]), (2 * MB, [2, 1]), (1, [1, 1, 1])])
def test_a_turn_is_no_larger_than_it_may_be(most: int | None, sizes: list[int]) -> None:
    steps = [step(value) for value in range(3)]
    assert {each.bytes for each in steps} == {MB}
    assert [len(batch) for batch in batches(steps, 0, most)] == sizes
