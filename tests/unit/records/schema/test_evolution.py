"""What records need of a table, judged: the same in any order, additive only, within policy, protections and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform, VoidTransform

from jobs.records.schema.compatibility import still_fits
from jobs.records.schema.evolution import Evolution, judged, protected_columns
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.records.schema.needs import (
    Coordinates,
    EvolutionPolicy,
    Need,
    RecordNeed,
)
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.schema_change import SchemaChange, changed_schema, columns_of

AUTO = EvolutionPolicy("auto", "auto", "auto")
TABLE = (
    "id string not null, n int not null, f float, d decimal(6,2), s struct<a int not null, b string>,"
    " l list<struct<x int>>, m map<string, struct<y int>>, k map<string, int>"
)


def table(text: str = TABLE) -> Schema:
    return KAFKA_COLUMNS.added_to(iceberg_schema(parse_schema(text)))


def kind(text: str) -> ice.IcebergType:
    return iceberg_schema(parse_schema(f"c {text}")).fields[0].field_type


def need(change: Any, path: str, text: str | None = None, at: int = 0) -> RecordNeed:
    return RecordNeed(change, tuple(path.split(".")), kind(text) if text else None, Coordinates("t", 0, at))


def said(found: Evolution) -> list[str]:
    return [str(each) for each in found.changes]


def refused(found: Evolution) -> dict[str, str]:
    return {".".join(each.path): each.why for each in found.refused}


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ([need("add", "x", "long")], ["add column x long"]),
        ([need("add", "s.c", "string")], ["add column s.c string"]),
        ([need("add", "l.element.z", "double")], ["add column l.element.z double"]),
        ([need("add", "m.value.z", "list<string>")], ["add column m.value.z list<string>"]),
        # A required field of a writer is an optional column: what is there has none.
        ([need("add", "x", "struct<p int not null, q list<int>>")], ["add column x struct<p int, q list<int>>"]),
        ([need("add", "x", "struct<p int>", 1), need("add", "x", "struct<q int>", 2)],
         ["add column x struct<p int, q int>"]),
        ([need("add", "x", "struct<q int>", 1), need("add", "x", "struct<p int>", 2)],
         ["add column x struct<q int, p int>"]),
        ([need("add", "x", "int", 1), need("add", "x", "long", 2)], ["add column x long"]),
        ([need("add", "x", "decimal(6,2)", 1), need("add", "x", "decimal(9,2)", 2)], ["add column x decimal(9,2)"]),
        ([need("add", "x", "list<int>", 1), need("add", "x", "list<long>", 2)], ["add column x list<long>"]),
        # The record that came first says what it is; the others are dead letters.
        ([need("add", "x", "string", 1), need("add", "x", "long", 2)], ["add column x string"]),
        ([need("add", "x", "long", 1), need("add", "x", "string", 2)], ["add column x long"]),
        ([need("add", "x", "struct<p long>", 1), need("add", "x", "string", 0)], ["add column x string"]),
        # What is there and has parts: the parts that it lacks.
        ([need("add", "s", "struct<a int, c long>")], ["add column s.c long"]),
        ([need("widen", "n", "long")], ["widen column n to long"]),
        ([need("widen", "f", "double")], ["widen column f to double"]),
        ([need("widen", "d", "decimal(8,2)"), need("widen", "d", "decimal(7,2)", 2)],
         ["widen column d to decimal(8,2)"]),
        ([need("widen", "s.a", "long")], ["widen column s.a to long"]),
        ([need("widen", "k.value", "long")], ["widen column k.value to long"]),
        ([need("relax", "n")], ["let column n be null"]),
        ([need("relax", "s.a")], ["let column s.a be null"]),
        ([need("relax", "n", at=3), need("widen", "n", "long"), need("add", "b", "int", 1), need("add", "a", "int", 1)],
         ["add column a int", "add column b int", "widen column n to long", "let column n be null"]),
    ],
)  # fmt: skip
def test_changes(needs: list[RecordNeed], expected: list[str]) -> None:
    found = judged(needs, table(), AUTO)
    assert said(found) == expected
    assert judged(reversed(needs), table(), AUTO) == found
    assert judged(needs * 2, table(), AUTO) == found


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ([("long", 1), ("double", 2)], "double"),
        ([("double", 1), ("long", 2)], "double"),
        ([("long", 1), ("decimal(12,2)", 2)], "decimal(12,2)"),
        ([("long", 1), ("decimal(38,0)", 2)], "decimal(38,0)"),
        ([("decimal(38,0)", 1), ("double", 2)], "double"),
        ([("timestamptz", 1), ("string", 2)], "string"),
        ([("date", 1), ("timestamp", 2)], "string"),
        ([("long", 1), ("string", 2)], "long"),
        ([("list<long>", 1), ("list<double>", 2)], "list<double>"),
    ],
)
def test_numbers_and_texts_of_json_join(needs: list[tuple[str, int]], expected: str) -> None:
    found = judged([need("add", "x", text, at) for text, at in needs], table(), AUTO, json=True)
    assert said(found) == [f"add column x {expected}"]


@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        (need("add", "ID", "long"), "ID", "the name differs from id only by case"),
        (need("add", "s.A", "long"), "s.A", "the name differs from s.a only by case"),
        (need("add", "_kafka_x", "long"), "_kafka_x", "names that start with _kafka are kept for frazil's own columns"),
        (RecordNeed("add", ('a"b',), ice.LongType(), Coordinates("t", 0, 0)), 'a"b', "no column can have such a name"),
        (RecordNeed("add", ("",), ice.LongType(), Coordinates("t", 0, 0)), "", "no column can have such a name"),
        (RecordNeed("add", ("s.a",), ice.IntegerType(), Coordinates("t", 0, 0)), "s.a",
         "a nested column has the same name"),
        (need("widen", "n", "string"), "n", "Iceberg does not widen int to string"),
        (need("widen", "d", "decimal(8,3)"), "d", "Iceberg does not widen decimal(6,2) to decimal(8,3)"),
        (need("widen", "s", "long"), "s", "Iceberg does not widen struct<a int not null, b string> to long"),
        (need("widen", "k.key", "long"), "k.key", "Iceberg does not widen string to long"),
    ],
)  # fmt: skip
def test_what_cannot_be(given: RecordNeed, path: str, why: str) -> None:
    found = judged([given], table(), AUTO)
    assert refused(found) == {path: why}
    assert all(each.path != given.path for each in found.changes) or "." in path


def test_of_two_new_names_that_differ_by_case_the_first_record_has_its_own() -> None:
    found = judged([need("add", "Foo", "long", 5), need("add", "foo", "string", 4)], table(), AUTO)
    assert said(found) == ["add column foo string"]
    assert refused(found) == {"Foo": "the name differs from foo only by case"}


@pytest.mark.parametrize(
    "given",
    [
        need("add", "n", "long"),
        need("add", "s", "struct<a int>"),
        need("add", "gone.x", "long"),
        need("widen", "n", "int"),
        need("widen", "gone", "long"),
        need("relax", "f"),
        need("relax", "gone"),
    ],
)
def test_what_the_table_has_by_now(given: RecordNeed) -> None:
    found = judged([given], table(), AUTO)
    assert not found.changes and not found.refused
    assert found.met or given.path == ("s",)


def test_policy_decides_for_each_kind() -> None:
    needs = [need("add", "x", "long"), need("widen", "n", "long"), need("relax", "n")]
    found = judged(needs, table(), EvolutionPolicy("propose", "fail", "ignore"))
    assert [str(each) for each in found.proposed] == ["add column x long"]
    assert [str(each) for each in found.failed] == ["widen column n to long"]
    assert not found.changes


def test_identifier_fields_stay_required() -> None:
    schema = table()
    schema = schema.model_copy(update={"identifier_field_ids": [schema.find_field("n").field_id]})
    assert refused(judged([need("relax", "n")], schema, AUTO)) == {"n": "it is an identifier field of the table"}


@pytest.mark.parametrize(
    ("transform", "stays"),
    [(IdentityTransform(), True), (TruncateTransform(10), True), (BucketTransform(4), False), (VoidTransform(), False)],
)
def test_what_partitions_are_made_of_keeps_its_type(transform: Any, stays: bool) -> None:
    schema = table()
    field = PartitionField(schema.find_field("n").field_id, 1000, transform, "n_part")
    protected = protected_columns(schema, [PartitionSpec(), PartitionSpec(field, spec_id=1)], None)
    found = judged([need("widen", "n", "long"), need("relax", "n")], schema, AUTO, protected=protected)
    assert ("n" in refused(found)) is stays
    assert said(found) == ["let column n be null"] if stays else ["widen column n to long", "let column n be null"]


def test_a_partition_of_a_time_protects_only_its_column() -> None:
    schema = table("id string, at timestamptz, n int")
    spec = PartitionSpec(PartitionField(schema.find_field("at").field_id, 1000, DayTransform(), "day"))
    assert list(protected_columns(schema, [spec], None)) == [schema.find_field("at").field_id]


@pytest.mark.parametrize(("transform", "stays"), [(IdentityTransform(), False), (TruncateTransform(10), True)])
def test_an_order_of_parts_keeps_the_column_s_type(transform: Any, stays: bool) -> None:
    schema = table()
    order = SortOrder(SortField(schema.find_field("n").field_id, transform))
    found = judged([need("widen", "n", "long")], schema, AUTO, protected=protected_columns(schema, [], order))
    assert refused(found) == ({"n": "the table is sorted by truncate[10](n)"} if stays else {})


def test_a_type_that_spark_cannot_read_is_no_column_of_a_table_that_is_maintained() -> None:
    time = RecordNeed("add", ("x",), ice.StructType(ice.NestedField(1, "t", ice.TimeType())), Coordinates("t", 0, 0))
    assert refused(judged([time], table(), AUTO)) == {"x": "maintenance reads no table with a column of the type time"}
    assert said(judged([time], table(), AUTO, maintained=False)) == ["add column x struct<t time>"]


def test_limits_take_those_that_came_first() -> None:
    needs = [need("add", f"c{n}", "long", 10 - n) for n in range(5)]
    hourly = EvolutionPolicy("auto", "auto", "auto", new_columns_per_hour=4)
    found = judged(needs, table(), hourly, added_lately=2)
    assert said(found) == ["add column c4 long", "add column c3 long"]
    assert set(refused(found).values()) == {"more than 4 columns would be added within an hour"}
    few = EvolutionPolicy("auto", "auto", "auto", columns=len(list(columns_of(table()))) + 1)
    assert said(judged(needs, table(), few)) == ["add column c4 long"]


def test_a_nested_column_counts_with_its_parts() -> None:
    one = EvolutionPolicy("auto", "auto", "auto", new_columns_per_hour=3)
    given = [need("add", "x", "struct<a long, b list<long>>", 1), need("add", "y", "long", 2)]
    found = judged(given, table(), one)
    assert said(found) == ["add column y long"]
    assert set(refused(found)) == {"x"}


def test_depth_is_counted_from_the_top() -> None:
    flat = EvolutionPolicy("auto", "auto", "auto", depth=2)
    given = [need("add", "x", "struct<a long>", 1), need("add", "x", "struct<b struct<c long>>", 1)]
    found = judged([*given, need("add", "s.c", "long"), need("add", "l.element.z", "long")], table(), flat)
    assert said(found) == ["add column s.c long", "add column x struct<a long>"]
    assert refused(found)["x.b"] == "it is nested more than 2 deep", "the field that records have and no column takes"
    assert refused(found)["l.element.z"] == "it is nested more than 2 deep"
    found = judged([need("add", "y", "list<struct<b long>>")], table(), flat)
    assert found.changes == () and refused(found) == {"y": "it is nested more than 2 deep"}


@pytest.mark.parametrize(
    ("given", "made", "left"),
    [
        ([("a", "struct<b long>", 1), ("`a.b`", "long", 2)], ["a struct<b long>"], ["a.b"]),
        ([("`a.b`", "long", 1), ("a", "struct<b long>", 2)], ["a.b long"], ["a"]),
        ([("a", "struct<`b.d` long>", 1), ("a", "struct<b struct<d long>>", 2)], [], ["a"]),
        ([("q", "list<long>", 1), ("`q.element`", "long", 2)], ["q list<long>"], ["q.element"]),
        ([("`s.a`", "long", 1), ("`s.z`", "long", 2)], ["s.z long"], ["s.a"]),
    ],
)
def test_no_two_columns_have_one_dotted_name(
    given: list[tuple[str, str, int]], made: list[str], left: list[str]
) -> None:
    needs = [RecordNeed("add", (name.strip("`"),), kind(text), Coordinates("t", 0, at)) for name, text, at in given]
    found = judged(needs, table(), AUTO)
    assert said(found) == [f"add column {each}" for each in made]
    assert sorted(refused(found)) == left
    assert changed_schema(table(), found.changes, table().highest_field_id)


def test_a_changed_schema_keeps_the_field_ids_and_puts_new_columns_before_those_of_kafka() -> None:
    before = table()
    needs = [need("add", "x", "struct<p long>"), need("add", "l.element.z", "long"), need("widen", "n", "long")]
    found = judged(needs, before, AUTO)
    after = changed_schema(before, found.changes, before.highest_field_id)
    names = [field.name for field in after.fields]
    assert names[-5:] == ["x", "_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    assert all(
        after.find_column_name(field.field_id) == before.find_column_name(field.field_id)
        for _, field in columns_of(before)
    )
    assert after.find_field("x").field_id > before.highest_field_id
    assert str(after.find_field("n").field_type) == "long"
    assert still_fits(before, after)


names = st.sampled_from(["a", "B", "b", "s", "n", "id", "x y", "_kafka_z"])
simple = st.sampled_from(["int", "long", "float", "double", "string", "decimal(6,2)", "decimal(9,2)", "timestamptz"])
types = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda name, one, other: f"struct<{name} {one}, r {other}>", st.sampled_from("pqP"), inner, inner),
        inner.map(lambda kind: f"list<{kind}>"),
        inner.map(lambda kind: f"map<string, {kind}>"),
    ),
    max_leaves=4,
)
needs_of_records = st.lists(
    st.one_of(
        st.builds(
            lambda parent, name, text, at: RecordNeed("add", (*parent, name), kind(text), Coordinates("t", at % 3, at)),
            st.sampled_from([(), ("s",), ("l", "element"), ("m", "value"), ("gone",)]),
            names,
            types,
            st.integers(0, 50),
        ),
        st.builds(
            lambda path, text, at: RecordNeed("widen", path, kind(text), Coordinates("t", 0, at)),
            st.sampled_from([("n",), ("f",), ("d",), ("s", "a"), ("k", "value"), ("k", "key"), ("id",)]),
            st.sampled_from(["long", "double", "decimal(9,2)", "string"]),
            st.integers(0, 50),
        ),
        st.builds(
            lambda path, at: RecordNeed("relax", path, None, Coordinates("t", 0, at)),
            st.sampled_from([("n",), ("id",), ("s", "a"), ("f",)]),
            st.integers(0, 50),
        ),
    ),
    max_size=8,
)
policies = st.builds(
    EvolutionPolicy, *[st.sampled_from(["auto", "propose", "ignore", "fail"])] * 3, depth=st.integers(1, 5)
)


@given(needs_of_records, policies, st.booleans(), st.randoms())
@settings(max_examples=300, deadline=None)
def test_any_needs_in_any_order_make_a_schema_that_takes_the_old_files(
    needs: list[RecordNeed], policy: EvolutionPolicy, json: bool, chance: Any
) -> None:
    before = table()
    found = judged(needs, before, policy, json=json)
    shuffled = [*needs, *needs]
    chance.shuffle(shuffled)
    assert judged(shuffled, before, policy, json=json) == found
    after = changed_schema(before, found.changes, before.highest_field_id)
    assert still_fits(before, after)
    _names_differ(after.as_struct())
    assert (after == before) is (not found.changes)
    # The table has what was asked for: nothing is asked for again.
    again = judged(needs, after, policy, json=json)
    told = {(each.change, each.path) for each in (*found.refused, *found.proposed, *found.failed)}
    left = [each for each in again.changes if (each.change, each.path) not in told]
    assert all(_below(each, found) for each in left)


def _below(change: SchemaChange, found: Evolution) -> bool:
    """Whether it adds a part to a column that came in another form first: a struct where a text was seen, too."""
    return change.change == "add" and any(
        change.path[: len(each.path)] == each.path for each in (*found.changes, *found.refused)
    )


def _names_differ(struct: ice.StructType) -> None:
    assert len({field.name.casefold() for field in struct.fields}) == len(struct.fields)
    for field in struct.fields:
        for inner in _structs(field.field_type):
            _names_differ(inner)


def _structs(kind: ice.IcebergType) -> Sequence[ice.StructType]:
    match kind:
        case ice.StructType():
            return [kind]
        case ice.ListType():
            return _structs(kind.element_type)
        case ice.MapType():
            return _structs(kind.value_type)
        case _:
            return []


def test_a_need_keeps_all_but_its_row() -> None:
    assert Need("add", ("a",), ice.LongType(), 3).at(7) == Need("add", ("a",), ice.LongType(), 7)


def test_of_many_records_the_first_says_what_a_new_column_looks_like() -> None:
    def former(*needs: tuple[int, str | None]) -> tuple[str, ...] | None:
        given = [need("add", "x", "long", at)._replace(former=(name,) if name else None) for at, name in needs]
        (made,) = judged(given, table(), AUTO).changes
        return made.former

    assert former((5, None), (3, "n"), (4, "f")) == ("n",)
    assert former((5, "n"), (3, None)) is None
    assert former((5, "gone by now")) is None
