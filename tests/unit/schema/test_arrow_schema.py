from __future__ import annotations

import pyarrow as pa

from jobs.schema.arrow_schema import arrow_schema
from jobs.schema.parser import parse_schema

EVERYTHING = (
    "b boolean, i int not null, l long, f float, d double, m decimal(12,2), day date, t timestamp, z timestamptz,"
    " s string, x binary, o struct<a int not null, n list<long not null>>, k map<string, struct<q date> not null>"
)


def test_the_arrow_types() -> None:
    assert arrow_schema(parse_schema(EVERYTHING)) == pa.schema(
        [
            pa.field("b", pa.bool_()),
            pa.field("i", pa.int32(), nullable=False),
            pa.field("l", pa.int64()),
            pa.field("f", pa.float32()),
            pa.field("d", pa.float64()),
            pa.field("m", pa.decimal128(12, 2)),
            pa.field("day", pa.date32()),
            pa.field("t", pa.timestamp("us")),
            pa.field("z", pa.timestamp("us", tz="UTC")),
            pa.field("s", pa.string()),
            pa.field("x", pa.binary()),
            pa.field(
                "o",
                pa.struct(
                    [
                        pa.field("a", pa.int32(), nullable=False),
                        pa.field("n", pa.list_(pa.field("element", pa.int64(), nullable=False))),
                    ]
                ),
            ),
            pa.field(
                "k",
                pa.map_(pa.string(), pa.field("value", pa.struct([pa.field("q", pa.date32())]), nullable=False)),
            ),
        ]
    )
