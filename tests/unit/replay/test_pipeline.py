"""Letters through the stages of a driver: what lands, what fails, and what a letter no longer holds."""

from __future__ import annotations

import pyarrow as pa

from jobs.replay.pipeline import dead_letter_pipeline
from tests.helpers.dead_letters import BROKEN, GOOD, SEEN, DeadLetterWorld, value_of


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
