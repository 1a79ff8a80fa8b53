"""The audit on what the real pipeline landed: from a topic with transactions, and from one that is compacted."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyiceberg.expressions import EqualTo

from orchestration.cli.main import main
from tests.helpers.real_stream import DEAD, SINK, RealStream
from tests.helpers.stream_history import HOLE, ROW, TOMBSTONE
from tests.helpers.topics import create_topic, read_topic
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline, payment
from tests.integration.record_places import assert_found_and_read_back, assert_from_row_to_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": "1048576",
    "max.compaction.lag.ms": "100",
}


def in_transactions(address: str, topic: str) -> None:
    """Fifty records that count, thirty that are aborted, twenty that count; each transaction leaves a marker."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-audit"})
    producer.init_transactions(120)
    number = 100_000
    for count, commits in ((50, True), (30, False), (20, True)):
        producer.begin_transaction()
        for _ in range(count):
            number += 1
            producer.produce(topic, key=f"t{number}".encode(), value=payment(number, GOOD), partition=number % 2)
        assert producer.flush(120) == 0
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def compacted_topic(address: str, topic: str) -> int:
    """A topic of which compaction has left holes.

    Returns:
        How many of its two thousand records are left.
    """
    create_topic(address, topic, 1, COMPACTED)
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    for number in range(2000):
        # Three megabytes: what is in the log's last segment is never compacted.
        whole = json.loads(payment(number, GOOD) or b"") | {"note": "x" * 1500}
        producer.produce(topic, key=f"k{number % 50}".encode(), value=json.dumps(whole).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(120) == 0
    left, since = 2000, time.monotonic()

    def compacted() -> bool:
        nonlocal left, since
        now = len(read_topic(address, topic))
        if now != left:
            left, since = now, time.monotonic()
        return left < 1500 and time.monotonic() - since > 1

    wait_for(compacted, f"the compaction of {topic}", 120)
    return left


def audited(made: Pipeline, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["--home", str(made.home), "audit", made.stream, "--json", *arguments])
    return result.exit_code, json.loads(result.stdout)


def problems(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("kind", "topic", "partition", "records", "offsets", "exact")
    return [tuple(each[key] for key in keys) for each in document["problems"]]


@pytest.mark.spark
def test_an_audit_finds_what_is_wrong_and_nothing_else(
    pipeline: Callable[..., Pipeline], broker: str, spark: SparkSession
) -> None:
    made = pipeline()
    other = f"{made.stream}_compacted"
    left = compacted_topic(broker, other)
    made.write_spec(source={"topics": [made.stream, other]})
    made.produce({GOOD: 200, TRUNCATED: 12, TOMBSTONE: 9})
    in_transactions(broker, made.stream)
    made.drain(spark)
    code, document = audited(made)
    assert (code, document["verdict"], document["problems"]) == (0, "complete", [])
    sums = {(each["topic"], each["partition"]): each for each in document["tables"][0]["partitions"]}
    assert sums[other, 0]["read"] == sums[other, 0]["rows"] == left < sums[other, 0]["end"] == 2000
    of_transactions = [sums[made.stream, partition] for partition in (0, 1)]
    assert [sum(each[key] for each in of_transactions) for key in ("read", "landed", "dead", "tombstones")] == [
        *(200 + 12 + 9 + 70, 200 + 70, 12, 9)
    ]
    # Thirty aborted records and a marker for each transaction and partition are holes, and no losses.
    assert sum(each["end"] - each["start"] for each in of_transactions) >= 200 + 12 + 9 + 100 + 3

    made.produce({GOOD: 10})
    made.drain(spark)
    code, document = audited(made)
    assert (code, document["records_audited"], document["rows_scanned"]) == (0, 10, 10)
    assert_found_and_read_back(made, spark, [made.stream, other])
    assert_from_row_to_record(made)

    rows = made.table().scan().to_arrow()
    gone, twice = ((other, 0, 1999), (made.stream, 1, rows_of(made, 1)[5]))
    made.table().append(rows.take([places(rows).index(twice)]))
    made.table().delete(EqualTo("id", rows.column("id")[places(rows).index(gone)].as_py()))
    code, document = audited(made)
    assert (code, document["rows_scanned"]) == (0, 0)
    code, document = audited(made, "--full")
    assert code == 1
    assert sorted(each[:4] for each in problems(document)) == [
        ("doubled", made.stream, 1, 1),
        ("missing", other, 0, 1),
    ]
    found = {each[0]: each for each in problems(document)}
    assert found["doubled"][4:] == ([[twice[2], twice[2] + 1]], True)
    # One of many holes, and named all the same: the snapshot that took it out is still kept.
    assert found["missing"][4:] == ([[1999, 2000]], True)


def test_kafka_names_the_missing_among_the_holes(broker: str, tmp_path: Path) -> None:
    """Here the tables are filled by hand, as if a driver had read the topic."""
    create_topic(broker, "payments", 1)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": "holes"})
    producer.init_transactions(120)
    for values, commits in (([b"{}", None, b"{}"], True), ([b"{}", b"{}"], False), ([b"{}"], True)):
        producer.begin_transaction()
        for value in values:
            producer.produce("payments", value=value, partition=0)
        assert producer.flush(120) == 0
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    stream = RealStream(tmp_path)
    # Marker at 3, aborted at 4 and 5, marker at 6, marker at 8.
    stream.land([ROW, TOMBSTONE, ROW, HOLE, HOLE, HOLE, HOLE, ROW, HOLE])
    (tmp_path / "frazil.yaml").write_text(f"kafka: {{bootstrap_servers: '{broker}'}}\n")
    stream.table().delete(EqualTo("_kafka_offset", 2))
    arguments = ["--home", str(tmp_path), "audit", "payments", "--full", "--json"]
    assert json.loads(CliRunner().invoke(main, arguments).stdout)["problems"][0]["offsets"] == [[2, 3]]
    landed = stream.table().metadata.snapshots[0].snapshot_id
    stream.table().maintenance.expire_snapshots().by_id(landed).commit()
    (problem,) = json.loads(CliRunner().invoke(main, arguments).stdout)["problems"]
    assert (problem["records"], problem["offsets"], problem["exact"]) == (1, [[1, 7], [8, 9]], False)
    (problem,) = json.loads(CliRunner().invoke(main, [*arguments, "--source"]).stdout)["problems"]
    assert (problem["records"], problem["offsets"], problem["exact"]) == (1, [[2, 3]], True)
    # The tables hold what the topic does not: it was cut, or is another one.
    stream.land([ROW])
    result = CliRunner().invoke(main, [*arguments, "--table", DEAD])
    (problem,) = json.loads(result.stdout)["problems"]
    assert (result.exit_code, problem["kind"], problem["table"]) == (1, "stopped", SINK)
    assert "ends at 9, before the stream's position 10" in problem["sentence"]


def places(rows: Any) -> list[tuple[str, int, int]]:
    columns = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))


def rows_of(made: Pipeline, partition: int) -> list[int]:
    return sorted(offset for topic, number, offset in made.landed() if (topic, number) == (made.stream, partition))
