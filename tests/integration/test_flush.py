"""Flushes of a driver that pauses or waits for a full batch; batches bounded in bytes, options and an administrator."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import yaml

from jobs.streaming.supervision.control.stream_control import await_flush
from jobs.streaming.supervision.documents.flush_request import request_flush
from jobs.tables.commit.history.stamp_history import stamps_along_main
from tests.helpers.topics import idempotent_producer
from tests.integration.faults import DriverHere
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.mark.timeout(720)
def test_what_is_there_lands_at_once_in_batches_of_about_so_many_bytes(pipeline: Callable[..., Pipeline]) -> None:
    made = pipeline()
    settings_file = made.home / "frazil.yaml"
    settings = yaml.safe_load(settings_file.read_text())
    settings["kafka"] |= {
        "admin": {"security": {"protocol": "PLAINTEXT"}},
        "options": {"client.id": "lake", "socket.keepalive.enable": True, "reconnect.backoff.max.ms": 2000},
    }
    settings_file.write_text(yaml.safe_dump(settings))
    options = {"client.rack": "a", "fetch.min.bytes": 1024, "request.timeout.ms": 20_000}
    source = {"topics": [made.stream], "max_bytes_per_batch": "4MB", "group": f"g-{made.stream}", "options": options}
    made.write_spec(trigger={"every": "10m"}, source=source)
    made.produce({GOOD: 30})
    made.control().start("the test begins", "tester")
    try:
        # Of records that nobody has seen four fit; then another query begins, which takes them all.
        made.wait_until_landed()
        assert reads(made)[0] <= 4
        # From here on there is a pause of ten minutes.
        made.produce({GOOD: 20, TRUNCATED: 1})
        flushed = made.control().flush("what is there", "tester")
        told = flushed.facts
        assert (told["read"], told["landed"], told["dead"]) == (21, 20, 1)
        assert "21 records in" in flushed.sentence
        assert made.control().flush("nothing is there", "tester").facts["read"] == 0

        # A jump in size is met by the batch after it.
        produce_large(made, 8)
        assert made.control().flush("large ones", "tester").facts["read"] == 8
        before = len(reads(made))
        produce_large(made, 12)
        done = made.control().flush("more of them", "tester").facts
        assert done["dead"] == 0
        # The query that took over with the new bound may have read some of them before it heard of the flush.
        assert sum(after := reads(made)[before:]) == 12
        assert max(after) <= 4
        made.assert_exactly_once()
    finally:
        made.control().stop("the test ends", "tester")


def test_a_flush_ends_the_wait_for_a_full_batch(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline()
    source = {"topics": [one.stream], "min_records_per_batch": 10_000, "max_delay": "10m"}
    one.write_spec(trigger={"every": "1s"}, source=source)
    one.produce({GOOD: 3})
    with DriverHere(one, spark) as driver:
        # The first batch of a query waits for nothing.
        driver.has_landed(3)
        one.produce({GOOD: 20, TRUNCATED: 1})
        number = request_flush(one.folder().store, "a test", "tester")
        driver.has_landed(23)
        told = await_flush(one.folder().store, one.stream, number, 300.0).facts
    driver.end()
    assert (told["read"], told["landed"], told["dead"]) == (21, 20, 1)
    one.assert_exactly_once()


def reads(made: Pipeline) -> list[int]:
    """Records of each batch that read any, the oldest first."""
    stamps = [stamp for _, stamp in reversed(stamps_along_main(made.table().metadata, made.stream))]
    totals = [0, *(stamp.totals.read for stamp in stamps)]
    return [each for before, now in itertools.pairwise(totals) if (each := now - before)]


def produce_large(made: Pipeline, count: int) -> None:
    producer = idempotent_producer(made.address, made.stream)
    for _ in range(count):
        made.numbers += 1
        row = {"id": f"p-{made.numbers}", "amount": 1, "created_at": "2026-11-01T10:00:00Z", "note": "x" * 950_000}
        producer.produce(made.stream, value=json.dumps(row).encode(), partition=made.numbers % made.partitions)
    assert producer.flush(120) == 0
