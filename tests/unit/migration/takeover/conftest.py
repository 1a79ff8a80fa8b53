"""An Iceberg sink and the stream that takes over from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.memory_sink import SinkAndStream


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkAndStream:
    return SinkAndStream(tmp_path, monkeypatch)


@pytest.fixture
def taken(world: SinkAndStream) -> SinkAndStream:
    """A stream that has taken over at offset 4, and has landed up to 10."""
    world.stream.produce(4)
    world.kafka.groups["connect-sink"] = {TopicPartition("payments", 0): 4}
    world.take_over()
    world.stream.land_elsewhere(6)
    return world
