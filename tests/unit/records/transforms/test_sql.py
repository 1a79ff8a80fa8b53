from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.conditional import Conditional, Filter
from jobs.records.transforms.select import Extract, Flatten
from jobs.records.transforms.sql import Compute, Rule, SqlCondition
from tests.unit.records.transforms.rows import (
    applied,
    left,
    refused,
    rows_of,
)

ROWS = rows_of(
    "amount long, kind string not null, s struct<n int>",
    [
        {"amount": 5, "kind": "a", "s": {"n": 1}},
        {"amount": None, "kind": "b", "s": None},
        {"amount": 2**62, "kind": "test", "s": {"n": 0}},
        {"amount": -1, "kind": "a", "s": {"n": 2}},
    ],
    topic=["x", "x", "y", "y"],
    headers=[[("h", b"1")], [], [], []],
)


def test_columns_are_computed_of_the_row_before_the_step() -> None:
    made = applied(Compute((("double", "amount * 2"), ("kind", "upper(kind)"), ("again", "kind"))), ROWS)
    assert [(row["double"], row["kind"], row["again"]) for row in made.rows.batch.to_pylist()] == [
        (10, "A", "a"),
        (None, "B", "b"),
        (-2, "A", "a"),
    ]
    (bad,) = made.failures
    assert (bad.row, bad.error_class, bad.path) == (2, "expression_failed", "$.double")
    assert bad.message.startswith("needs a value of the expression `amount * 2`, found none: ")
    assert made.rows.columns.names == ("amount", "kind", "s", "double", "again")


def test_an_expression_may_ask_for_the_record() -> None:
    step = Compute((("t", "_topic"), ("o", "_offset + 1")))
    assert step.asks == frozenset()
    assert [(row["t"], row["o"]) for row in left(step, ROWS)] == [("x", 1), ("x", 2), ("y", 3), ("y", 4)]
    assert Filter(SqlCondition("header('h') is not null")).asks == {"headers"}
    assert applied(Filter(SqlCondition("header('h') is not null")), ROWS).filtered.tolist() == [0]


def test_times_as_text_are_read_by_the_expressions_of_the_documentation() -> None:
    rows = rows_of(
        "born string, seen string, until string",
        [
            {"born": "2026-01-31Z", "seen": "2026-01-31T12:00:00.5Z", "until": "infinity"},
            {"born": None, "seen": "2026-01-31T12:00Z", "until": "2026-01-31T12:00:00Z"},
        ],
    )
    page = (Path(__file__).resolve().parents[4] / "docs/reference/change-events.md").read_text()
    texts = dict(re.findall(r"(born|seen): \"(cast\(rtrim.+?)\"[,}]", page))
    (texts["until"],) = re.findall(r"until: \"(if\(.+?)\"}", page)
    assert left(Compute(tuple(texts.items())), rows) == [
        {
            "born": date(2026, 1, 31),
            "seen": datetime(2026, 1, 31, 12, 0, 0, 500_000),
            "until": datetime(9999, 12, 31, tzinfo=UTC),
        },
        {
            "born": None,
            "seen": datetime(2026, 1, 31, 12, 0),
            "until": datetime(2026, 1, 31, 12, tzinfo=UTC),
        },
    ]


def test_where_keeps_rows_for_which_it_is_true() -> None:
    assert applied(Filter(SqlCondition("amount > 0 and kind <> 'test'"), drop=False), ROWS).filtered.tolist() == [
        1,
        2,
        3,
    ]


def test_a_step_under_a_condition_of_which_a_row_cannot_be_said() -> None:
    made = applied(Conditional(Flatten(), SqlCondition("amount * 4 > 0")), ROWS)
    assert [(each.row, each.error_class) for each in made.failures] == [(2, "expression_failed")]
    assert [(row["s_n"], row["s"]) for row in made.rows.batch.to_pylist()] == [
        (1, None),
        (None, None),
        (None, {"n": 2}),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("amunt > 0", "amunt"),
        ("amount +", "wrong at column"),
        ("amount + 1", "needs a condition"),
    ],
)
def test_a_wrong_expression_is_refused_by_the_columns(text: str, says: str) -> None:
    with pytest.raises(TransformProblem, match="the expression is wrong at column") as problem:
        Rule("r", text).output(ROWS.columns)
    assert says in problem.value.message
    assert problem.value.place == ("expect",)


def test_rows_that_break_a_rule_are_refused_or_counted() -> None:
    rule = Rule("positive", "amount > 0")
    assert refused(rule, ROWS) == [(1, "rule_violated", None), (3, "rule_violated", None)]
    assert applied(rule, ROWS).failures[0].message == "needs amount > 0 (rule positive)"
    warned = applied(Rule("positive", "amount > 0", warn=True), ROWS)
    assert warned.rows.count == 4
    assert {name: rows.tolist() for name, rows in warned.warned.items()} == {"positive": [1, 3]}
    unsaid = applied(Rule("r", "amount * 4 > 0"), ROWS).failures
    assert [each.row for each in unsaid] == [1, 2, 3]
    assert "expression `amount * 4 > 0`" in unsaid[1].message


def test_a_row_without_a_value_breaks_no_rule() -> None:
    rows = applied(Extract("s"), ROWS).rows
    assert refused(Rule("r", "n > 0"), rows) == [(2, "rule_violated", None)]
