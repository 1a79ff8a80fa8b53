"""What follows of a change of the columns for those that steps add: whatever is made, the steps fit the table still."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.schema.evolution import Evolution
from jobs.schema.needs import Coordinates
from jobs.schema.schema_change import SchemaChange, changed_schema
from jobs.spec.models import StreamSpec
from jobs.spec.transform.shaping import followed
from jobs.write.partitioning import partition_spec
from tests.helpers.evolving_stream import rows_of

AT = Coordinates("t", 0, 3)
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
    st.sampled_from([SchemaChange("widen", (name,), kind, AT) for name, kind in WIDER.items()]),
    st.sampled_from([SchemaChange("relax", (name,), None, AT) for name in COLUMNS]),
    st.sampled_from([SchemaChange("add", (name,), ice.StringType(), AT) for name in ("new", "newer")]),
)


def spec_of(steps: list[Any], **more: Any) -> StreamSpec:
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


def metadata_of(spec: StreamSpec, columns: str) -> TableMetadata:
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
    spec = spec_of(steps, table={"partition_by": ["x0"]} if partitioned and texts[0] in ("n", "n + 1", "d") else {})
    declared = ", ".join(f"{name} {kind}{' not null' * required[name]}" for name, kind in COLUMNS.items())
    metadata = metadata_of(spec, declared)
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
    assert all(each.at == AT for each in (*found.changes, *found.refused))
    if not partitioned:
        assert not refused, found.refused


def test_a_rule_that_a_change_would_break_is_told() -> None:
    """No promotion breaks a condition of today's expressions; a table whose column is of another type does."""
    spec = spec_of([{"compute": {"x": "n + 1"}}], rules=[{"name": "r", "expect": "x > m"}])
    metadata = metadata_of(spec_of([{"compute": {"x": "n + 1"}}]), "n int")
    change = SchemaChange("widen", ("n",), ice.LongType(), AT)
    found = followed(spec, Evolution(changes=(change,)), metadata)
    assert found.changes == ()
    assert found.refused[0].why.startswith("a step or a rule of the stream could not be taken any more: ")


def test_an_identifier_field_stays_required() -> None:
    spec = spec_of([{"compute": {"key": "concat(s, '!')"}}], table={"identifier_fields": ["key"]})
    metadata = metadata_of(spec, "s string not null, n int")
    found = followed(spec, Evolution(changes=(SchemaChange("relax", ("s",), None, AT),)), metadata)
    assert found.changes == ()
    assert found.refused[0].why == (
        "the column key, which the steps make, would be null, and it is an identifier field of the table"
    )


def test_streams_without_such_steps_are_left_as_they_are() -> None:
    change = SchemaChange("widen", ("n",), ice.LongType(), AT)
    found = Evolution(changes=(change,))
    assert followed(spec_of([]), found, metadata_of(spec_of([]), "n int")) is found
