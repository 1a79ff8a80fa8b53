"""Decoding and fitting to a table, each by itself and both together."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS
from jobs.records.transforms.row_json import row_json
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import (
    UNEXPECTED,
    Pipeline,
    apply_stage,
    stream_pipeline,
)
from jobs.streaming.pipeline.stages import DecodeValue, FitToTable
from jobs.tables.write.projection import ProjectionError, UnfitValueError
from tests.unit.streaming.pipeline.blocks import (
    AT,
    TABLE,
    TellingDecoder,
    records_of,
)


def decode(*bad: bytes, problem: Exception | None = None) -> DecodeValue:
    return DecodeValue(TellingDecoder(bad, problem), b"0")


class Fitting:
    """Rows as a table holds them, but for some numbers."""

    def __init__(self, unfit: Collection[int] = (), breaking: Collection[int] = ()) -> None:
        self.unfit, self.breaking = unfit, breaking

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        found = rows.column("n").to_pylist()
        if any(n in self.unfit for n in found):
            raise UnfitValueError("out_of_range", "n", "does not fit")
        if any(n in self.breaking for n in found):
            raise pa.ArrowInvalid("a secret that the exception quotes")
        return rows


def test_decoding_tells_rows_failures_and_tombstones_by_record() -> None:
    block = decode(b"2").apply(Block.of(records_of([b"1", None, b"2", b"3"]), TABLE))
    assert block.rows.to_pylist() == [{"n": 1}, {"n": 3}]
    assert (block.positions.tolist(), block.dropped.tolist()) == ([0, 3], [1])
    assert [(failure.row, failure.stage, failure.field) for failure in block.failures] == [(2, "decode_value", "$.n")]
    assert block.unknown_fields == {"$.x": 2}


VALUES = st.lists(st.sampled_from([b"1", b"2", b"BREAK", None]), min_size=1, max_size=30)


@given(VALUES)
def test_a_decoder_that_breaks_at_some_records_decodes_the_others(values: list[bytes | None]) -> None:
    block = apply_stage(decode(b"2"), Block.of(records_of(values), TABLE))
    assert block.positions.tolist() == [row for row, value in enumerate(values) if value == b"1"]
    assert block.dropped.tolist() == [row for row, value in enumerate(values) if value is None]
    assert [(failure.row, failure.error_class) for failure in block.failures] == [
        (row, "bad" if value == b"2" else UNEXPECTED) for row, value in enumerate(values) if value in (b"2", b"BREAK")
    ]
    assert not any("secret" in failure.message for failure in block.failures)
    assert sum(block.unknown_fields.values()) == len(block.positions)


def test_a_decoder_that_decodes_nothing_is_no_records_fault() -> None:
    with pytest.raises(ImportError):
        apply_stage(decode(problem=ImportError("a package is missing")), Block.of(records_of([b"1"]), TABLE))


@pytest.mark.parametrize("kafka_columns", [False, True])
def test_rows_say_where_they_come_from(kafka_columns: bool) -> None:
    stage = FitToTable({TABLE: Fitting()}, kafka=KAFKA_COLUMNS if kafka_columns else NO_KAFKA_COLUMNS)
    block = stage.apply(decode().apply(Block.of(records_of([None, b"5", b"6"]), TABLE)))
    places = {"_kafka_topic": "payments", "_kafka_partition": 3, "_kafka_timestamp": AT}
    assert block.rows.to_pylist() == [
        {"n": n} | ({**places, "_kafka_offset": offset} if kafka_columns else {}) for n, offset in ((5, 101), (6, 102))
    ]


def test_rows_are_fitted_to_the_table_that_they_are_for() -> None:
    stage = FitToTable({TABLE: Fitting(), "other": Fitting(unfit={1})}, kafka=NO_KAFKA_COLUMNS)
    rows = pa.record_batch({"n": [1]})
    assert stage.apply(Block.of(rows, TABLE)).rows.num_rows == 1
    with pytest.raises(ValueProblem):
        stage.apply(Block.of(rows, "other"))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_of_rows_that_do_not_fit_only_those_fail(found: list[int], unfit: set[int], breaking: set[int]) -> None:
    fits = {TABLE: Fitting(unfit, breaking)}
    pipeline = Pipeline([decode(), FitToTable(fits, kafka=KAFKA_COLUMNS)], TABLE)
    block = pipeline.run(records_of([str(n).encode() for n in found]))
    kept = [row for row, n in enumerate(found) if n not in unfit | breaking]
    assert block.positions.tolist() == kept
    if kept:
        assert block.rows.column("_kafka_offset").to_pylist() == [100 + row for row in kept]
    assert [(failure.row, failure.stage, failure.error_class, failure.field) for failure in block.failures] == [
        (row, "write", *(("out_of_range", "$.n") if n in unfit else (UNEXPECTED, None)))
        for row, n in enumerate(found)
        if n in unfit | breaking
    ]


def test_a_table_that_holds_no_row_is_no_records_fault() -> None:
    def never(rows: pa.RecordBatch) -> pa.RecordBatch:
        raise ImportError("a package is missing")

    def refusing(rows: pa.RecordBatch) -> pa.RecordBatch:
        raise ProjectionError("the table has no column n")

    for fit, problem in ((never, ImportError), (refusing, ProjectionError)):
        with pytest.raises(problem):
            Pipeline([decode(), FitToTable({TABLE: fit}, kafka=NO_KAFKA_COLUMNS)], TABLE).run(records_of([b"1", b"2"]))


@pytest.mark.parametrize("reference", [False, True])
def test_the_pipeline_of_a_stream(reference: bool) -> None:
    pipeline = stream_pipeline(
        DecoderSpec("json", DeclaredSchema("n int not null"), {"unknown_fields": "ignore"}),
        TABLE,
        Fitting(unfit={7}),
        columns=RecordColumns(),
        reference=reference,
    )
    values: list[bytes | None] = [b'{"n": %d}' % (row % 10) for row in range(600)]
    values[5], values[11] = b"{", None
    block = pipeline.run(records_of(values))
    assert block.destination == TABLE
    assert [failure.row for failure in block.failures] == sorted([5, *range(7, 600, 10)])
    assert {failure.stage for failure in block.failures} == {"decode_value", "write"}
    assert block.dropped.tolist() == [11]
    assert block.rows.num_rows == 600 - 62


DAY = pa.array([2_932_896, 2_932_897, None], pa.int32()).cast(pa.date32())
MICROS = pa.array([253_402_300_799_999_999, -62_135_596_800_000_001, None]).cast(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("times", [DAY, MICROS], ids=["days", "instants"])
@pytest.mark.parametrize("path", ["$.n", "$.n.at", "$.n[]", "$.n.value"])
def test_a_row_with_a_time_beyond_the_years_of_the_calendar_fails_alone(times: pa.Array, path: str) -> None:
    one = pa.array([0, 1, 2, 3], pa.int32())
    values = {
        "$.n": times,
        "$.n.at": pa.StructArray.from_arrays([times], ["at"]),
        "$.n[]": pa.ListArray.from_arrays(one, times),
        "$.n.value": pa.MapArray.from_arrays(one, pa.array(["a", "b", "c"]), times),
    }[path]
    rows = Block.of(records_of([b"1", b"2", b"3"]), TABLE).with_rows(pa.record_batch({"n": values}))
    block = apply_stage(FitToTable({TABLE: lambda rows: rows}, kafka=NO_KAFKA_COLUMNS), rows)
    assert block.positions.tolist() == [0, 2]
    (failure,) = block.failures
    assert (failure.row, failure.stage, failure.error_class, failure.field) == (1, "write", "out_of_range", path)


def test_a_row_is_shown_with_plain_numbers_and_with_times_that_python_does_not_have() -> None:
    number = pa.array([Decimal("0E-10")], pa.decimal128(20, 10))
    row = pa.record_batch({"n": number, "at": pa.array([253_402_300_800_000_000]).cast(pa.timestamp("us"))})
    assert row_json(row, 0) == '{"n":"0.0000000000","at":"10000-01-01 00:00:00.000000"}'
