"""The comparison sees every way in which a table can be wrong, and nothing where it is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.local.certify.comparison import (
    Comparison,
    TableRows,
    Values,
    compare,
    main_problems,
    stamp_problems,
    with_values,
)
from jobs.local.certify.load import NO_VALUE, Expected, Fate
from jobs.local.certify.shapes import TYPES
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

L, D, T, P = Fate.LANDED, Fate.DEAD, Fate.TOMBSTONE, Fate.PASSED_OVER
FATES = {0: [L, L, D, T, L, P, L], 1: [D, L]}
ALL = {0: 7, 1: 2}


def compared(
    landed: dict[int, list[int]],
    dead: dict[int, list[int]],
    landed_through: dict[int, int] = ALL,
    dead_through: dict[int, int] = ALL,
    fates: dict[int, list[Fate]] = FATES,
) -> Comparison:
    wanted = Expected({number: np.array(each, dtype=np.uint8) for number, each in fates.items()})
    lost = {number: each == D for number, each in wanted.fates.items()}
    return compare(
        wanted.fates,
        [TableRows("the table", offsets(landed), wanted.landed(), landed_through)],
        TableRows("the dead letters", offsets(dead), lost, dead_through),
    )


def offsets(rows: dict[int, list[int]]) -> dict[int, np.ndarray]:
    return {number: np.array(each, dtype=np.int64) for number, each in rows.items()}


def test_all_is_well() -> None:
    assert compared({0: [6, 0, 1, 4], 1: [1]}, {0: [2], 1: [0]}) == Comparison(5, 2, 1, 1, ())


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([NO_VALUE, 8, NO_VALUE], None),
        ([8, 8, NO_VALUE], "offsets [0, 1)"),
        ([NO_VALUE, NO_VALUE, NO_VALUE], "offsets [4, 5)"),
        ([NO_VALUE, 9, 1], "offsets [1, 2), [4, 5)"),
    ],
)
def test_values_of_a_column_that_came_later_are_looked_up_by_their_records(found: list[int], wrong: str | None) -> None:
    fine = compared({0: [6, 0, 1, 4], 1: [1]}, {0: [2], 1: [0]})
    wanted = {0: np.array([NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE, 8, NO_VALUE, 7]), 1: np.array([NO_VALUE, 5])}
    # A row of a record that nobody produced is told by the offsets alone.
    rows: Values = {0: (np.array([0, 4, 1, 99]), np.array([*found, 3])), 1: (np.array([1]), np.array([5]))}
    together = with_values(fine, {"added_1": wanted}, {"added_1": rows})
    assert together.added_values == sum(each != NO_VALUE for each in found) + 1
    if wrong is None:
        assert together.problems == ()
    else:
        (problem,) = together.problems
        assert problem.endswith(f"have not in column added_1 what was sent: partition 0, {wrong}")


def test_dead_letters_that_wait_in_a_pending_record_are_no_loss() -> None:
    assert compared({0: [0, 1, 4, 6], 1: [1]}, {}, dead_through={}).problems == ()


@pytest.mark.parametrize(
    ("landed", "dead", "said"),
    [
        ({0: [0, 4, 6], 1: [1]}, {0: [2], 1: [0]}, "1 records lost from the table: partition 0, offsets [1, 2)"),
        ({0: [0, 1, 1, 4, 6], 1: [1]}, {0: [2], 1: [0]}, "1 records more than once in the table: partition 0"),
        ({0: [0, 1, 4, 6], 1: [1]}, {0: [2, 2], 1: [0]}, "1 records more than once in the dead letters: partition 0"),
        ({0: [0, 1, 4, 6], 1: [1]}, {0: [2]}, "1 records lost from the dead letters: partition 1, offsets [0, 1)"),
        ({0: [0, 1, 2, 4, 6], 1: [1]}, {0: [2], 1: [0]}, "1 records wrongly in the table: partition 0, offsets [2, 3)"),
        ({0: [0, 1, 4, 6], 1: [1]}, {0: [2, 3], 1: [0]}, "1 records wrongly in the dead letters: partition 0"),
        ({0: [0, 1, 4, 5, 6], 1: [1]}, {0: [2], 1: [0]}, "1 records wrongly in the table: partition 0, offsets [5, 6)"),
        ({0: [0, 1, 4, 6, 7], 1: [1]}, {0: [2], 1: [0]}, "1 rows of the table are of no record: partition 0, offsets"),
        ({0: [0, 1, 4, 6], 1: [1], 2: [0]}, {0: [2], 1: [0]}, "rows of partitions that were never produced to: [2]"),
    ],
)
def test_what_is_wrong_is_named(landed: dict[int, list[int]], dead: dict[int, list[int]], said: str) -> None:
    problems = compared(landed, dead).problems
    assert len(problems) == 1
    assert said in problems[0]


CARD, MOVED = TYPES[:2], TYPES[1:3]
# One of each type, the second of which has to be in two tables, and a dead one.
TYPED = Expected({0: np.array([L, L, L, L, D], np.uint8)}, types={0: np.array([0, 1, 2, 3, 1], np.uint8)})


def routed(card: list[int], moved: list[int], own: list[int], through: int = 5) -> Comparison:
    tables = {"own": (own, TYPES[3:]), "by card": (card, CARD), "moved": (moved, MOVED)}
    landed = [
        TableRows(name, offsets({0: rows}), TYPED.landed(types), {0: through}) for name, (rows, types) in tables.items()
    ]
    letters = TableRows("the dead letters", offsets({0: [4]}), {0: TYPED.fates[0] == D}, {0: 5})
    return compare(TYPED.fates, landed, letters)


def test_a_record_of_a_route_is_in_each_of_its_tables_and_counts_once() -> None:
    assert routed([0, 1], [2, 1], [3]) == Comparison(4, 1, 0, 0, ())


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (([0, 1], [2], [3]), "1 records lost from moved: partition 0, offsets [1, 2)"),
        (([0], [1, 2], [3]), "1 records lost from by card: partition 0, offsets [1, 2)"),
        (([0, 1, 1], [1, 2], [3]), "1 records more than once in by card: partition 0, offsets [1, 2)"),
        (([0, 1], [1, 2], [3, 0]), "1 records wrongly in own: partition 0, offsets [0, 1)"),
        (([0, 1], [1, 2, 4], [3]), "1 records wrongly in moved: partition 0, offsets [4, 5)"),
    ],
)
def test_what_is_wrong_in_one_table_of_a_route_is_named(tables: tuple[list[int], ...], said: str) -> None:
    card, moved, own = tables
    assert routed(card, moved, own).problems == (said,)


def test_what_a_table_of_a_route_waits_for_is_no_loss() -> None:
    assert routed([], [], [], through=0).problems == ()


@pytest.mark.parametrize(
    ("main", "whole", "said"),
    [
        ([0, 1, 3], True, []),
        ([0, 1], False, []),
        ([0, 1], True, ["1 records are published, and not in main: partition 0, offsets 3"]),
        ([0, 1, 1, 3], True, ["1 records are more than once in main: partition 0, offsets 1"]),
        ([0, 1, 2], False, ["1 records are in main, and not on the branch: partition 0, offsets 2"]),
        ([], True, ["3 records are published, and not in main: partition 0, offsets 0, 1, 3"]),
    ],
)
def test_what_main_has_of_a_branch(main: list[int], whole: bool, said: list[str]) -> None:
    assert main_problems(offsets({0: main}), offsets({0: [0, 1, 3]}), whole=whole) == said


def test_two_streams_add_up() -> None:
    assert Comparison(1, 2, 3, 4, ("a",), 5) + Comparison(10, 20, 30, 40, ("b",), 50) == Comparison(
        11, 22, 33, 44, ("a", "b"), 55
    )


def test_rows_behind_the_stamps_are_wrong() -> None:
    problems = compared({0: [0, 1], 1: [1]}, {1: [0]}, {0: 1, 1: 2}, {0: 0, 1: 2}).problems
    assert problems == ("1 records in, but not stamped in, the table: partition 0, offsets [1, 2)",)


@given(st.lists(st.sampled_from([L, D, T, P]), min_size=1, max_size=60), st.data())
def test_one_row_more_or_less_is_always_seen(fates: list[Fate], data: st.DataObject) -> None:
    through = {0: len(fates)}
    landed = [at for at, fate in enumerate(fates) if fate == L]
    dead = [at for at, fate in enumerate(fates) if fate == D]
    assert compared({0: landed}, {0: dead}, through, through, {0: fates}).problems == ()
    more = data.draw(st.integers(0, len(fates) - 1))
    assert compared({0: [*landed, more]}, {0: dead}, through, through, {0: fates}).problems
    assert compared({0: landed}, {0: [*dead, more]}, through, through, {0: fates}).problems
    if landed:
        less = data.draw(st.sampled_from(landed))
        assert compared({0: [at for at in landed if at != less]}, {0: dead}, through, through, {0: fates}).problems


AT = TopicPartition("t", 0)


def stamp(kind: str, epoch: int, start: int, position: int, total: int) -> Stamp:
    read = position - start if kind == "batch" else 0
    return Stamp(
        "s",
        kind,  # pyright: ignore[reportArgumentType]
        0,
        epoch,
        "c",
        start={AT: start},
        position={AT: position},
        counts=Counts(read, read),
        totals=Counts(total, total),
    )


GOOD = [stamp("claim", 1, 0, 0, 0), stamp("batch", 1, 0, 5, 5), stamp("claim", 2, 0, 5, 5), stamp("batch", 2, 5, 9, 9)]


def test_stamps_that_follow_one_another() -> None:
    assert stamp_problems(GOOD) == []
    reset = replace(stamp("accept", 3, 12, 12, 9), start={AT: 12})
    assert stamp_problems([*GOOD, reset, stamp("batch", 4, 12, 15, 12)]) == []


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (stamp("batch", 2, 10, 12, 11), "begins at 10, the stamp before ended at 9"),
        (stamp("batch", 2, 8, 12, 13), "begins at 8, the stamp before ended at 9"),
        (stamp("batch", 1, 9, 12, 12), "its epoch is below the one before, 2"),
        (stamp("claim", 3, 9, 10, 9), "a claim moved the position"),
        (replace(stamp("batch", 2, 9, 12, 12), counts=Counts(2, 2)), "counts 2 records read, its ranges hold 3"),
        (replace(stamp("batch", 2, 9, 12, 12), counts=Counts(3, 2)), "its counts do not add up"),
        (stamp("batch", 2, 9, 12, 13), "its totals"),
    ],
)
def test_stamps_that_do_not(last: Stamp, said: str) -> None:
    assert any(said in problem for problem in stamp_problems([*GOOD, last]))
