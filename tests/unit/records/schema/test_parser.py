"""The schema text: what it means, and where and why a wrong one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.schema.declared import (
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError

STRING = Primitive("string")


def test_names_types_and_not_null_in_order() -> None:
    declared = parse_schema(
        "id string not null, amount decimal(12,2),\n  Ok BOOLEAN NOT NULL, n bigint, at timestamptz"
    )
    assert declared == StructType(
        (
            Field("id", STRING, True),
            Field("amount", Primitive("decimal", 12, 2, "number"), False),
            Field("Ok", Primitive("boolean"), True),
            Field("n", Primitive("long"), False),
            Field("at", Primitive("timestamptz", encoding="iso"), False),
        )
    )


def test_nested_types_and_their_aliases() -> None:
    declared = parse_schema("o struct<a: int, b string not null>, l array<list<int not null>>, m map<string, date>")
    assert [field.type for field in declared.fields] == [
        StructType((Field("a", Primitive("int")), Field("b", STRING, True))),
        ListType(ListType(Primitive("int"), True), False),
        MapType(STRING, Primitive("date", encoding="iso"), False),
    ]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("timestamp", "iso"),
        ("timestamptz as epoch_s", "epoch_s"),
        ("timestamp AS epoch_ms", "epoch_ms"),
        ("timestamp as epoch_us", "epoch_us"),
        ("timestamp as epoch_ns", "epoch_ns"),
        ("date", "iso"),
        ("date as epoch_days", "epoch_days"),
        ("decimal(1,0)", "number"),
        ("decimal(38,38) as text", "text"),
        ("binary", "base64"),
        ("binary as hex", "hex"),
        ("string", None),
        ("uuid", None),
        ("date as 'dd.MM.yyyy'", "pattern"),
        ('timestamptz as ISO IN "Asia/Tokyo"', "pattern"),
        ("timestamptz as iso", "iso"),
        ("int as number", "number"),
        ("long as TEXT", "text"),
        ("double as text", "text"),
        ("json", "canonical"),
        ("json as sent", "sent"),
        ("time", "iso"),
        ("time as millis_of_day", "millis_of_day"),
        ("time AS MICROS_OF_DAY", "micros_of_day"),
        ("fixed(16)", "base64"),
        ("fixed(1) as hex", "hex"),
    ],
)
def test_how_json_carries_a_type(text: str, encoding: str | None) -> None:
    (field,) = parse_schema(f"v {text} not null").fields
    assert isinstance(field.type, Primitive) and field.type.encoding == encoding and field.required


def test_names_in_backticks() -> None:
    declared = parse_schema("`order id` int, `a``b` int, `not` int, `struct` struct<`_kafka` int>, as int")
    assert [field.name for field in declared.fields][:5] == ["order id", "a`b", "not", "struct", "as"]


WRONG = [
    ("", 0, "", "declares no column"),
    ("id", 2, "", "a type is expected, but the end of the text"),
    ("id strin", 3, "strin", "did you mean 'string'?"),
    ("id varchar", 3, "varchar", "did you mean 'string'?"),
    ("id blub", 3, "blub", "the types are boolean, int"),
    ("a int,", 6, "", "a column name is expected"),
    ("1a int", 0, "1a", "a column name is expected"),
    ("`` int", 0, "``", "a column name is expected"),
    ('`a"b` int', 0, '`a"b`', "quotation mark"),
    ("`a\nb` int", 0, "`a\nb`", "control character"),
    ("a int, a int", 7, "a", "declared twice"),
    ("a int, A int", 7, "A", "differs from 'a' only by case"),
    ("o struct<x int, X int>", 16, "X", "only by case"),
    ("`o.x` int, o struct<x int>", 0, "`o.x`", "two columns have the path 'o.x'"),
    ("a int b int", 6, "b", "a comma or the end is expected"),
    ("a struct<>", 9, ">", "a column name is expected"),
    ("a struct", 8, "", "'<' is expected after struct"),
    ("a list<int", 10, "", "'>' is expected"),
    ("a map<int, int>", 6, "int", "a map's key cannot be 'int'"),
    ("a map<string>", 12, ">", "',' is expected"),
    ("a decimal", 9, "", "as in decimal(12,2)"),
    ("a decimal(39,2)", 10, "39", "from 1 to 38"),
    ("a decimal(2,3)", 12, "3", "from 0 to 2"),
    ("a decimal(x,3)", 10, "x", "from 1 to 38"),
    ("a fixed", 7, "", "as in fixed(16)"),
    ("a fixed(0)", 8, "0", "the length of fixed is a number from 1 to"),
    ("a guid", 2, "guid", "did you mean 'uuid'?"),
    ("a variant", 2, "variant", "format version 3 only"),
    ("a timestamp_ns", 2, "timestamp_ns", "format version 3 only"),
    ("a uuid as text", 10, "text", "in one way only"),
    ("a time as epoch_ms", 10, "epoch_ms", "the ways are iso, millis_of_day, micros_of_day, nanos_of_day"),
    ("_kafka_offset long", 0, "_kafka_offset", "starts with _kafka"),
    ("a date as 'YYYY-MM-dd'", 10, "'YYYY-MM-dd'", "'YYYY' is no letter of a pattern; did you mean yyyy?"),
    ("a timestamp as 'yyyy-MM-ddTHH'", 15, "'yyyy-MM-ddTHH'", "'T' is no letter of a pattern; known are yyyy"),
    ("a date as 'yy-MM-dd'", 10, "'yy-MM-dd'", "'yy' is not known; write yyyy"),
    ("a date as 'MM.dd'", 10, "'MM.dd'", "has no year (yyyy)"),
    ("a date as 'yyyy-MM-dd HH'", 10, "'yyyy-MM-dd HH'", "has a time, which a date has not"),
    ("a date as 'yyyyMd'", 10, "'yyyyMd'", "'M' before another number does not say where it ends; write MM"),
    ("a date as 'yyyy-MM-dd-yyyy'", 10, "'yyyy-MM-dd-yyyy'", "repeats a part of"),
    ("a time as 'hh:mm'", 10, "'hh:mm'", "needs h and a together"),
    ("a time as 'HH:ss'", 10, "'HH:ss'", "has s without m"),
    ("a time as 'yyyy HH'", 10, "'yyyy HH'", "has a date, which a time has not"),
    ("a timestamp as 'yyyy-MM-ddXXX'", 15, "'yyyy-MM-ddXXX'", "declare it as timestamptz"),
    ("a timestamptz as 'yyyy-MM-dd'", 14, "as", "does not say the zone; write XXX, or 'in'"),
    ("a timestamptz as iso in Asia/Tokio", 24, "Asia/Tokio", "did you mean Asia/Tokyo?"),
    ("a timestamptz as 'yyyy-MM-ddXXX' in UTC", 36, "UTC", "every text has its zone"),
    ("a timestamp as iso in UTC", 22, "UTC", "a timestamp has no zone"),
    ("a date as 'yyyy-MM-dd' or 17", 26, "17", "a pattern such as 'yyyy-MM-dd', or iso, is expected"),
    ("a timestamptz as iso in", 23, "", "a time zone such as Asia/Tokyo is expected"),
    ("a date as 'yyyy-MM-dd", 10, "'", "the pattern that starts here is never closed"),
    ("a string as iso", 12, "iso", "in one way only"),
    ("a int as iso", 9, "iso", "the ways are number, text"),
    ("a map<json, int>", 6, "json", "a map's key cannot be 'json'"),
    ("a date as epoch_s", 10, "epoch_s", "the ways are iso, epoch_days"),
    ("a int not nul", 10, "nul", "'not' is followed by 'null'"),
    ("a date not null as iso", 16, "as", "'as' comes before 'not null'"),
    ("a int\n, b ;", 10, ";", "line 2, column 5"),
    ("a int, `b", 7, "`", "never closed"),
    ("a " + "list<" * 40 + "int" + ">" * 40, 2 + 5 * 32, "list", "nested more than 32 deep"),
]


@pytest.mark.parametrize(("text", "position", "word", "said"), WRONG)
def test_a_wrong_text_is_refused_at_its_place(text: str, position: int, word: str, said: str) -> None:
    with pytest.raises(SchemaTextError) as caught:
        parse_schema(text)
    assert (caught.value.position, caught.value.word) == (position, word)
    assert said in str(caught.value)


MANY = [
    ("id strin, n int, at tmestamp", ["strin", "tmestamp"]),
    ("a decimal(39,2), b int not nul, c struct<x strin, y int, z blub>, d list<", ["39", "nul", "strin", "blub", ""]),
    ("a int b int, c strin", ["b", "strin"]),
    ("a struct<x int, y strin>, a int, A strin", ["strin", "a", "A"]),
    ("1a int, ok int, _kafka_x int, ok2 date as nothing", ["1a", "_kafka_x", "nothing"]),
    ("a map<int, strin>, b list<strin>", ["int", "strin"]),
    ("a strin>, b int, c strin", ["strin", "strin"]),
    ("a struct<x strin, b blub", ["strin", "blub", ""]),
]


@pytest.mark.parametrize(("text", "wrong"), MANY)
def test_all_that_is_wrong_is_told_at_once(text: str, wrong: list[str]) -> None:
    with pytest.raises(SchemaTextError) as caught:
        parse_schema(text)
    told = [caught.value, *caught.value.further]
    assert [each.word for each in told] == wrong
    assert [each.position for each in told] == sorted(each.position for each in told)
    for each in told:
        assert text[each.position :].startswith(each.word)


@given(st.lists(st.sampled_from(["a", "int", "strin", "struct", "list", "<", ">", "(", ")", ",", "12", "not", "null"])))
def test_any_text_ends_with_a_schema_or_with_problems_in_order(found: list[str]) -> None:
    try:
        parse_schema(" ".join(found))
    except SchemaTextError as error:
        places = [error.position, *(each.position for each in error.further)]
        assert places == sorted(places)
        assert len(places) <= len(found) + 1


def test_a_schema_is_written_as_it_is_read() -> None:
    text = (
        "id string not null, `a b` list<struct<x decimal(3,1) as text, y map<string, timestamp as epoch_ns not null>>>,"
        " u uuid, t time as millis_of_day, f fixed(3) not null, g fixed(20) as hex, n int as number, j json as sent,"
        " p timestamptz as 'yyyy/MM/dd HH:mm:ss' or 'yyyy-MM-dd''T''HH:mmXXX' or iso in Asia/Tokyo not null,"
        " q list<date as 'dd.MM.yyyy' not null>, z timestamptz as iso in Etc/GMT+9"
    )
    assert parse_schema(text).text == text
