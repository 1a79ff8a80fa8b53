# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import types as ice

from jobs.records.transforms.columns import Columns, TransformProblem, column
from jobs.records.transforms.conditional import (
    AllOf,
    Condition,
    Conditional,
    HasHeader,
    IsTombstone,
    Not,
    TopicMatches,
)
from jobs.records.transforms.sql import SqlCondition
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)
from tests.unit.records.transforms.rows import applied, rows_of

ROWS = rows_of(
    "n long not null, s string",
    [{"n": n, "s": str(n)} for n in range(6)],
    topic=["a", "b", "a", "a", "b", "b"],
    headers=[[("x", b"1")], [], [("y", None), ("x", None)], None, [("y", b"")], [("x", b"2"), ("x", b"3")]],
)


@dataclass(frozen=True)
class Odd(Transform):
    """Takes n away for its remainder; refuses 3, and drops 5."""

    name: ClassVar[str] = "odd"
    into: ice.PrimitiveType = ice.LongType()  # noqa: RUF009

    def output(self, columns: Columns) -> Columns:
        return Columns.of((*(each for each in columns if each.name != "n"), column("odd", self.into, required=True)))

    def apply(self, rows: Rows) -> Applied:
        n = rows.batch.column("n")
        numbers = n.to_pylist()
        arrays = [*(rows.batch.column(each) for each in rows.columns.names if each != "n"), pc.bit_wise_and(n, 1)]
        made = rows.with_batch(self.output(rows.columns), arrays)
        made = Rows(made.columns, made.batch, made.frame.with_part("topic", pa.array(["new"] * rows.count)))
        failures = [RowFailure(row, "is_three", "needs another") for row, each in enumerate(numbers) if each == 3]
        return settled(made, failures, pc.indices_nonzero(pc.equal(n, 5)).to_numpy().astype("int64"))


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (TopicMatches("a"), [0, 2, 3]),
        (TopicMatches("a|b"), [0, 1, 2, 3, 4, 5]),
        (TopicMatches("."), [0, 1, 2, 3, 4, 5]),
        (TopicMatches(""), []),
        (Not(TopicMatches("a")), [1, 4, 5]),
        (HasHeader("x"), [0, 2, 5]),
        (HasHeader("y"), [2, 4]),
        (IsTombstone(), []),
        (AllOf((TopicMatches("b"), Not(HasHeader("x")))), [1, 4]),
    ],
)
def test_conditions_choose_rows(condition: Condition, rows: list[int]) -> None:
    for part, start in ((ROWS, 0), (ROWS.take(np.arange(2, 6)), 2)):
        mask, failures = condition.holds(part)
        assert not failures
        assert mask.nonzero()[0].tolist() == [row - start for row in rows if row >= start]


def test_what_one_condition_cannot_say_another_may_whatever_it_says_of_other_rows() -> None:
    several = AllOf((SqlCondition("10 / (n - 1) > 0"), SqlCondition("10 / (n - 2) > 6")))
    _, failures = several.holds(ROWS)
    # Of row 1 the second says no; of row 2 the first says yes.
    assert {each.row for each in failures} == {2}
    for row in range(ROWS.count):
        assert bool(several.holds(ROWS.take(np.array([row])))[1]) == (row == 2)


def test_rows_take_the_step_or_pass_in_their_order() -> None:
    made = applied(Conditional(Odd(), TopicMatches("a")), ROWS)
    assert [(each.row, each.error_class) for each in made.failures] == [(3, "is_three")]
    assert made.rows.batch.to_pylist() == [
        {"s": "0", "odd": 0, "n": None},
        {"s": "1", "odd": None, "n": 1},
        {"s": "2", "odd": 0, "n": None},
        {"s": "4", "odd": None, "n": 4},
        {"s": "5", "odd": None, "n": 5},
    ]
    assert made.rows.frame.part("topic").to_pylist() == ["new", "b", "new", "b", "b"]
    assert made.rows.columns.text == "s string, odd long, n long"


def test_no_row_and_all_rows_have_the_same_columns() -> None:
    for pattern, filtered in (("none", []), (".", [5])):
        made = applied(Conditional(Odd(), TopicMatches(pattern)), ROWS)
        assert made.filtered.tolist() == filtered
        assert made.rows.columns.text == "s string, odd long, n long"


def test_one_name_has_one_type_on_both_sides() -> None:
    @dataclass(frozen=True)
    class Other(Odd):
        def output(self, columns: Columns) -> Columns:
            return Columns.of((column("n", ice.StringType()),))

    with pytest.raises(TransformProblem, match="'n' would be string in rows that take the step, and long in"):
        Conditional(Other(), TopicMatches("a")).output(ROWS.columns)
