from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.record_parts import ToKey
from jobs.records.transforms.transform import (
    Applied,
    Chain,
    Rows,
    Transform,
)
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import apply_stage, fetched_parts, stream_pipeline
from jobs.streaming.pipeline.row_steps import (
    RefuseDropped,
    RowSteps,
    TakeStep,
    prepare_steps,
    row_steps_of,
)
from tests.unit.records.transforms.rows import columns_of
from tests.unit.streaming.pipeline.blocks import TABLE, records_of


def stream(steps: list[Any], **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string not null, n string, s struct<x int>"},
            "transform": steps,
            "table": {"name": TABLE},
            **more,
        }
    )


VALUES = [
    b'{"id": "a", "n": "1", "s": {"x": 1}}',
    b'{"id": "b", "n": "x"}',
    None,
    b"no json",
    b'{"id": "e", "n": "5", "s": null}',
    b'{"id": "f", "n": "6", "s": {"x": 6}}',
]


def run(spec: StreamSpec, values: list[bytes | None] = VALUES, **changes: Any) -> Block:
    steps = row_steps_of(spec)
    assert steps is not None
    if changes:
        steps = RowSteps(**{**{name: getattr(steps, name) for name in RowSteps.__dataclass_fields__}, **changes})
    pipeline = stream_pipeline(
        spec.resolved.decoder, TABLE, lambda rows: rows, columns=spec.record_columns, steps=steps
    )
    records = records_of(values)
    if "headers" in fetched_parts(spec.resolved.decoder, spec.record_columns, steps):
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        records = records.append_column("headers", pa.array([[]] * len(values), kind))
    return pipeline.run(records)


def accounted(block: Block) -> list[str]:
    """What became of each record, in their order."""
    found = {int(row): "landed" for row in block.positions}
    found |= {each.row: f"{each.stage} {each.error_class}" for each in block.failures}
    found |= {int(row): "tombstone" for row in block.dropped} | {int(row): "filtered" for row in block.filtered}
    assert len(found) == len(block.positions) + len(block.failures) + len(block.dropped) + len(block.filtered)
    return [found[row] for row in range(block.records.num_rows)]


def test_each_record_has_one_fate_and_a_letter_remembers_the_row() -> None:
    spec = stream(
        [{"cast": {"n": "long"}}, {"where": "n < 6"}, {"extract": {"column": "s", "keep": ["id"]}}],
        rules=[{"name": "one", "expect": "x = 2"}, {"name": "w", "expect": "x = 3", "severity": "warn"}],
    )
    block = run(spec)
    assert accounted(block) == [
        "rules[0].one rule_violated", "transform[0].cast wrong_type", "tombstone", "decode_value malformed_json",
        "tombstone", "filtered",
    ]  # fmt: skip
    assert {each.row: each.before for each in block.failures} == {
        0: '{"id":"a","x":1}',
        1: '{"id":"b","n":"x","s":null}',
        3: None,
    }
    warned = run(stream([], rules=[{"name": "w", "expect": "n = '1'", "severity": "warn"}]))
    assert {name: rows.tolist() for name, rows in warned.warned.items()} == {"w": [1, 4, 5]}
    assert accounted(warned)[1] == "landed"


def test_a_stream_that_masks_keeps_kinds_only() -> None:
    mask = {"dead_letters": {"mask": {"columns": ["n"]}}}
    spec = stream([{"rename": {"n": "m"}}, {"cast": {"m": "long"}}], errors=mask)
    (bad,) = [each for each in run(spec).failures if each.stage.startswith("transform")]
    assert bad.before == '{"id":"(str)","m":"(str)","s":null}'
    assert "x" not in bad.message.replace("text", "")


def test_what_a_step_drops_of_a_dead_letter_has_failed() -> None:
    steps: list[Any] = [{"where": "n <> '6'"}, {"extract": "s"}]
    assert accounted(run(stream(steps))) == [
        "landed", "tombstone", "tombstone", "decode_value malformed_json", "tombstone", "filtered",
    ]  # fmt: skip
    again = accounted(run(stream(steps), refuse_dropped=True))
    assert again == [
        "landed", "transform[1].extract filtered", "tombstone", "decode_value malformed_json",
        "transform[1].extract filtered", "transform[0].filter filtered",
    ]  # fmt: skip


def test_the_columns_of_kafka_are_the_records_but_key_and_headers_may_be_made() -> None:
    spec = stream(
        [{"to_headers": {"id": "id"}}, {"set": {"t": {"from": "topic"}}}],
        table={"name": TABLE, "kafka_columns": {"headers": True, "topic": True}},
    )
    rows = run(spec, VALUES[:1]).rows.to_pylist()
    assert rows[0]["_kafka_headers"] == [{"key": "id", "value": b"a"}]
    assert (rows[0]["t"], rows[0]["_kafka_topic"]) == ("payments", "payments")


class Fragile(Transform):
    """Fails for a block with an odd number, without saying which; changes the topic."""

    name = "fragile"

    def output(self, columns: Columns) -> Columns:
        return columns

    def apply(self, rows: Rows) -> Applied:
        numbers = rows.batch.column("n").to_pylist()
        if any(each % 2 for each in numbers):
            raise ValueProblem("odd", "needs an even number, found another", "$.n")
        frame = rows.frame.with_part("topic", pa.array([f"t{each}" for each in numbers]))
        return Applied(Rows(rows.columns, rows.batch, frame))


def test_a_step_that_does_not_know_which_row_is_asked_for_parts_of_the_block() -> None:
    columns = columns_of("n long")
    records = records_of([b""] * 8)
    rows = pa.RecordBatch.from_arrays([pa.array([0, 2, 1, 4, 6, 3, 8, 10])], schema=columns.arrow)
    block = Block(records, rows, np.arange(8), [], np.zeros(0, np.int64), TABLE, {})
    stage = TakeStep("transform[0].fragile", Fragile(), columns, hide_values=False, last=False)
    made = apply_stage(stage, block)
    assert [(each.row, each.error_class, each.before) for each in made.failures] == [
        (2, "odd", '{"n":1}'),
        (5, "odd", '{"n":3}'),
    ]
    assert made.frame.part("topic").to_pylist() == ["t0", "t2", "t4", "t6", "t8", "t10"]
    assert made.positions.tolist() == [0, 1, 3, 4, 6, 7]
    assert apply_stage(RefuseDropped(stage), block).positions.tolist() == made.positions.tolist()


def test_only_what_steps_ask_for_is_fetched() -> None:
    spec = stream([{"cast": {"n": "long"}}])
    steps = row_steps_of(spec)
    assert fetched_parts(spec.resolved.decoder, spec.record_columns, steps) == frozenset()
    assert RowSteps(columns_of("id string"), Chain((ToKey("id"),))).asks == frozenset()
    assert row_steps_of(stream([])) is None


def test_a_key_that_is_not_there_is_told_before_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = stream([{"mask": {"columns": "n", "hash": "${env:NO_SUCH_KEY}"}}])
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(FrazilError, match="NO_SUCH_KEY"):
        prepare_steps(spec)
    monkeypatch.setenv("NO_SUCH_KEY", "k")
    prepare_steps(spec)
