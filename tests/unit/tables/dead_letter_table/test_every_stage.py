"""Every stage in which a record can fail: one letter, by the first stage that refuses it; the others of its block land.

A stage that is added adds its case to `CASES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import TimestampType

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DecoderSpec
from jobs.records.formats.json.format import JSON
from jobs.records.formats.record_columns import RecordColumns
from jobs.streaming.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.streaming.pipeline.row_steps import RowSteps
from jobs.streaming.pipeline.stages import (
    DecodeValue,
    Fit,
    FitToTable,
    Stage,
)
from jobs.streaming.task.ways import MakePipeline
from jobs.tables.commit.stamp.stamp_fields import Counts
from tests.helpers.tasks import TIMESTAMP, TaskWorld, records, stream_spec

SCHEMA = "id string not null, amount decimal(6,2), at timestamptz as epoch_ms, n int"
GOOD = b'{"id": "a", "amount": 1.25, "at": 1700000000000, "n": 1}'
HEADERS = (("h", bytes([0, 255])), ("h", None))


def no_change(world: TaskWorld) -> None:
    del world


def require_amount(world: TaskWorld) -> None:
    """What somebody else did to the table: a column may no longer be null."""
    with world.anchor.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("amount", required=True)


@dataclass(frozen=True)
class Case:
    """A record that one stage refuses.

    Attributes:
        stage, error_class, field: What its letter says.
        prepare: Done to the tables before.
        breaks: What raises in a stage for the record that holds the text BREAK.
    """

    value: bytes
    stage: str
    error_class: str
    field: str | None
    unknown_fields: str = "ignore"
    schema: str = SCHEMA
    table: dict[str, Any] = dataclass_field(default_factory=dict)
    prepare: Callable[[TaskWorld], None] = no_change
    breaks: str | None = None


CASES = {
    "decode: no JSON": Case(b'{"id": ', "decode_value", "malformed_json", None),
    "decode: no object": Case(b"[1]", "decode_value", "not_an_object", None),
    "decode: no UTF-8": Case(b'{"id": "\xff"}', "decode_value", "invalid_utf8", None),
    "decode: nothing": Case(b"", "decode_value", "empty_value", None),
    "type: another one": Case(b'{"id": 5}', "decode_value", "wrong_type", "$.id"),
    "type: too large": Case(b'{"id": "a", "n": 3000000000}', "decode_value", "out_of_range", "$.n"),
    "type: decimal overflow": Case(b'{"id": "a", "amount": 123456}', "decode_value", "out_of_range", "$.amount"),
    "type: decimal rounding": Case(b'{"id": "a", "amount": 1.234}', "decode_value", "precision_loss", "$.amount"),
    "type: time beyond": Case(b'{"id": "a", "at": 9223372036854775807}', "decode_value", "out_of_range", "$.at"),
    "required: absent": Case(b'{"n": 1}', "decode_value", "missing_field", "$.id"),
    "required: null": Case(b'{"id": null}', "decode_value", "null_in_required", "$.id"),
    "unknown field": Case(b'{"id": "a", "x": 1}', "decode_value", "unknown_field", "$.x", unknown_fields="fail"),
    "first failing stage wins": Case(b'{"id": 5}', "decode_value", "wrong_type", "$.id", prepare=require_amount),
    "write: required in the table only": Case(
        b'{"id": "a"}', "write", "null_in_required", "$.amount", prepare=require_amount
    ),
    "write: truncated below its decimal": Case(
        b'{"id": "a", "amount": -9999.99}',
        "write",
        "out_of_range",
        "$.amount",
        table={"partition_by": ["truncate(50, amount)"]},
    ),
    "write: truncated below its int": Case(
        b'{"id": "a", "n": -2147483648}', "write", "out_of_range", "$.n", table={"partition_by": ["truncate(10, n)"]}
    ),
    "decode: a fault of frazil's": Case(b'{"id": "BREAK"}', "decode_value", "unexpected_error", None, breaks="decode"),
    "write: a fault of frazil's": Case(b'{"id": "BREAK"}', "write", "unexpected_error", None, breaks="write"),
}


class BreakingDecoder:
    """A decoder that raises for values with the text BREAK, or always."""

    def __init__(self, spec: DecoderSpec, problem: Exception | None) -> None:
        self._decoder = JSON.block(spec)
        self._problem = problem

    def decode(self, values: pa.BinaryArray) -> Decoded:
        if self._problem is not None:
            raise self._problem
        if any(b"BREAK" in (value or b"") for value in values.to_pylist()):
            raise KeyError("a secret that the exception quotes")
        return self._decoder.decode(values)


def breaking_pipeline(breaks: str | None, problem: Exception | None = None) -> MakePipeline:
    """A stream's pipeline of which one stage raises for records with the text BREAK, or always."""

    def make(
        decoder: DecoderSpec,
        destination: str,
        fit: Fit,
        *,
        columns: RecordColumns,
        first: Sequence[Stage],
        steps: RowSteps | None,
        hide_values: bool,
    ) -> Pipeline:
        def breaking_fit(batch: pa.RecordBatch) -> pa.RecordBatch:
            if problem is not None:
                raise problem
            if "id" in batch.schema.names and "BREAK" in batch.column("id").to_pylist():
                raise pa.ArrowInvalid("a secret that the exception quotes")
            return fit(batch)

        decode = BreakingDecoder(decoder, problem) if breaks == "decode" else JSON.block(decoder)
        fits = {destination: breaking_fit if breaks == "write" else fit}
        stages = [
            *first,
            DecodeValue(decode, JSON.probe),
            FitToTable(fits, kafka=columns.kafka, hide_values=hide_values),
        ]
        return Pipeline(stages, destination)

    return make


@pytest.fixture
def world(case: Case, tmp_path: Path) -> Iterator[TaskWorld]:
    spec = stream_spec(case.schema, unknown_fields=case.unknown_fields, **case.table)
    made = TaskWorld(tmp_path, spec, breaking_pipeline(case.breaks) if case.breaks else stream_pipeline)
    case.prepare(made)
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("at", [0, 3, 6])
def test_one_letter_by_the_first_stage_that_refuses(world: TaskWorld, case: Case, at: int) -> None:
    values: list[bytes | None] = [GOOD] * 6
    values.insert(at, case.value)
    values.append(None)
    made = world.run(records(values, first=10, headers=HEADERS))
    assert made.letter_count == 1
    letter = made.letters[10 + at]
    assert (letter["stage"], letter["error_class"], letter["field"]) == (case.stage, case.error_class, case.field)
    assert (letter["key"], letter["value"]) == (f"k{10 + at}".encode(), case.value)
    assert letter["headers"] == [{"key": "h", "value": b"\x00\xff"}, {"key": "h", "value": None}]
    assert (letter["timestamp"], letter["timestamp_type"]) == (TIMESTAMP, "CreateTime")
    assert (letter["topic"], letter["partition"]) == ("payments", 0)
    assert "secret" not in letter["message"]
    assert made.offsets == [10 + i for i in range(7) if i != at]
    assert made.counts == Counts(read=8, landed=6, dead=1, tombstones=1)
    (tally,) = made.tallies
    assert tally.reasons == {case.error_class: 1}
    assert (tally.unexpected is not None) == (case.breaks is not None)


@pytest.mark.parametrize("case", [CASES["write: required in the table only"]], ids=["write"])
def test_many_that_fail_to_be_written(world: TaskWorld, case: Case) -> None:
    made = world.run(records([GOOD if i % 3 else case.value for i in range(300)]))
    assert sorted(made.letters) == [i for i in range(300) if i % 3 == 0]
    assert made.offsets == [i for i in range(300) if i % 3]


@pytest.mark.parametrize("problem", [OSError("disk away"), MemoryError()])
@pytest.mark.parametrize("breaks", ["decode", "write"])
def test_what_is_no_fault_of_a_record_fails_the_task(breaks: str, problem: Exception, tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec(SCHEMA), breaking_pipeline(breaks, problem))
    with pytest.raises(type(problem)):
        world.run(records([GOOD, b"no"]))
    world.close()


@pytest.mark.parametrize("breaks", ["decode", "write"])
def test_a_stage_that_never_works_is_no_fault_of_a_record(breaks: str, tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec(SCHEMA), breaking_pipeline(breaks, ImportError("a package is missing")))
    with pytest.raises(ImportError):
        world.run(records([GOOD, GOOD]))
    world.close()


def test_a_table_that_cannot_hold_any_row_is_no_fault_of_a_record(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec(SCHEMA))
    with world.anchor.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("at")
    with world.anchor.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("at", TimestampType())
    with pytest.raises(Exception, match="the column `at` of the rows is timestamp"):
        world.run(records([GOOD, GOOD]))
    world.close()
