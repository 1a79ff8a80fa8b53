"""How many records a batch may read so that it is about so many bytes, by the batches before it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.settings.generation import generation
from jobs.config.settings.settings import KafkaSettings, Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.streaming.driver.process.batch_pace import BATCHES, ByteBound
from jobs.streaming.driver.process.query import kafka_source_options

KB, MB = 1024, 1024 * 1024


def bound(size: str | None = "256MB", most: int = 1_000_000) -> ByteBound:
    return ByteBound(Source.model_validate(source(size, most)))


def source(size: str | None = "256MB", most: int = 1_000_000) -> dict[str, Any]:
    return {"topics": ["t"], "max_bytes_per_batch": size, "max_records_per_batch": most}


@pytest.mark.parametrize(
    ("batches", "records"),
    [
        # Before anything was seen a record may have a megabyte.
        ([], 256),
        ([(256, 256 * KB)], 256 * KB),
        ([(1000, 1000 * MB)], 256),
        ([(1, 512 * MB)], 1),
        ([(10, 0)], 1_000_000),
        # A batch without records says nothing.
        ([(10, 10 * KB), (0, 0)], 256 * KB),
        # One of the last batches with large records bounds the next.
        ([(10, 10 * KB), (10, 10 * MB), (10, 10 * KB)], 256),
        ([(10, 10 * MB), *[(10, 10 * KB)] * (BATCHES - 1)], 256),
        ([(10, 10 * MB), *[(10, 10 * KB)] * BATCHES], 256 * KB),
    ],
)
def test_the_bound_in_records(batches: list[tuple[int, int]], records: int) -> None:
    found = bound()
    for count, size in batches:
        found.seen(count, size)
    assert found.records() == records


def test_a_query_gives_way_when_its_bound_is_off_by_more_than_twice() -> None:
    found = bound()
    found.seen(1, MB)
    assert [found.outgrown(each) for each in (127, 128, 256, 512, 513)] == [True, False, False, False, True]
    without = bound(None)
    without.seen(1, 900 * MB)
    assert (without.records(), without.outgrown(1_000_000)) == (1_000_000, False)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2**40))), st.integers(1, 10**6), st.integers(1, 4096))
def test_a_batch_of_records_like_those_before_is_within_the_bound(
    batches: list[tuple[int, int]], most: int, megabytes: int
) -> None:
    found = bound(f"{megabytes}MB", most)
    for count, size in batches:
        found.seen(count, size)
    told = [(count, size) for count, size in batches if count][-BATCHES:]
    assert 1 <= (records := found.records()) <= most
    assert not found.outgrown(records)
    assert all(records == 1 or records * size <= megabytes * MB * count for count, size in told)


def test_spark_is_given_the_bound_of_the_query() -> None:
    spec = stream(source() | {"min_records_per_batch": 1000, "max_delay": "1m"})
    options = kafka_source_options(spec, KafkaSettings(bootstrap_servers="b:1"), {}, ["t"], drain=False, most=300)
    assert (options["maxOffsetsPerTrigger"], options["minOffsetsPerTrigger"]) == ("300", "300")


def test_it_rolls_drivers_and_changes_no_row(tmp_path: Any) -> None:
    plain, bounded = stream({"topics": ["t"]}), stream({"topics": ["t"], "max_bytes_per_batch": "256MB"})
    settings = Settings.embedded(tmp_path)
    assert plain.config_hash == bounded.config_hash
    assert generation(plain, settings) != generation(bounded, settings)


@pytest.mark.parametrize(
    ("given", "said"), [("1000", "needs a unit|must be a whole number with a unit"), ("512KB", "at least 1MB")]
)
def test_bounds_that_are_none(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Source.model_validate(source(given))


def stream(of: dict[str, Any]) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": of,
            "decode": {"value": "json", "schema": "id string"},
            "table": {"name": "orders.payments"},
        }
    )
