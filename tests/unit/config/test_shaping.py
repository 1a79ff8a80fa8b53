"""Changes of decoded columns, and the table behind steps: it takes their rows, whatever is needed in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pyiceberg import types as ice
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.config.steps.shaping import key_fields
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import (
    changed_columns,
    evolving_schema,
    first_decoded,
    fitting_table,
    followed,
)
from jobs.records.schema.decoded_columns import (
    DecodedColumns,
    decoded_columns,
    decoded_properties,
    properties_as_decided,
)
from jobs.records.schema.evolution import Evolution, judged
from jobs.records.schema.needs import Coordinates, EvolutionPolicy, RecordNeed
from jobs.records.schema.schema_change import SchemaChange, changed_schema, columns_of
from jobs.tables.commit.schema.opening_columns import columns_operation
from jobs.tables.commit.schema.schema_operation import with_operation
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from jobs.tables.write.partitioning import partition_spec
from tests.helpers.evolving_stream import rows_of

POLICY = EvolutionPolicy("auto", "auto", "auto")
ROW = "struct<id: int not null, n: int, d: decimal(9,2), s: string, p: struct<x: int>>"
EVENTS = f"before {ROW}, after {ROW}, op string not null, source struct<db: string, ts_ms: long> not null"
UNWRAP: dict[str, Any] = {"smt": {"type": "ExtractNewRecordState", "add.fields": "op,db"}}
REWRITE: dict[str, Any] = {
    "smt": {"type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "rewrite", "add.fields": "op"}
}
CHAINS: tuple[list[Any], ...] = (
    [UNWRAP],
    [REWRITE, "flatten"],
    [UNWRAP, {"rename": {"n": "number"}}, {"compute": {"twice": "number * 2", "sum": "d + number"}}],
    [UNWRAP, {"cast": {"n": "string", "d": "decimal(38,2)"}}, {"drop": "s"}],
    [UNWRAP, {"keep": ["id", "n"]}],
    ["flatten"],
    [{"flatten": {"delimiter": "."}}, {"drop": "op"}],
    [{"extract": {"column": "after", "keep": "op"}}, {"hoist": {"into": "row", "columns": ["id", "n"]}}],
    [REWRITE, {"drop": "n", "when": {"topic": "x"}}, {"set": {"added": {"from": "topic"}}}],
)
AT = [Coordinates("t", 0, offset) for offset in range(12)]
SIDES = st.sampled_from(["before", "after"])
KINDS = st.sampled_from([ice.LongType(), ice.StringType(), ice.StructType(ice.NestedField(1, "y", ice.LongType()))])
NEEDS = st.one_of(
    st.tuples(
        st.just("add"),
        st.one_of(
            st.tuples(SIDES, st.sampled_from(["new", "N", "__op", "added", "p_x", "a.b"])),
            st.tuples(SIDES, st.just("p"), st.sampled_from(["new", "x_y"])),
            st.tuples(st.sampled_from(["new", "after_n", "id"])),
        ),
        KINDS,
    ),
    st.tuples(st.just("widen"), st.tuples(SIDES, st.sampled_from(["n", "id"])), st.just(ice.LongType())),
    st.tuples(st.just("widen"), st.tuples(SIDES, st.just("d")), st.just(ice.DecimalType(20, 2))),
    st.tuples(
        st.just("relax"),
        st.one_of(st.tuples(SIDES, st.just("id")), st.tuples(st.sampled_from(["op", "source"]))),
        st.none(),
    ),
)


def spec_of(steps: list[Any], **table: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": "avro", "schema": "registry"},
            "transform": steps,
            "table": {"name": "n.s", **table},
        }
    )


def metadata_of(spec: StreamSpec, columns: str = EVENTS) -> TableMetadata:
    rows = rows_of(columns)
    schema = spec.table_schema_of(rows)
    kept = decoded_properties({}, "s", DecodedColumns(rows), None)
    partitions = partition_spec(spec.table.partition_by, schema)
    return new_table_metadata(
        schema, partitions, UNSORTED_SORT_ORDER, "file:///nowhere", {"format-version": "2", **kept}
    )


def decided(spec: StreamSpec, metadata: TableMetadata, needs: list[RecordNeed]) -> Evolution:
    return followed(spec, judged(needs, evolving_schema(spec, metadata), POLICY, maintained=False), metadata)


def behind(spec: StreamSpec, metadata: TableMetadata) -> Schema:
    return spec.transformed(spec.record_columns.beside(evolving_schema(spec, metadata)))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(CHAINS),
    st.lists(NEEDS, max_size=6),
    st.integers(1, 6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_the_table_takes_what_the_steps_make_after_any_needs(
    steps: list[Any], needs: list[Any], parts: int, partitioned: bool, random: Any
) -> None:
    spec = spec_of(steps, **({"partition_by": ["n"]} if partitioned and steps == [UNWRAP] else {}))
    metadata = metadata_of(spec)
    assert spec.problems_with(metadata.schema(), metadata.properties) == []
    records = [RecordNeed(need[0], need[1], need[2], at) for need, at in zip(needs, AT, strict=False)]
    groups = [records[at::parts] for at in range(parts)]
    for group in groups:
        verdict = decided(spec, metadata, group)
        shuffled = random.sample(group, len(group))
        assert decided(spec, metadata, shuffled) == verdict
        before = dict(columns_of(metadata.schema()))
        if verdict.changes:
            metadata = with_operation(metadata, columns_operation(spec, metadata, verdict.changes))
        table, properties = metadata.schema(), metadata.properties
        # Nothing is dropped, renamed or narrowed, and each step still fits.
        after = dict(columns_of(table))
        assert before.keys() <= after.keys()
        assert all(after[path].field_id == before[path].field_id for path in before)
        assert spec.problems_with(table, properties) == []
        assert spec.disagreements_with(table, properties=properties) == []
        assert fitting_table(spec, metadata, spec.decoded_for(table, properties)).changes == ()
        # What was asked for is made or refused, once each.
        asked = {each.path for each in group}
        told = [each.path for each in (*verdict.changes, *verdict.refused)]
        assert all(any(path[: len(each)] == each for each in asked) for path in told)
        for each in verdict.changes:
            assert each.path in dict(columns_of(evolving_schema(spec, metadata)))
        if partitioned and steps == [UNWRAP]:
            assert table.find_field("n").field_type == ice.IntegerType()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CHAINS), st.lists(NEEDS, min_size=1, max_size=5))
def test_a_table_made_later_has_the_same_columns_but_for_those_that_may_not_be_required(
    steps: list[Any], needs: list[Any]
) -> None:
    spec = spec_of(steps)
    metadata = metadata_of(spec)
    records = [RecordNeed(need[0], need[1], need[2], at) for need, at in zip(needs, AT, strict=False)]
    verdict = decided(spec, metadata, records)
    if not verdict.changes:
        return
    metadata = with_operation(metadata, columns_operation(spec, metadata, verdict.changes))
    new = spec.table_schema_of(evolving_schema(spec, metadata))
    grown = {path: str(column.field_type) for path, column in columns_of(metadata.schema()) if _plain(column)}
    made = {path: str(column.field_type) for path, column in columns_of(new) if _plain(column)}
    assert grown.keys() >= made.keys()
    assert {path: grown[path] for path in made} == made


def _plain(column: ice.NestedField) -> bool:
    return column.field_type.is_primitive


def test_the_columns_of_the_newest_stamp_stay_until_another_one_names_others() -> None:
    first, second, third = (DecodedColumns(rows_of(text)) for text in ("a int", "a int, b int", "a int, b int, c int"))
    properties = decoded_properties({}, "s", first, None)
    properties |= decoded_properties(properties, "s", second, first.digest)
    properties |= decoded_properties(properties, "s", third, first.digest)
    assert decoded_columns(properties, "s") == third
    assert decoded_columns(properties_as_decided(properties, "s", first.digest), "s") == first
    assert properties_as_decided(properties, "s", second.digest) == properties
    properties |= decoded_properties(properties, "s", second, third.digest)
    assert decoded_columns(properties_as_decided(properties, "s", third.digest), "s") == third
    assert decoded_columns(properties, "other") is None
    # A table's own stamp and the coordinator's may name different ones.
    both = properties | decoded_properties(properties, "s", first, third.digest, second.digest)
    for each in (first, second, third):
        assert decoded_columns(properties_as_decided(both, "s", each.digest), "s") == each
    # Somebody else's change leaves what a batch may be under way by.
    properties |= decoded_properties(properties, "s", first, third.digest, under_way=True)
    for each in (first, second, third):
        assert decoded_columns(properties_as_decided(properties, "s", each.digest), "s") == each


def test_the_commit_keeps_what_the_tables_stamp_names() -> None:
    spec = spec_of([UNWRAP])
    metadata = metadata_of(spec)
    stands = decoded_columns(metadata.properties, "s")
    assert stands is not None
    stamp = Stamp("s", "batch", 1, 1, "c", {}, {}, decoded=stands.digest)
    assert Stamp.from_json(stamp.to_json()).decoded == stands.digest
    metadata = metadata.model_copy(update={"properties": {**metadata.properties, property_key("s"): stamp.to_json()}})
    needs = [RecordNeed("add", ("after", name), ice.LongType(), AT[0]) for name in ("new", "newer")]
    for need in needs:
        verdict = decided(spec, metadata, [need])
        metadata = with_operation(metadata, columns_operation(spec, metadata, verdict.changes))
    assert decoded_columns(properties_as_decided(metadata.properties, "s", stands.digest), "s") == stands
    assert evolving_schema(spec, metadata).find_field("after.newer")
    assert changed_columns(spec, metadata, ()).decoded == decoded_columns(metadata.properties, "s")


@pytest.mark.parametrize("schema", ["registry", "id string not null"])
def test_the_columns_of_a_key_are_kept_as_well(schema: str) -> None:
    key = {"format": "avro", "schema": "registry", "into": "key not null"}
    decode = {"value": "avro", "schema": schema, "key": key}
    steps = [{"rename": {"key": "k"}}, {"compute": {"a": "k.a + 1"}}]
    document = spec_of(steps).model_dump(by_alias=True, exclude_unset=True)
    spec = StreamSpec.model_validate(document | {"decode": decode})
    rows, of_key = rows_of("id string not null"), rows_of("a int not null, b string").fields
    assert spec.shapes
    decoded = first_decoded(spec, rows, of_key)
    assert key_fields(decoded) == of_key
    table, kept = spec.table_schema_of(rows, of_key), decoded_properties({}, "s", decoded, None)
    assert [each.name for each in table.fields][:2] == ["id", "k"]
    assert spec.problems_with(table, kept) == [] and spec.disagreements_with(table, properties=kept) == []
    assert spec.table_schema_of(rows, key_fields(decoded)) == table
    columns = spec.record_columns_for(table, kept)
    assert columns.key is not None and columns.key.required
    assert columns.key.rows.column_names == ["a", "b"]
    (problem,) = spec.problems_with(table)
    assert "the table has no column key, whose fields would be those of a key" in problem[1]


def test_a_key_that_is_left_to_the_table_goes_with_steps_that_add_columns_only() -> None:
    key = {"format": "avro", "schema": "table", "into": "key"}
    document = spec_of([{"drop": "id"}]).model_dump(by_alias=True, exclude_unset=True)
    decode = {"value": "avro", "schema": "registry", "key": key}
    said = r"with decode\.key\.schema 'table' it is unknown .* or write 'registry'; or"
    with pytest.raises(ValidationError, match=said):
        StreamSpec.model_validate(document | {"decode": decode})


def test_columns_that_are_to_be_optional_are_asked_of_no_record() -> None:
    spec = spec_of([UNWRAP], force_optional=True)
    decoded = first_decoded(spec, rows_of(EVENTS), None)
    assert not any(column.required for _, column in columns_of(decoded.rows))
    made = spec.table_schema_of(decoded.rows)
    assert not any(each.required for each in made.fields if not each.name.startswith("_kafka"))


ADDING_AT = Coordinates("t", 0, 3)
WIDER = {"n": ice.LongType(), "f": ice.DoubleType(), "d": ice.DecimalType(38, 2)}
COLUMNS = {"n": "int", "f": "float", "d": "decimal(9,2)", "s": "string"}
EXPRESSIONS = (
    *("n", "n + 1", "n * n", "n * f", "n / 2", "coalesce(n, 0)", "n + d", "d * 2", "d", "round(d, 1)", "f", "f + f"),
    *(
        "concat(s, '!')",
        "case when n > 1 then d else 0 end",
        "n > 1",
        "cast(n as string)",
        "cast(d as double)",
        "n % 3",
    ),
)
CHANGES = st.one_of(
    st.sampled_from([SchemaChange("widen", (name,), kind, ADDING_AT) for name, kind in WIDER.items()]),
    st.sampled_from([SchemaChange("relax", (name,), None, ADDING_AT) for name in COLUMNS]),
    st.sampled_from([SchemaChange("add", (name,), ice.StringType(), ADDING_AT) for name in ("new", "newer")]),
)


def adding_spec_of(steps: list[Any], **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": "avro", "schema": "registry"},
            "transform": steps,
            "table": {"name": "n.s", **more.pop("table", {})},
            **more,
        }
    )


def adding_metadata_of(spec: StreamSpec, columns: str) -> TableMetadata:
    schema = spec.table_schema_of(rows_of(columns))
    by = spec.table.partition_by
    partitions = partition_spec(by, schema) if by else UNPARTITIONED_PARTITION_SPEC
    return new_table_metadata(schema, partitions, UNSORTED_SORT_ORDER, "file:///nowhere", {"format-version": "2"})


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=4),
    st.lists(CHANGES, max_size=4, unique_by=lambda each: (each.change, each.path)),
    st.fixed_dictionaries({name: st.booleans() for name in COLUMNS}),
    st.booleans(),
)
def test_the_steps_fit_the_altered_table(
    texts: list[str], changes: list[SchemaChange], required: dict[str, bool], partitioned: bool
) -> None:
    steps = [{"compute": {f"x{at}": text for at, text in enumerate(texts)}}, {"compute": {"y": "x0"}}]
    spec = adding_spec_of(
        steps, table={"partition_by": ["x0"]} if partitioned and texts[0] in ("n", "n + 1", "d") else {}
    )
    declared = ", ".join(f"{name} {kind}{' not null' * required[name]}" for name, kind in COLUMNS.items())
    metadata = adding_metadata_of(spec, declared)
    assert spec.disagreements_with(metadata.schema()) == []
    found = followed(spec, Evolution(changes=tuple(changes)), metadata)
    after = changed_schema(metadata.schema(), found.changes, metadata.last_column_id)
    assert spec.problems_with(after) == [] and spec.disagreements_with(after) == []
    # Each change that was asked for is made or refused, and nothing else is changed but columns of the steps.
    asked = {(each.change, each.path) for each in changes}
    made = {(each.change, each.path) for each in found.changes}
    refused = {(each.change, each.path) for each in found.refused}
    assert asked == (made & asked) | refused and not made & refused
    assert {path[0] for _, path in made - asked} <= spec.made_columns
    assert all(each.at == ADDING_AT for each in (*found.changes, *found.refused))
    if not partitioned:
        assert not refused, found.refused


def test_a_rule_that_a_change_would_break_is_told() -> None:
    """No promotion breaks a condition of today's expressions; a table whose column is of another type does."""
    spec = adding_spec_of([{"compute": {"x": "n + 1"}}], rules=[{"name": "r", "expect": "x > m"}])
    metadata = adding_metadata_of(adding_spec_of([{"compute": {"x": "n + 1"}}]), "n int")
    change = SchemaChange("widen", ("n",), ice.LongType(), ADDING_AT)
    found = followed(spec, Evolution(changes=(change,)), metadata)
    assert found.changes == ()
    assert found.refused[0].why.startswith("a step or a rule of the stream could not be taken any more: ")


def test_an_identifier_field_stays_required() -> None:
    spec = adding_spec_of([{"compute": {"key": "concat(s, '!')"}}], table={"identifier_fields": ["key"]})
    metadata = adding_metadata_of(spec, "s string not null, n int")
    found = followed(spec, Evolution(changes=(SchemaChange("relax", ("s",), None, ADDING_AT),)), metadata)
    assert found.changes == ()
    assert found.refused[0].why == (
        "the column key, which the steps make, would be null, and it is an identifier field of the table"
    )


def test_streams_without_such_steps_are_left_as_they_are() -> None:
    change = SchemaChange("widen", ("n",), ice.LongType(), ADDING_AT)
    found = Evolution(changes=(change,))
    assert followed(adding_spec_of([]), found, adding_metadata_of(adding_spec_of([]), "n int")) is found
