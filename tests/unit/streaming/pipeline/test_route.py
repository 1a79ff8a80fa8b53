"""Route stage behind a stream's own steps: by column, topic as steps left it, header and expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.config.values.table_columns import TableColumns
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.frame import HEADERS
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import fetched_parts, stream_pipeline
from jobs.streaming.pipeline.route import Destinations, Narrowing
from jobs.streaming.pipeline.row_steps import row_steps_of
from jobs.tables.write.projection import UnfitValueError
from tests.unit.streaming.pipeline.blocks import records_of

VALUES: list[bytes | None] = [
    b'{"id": "a", "n": 1, "region": "eu"}',
    b'{"id": "b", "n": 2, "region": "us"}',
    b'{"id": "c", "n": 0, "region": null}',
    None,
    b'{"id": "e", "n": 4, "region": "eu"}',
]
TABLES = [{"match": "orders_eu|eu", "table": "ev.eu"}, {"match": "us|orders_us|big", "table": "ev.us"}]


def stream(route: dict[str, Any], **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "events",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string not null, n int, region string"},
            "table": {"name": "ev.own"},
            "route": {"tables": TABLES, **route},
            **more,
        }
    )


def refusing(*ids: str) -> Any:
    def fit(rows: pa.RecordBatch) -> pa.RecordBatch:
        if set(ids) & set(rows.column("id").to_pylist()):
            raise UnfitValueError("out_of_range", "n", "needs less, found 'secret'")
        return rows

    return fit


def run(spec: StreamSpec, headers: list[Any] | None = None, fits: Mapping[str, Any] | None = None) -> Block:
    steps = row_steps_of(spec)
    records = records_of(VALUES)
    if "headers" in fetched_parts(spec.resolved.decoder, spec.record_columns, steps):
        records = records.append_column("headers", pa.array(headers or [[]] * len(VALUES), HEADERS))
    route = spec.route
    assert route is not None
    pipeline = stream_pipeline(
        spec.resolved.decoder,
        spec.table.name,
        lambda rows: rows,
        columns=spec.record_columns,
        steps=steps,
        routed=(
            Destinations(spec.table.name, route),
            {name: lambda rows: rows for name in spec.target_names} | dict(fits or {}),
            None,
        ),
        hide_values=spec.errors.mask != NO_MASK,
    )
    return pipeline.run(records)


def placed(block: Block) -> dict[str, list[int]]:
    """The records of each table; those that failed, were dropped or are filtered beside them."""
    found = {name: rows.positions.tolist() for name, rows in block.routed.items()}
    for name, rows in block.routed.items():
        assert [each["_kafka_offset"] - 100 for each in rows.rows.to_pylist()] == found[name]
    found |= {"failed": [each.row for each in block.failures]} if block.failures else {}
    found |= {"filtered": block.filtered.tolist()} if len(block.filtered) else {}
    every = sorted({row for name, rows in found.items() for row in rows} | set(block.dropped.tolist()))
    assert every == list(range(len(VALUES))) and block.dropped.tolist() == [3]
    assert sorted(block.positions.tolist()) == sorted({row for each in block.routed.values() for row in each.positions})
    return found


@pytest.mark.parametrize(
    "step",
    [
        {"smt": {"type": "RegexRouter", "regex": "pay.*", "replacement": "orders_eu"}},
        {"smt": {"type": "TimestampRouter", "topic.format": "orders_eu"}},
        {
            "smt": {
                "type": "io.debezium.transforms.ByLogicalTableRouter",
                "topic.regex": "pay(.*)",
                "topic.replacement": "orders_eu",
            }
        },
    ],
)
def test_a_route_by_topic_sees_the_topic_that_a_router_gave(step: dict[str, Any]) -> None:
    block = run(stream({"by": "topic"}, transform=[step]))
    assert placed(block) == {"ev.eu": [0, 1, 2, 4]}
    assert set(block.routed["ev.eu"].rows.column("_kafka_topic").to_pylist()) == {"payments"}, "where it came from"
    assert placed(run(stream({"by": "topic"}))) == {"failed": [0, 1, 2, 4]}


def test_a_router_under_a_condition_is_seen_row_by_row() -> None:
    step = {
        "smt": {"type": "RegexRouter", "regex": ".*", "replacement": "us"},
        "when": {"sql": "region = 'us'"},
    }
    assert placed(run(stream({"by": "topic"}, transform=[step]))) == {"ev.us": [1], "failed": [0, 2, 4]}


def test_a_route_by_an_expression_of_the_row_behind_its_steps() -> None:
    by = "case when amount > 3 then 'big' when region = 'eu' then 'orders_eu' else 'orders_us' end"
    block = run(stream({"by": by}, transform=[{"rename": {"n": "amount"}}]))
    assert placed(block) == {"ev.eu": [0], "ev.us": [1, 2, 4]}
    assert placed(run(stream({"by": "sql: region"}))) == {"ev.eu": [0, 4], "ev.us": [1], "failed": [2]}
    assert placed(run(stream({"by": "'orders_' || lower(region)"}))) == {
        "ev.eu": [0, 4],
        "ev.us": [1],
        "failed": [2],
    }
    tables = [{"match": ["100", "104"], "table": "ev.eu"}, {"match": ".*", "table": "ev.us"}]
    by_offset = run(stream({"by": "sql: _offset", "tables": tables}))
    assert placed(by_offset) == {"ev.eu": [0, 4], "ev.us": [0, 1, 2, 4]}


@pytest.mark.parametrize("unmatched", ["dead_letter", "drop", "fail", {"table": "ev.own"}])
def test_a_row_for_which_the_expression_fails_is_a_letter_whatever_is_unmatched(unmatched: Any) -> None:
    block = run(stream({"by": "case when 4 / n > 2 then 'eu' else 'us' end", "unmatched": unmatched}))
    assert placed(block) == {"ev.eu": [0], "ev.us": [1, 4], "failed": [2]}
    (bad,) = block.failures
    assert (bad.stage, bad.error_class, bad.before) == ("route", "expression_failed", '{"id":"c","n":0,"region":null}')
    assert "case when 4 / n > 2" in bad.message


def test_a_route_by_a_header_takes_the_last_of_that_name() -> None:
    def header(*values: bytes | None) -> list[dict[str, Any]]:
        return [{"key": "it's", "value": each} for each in values] + [{"key": "x", "value": b"eu"}]

    headers = [header(b"us", b"eu"), header(b"us"), header(), header(), header(b"\xff")]
    spec = stream({"by": "header:it's"})
    assert spec.route is not None and spec.route.asks == {"headers"}
    block = run(spec, headers)
    assert placed(block) == {"ev.eu": [0], "ev.us": [1], "failed": [2, 4]}
    assert [each.error_class for each in block.failures] == ["unrouted", "expression_failed"]


def test_what_no_table_takes_is_dropped_and_counted_as_filtered() -> None:
    block = run(stream({"by": "region", "unmatched": "drop"}))
    assert placed(block) == {"ev.eu": [0, 4], "ev.us": [1], "filtered": [2]}
    assert placed(run(stream({"by": "topic", "unmatched": "drop"}))) == {"filtered": [0, 1, 2, 4]}


@pytest.mark.parametrize("unmatched", ["drop", "dead_letter"])
def test_a_row_that_a_table_refuses_fails_alone_and_its_letter_keeps_the_row(unmatched: str) -> None:
    block = run(stream({"by": "region", "unmatched": unmatched}), fits={"ev.eu": refusing("e")})
    last = {"filtered": [2], "failed": [4]} if unmatched == "drop" else {"failed": [2, 4]}
    assert placed(block) == {"ev.eu": [0], "ev.us": [1], **last}
    bad = block.failures[-1]
    assert (bad.stage, bad.error_class, bad.field) == ("write", "out_of_range", "$.n")
    assert bad.before == '{"id":"e","n":4,"region":"eu"}' and "'secret'" in bad.message


def test_letters_of_a_stream_that_masks_tell_no_value() -> None:
    mask = {"dead_letters": {"mask": {"columns": ["region"]}}}
    spec = stream({"by": "place"}, transform=[{"rename": {"region": "place"}}], errors=mask)
    spec = spec.model_copy(update={"route": spec.route.model_copy(update={"tables": spec.route.tables[1:]})})  # pyright: ignore[reportOptionalMemberAccess]
    block = run(spec, fits={"ev.us": refusing("b")})
    told = {each.row: (each.stage, each.message, each.before) for each in block.failures}
    kinds = '{"id":"(str)","n":"(int)","place":"(str)"}'
    assert told[0] == ("route", "needs a value that a table of the route takes", kinds)
    assert told[1] == ("write", "needs less", kinds)
    by = "case when place = 'us' then cast(place as int) else 1 end"
    failed = run(spec.model_copy(update={"route": spec.route.model_copy(update={"by": by})})).failures  # pyright: ignore[reportOptionalMemberAccess]
    assert all("us" not in each.message.replace(by, "") for each in failed if each.error_class == "expression_failed")


def test_a_stream_with_one_table_keeps_the_row_of_a_letter_too() -> None:
    spec = StreamSpec.model_validate(
        {
            "stream": "events",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string not null, n int"},
            "table": {"name": "ev.own"},
        }
    )

    def letters(*hidden: bool) -> list[tuple[int, str, str | None, str]]:
        more: Any = {"hide_values": hidden[0]} if hidden else {}
        pipeline = stream_pipeline(spec.resolved.decoder, "ev.own", refusing("b"), columns=spec.record_columns, **more)
        return [(each.row, each.stage, each.before, each.message) for each in pipeline.run(records_of(VALUES)).failures]

    assert letters(False) == [(1, "write", '{"id":"b","n":2}', "needs less, found 'secret'")]
    assert letters() == [(1, "write", '{"id":"(str)","n":"(int)"}', "needs less")], "unless it is said, nothing is told"


def test_each_table_is_given_the_columns_that_it_has_and_the_letter_keeps_all() -> None:
    tables = [
        {"match": "eu|us", "table": "ev.ids", "columns": ["id"]},
        {"match": "eu", "table": "ev.rest", "columns": {"drop": ["id"]}},
        {"match": "us", "table": "ev.all"},
    ]
    spec = stream({"by": "region", "tables": tables})

    def refusing_numbers(rows: pa.RecordBatch) -> pa.RecordBatch:
        if 4 in rows.column("n").to_pylist():
            raise UnfitValueError("out_of_range", "n", "needs less")
        return rows

    block = run(spec, fits={"ev.rest": refusing_numbers})
    assert placed(block) == {"ev.ids": [0, 1], "ev.rest": [0], "ev.all": [1], "failed": [2, 4]}, "in all or in none"
    kafka = ["_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp"]
    names = {name: rows.rows.schema.names for name, rows in block.routed.items()}
    assert names == {
        "ev.ids": ["id", *kafka],
        "ev.rest": ["n", "region", *kafka],
        "ev.all": ["id", "n", "region", *kafka],
    }
    assert block.failures[-1].before == '{"id":"e","n":4,"region":"eu"}'


COLUMNS = Columns.of(
    iceberg_schema(
        parse_schema(
            "id int, s struct<a: int, b: string, t: struct<a: int, c: int>>, l list<struct<a: int, b: int>>, n int"
        )
    )
)
SMALL = st.none() | st.integers(0, 9)
STRUCT = st.none() | st.fixed_dictionaries(
    {"a": SMALL, "b": st.none() | st.text(max_size=2), "t": st.none() | st.fixed_dictionaries({"a": SMALL, "c": SMALL})}
)
LIST = st.none() | st.lists(st.none() | st.fixed_dictionaries({"a": SMALL, "b": SMALL}), max_size=3)
ROW = st.fixed_dictionaries({"id": SMALL, "s": STRUCT, "l": LIST, "n": SMALL, "_kafka_offset": SMALL})
CHOICES = [
    (["id"], {"id": None}),
    (["s.a", "n"], {"s": {"a": None}, "n": None}),
    (["s.t.c", "l.b"], {"s": {"t": {"c": None}}, "l": {"b": None}}),
    ({"drop": ["**.a"]}, {"id": None, "s": {"b": None, "t": {"c": None}}, "l": {"b": None}, "n": None}),
    ({"drop": ["l", "s.t"]}, {"id": None, "s": {"a": None, "b": None}, "n": None}),
    (["*"], {"id": None, "s": None, "l": None, "n": None}),
]


def narrowed(value: Any, shape: Any) -> Any:
    if value is None or shape is None:
        return value
    if isinstance(value, list):
        return [narrowed(each, shape) for each in value]
    return {name: narrowed(value[name], inner) for name, inner in shape.items()}


@pytest.mark.parametrize(("columns", "shape"), CHOICES)
@given(rows=st.lists(ROW, max_size=8), cut=st.integers(0, 3))
def test_rows_keep_what_is_chosen_as_it_is(columns: Any, shape: Any, rows: list[Any], cut: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=COLUMNS.arrow.append(pa.field("_kafka_offset", pa.int64())))
    batch, rows = batch.slice(cut), rows[cut:]
    chosen = TableColumns.model_validate({"keep": columns} if isinstance(columns, list) else columns)
    found = Narrowing(COLUMNS, chosen.of(COLUMNS)).apply(batch)
    found.validate(full=True)
    assert found.to_pylist() == [narrowed(each, shape | {"_kafka_offset": None}) for each in rows]
