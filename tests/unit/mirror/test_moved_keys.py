"""Values of rows whose key changed, which only changes of the former key have."""

from __future__ import annotations

from typing import Any

from jobs.mirror.moved_keys import Histories


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


def test_the_former_keys_whose_deletion_has_not_come_are_waited_for() -> None:
    def awaited(key: int, *changes: Any) -> set[Any]:
        return Histories.of(["id"], ["id", "a", "b"], changes).folded((key,))[2]

    again = told("6", "c", 3, a="x", left_out=("b",), old=2)
    assert awaited(2, *MOVE) == set() == awaited(2, *MOVE[2:])
    assert awaited(2, MOVE[0], MOVE[3]) == {(1,)} == awaited(2, MOVE[3])
    assert awaited(3, MOVE[0], MOVE[3], again) == {(1,), (2,)}
    assert awaited(3, MOVE[0], MOVE[3], told("5", "d", 2), again) == {(1,)}
    # What the row has itself is not asked of others.
    assert awaited(2, MOVE[3], told("5", "u", 2, a="new", b="new")) == set()


def test_keys_that_change_in_a_circle_come_to_an_end() -> None:
    circle = [told("1", "c", 1, left_out=("a",), old=2), told("0", "c", 2, left_out=("a",), old=1)]
    assert folded(1, *circle)[2] == 1
