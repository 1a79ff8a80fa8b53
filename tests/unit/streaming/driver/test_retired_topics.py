"""A topic is retired within a running driver: what the dead letters last said of it counts no more, on real tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.stream.source import Source
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.opening.opening import decide_start
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import FencedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.targets import pair, spec_with

SINK, DEAD = "orders.payments", "orders.payments_dead"
GONE, STAYS = TopicPartition("gone", 0), TopicPartition("stays", 0)
IDS = {"gone": "id-gone", "stays": "id-stays"}


@dataclass
class Log:
    """Kafka's side as `KafkaLog` tells it."""

    now: LogState

    def state(self, source: object) -> LogState:
        return self.now

    def identities(self, topics: list[str]) -> dict[str, str]:
        return {topic: self.now.topics[topic] for topic in topics if topic in self.now.topics}


WITHOUT = LogState({"stays": "id-stays"}, {STAYS: 0}, {STAYS: 9})
SAME = LogState(IDS, {GONE: 0, STAYS: 0}, {GONE: 120, STAYS: 9})
ANOTHER = replace(SAME, topics={**IDS, "gone": "id-other"})


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[OpenStream]:
    """The last batch with dead letters had `gone` [50, 60); the stream read it to 100, retired it, and went on."""
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("orders")
    for name in (SINK, DEAD):
        catalog.create_table(name, Schema(NestedField(1, "id", LongType())), properties={"format-version": "2"})
    targets = {name: Target(catalog, name, "payments") for name in (SINK, DEAD)}
    both = Stamp("payments", "batch", 3, 1, "c", start={GONE: 50, STAYS: 2}, position={GONE: 60, STAYS: 3})
    after = replace(
        both,
        batch=5,
        start={STAYS: 3},
        position={STAYS: 5},
        rows={SINK: 2, DEAD: 0},
        retired={"gone": Retired("id-gone", 1_000, {0: 100})},
    )
    targets[SINK].restamp(after.anchored({}, {"stays": "id-stays"}))
    # Written under a configuration of before: the driver has gone on under another one since.
    targets[DEAD].restamp(replace(both, config="before", rows={SINK: 8, DEAD: 2}))
    spec = spec_with("payments", pair(SINK, DEAD), config_hash="c", source=Source(topics=("gone", "stays")))
    lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
    nothing: Any = SimpleNamespace()
    given = ("payments", "c", lease, targets, "g", 1)
    yield OpenStream(*given, spec=spec, settings=nothing, folder=StreamFolder.at(tmp_path / "state"), log=WITHOUT)
    catalog.close()


def decide(stream: OpenStream, now: LogState) -> dict[TopicPartition, int]:
    decide_start(stream, cast(KafkaLog, Log(now)))
    return stream.begin.offsets


def test_a_topic_that_was_retired_is_not_missed(stream: OpenStream) -> None:
    assert decide(stream, WITHOUT) == {STAYS: 5}
    assert stream.begin.retired == ()


def test_a_topic_that_is_back_goes_on_where_the_stream_stood(stream: OpenStream) -> None:
    assert decide(stream, SAME) == {GONE: 100, STAYS: 5}


def test_another_topic_of_the_name_is_read_from_its_beginning_also_later(stream: OpenStream) -> None:
    assert decide(stream, ANOTHER) == {GONE: 0, STAYS: 5}
    sink, dead = stream.targets[SINK], stream.targets[DEAD]
    assert sink.newest is not None
    # A batch of it without a dead letter, and one with: the table does not take the offsets for ones it has.
    landed = replace(sink.newest, batch=6, start={GONE: 0, STAYS: 5}, position={GONE: 10, STAYS: 5})
    sink.restamp(landed.anchored({}, ANOTHER.topics))
    assert decide(stream, ANOTHER) == {GONE: 10, STAYS: 5}
    batch = replace(landed, batch=7, start={GONE: 10, STAYS: 5}, position={GONE: 20, STAYS: 5})
    before = dead.newest
    dead.land(batch, (), seen=dead.seen(), batch={GONE: OffsetRange(10, 20)}, position={GONE: 10})
    assert dead.newest is not None and dead.newest is not before
    assert dead.newest.position == {GONE: 20, STAYS: 5}


def test_the_dead_letters_are_claimed_again_once(stream: OpenStream) -> None:
    dead = stream.targets[DEAD]
    decide(stream, WITHOUT)
    said, snapshots = dead.read(), len(dead.table.metadata.snapshots)
    assert said is not None and (said.kind, said.epoch, said.position) == ("claim", 1, {STAYS: 3})
    decide(stream, WITHOUT)
    dead.read()
    assert len(dead.table.metadata.snapshots) == snapshots


def test_a_driver_that_was_taken_over_claims_nothing_again(stream: OpenStream) -> None:
    other = Target(stream.targets[DEAD].catalog, DEAD, "payments")
    other.claim(2, lambda newest: cast(Stamp, newest).claimed(2))
    with pytest.raises(FencedError):
        decide(stream, WITHOUT)


def test_an_anchor_of_an_earlier_version_knows_what_it_has_a_position_of() -> None:
    anchored = Stamp("s", "batch", 0, 1, "c", start={STAYS: 0}, position={STAYS: 3})
    other = replace(anchored, start={STAYS: 0, GONE: 1}, position={STAYS: 3, GONE: 2}, ends={GONE: 4})
    assert other.known_to(anchored) == anchored
    assert other.known_to(replace(anchored, topics={"gone": "id"})) == other
    assert other.known_to(None) == other
