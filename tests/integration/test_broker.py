"""The local broker, for real: started, adopted, stopped, killed, and in the way of others."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from jobs.local_broker.broker import LocalBroker
from jobs.local_broker.config import SecureListener
from jobs.local_broker.errors import BrokerError
from jobs.system.processes import is_alive, start_time, stop_process, wait_until_dead
from tests.helpers.modes import open_to_others
from tests.helpers.tls import Tls, make_tls

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"log_level": 0}
PASSWORD = r"p;a's s=1\n"


def produce(conf: dict[str, Any], topic: str, values: list[bytes]) -> None:
    producer = Producer({**QUIET, **conf, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(conf: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**QUIET, **conf, "group.id": "test", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, 30)
        return [message.value() for message in messages if message.error() is None]
    finally:
        consumer.close()


def create_topic(conf: dict[str, Any], topic: str) -> None:
    client = AdminClient({**QUIET, **conf})
    for future in client.create_topics([NewTopic(topic, 1)]).values():
        future.result(30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    broker = LocalBroker(tmp_path / "brøker, with a comma")
    yield broker
    broker.stop()


def test_the_life_of_a_broker(broker: LocalBroker) -> None:
    # Two starts at once make one broker.
    others = [LocalBroker(broker.folder), LocalBroker(broker.folder)]
    with ThreadPoolExecutor(2) as pool:
        addresses = {future.result() for future in [pool.submit(each.start) for each in others]}
    first = broker.status()
    assert first.running
    assert first.pid is not None
    assert addresses == {first.address}
    address = first.address or ""
    assert (first.secure_address, (broker.folder / "address").read_text()) == (None, address)
    conf = {"bootstrap.servers": address}
    create_topic(conf, "payments")
    produce(conf, "payments", [b"1", b"2"])
    assert open_to_others(broker.folder) == [], "records, keys and users are nobody else's"

    # Whoever starts it again adopts it.
    assert broker.start() == address
    assert broker.status() == first

    # Anybody stops it, once.
    assert others[0].stop()
    assert start_time(first.pid) is None
    stopped = broker.status()
    assert (stopped.running, stopped.address, stopped.pid) == (False, None, None)
    assert stopped.cluster_id == first.cluster_id
    assert not (broker.folder / "address").exists()
    assert not any(each.stop() for each in (broker, *others))

    # Started again it has the same address and the same records.
    assert broker.start() == address
    again = broker.status()
    assert again.cluster_id == first.cluster_id
    assert consume(conf, "payments", 2) == [b"1", b"2"]

    # After a kill it comes back on another port if its own is taken.
    assert again.pid is not None
    started = start_time(again.pid)
    os.kill(again.pid, signal.SIGKILL)
    assert wait_until_dead(again.pid, started, 10)
    assert not broker.status().running
    assert broker.status().address is None
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        taken.listen()
        moved = broker.start()
        assert moved != address
        assert (broker.folder / "address").read_text() == moved
        assert broker.status().cluster_id == first.cluster_id
        assert consume({"bootstrap.servers": moved}, "payments", 2) == [b"1", b"2"]


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


def test_settings_that_the_format_tool_refuses_are_told(tmp_path: Path) -> None:
    with pytest.raises(BrokerError) as caught:
        LocalBroker(tmp_path, properties={"log.segment.bytes": "nonsense"}).start()
    assert caught.value.message.startswith(f"{tmp_path}/data could not be formatted:\n")
    assert "Invalid value nonsense for configuration log.segment.bytes" in caught.value.message
    assert "\tat " not in caught.value.message


def test_a_detached_broker_outlives_its_starter_and_takes_no_other_one_for_itself(
    secure_broker: tuple[LocalBroker, Tls], tmp_path: Path
) -> None:
    code = (
        "from pathlib import Path; from jobs.local_broker.broker import LocalBroker;"
        f"print(LocalBroker(Path({str(tmp_path)!r}), detached=True).start())"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    broker = LocalBroker(tmp_path)
    try:
        status = broker.status()
        assert answer.stdout.strip() == status.address
        assert answer.stderr == ""
        assert status.pid is not None
        assert os.getsid(status.pid) == status.pid
        # Now its folder says that it lives where another one answers.
        other = secure_broker[0].status()
        settings = tmp_path / "server.properties"
        mine, others = ((each or "").rpartition(":")[2] for each in (status.address, other.address))
        settings.write_text(settings.read_text().replace(mine, others))
        with pytest.raises(BrokerError) as caught:
            broker.start()
        assert caught.value.message.startswith(
            f"Another Kafka cluster ({other.cluster_id}) answers on {other.address}, not the one"
        )
    finally:
        assert broker.stop()
    assert not is_alive(status.pid, start_time(status.pid))


@pytest.fixture(scope="module")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, Tls]]:
    folder = tmp_path_factory.mktemp("secure")
    tls = make_tls(folder / "tls")
    with LocalBroker(folder / "broker", secure=SecureListener(tls.keystore, {"ann": PASSWORD})) as broker:
        yield broker, tls


def secure_conf(broker: LocalBroker, tls: Tls, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.status().secure_address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": password,
        "ssl.ca.location": str(tls.ca),
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_a_secure_listener_serves_those_with_the_password(secure_broker: tuple[LocalBroker, Tls]) -> None:
    conf = secure_conf(*secure_broker, PASSWORD)
    create_topic(conf, "secret")
    produce(conf, "secret", [b"1"])
    assert consume(conf, "secret", 1) == [b"1"]


def test_a_secure_listener_refuses_a_wrong_password(secure_broker: tuple[LocalBroker, Tls]) -> None:
    heard: list[str] = []
    conf = {**QUIET, **secure_conf(*secure_broker, "wrong"), "error_cb": lambda error: heard.append(error.name())}
    client = AdminClient(conf)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    client.poll(0)
    assert "_AUTHENTICATION" in heard


def test_stopping_a_broker_that_never_was(tmp_path: Path) -> None:
    assert not LocalBroker(tmp_path / "nothing").stop()
    assert not (tmp_path / "nothing").exists()
    assert not stop_process(os.getpid(), None, 1)
