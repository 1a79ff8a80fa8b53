"""What a promoted column is filled with is what would have landed had it been there from the start."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.maintenance.backfill.filling import (
    HAS_VALUE,
    LACKS_REQUIRED,
    Filled,
    Filling,
)
from jobs.maintenance.backfill.promotion import Promotion
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import RescuingJsonDecoder
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    StructType,
)
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.needs import Path
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from tests.helpers.json_records import kinds, primitives, records

ANCHOR = Field("anchor", parse_schema("c string").fields[0].type)


def table_schema(columns: StructType) -> Schema:
    rows = iceberg_schema(columns)
    return Schema(*rows.fields, ice.NestedField(9_999, EXTRA_COLUMN, ice.StringType(), required=False))


def landed(columns: StructType, values: list[bytes | None]) -> tuple[dict[int, Any], pa.RecordBatch]:
    """The rows by their records, and the block of them."""
    decoder = RescuingJsonDecoder(JsonReferenceDecoder(columns), columns, column=True)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    return dict(zip(decoded.positions.tolist(), decoded.rows.to_pylist(), strict=True)), decoded.rows


def promotion(columns: StructType, path: Path) -> Promotion:
    kind: DeclaredType = columns
    for name in path:
        assert isinstance(kind, StructType)
        kind = next(each.type for each in kind.fields if each.name == name)
    return Promotion(path, kind, path)


def filled(columns: StructType, path: Path, rows: pa.RecordBatch) -> Filled:
    return Filling(promotion(columns, path), table_schema(columns)).fill(rows)


def one(columns: str, path: Path, **row: Any) -> Filled:
    declared = parse_schema(columns)
    schema = pa.schema([*_arrow(declared), pa.field(EXTRA_COLUMN, pa.string())])
    names = [each for each in schema.names if each in row]
    rows = pa.RecordBatch.from_arrays(
        [pa.array([row[name]], schema.field(name).type) for name in names],
        schema=pa.schema(schema.field(n) for n in names),
    )
    return filled(declared, path, rows)


def _arrow(declared: StructType) -> pa.Schema:
    return pa.schema(
        [
            each.with_nullable(True)
            for each in JsonReferenceDecoder(declared).decode(pa.array([], pa.binary())).rows.schema
        ]
    )


@pytest.mark.parametrize(
    ("kept", "value", "rest"),
    [
        ('{"x":7,"y":1}', 7, '{"y":1}'),
        ('{"x":7}', 7, None),
        ('{"x":null,"y":1}', None, '{"y":1}'),
        ('{"y":{"x":7}}', None, '{"y":{"x":7}}'),
        (None, None, None),
    ],
)
def test_a_field_leaves_what_is_kept(kept: str | None, value: int | None, rest: str | None) -> None:
    found = one("id string, x long", ("x",), id="a", _extra=kept)
    assert found.rows.to_pylist() == [{"id": "a", EXTRA_COLUMN: rest} | ({"x": value} if found.moved else {})]
    assert found.moved == (kept != rest)
    assert found.left == []


def test_what_the_column_does_not_take_stays_as_it_is() -> None:
    found = one("x long", ("x",), _extra='{"x":"seven","y":1}')
    assert (found.moved, [(each.row, each.error_class, each.field) for each in found.left]) == (
        0,
        [(0, "wrong_type", "$.x")],
    )
    assert found.rows.to_pylist() == [{EXTRA_COLUMN: '{"x":"seven","y":1}'}]


def test_a_value_that_is_there_is_never_replaced() -> None:
    found = one("x long", ("x",), x=1, _extra='{"x":7}')
    assert [each.error_class for each in found.left] == [HAS_VALUE]
    assert found.rows.to_pylist() == [{"x": 1, EXTRA_COLUMN: '{"x":7}'}]


def test_a_field_goes_into_a_struct_that_is_there() -> None:
    found = one("o struct<a string, x long>", ("o", "x"), o={"a": "s", "x": None}, _extra='{"o":{"x":7,"z":[1.0]}}')
    assert found.rows.to_pylist() == [{"o": {"a": "s", "x": 7}, EXTRA_COLUMN: '{"o":{"z":[1.0]}}'}]


def test_a_struct_that_the_row_lacks_is_made() -> None:
    found = one("o struct<a string, x long>", ("o", "x"), o=None, _extra='{"o":{"a":"s","x":7}}')
    assert found.rows.to_pylist() == [{"o": {"a": None, "x": 7}, EXTRA_COLUMN: '{"o":{"a":"s"}}'}]
    again = one("o struct<a string, x long>", ("o", "a"), o={"a": None, "x": 7}, _extra='{"o":{"a":"s"}}')
    assert again.rows.to_pylist() == [{"o": {"a": "s", "x": 7}, EXTRA_COLUMN: None}]


def test_a_struct_that_would_lack_a_required_field_is_not_made() -> None:
    found = one("o struct<a string not null, x long>", ("o", "x"), o=None, _extra='{"o":{"x":7}}')
    assert [each.error_class for each in found.left] == [LACKS_REQUIRED]
    assert found.rows.to_pylist() == [{"o": None, EXTRA_COLUMN: '{"o":{"x":7}}'}]


inner = st.one_of(primitives, kinds)
ways = st.lists(st.sampled_from(["a", "B", "some name", "é"]), min_size=1, max_size=3).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> tuple[StructType, StructType, Path, list[bytes | None]]:
    """The columns with the promoted one and without it, its path, and records."""
    path: Path = draw(ways)
    kind: DeclaredType = draw(inner)
    without: DeclaredType | None = None
    for depth in range(len(path) - 1, -1, -1):
        beside = [Field(name, draw(primitives)) for name in ("n", "other") if depth == 0 or draw(st.booleans())]
        fields = (*beside, Field(path[depth], kind))
        kind = StructType(fields)
        without = (
            StructType((*beside, *([] if without is None else [Field(path[depth], without)])))
            if beside or without
            else None
        )
    assert isinstance(kind, StructType)
    assert isinstance(without, StructType)
    return kind, without, path, draw(st.lists(records(kind), max_size=12))


@settings(max_examples=120, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(cases())
@example(
    (
        parse_schema("n int, a map<string, map<string, int>>"),
        parse_schema("n int"),
        ("a",),
        [b'{"a":{"":{"c":1,"b":2}}}'],
    )
)
def test_filled_rows_are_what_would_have_landed(case: tuple[StructType, StructType, Path, list[bytes | None]]) -> None:
    after, before, path, values = case
    wanted, _ = landed(after, values)
    kept, rows = landed(before, values)
    if not rows.num_rows:
        return
    found = filled(after, path, rows)
    got = dict(zip(kept, found.rows.to_pylist(), strict=True))
    left = {list(kept)[each.row] for each in found.left}
    for row in kept:
        if row in wanted:
            assert repr(_whole(got[row], after)) == repr(_whole(wanted[row], after)), f"{path} {after} of {values[row]}"
            assert row not in left
        else:
            # It would have been a dead letter: it is as it landed, told or not (a name may differ by case only).
            assert repr(_whole(got[row], after)) == repr(_whole(kept[row], after))
    again = filled(after, path, found.rows)
    assert again.moved == 0


def _whole(row: dict[str, Any], columns: StructType) -> dict[str, Any]:
    """The row with every column, in the order of the columns, as a table gives it; the entries of a map by their keys.

    A map has no order: rescued data is JSON with sorted keys.
    """
    return _ordered(row, columns) | {EXTRA_COLUMN: row[EXTRA_COLUMN]}


def _ordered(value: Any, declared: DeclaredType) -> Any:
    if value is None:
        return None
    match declared:
        case StructType(fields):
            return {field.name: _ordered(value.get(field.name), field.type) for field in fields}
        case ListType():
            return [_ordered(each, declared.element) for each in value]
        case MapType():
            return sorted(((key, _ordered(each, declared.value)) for key, each in value), key=repr)
        case _:
            return value
