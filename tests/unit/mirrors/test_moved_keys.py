"""Values of rows whose key changed, which only changes of the former key have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.mirrors.fold.moved_rows import Histories
from jobs.mirrors.model.order_token import STREAMED, order_token


def told(token: str, op: str, key: int, *, left_out: tuple[str, ...] = (), old: int | None = None, **v: Any) -> Any:
    return {
        "_change_op": op, "_change_order": token, "_change_unavailable": list(left_out) or None, "id": key,
        "_change_old_key": None if old is None else {"id": old}, "a": None, "b": None, **v,
    }  # fmt: skip


def folded(key: int, *changes: Any) -> tuple[Any, Any, int]:
    row, unknown, _ = Histories.of(["id"], ["id", "a", "b"], changes).folded((key,))
    return row["a"], row["b"], unknown


MOVE = (
    told("1", "c", 1, a="a1", b="b1"),
    told("2", "u", 1, a="a2", left_out=("b",)),
    told("3", "d", 1),
    told("4", "c", 2, left_out=("a", "b"), old=1),
)


def test_what_was_left_out_is_as_it_was_under_the_former_key() -> None:
    assert folded(2, *MOVE) == ("a2", "b1", 0)
    assert folded(2, *MOVE, told("5", "u", 2, a="new", left_out=("b",))) == ("new", "b1", 0)
    assert folded(3, *MOVE, told("5", "d", 2), told("6", "c", 3, a="x", left_out=("b",), old=2)) == ("x", "b1", 0)


def test_a_deletion_that_was_sent_twice_is_one() -> None:
    assert folded(2, *MOVE[:3], told("31", "d", 1), MOVE[3]) == ("a2", "b1", 0)


def test_what_happens_to_the_former_key_later_does_not_count() -> None:
    assert folded(2, *MOVE, told("5", "c", 1, a="another", b="row")) == ("a2", "b1", 0)


def test_what_nobody_knows_is_null_and_counted() -> None:
    assert folded(2, *MOVE[2:]) == (None, None, 2)
    assert folded(1, told("1", "u", 1, a="x", left_out=("b",))) == ("x", None, 1)
    assert folded(1, told("1", "d", 1), told("2", "u", 1, a="x", left_out=("b",))) == ("x", None, 1)


def test_a_former_key_that_is_not_deleted_yet_may_still_have_changed() -> None:
    assert folded(2, MOVE[0], MOVE[1], MOVE[3]) == ("a2", "b1", 2)


def at(position: str | None, offset: int) -> str:
    return order_token(0, position, STREAMED, offset)


@pytest.mark.parametrize("deleted_at", [3, 100])
@pytest.mark.parametrize("updated", [False, True], ids=["", "updated at the same place"])
def test_a_deletion_in_another_partition_is_at_the_place_of_its_change(deleted_at: int, updated: bool) -> None:
    """Offsets of two partitions say nothing of which came first."""
    changes = [told(at("05", 2), "c", 1, a="a1", b="b1"), told(at("09", 50), "c", 2, left_out=("a", "b"), old=1)]
    if updated:
        changes.append(told(at("09", deleted_at - 1), "u", 1, a="a2", left_out=("b",)))
    changes.append(told(at("09", deleted_at), "d", 1))
    row, unknown, former = Histories.of(["id"], ["id", "a", "b"], changes).folded((2,))
    assert (row["a"], row["b"], unknown, former) == ("a2" if updated else "a1", "b1", 0, 0)


def test_the_deletion_of_an_earlier_row_with_that_key_is_not_that_of_the_change() -> None:
    earlier = [told(at("02", 2), "c", 1, a="a0", b="b0"), told(at("03", 3), "d", 1)]
    moved = told(at("09", 50), "c", 2, left_out=("a", "b"), old=1)
    found = Histories.of(["id"], ["id", "a", "b"], [*earlier, moved])
    row, unknown, former = found.folded((2,))
    assert (row["a"], unknown, former) == (None, 2, 2)
    later = [told(at("08", 4), "c", 1, a="a1", b="b1"), told(at("09", 5), "d", 1), told(at("09", 6), "d", 1)]
    assert folded(2, *earlier, moved, *later) == ("a1", "b1", 0)
    # Versions of a row are those of each key by itself.
    row, unknown, former = replace(found, placed=False).folded((2,))
    assert (row["a"], unknown, former) == ("a0", 0, 0)


def test_a_deletion_at_another_place_is_of_a_later_row() -> None:
    moved = told(at("09", 50), "c", 2, left_out=("a", "b"), old=1)
    for position, offset in (("0a", 100), (None, 100)):
        place = None if position is None else "09"
        changes = [told(at("05", 2), "c", 1, a="a1", b="b1"), {**moved, "_change_order": at(place, 50)}]
        changes.append(told(at(position, offset), "d", 1))
        row, unknown, former = Histories.of(["id"], ["id", "a", "b"], changes).folded((2,))
        assert (row["a"], unknown, former) == ("a1" if position else None, 2, 2)
    # In one partition what stands behind the deletion and the change that it is of is later, at the same place too.
    again = [told(at("09", 51), "c", 1, a="x", b="x"), told(at("09", 52), "d", 1)]
    changes = [told(at("05", 2), "c", 1, a="a1", b="b1"), told(at("09", 49), "d", 1), moved, *again]
    assert folded(2, *changes) == ("a1", "b1", 0)


def test_values_are_not_sure_until_the_deletion_of_each_former_key_has_come() -> None:
    again = told("6", "c", 3, a="x", left_out=("b",), old=2)
    assert folded(2, *MOVE)[2] == folded(2, *MOVE[2:])[2] - 2 == 0
    assert folded(3, MOVE[0], MOVE[3], told("5", "d", 2), again)[2] == 1
    # What the row has itself is not asked of others.
    assert folded(2, MOVE[3], told("5", "u", 2, a="new", b="new"))[2] == 0


def test_keys_that_change_in_a_circle_come_to_an_end() -> None:
    circle = [told("1", "c", 1, left_out=("a",), old=2), told("0", "c", 2, left_out=("a",), old=1)]
    assert folded(1, *circle)[2] == 1
