from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from bench.growth import Drain, facts_of, relative, spread, table
from bench.growth_points import BATCHES, CURVES, Point
from bench.growth_records import PAYMENT_SCHEMA, payments, wide, wide_schema
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.parser import parse_schema
from orchestration.cli.streams.run.measurement import Speed


@pytest.mark.parametrize(
    ("schema", "values"),
    [(PAYMENT_SCHEMA, [*payments(60, days=3)]), *((wide_schema(n), [*wide(20, n)]) for n in (5, 50, 500))],
    ids=["payments", "5", "50", "500"],
)
def test_the_records_are_good_and_every_column_has_values(schema: str, values: list[bytes]) -> None:
    decoded = JsonReferenceDecoder(parse_schema(schema)).decode(pa.array(values, pa.binary()))
    assert not decoded.failures
    assert decoded.rows.num_rows == len(values)
    assert not decoded.unknown_fields
    assert [decoded.rows.column(name).null_count for name in decoded.rows.schema.names] == [
        0
    ] * decoded.rows.num_columns


def test_every_kafka_partition_has_records_of_every_day() -> None:
    days = [json.loads(value)["created_at"][:10] for value in payments(4000, days=50)]
    assert all(len({*itertools.islice(days, partition, None, 4)}) == 50 for partition in range(4))


def test_points_with_the_same_records_share_a_topic_and_batches_are_whole() -> None:
    points = [point for curve in CURVES.values() for point in curve.points(400_000)]
    assert len(points) == 14
    assert all(point.records % BATCHES == 0 for point in points)
    shared = [
        point.topic for point in points if point.snapshots or (point.curve, point.value) == ("table-partitions", 1)
    ]
    assert len(shared) == 4
    assert len(set(shared)) == 1


def drained(rate: int, commit: float) -> Drain:
    return Drain(Speed(1000, 2000 / rate, 1.0), Speed(800, 800 / rate, 800 / rate / 2), 200.0, commit, 0.5, 4)


def test_a_point_is_told_as_a_multiple_of_its_curves_first() -> None:
    points = [Point("kafka-partitions", 1, 1000, partitions=1), Point("kafka-partitions", 8, 1000, partitions=8)]
    facts = facts_of(points, [[drained(100, 0.1), drained(300, 0.3)], [drained(400, 0.2), drained(400, 0.4)]])
    first: dict[str, Any] = facts["points"][0]
    assert first["records_per_second"] == {"min": 100, "median": 200, "max": 300}
    assert first["records_per_cpu_second"]["median"] == 400
    assert first["megabytes_per_second"]["median"] == pytest.approx(0.04)
    assert first["commit_seconds"]["median"] == pytest.approx(0.2)
    assert relative(facts["points"], "records_per_second") == [1.0, 2.0]
    assert relative(facts["points"][:1], "records_per_second") == [1.0]
    assert "2.00 × the bytes per second, 2.00 × per CPU-second" in table(facts)


def test_where_the_system_tells_no_cpu_time() -> None:
    unknown = Drain(Speed(1000, 1.0, None), Speed(800, 1.0, None), 200.0, 0.1, 0.5, 4)
    facts = facts_of([Point("columns", 5, 1000, columns=5)], [[unknown]])
    assert facts["points"][0]["records_per_cpu_second"] is None
    assert relative(facts["points"], "megabytes_per_cpu_second") == [None]
    assert "– per CPU-second" in table(facts)
    assert spread([]) is None
