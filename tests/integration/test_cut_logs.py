"""Logs that lose records which were read, and go past the stream's position again: no offset tells, the epochs do.

A broker of the tests' own, which is stopped, damaged as a lost disk or an unclean election does it, and started again.
The topic keeps its id all the while.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from jobs.commit.errors import TopicRecreatedError
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_history import history
from jobs.commit.stamps import Stamp
from jobs.kafka.metadata import KafkaLog
from jobs.local_broker.broker import LocalBroker
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere
from tests.integration.pipeline import GOOD, Pipeline, payment
from tests.integration.test_audit import audited
from tests.integration.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


class Fallible:
    """A broker whose disk loses records while it is down, and a stream of one partition on it."""

    def __init__(self, folder: Path, broker: LocalBroker) -> None:
        self.broker: LocalBroker = broker
        address = broker.status().address
        assert address is not None
        name = "log" + re.sub(r"[^a-z0-9]", "", folder.name)[-12:]
        self.one: Pipeline = Pipeline(folder / "deployment", address, name, partitions=1)
        self.one.create_topic()

    @property
    def folder(self) -> Path:
        return self.broker.folder / "data" / f"{self.one.stream}-0"

    def read(self, start: int, end: int) -> str:
        """Pattern of what is said of records that were read and are lost."""
        return rf"{self.one.stream}-0 \[{start}, {end}\) were read"

    def bytes_of_log(self) -> int:
        """Of a log that was written out; a broker that runs may not have done so."""
        return (self.folder / "00000000000000000000.log").stat().st_size

    def while_down(self, damage: Callable[[], object] = lambda: None) -> None:
        """Stop the broker, damage it, start it, and wait until the partition has its leader again."""
        self.broker.stop()
        damage()
        assert self.broker.start() == self.one.address
        kafka = KafkaLog(self.one.settings().kafka)
        wait_for(lambda: kafka.ends([self._partition]).latest, "the partition's leader")

    def empty(self) -> None:
        """A disk that came back empty; the broker knows from its controller which topic it had there."""
        for path in self.folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()

    def cut_to(self, size: int) -> None:
        """The log as a broker has it that had copied no more before it was elected."""
        data = self.broker.folder / "data"
        for path in (*self.folder.glob("*.*index"), *self.folder.glob("*.snapshot"), *data.glob(".kafka_clean*")):
            path.unlink()
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (data / name).write_text("0\n0\n")
        with (self.folder / "00000000000000000000.log").open("r+b") as log:
            log.truncate(size)

    @property
    def _partition(self) -> TopicPartition:
        return TopicPartition(self.one.stream, 0)

    def newest(self) -> Stamp:
        newest = history(self.one.table().metadata, self.one.stream).newest
        assert newest is not None
        return newest

    def ends_at(self) -> int:
        return KafkaLog(self.one.settings().kafka).latest([self._partition])[self._partition]

    def transaction(self, kinds: Mapping[str, int], *, abort: bool = False) -> None:
        """Records, and behind them a mark that is no record."""
        producer = Producer({"bootstrap.servers": self.one.address, "transactional.id": "t"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for kind, count in kinds.items():
            for number in range(count):
                producer.produce(self.one.stream, payment(number, kind), partition=0)
        producer.flush(30)
        (producer.abort_transaction if abort else producer.commit_transaction)(30)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """Each test damages a topic of its own."""
    with LocalBroker(tmp_path_factory.mktemp("fallible") / "broker", heap="256m") as started:
        yield started


@pytest.fixture
def fallible(tmp_path: Path, own_broker: LocalBroker) -> Fallible:
    # The test before may have failed while it was down.
    own_broker.start()
    return Fallible(tmp_path, own_broker)


def test_a_log_that_was_emptied_and_filled_again_past_the_position(fallible: Fallible, spark: SparkSession) -> None:
    one = fallible.one
    one.produce({GOOD: 30})
    one.drain(spark)
    fallible.while_down(fallible.empty)
    # Exactly up to the position, where nothing seems to be new; then past it.
    for more in (30, 20):
        one.produce({GOOD: more})
        with pytest.raises(TopicRecreatedError, match=rf"(?s){fallible.read(0, 30)}.*--recreated-topic {one.stream}"):
            one.drain(spark)
    assert one.landed().total() == 30, "nothing of the other records lands silently"
    assert audited(one, "--full")[0] == 1, "and nobody calls it complete"
    one.accept(recreated_topic=one.stream)
    assert one.drain(spark).counts.landed == 50
    landed = one.landed()
    assert {at: landed[at] for at in landed if at[2] < 30} == {(one.stream, 0, at): 2 for at in range(30)}
    assert {at: landed[at] for at in landed if at[2] >= 30} == {(one.stream, 0, at): 1 for at in range(30, 50)}
    code, found = audited(one, "--full")
    assert (code, found["records_audited"]) == (0, 80)
    # It goes on, and is asked no second time.
    one.produce({GOOD: 5})
    assert one.drain(spark).counts.landed == 5


def test_only_the_end_of_a_log_was_cut(fallible: Fallible, spark: SparkSession) -> None:
    one = fallible.one
    one.produce({GOOD: 20})
    sizes: list[int] = []
    fallible.while_down(lambda: sizes.append(fallible.bytes_of_log()))
    one.produce({GOOD: 10})
    one.drain(spark)
    fallible.while_down(lambda: fallible.cut_to(sizes[0]))
    assert fallible.ends_at() == 20
    one.produce({GOOD: 30})
    with pytest.raises(TopicRecreatedError, match=fallible.read(20, 30)):
        one.drain(spark)
    one.accept(recreated_topic=one.stream)
    assert one.drain(spark).counts.landed == 30
    twice = {at[2] for at, times in one.landed().items() if times == 2}
    assert twice == set(range(20, 30)), "what was before the cut is the same, and is not landed again"
    assert audited(one, "--full")[0] == 0


def test_a_leader_that_has_everything_alarms_nobody(fallible: Fallible, spark: SparkSession) -> None:
    """Behind transactions, committed and aborted: the last record is not the last of the log."""
    one = fallible.one
    one.produce({GOOD: 10})
    fallible.transaction({GOOD: 5})
    one.drain(spark)
    marked = fallible.newest()
    (mark,) = marked.last_reads.values()
    assert (marked.position[TopicPartition(one.stream, 0)], mark.after) == (16, 15)
    for abort in (False, True):
        fallible.while_down()
        assert one.drain(spark).counts.read == 0
        fallible.transaction({GOOD: 5}, abort=abort)
        assert one.drain(spark).counts.read == (0 if abort else 5)
    fallible.while_down()
    one.produce({GOOD: 3})
    one.drain(spark)
    epochs = [(mark.position, mark.after, mark.epoch) for mark in fallible.newest().last_reads.values()]
    assert epochs[0][:2] == (31, 31)
    assert epochs[0][2] > mark.epoch
    assert one.landed().total() == 23 == len(read_topic(one.address, one.stream))


@pytest.mark.parametrize("records", [50, 30], ids=["past the position", "up to the position"])
def test_a_log_that_is_emptied_under_a_driver_that_runs(fallible: Fallible, spark: SparkSession, records: int) -> None:
    one = fallible.one
    one.write_spec(trigger={"every": "1s"})
    one.produce({GOOD: 30})
    with DriverHere(one, spark) as driver:
        driver.has_landed(30)
        fallible.while_down(fallible.empty)
        one.produce({GOOD: records})
        wait_for(lambda: driver.problem is not None, "the driver to stop", 120)
    with pytest.raises(TopicRecreatedError, match=fallible.read(0, 30)):
        driver.end()
    assert one.landed().total() == 30
