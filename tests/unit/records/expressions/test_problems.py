"""What is refused before any row is read, and where in the text; hostile expressions among it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.records.expressions.calls import call
from jobs.records.expressions.expression import compile_expression
from jobs.records.expressions.nodes import Column
from jobs.records.expressions.problem import ExpressionProblem, Mismatch
from jobs.records.expressions.sql_types import INT
from tests.helpers.expression_rows import SCHEMA


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", 1, "the expression is empty"),
        ("atx + 1", 1, "there is no column 'atx'; did you mean at?"),
        ("1 + I", 5, "there is no column 'I'; did you mean i?"),
        ("i + amont", 5, "there is no column 'amont'; there are l, i"),
        ("st.y", 1, "there is no field 'y'; there are x"),
        ("_topik", 1, "did you mean _topic?"),
        ("uper(s)", 1, "there is no function 'uper'; did you mean upper?"),
        ("nvl(s, 'x')", 1, "did you mean coalesce?"),
        ("upper(i)", 1, "needs a string, found int"),
        ("upper(s, s)", 1, "it is written as upper(text)"),
        ("coalesce()", 1, "it is written as coalesce(value, …)"),
        ("s + 1", 1, "texts are joined by ||"),
        ("s = 1", 1, "needs values of one type, found string and int"),
        ("ts = tz", 1, "say the zone of the timestamp by AT TIME ZONE"),
        ("ts - tz", 1, "use date_diff"),
        ("day + 1", 1, "use INTERVAL '1 day'"),
        ("day + interval '1 hour'", 1, "a date has no hours"),
        ("ts at time zone 'Asia/Tokio'", 1, "there is no zone 'Asia/Tokio'"),
        ("st = st", 1, "is not compared"),
        ("ls in (null)", 1, "is not compared"),
        ("case when i then 1 end", 11, "needs a condition, found int"),
        ("i and b", 1, "AND needs conditions, found int"),
        ("cast(i as strin)", 11, "did you mean string?"),
        ("cast(i as decimal(39,2))", 11, "up to 38 digits"),
        ("cast(ts as timestamptz)", 1, "AT TIME ZONE 'UTC'"),
        ("cast(day as int)", 1, "a date cannot be cast to int"),
        ("w * w", 1, "decimal(38,2) * decimal(38,2) fits no decimal of 38 digits"),
        ("1 / 0", 1, "it fails whatever the row: division by zero"),
        ("cast('x' as int)", 1, "it fails whatever the row"),
        ("date '2026-02-30'", 1, "it fails whatever the row"),
        ("1 = 1 = 1", 7, "comparisons are not chained"),
        ("i +", 4, "needs a value here, found the end"),
        ("i i", 3, "needs an operator or the end here, found 'i'"),
        ("(i", 3, "needs ')' here, found the end"),
        ("'abc", 1, "the text that starts here is never closed"),
        ("i # 1", 3, "'#' does not belong here"),
        ("regexp_like(s, '(')", 1, "no regular expression of RE2"),
        ("regexp_extract(s, '\\Qa')", 1, "it cannot be worked out of string: Invalid regular expression"),
        ("regexp_like(s, s)", 1, "that is written in the expression"),
        ("substr(s, 0)", 1, "needs the first character, from 1"),
        ("interval '1 day'", 1, "an interval is added to a date or a timestamp"),
        ("at + interval '1 dy'", 15, "'dy' is no unit"),
        ("like", 1, "a column of that name stands in quotes"),
        ("i in ()", 8, "needs at least one value here"),
        ("s like 'x\\'", 1, "ends with a backslash"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place(text: str, place: int, why: str) -> None:
    with pytest.raises(ExpressionProblem) as refused:
        compile_expression(text, SCHEMA.fields)
    assert why in refused.value.why
    assert (refused.value.line, refused.value.column) == (1, place)
    assert str(refused.value).startswith(f"the expression is wrong at column {place}: ")


def test_a_kernel_that_fails_without_a_word_is_refused() -> None:
    def kernel(_: pa.Array) -> pa.Array:
        raise OverflowError

    with pytest.raises(Mismatch) as refused:
        call(kernel, [Column("i", INT, nullable=True)], INT, "f(i)")
    assert refused.value.why == "it cannot be worked out of int"


def test_a_place_in_a_text_of_several_lines() -> None:
    with pytest.raises(ExpressionProblem) as refused:
        compile_expression("case\n  when b then i -- a comment\n  else summe\nend", SCHEMA.fields)
    assert (refused.value.line, refused.value.column) == (3, 8)


@pytest.mark.parametrize(
    "text",
    [
        "random()",
        "rand() > 0.5",
        "uuid()",
        "gen_random_uuid()",
        "read_csv('/etc/passwd')",
        "read_text('/etc/passwd')",
        "glob('/*')",
        "getenv('HOME')",
        "(select 1)",
        "select 1",
        "exists (select 1)",
        "i in (select i)",
        "with x as (select 1) select 1",
        "copy t to '/tmp/x'",
        "attach 'x.db'",
        "insert into t values (1)",
        "i; drop table t",
        "count(*)",
        "count(distinct i)",
        "sum(i) over ()",
        "information_schema.tables",
        "other.catalog.read(i)",
        "pg_sleep(10)",
        "eval('1')",
        "__import__('os')",
        "i.__class__",
        "lpad(s, 1000000000, 'x')",
        "from 'file.parquet'",
        "'/etc/passwd'.x",
        "$1",
        "?",
        "@x",
        "{{ i }}",
        "i\x00",
        "i" * 10_001,
        "(" * 5_000 + "i" + ")" * 5_000,
        "i" + " + 1" * 3_000,
        "- " * 20 + "s",
        "1" * 39,
        "cast(" * 200 + "i" + " as int)" * 200,
        "st" + ".x" * 500,
        "not " * 200 + "i",
    ],
)
def test_nothing_but_an_expression_over_one_row_is_known(text: str) -> None:
    with pytest.raises(ExpressionProblem) as refused:
        compile_expression(text, SCHEMA.fields)
    assert refused.value.why
    assert 0 <= refused.value.position <= len(text)


def test_what_is_there_of_a_record_may_be_left_out() -> None:
    for text in ("_topic", "header('x')"):
        compile_expression(text, SCHEMA.fields)
        with pytest.raises(ExpressionProblem, match=r"there is no column|there are no headers"):
            compile_expression(text, SCHEMA.fields, frame=False)
