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

from jobs.clients.kafka.metadata import KafkaLog
from jobs.local.broker.broker import LocalBroker
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.errors import TopicRecreatedError
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere
from tests.integration.pipeline import GOOD, Pipeline, payment
from tests.integration.test_audit import audited

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
        """Pattern of what is reported of records that were read and are lost."""
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
        producer.init_transactions(120)
        producer.begin_transaction()
        for kind, count in kinds.items():
            for number in range(count):
                producer.produce(self.one.stream, payment(number, kind), partition=0)
        producer.flush(120)
        (producer.abort_transaction if abort else producer.commit_transaction)(30)


@pytest.fixture
def fallible(tmp_path: Path) -> Iterator[Fallible]:
    with LocalBroker(tmp_path / "broker", heap="256m") as started:
        yield Fallible(tmp_path, started)


def test_a_log_that_lost_records_stops_its_stream_wherever_it_ends_now(fallible: Fallible, spark: SparkSession) -> None:
    one = fallible.one
    one.produce({GOOD: 10})
    fallible.transaction({GOOD: 5})
    one.drain(spark)
    marked = fallible.newest()
    (mark,) = marked.last_reads.values()
    assert (marked.position[TopicPartition(one.stream, 0)], mark.after) == (16, 15)

    # The new leader has everything. The last record is not the last of the log, as a transaction ends there.
    sizes: list[int] = []
    fallible.while_down(lambda: sizes.append(fallible.bytes_of_log()))
    assert one.drain(spark).counts.read == 0
    # The end of the log is cut off, which has an aborted and a committed transaction.
    fallible.transaction({GOOD: 5}, abort=True)
    fallible.transaction({GOOD: 5})
    one.produce({GOOD: 10})
    assert one.drain(spark).counts.read == 15
    newer = fallible.newest()
    (later,) = newer.last_reads.values()
    assert (newer.position[TopicPartition(one.stream, 0)], later.after) == (38, 38)
    assert later.epoch > mark.epoch
    fallible.while_down(lambda: fallible.cut_to(sizes[0]))
    assert fallible.ends_at() == 16
    one.produce({GOOD: 30})
    with pytest.raises(TopicRecreatedError, match=fallible.read(16, 38)):
        one.drain(spark)
    one.accept(recreated_topic=one.stream)
    assert one.drain(spark).counts.landed == 30
    landed = one.landed()
    assert landed.total() == 15 + 15 + 30
    assert {at[2] for at in landed if at[2] < 16} == set(range(15)), "records before the cut land once"
    assert all(times == 1 for at, times in landed.items() if at[2] < 16)
    assert audited(one, "--full")[0] == 0

    # The log is emptied under a driver, and filled up to the position, where nothing seems to be new.
    one.write_spec(trigger={"every": "1s"})
    with DriverHere(one, spark) as driver:
        wait_for(lambda: driver.heartbeat.current().state == "running", "the query")
        fallible.while_down(fallible.empty)
        one.produce({GOOD: 46})
        wait_for(lambda: driver.problem is not None, "the driver to stop", 120)
    with pytest.raises(TopicRecreatedError, match=rf"(?s){fallible.read(0, 46)}.*--recreated-topic {one.stream}"):
        driver.end()
    assert one.landed().total() == 60, "nothing of the other records lands silently"
    assert audited(one, "--full")[0] == 1, "no audit calls the log complete"
    one.write_spec()
    one.accept(recreated_topic=one.stream)
    assert one.drain(spark).counts.landed == 46
    code, found = audited(one, "--full")
    assert (code, found["records_audited"]) == (0, 60 + 46)
    # The stream goes on, and asks no second time.
    one.produce({GOOD: 5})
    assert one.drain(spark).counts.landed == 5
