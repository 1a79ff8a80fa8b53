"""Which records of a batch have failed, as the dead-letter table has them."""

from __future__ import annotations

import pyarrow as pa

from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import DISCARDED
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED
from jobs.tables.dead_letter_table.reader import batch_letters
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from tests.helpers.dead_letters import SEEN, DeadLetterWorld

FIRST, SECOND = TopicPartition("payments.v1", 0), TopicPartition("payments.v1", 1)


def add(
    world: DeadLetterWorld,
    source: TopicPartition,
    *offsets: int,
    stream: str = "payments",
    batch: int = 4,
    epoch: int = 2,
    reason: str = "wrong_type",
) -> None:
    records = pa.record_batch(
        {
            "topic": [source.topic] * len(offsets),
            "partition": pa.array([source.partition] * len(offsets), pa.int32()),
            "offset": offsets,
        }
    )
    failures = [Failure(row, "decode_value", reason, "bad", "$.a") for row in range(len(offsets))]
    rows = dead_letter_rows(
        records, failures, stream=stream, config_hash="abc", batch_id=batch, epoch=epoch, first_seen=SEEN
    )
    world.append(world.dead(), rows)


def test_only_records_of_the_batch_that_have_failed_in_its_newest_epoch_count(dead_letters: DeadLetterWorld) -> None:
    ranges = {FIRST: OffsetRange(10, 20), SECOND: OffsetRange(0, 5)}
    assert batch_letters(dead_letters.dead(), "payments", ranges, 4) == {}
    add(dead_letters, FIRST, 9, 10, 13, 19, 20)
    add(dead_letters, SECOND, 4)
    add(dead_letters, TopicPartition("payments.v1", 2), 12)
    add(dead_letters, TopicPartition("refunds.v1", 0), 12)
    add(dead_letters, FIRST, 11, epoch=1)
    add(dead_letters, FIRST, 12, batch=3)
    add(dead_letters, FIRST, 14, stream="refunds")
    add(dead_letters, FIRST, 15, reason=DISCARDED)
    add(dead_letters, FIRST, 16, reason=TABLE_PARKED)
    assert batch_letters(dead_letters.dead(), "payments", ranges, 4) == {
        FIRST: frozenset({10, 13, 19}),
        SECOND: frozenset({4}),
    }
