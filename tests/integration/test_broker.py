"""The local broker, for real: started, adopted, stopped, killed, and in the way of others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from jobs.base.system.processes import start_time, stop_process, wait_until_dead
from jobs.local.broker.broker import LocalBroker
from jobs.local.broker.config import BrokerError
from tests.helpers.modes import open_to_others

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"log_level": 0}


def produce(conf: dict[str, Any], topic: str, values: list[bytes]) -> None:
    producer = Producer({**QUIET, **conf, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(120) == 0


def consume(conf: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**QUIET, **conf, "group.id": "test", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, 300)
        return [message.value() for message in messages if message.error() is None]
    finally:
        consumer.close()


def create_topic(conf: dict[str, Any], topic: str) -> None:
    client = AdminClient({**QUIET, **conf})
    for future in client.create_topics([NewTopic(topic, 1)]).values():
        future.result(300)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    local = LocalBroker(tmp_path / "brøker, with a comma", detached=True)
    yield local
    local.stop()


def start_twice(folder: Path) -> str:
    """Address of the one broker that two starts at once make, in a process that ends."""
    code = (
        "import sys; from concurrent.futures import ThreadPoolExecutor; from pathlib import Path;"
        "from jobs.local.broker.broker import LocalBroker;"
        "brokers = [LocalBroker(Path(sys.argv[1]), detached=True) for _ in range(2)];"
        "(address,) = set(ThreadPoolExecutor(2).map(LocalBroker.start, brokers)); print(address)"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=400)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_life_of_a_broker(local: LocalBroker, broker: str) -> None:
    # The broker outlives the process that started it.
    address = start_twice(local.folder)
    first = local.status()
    assert first.running
    assert first.pid is not None
    assert os.getsid(first.pid) == first.pid
    assert first.address == address
    assert (local.folder / "address").read_text() == address
    conf = {"bootstrap.servers": address}
    create_topic(conf, "payments")
    produce(conf, "payments", [b"1", b"2"])
    assert open_to_others(local.folder) == [], "records, keys and users are nobody else's"

    # A second start adopts it.
    assert local.start() == address
    assert local.status() == first

    # A start does not adopt another cluster, whose port the settings name.
    other = AdminClient({**QUIET, "bootstrap.servers": broker}).list_topics(timeout=120).cluster_id
    settings = local.folder / "server.properties"
    written = settings.read_text()
    settings.write_text(written.replace(address.rpartition(":")[2], broker.rpartition(":")[2]))
    with pytest.raises(BrokerError) as caught:
        local.start()
    assert caught.value.message.startswith(f"Another Kafka cluster ({other}) answers on {broker}, not the one")
    settings.write_text(written)

    # After a kill it comes back on another port if its own is taken.
    started = start_time(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    assert wait_until_dead(first.pid, started, 60)
    assert not local.status().running
    assert local.status().address is None
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        taken.listen()
        moved = local.start()
        assert moved != address
        assert (local.folder / "address").read_text() == moved
        assert local.status().cluster_id == first.cluster_id
        assert consume({"bootstrap.servers": moved}, "payments", 2) == [b"1", b"2"]

    # Any process stops it, once.
    again = local.status()
    assert again.pid is not None
    assert LocalBroker(local.folder).stop()
    assert start_time(again.pid) is None
    stopped = local.status()
    assert (stopped.running, stopped.address, stopped.pid) == (False, None, None)
    assert stopped.cluster_id == first.cluster_id
    assert not (local.folder / "address").exists()
    assert not local.stop()


def test_a_broker_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path, properties={"log.segment.bytes": "nonsense"})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=0123456789abcdefghijkl\nnode.id=1\n")
    with pytest.raises(BrokerError) as caught:
        broker.start()
    assert caught.value.message.startswith(
        f"The local broker ended before it was ready; the end of {tmp_path}/broker.log:"
    )
    assert "Invalid value nonsense for configuration log.segment.bytes" in caught.value.message
    assert not broker.status().running
    assert not (tmp_path / "pid.json").exists()


def test_stopping_a_broker_that_never_was(tmp_path: Path) -> None:
    assert not LocalBroker(tmp_path / "nothing").stop()
    assert not (tmp_path / "nothing").exists()
    assert not stop_process(os.getpid(), None, 1)
