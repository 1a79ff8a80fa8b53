"""Letters through the stages of a driver: what lands, what fails, and what a letter no longer holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from jobs.dead_letters.replay.pipeline import dead_letter_pipeline, record_pipeline
from tests.helpers.dead_letters import BROKEN, GOOD, SEEN, DeadLetterWorld, value_of
from tests.helpers.evolving_stream import EvolvingStream, block


def letters(masked: list[str | None]) -> pa.RecordBatch:
    count = len(masked)
    return pa.record_batch(
        {
            "value": pa.array([value_of(BROKEN if n == 1 else GOOD, n) for n in range(count)], pa.binary()),
            "topic": ["t"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": list(range(count)),
            "timestamp": pa.array([SEEN] * count, pa.timestamp("us", "UTC")),
            "masked": pa.array(masked, pa.string()),
        }
    )


def test_a_letter_that_does_not_keep_what_a_row_needs_never_lands(dead_letters: DeadLetterWorld) -> None:
    pipeline = dead_letter_pipeline(dead_letters.spec, dead_letters.sink())
    tried = pipeline.run(letters([None, None, "value", "field:amount", "field:colour", "key,headers"]))
    assert tried.positions.tolist() == [0, 4, 5]
    assert tried.rows.column("id").to_pylist() == ["p-0", "p-4", "p-5"]
    assert [(failure.row, failure.error_class) for failure in tried.failures] == [
        (1, "malformed_json"),
        (2, "letter_masked"),
        (3, "letter_masked"),
    ]


def test_no_letter_lands_without_what_its_stream_keeps(tmp_path: Path) -> None:
    """A table that has no column for it yet: the driver adds one, a replay alters nothing."""
    EvolvingStream(tmp_path / "deployment")
    keeping = {"schema": "table", "unknown_fields": "keep"}
    one = EvolvingStream(tmp_path / "deployment", "later", decode=keeping)
    values = pa.array([b'{"id":"a"}', b'{"id":"b","x":1}'], pa.binary())
    given = letters([None, None]).set_column(0, "value", values)
    tried = dead_letter_pipeline(one.spec, one.table).run(given)
    assert [(each.row, each.error_class, each.field) for each in tried.failures] == [
        (1, "schema_change_refused", "$._extra")
    ]
    one.land({"id": "c", "x": 1})
    assert dead_letter_pipeline(one.spec, one.table).run(given).failures == []


@pytest.mark.parametrize("add", ["auto", "propose"])
def test_a_letter_with_a_field_of_the_name_of_a_header_lands_as_its_driver_would_land_it(
    tmp_path: Path, add: str
) -> None:
    """No column is ever made for the field, so its letter would wait without an end."""
    one = EvolvingStream(tmp_path / "deployment", decode={"headers": {"trace": "string"}}, add=add)
    values = [b'{"id":"a","trace":"x","_kafka_offset":7}', b'{"id":"b","new":1}']
    given = block(one.at, values, 0).whole([0, 1])
    tried = record_pipeline(one.spec, one.table).run(given)
    assert tried.positions.tolist() == [0]
    assert [(each.error_class, each.field) for each in tried.failures] == [("schema_change_proposed", "$.new")]
