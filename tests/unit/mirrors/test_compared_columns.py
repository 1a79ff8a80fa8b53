"""Columns of a source and a mirror: which hold the same values, and which are named instead."""

from __future__ import annotations

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.mirrors.check.compared_columns import (
    DATE,
    TIMESTAMP,
    SourceColumn,
    compared_columns,
    kind_of,
    source_name,
)


@pytest.mark.parametrize(
    ("source", "mirror", "compared"),
    [
        (SourceColumn("smallint", "int2"), ice.IntegerType(), True),
        (SourceColumn("integer", "int4"), ice.LongType(), True),
        (SourceColumn("integer", "int4"), ice.StringType(), False),
        (SourceColumn("numeric(9,2)", "numeric", scale=2), ice.DecimalType(12, 4), True),
        (SourceColumn("numeric(9,4)", "numeric", scale=4), ice.DecimalType(12, 2), False),
        (SourceColumn("numeric", "numeric"), ice.DecimalType(38, 9), False),
        (SourceColumn("numeric", "numeric"), ice.StringType(), True),
        (SourceColumn("numeric", "numeric"), ice.DoubleType(), False),
        (SourceColumn("real", "float4"), ice.DoubleType(), True),
        (SourceColumn("double precision", "float8"), ice.FloatType(), False),
        (SourceColumn("timestamp", "timestamp"), ice.TimestamptzType(), True),
        (SourceColumn("timestamptz", "timestamptz"), ice.TimestampType(), False),
        (SourceColumn("time", "time"), ice.TimeType(), False),
        (SourceColumn("uuid", "uuid"), ice.UUIDType(), True),
        (SourceColumn("mood", "enum"), ice.StringType(), True),
        (SourceColumn("numeric(9,2)[]", "_numeric", "numeric", 2), ice.ListType(1, ice.DecimalType(9, 2)), True),
        (SourceColumn("double precision[]", "_float8", "float8"), ice.ListType(1, ice.DoubleType()), False),
        (SourceColumn("text", "text"), ice.ListType(1, ice.StringType()), False),
        (SourceColumn("hstore", "hstore"), ice.MapType(1, ice.StringType(), 2, ice.StringType()), False),
    ],
)
def test_which_types_are_compared(source: SourceColumn, mirror: ice.IcebergType, compared: bool) -> None:
    assert (kind_of(source, mirror) is not None) is compared


def test_what_is_not_compared_is_named_with_its_reason() -> None:
    mirror = Schema(
        *(ice.NestedField(n, name, ice.LongType()) for n, name in enumerate(("id", "masked", "added", "place"), 1))
    )
    source = {
        "id": SourceColumn("bigint", "int8"),
        "masked": SourceColumn("bigint", "int8"),
        "place": SourceColumn("point", "point"),
        "new": SourceColumn("text", "text"),
    }
    compared, left_out = compared_columns(source, mirror, mirror.column_names, ("masked",))
    assert [each.name for each in compared] == ["id"]
    assert dict(left_out) == {
        "masked": "excluded by the stream's file",
        "added": "the source has no such column",
        "place": "point at the source, and long in the mirror",
        "new": "the mirror has no such column",
    }


def test_keys_are_shown_as_people_read_them() -> None:
    assert DATE.shown("-1") == "1969-12-31"
    assert TIMESTAMP.shown("1000001") == "1970-01-01T00:00:01.000001"
    assert TIMESTAMP.shown("infinity") == "infinity"
    assert source_name('a"b') == '"a""b"'
