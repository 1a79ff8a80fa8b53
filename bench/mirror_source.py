"""Source for `python -m bench.mirror`: pgbench's TPC-B on PostgreSQL, its changes by Debezium, and probes among them.

A probe is an update of one more row of the table, whose balance is the probe's number: when a mirror has that number,
it has all that was committed before. Which snapshot of a mirror has it is read afterwards, so that looking costs
neither side anything.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from confluent_kafka import Consumer, TopicPartition

from jobs.base.errors import FrazilError
from tests.helpers.database_server import DATABASE, PASSWORD, USER, DatabaseServer, client, database_server
from tests.helpers.debezium import LOGICAL, create_signals, debezium_worker, follows
from tests.helpers.waiting import wait_for

PbTable: TypeAlias = Literal["accounts", "tellers", "branches"]
KEYS: dict[PbTable, str] = {"accounts": "aid", "tellers": "tid", "branches": "bid"}
BALANCES: dict[PbTable, str] = {"accounts": "abalance", "tellers": "tbalance", "branches": "bbalance"}
COLUMNS: dict[PbTable, str] = {
    "accounts": "aid int, bid int, abalance int, filler string",
    "tellers": "tid int, bid int, tbalance int, filler string",
    "branches": "bid int, bbalance int, filler string",
}
PREFIX = "bench"
PROBE = -1
"""The probe's key, which pgbench does not have."""
_PROBE_SECONDS = 0.25
_SNAPSHOT_SECONDS = 1800.0


@dataclass
class PgbenchSource:
    """A database under pgbench, and the topic of one of its tables.

    Attributes:
        table: The table of pgbench.
        address: The broker.
        probes: Commit time of each probe, by its number; seconds since 1970.
    """

    server: DatabaseServer
    connection: Any
    table: PbTable
    address: str
    probes: list[float] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """Name of the topic with the table's changes."""
        return f"{PREFIX}.public.pgbench_{self.table}"

    def probe(self) -> int:
        """Commit one; returns its number."""
        key, balance = KEYS[self.table], BALANCES[self.table]
        number = len(self.probes)
        self.connection.execute(f"UPDATE pgbench_{self.table} SET {balance} = %s WHERE {key} = %s", (number, PROBE))
        self.probes.append(time.time())
        return number

    def run(self, seconds: int, rate: int) -> int:
        """Run pgbench with probes for so many seconds, and return the number of its transactions.

        Raises:
            FrazilError: pgbench failed.
        """
        ending = threading.Event()

        def probing() -> None:
            while not ending.wait(_PROBE_SECONDS):
                self.probe()

        thread = threading.Thread(target=probing, name="probes", daemon=True)
        thread.start()
        try:
            said = _pgbench(self.server, "-n", "-T", str(seconds), "-R", str(rate), "-c", "4")
        finally:
            ending.set()
            thread.join()
        line = next(each for each in said.splitlines() if "actually processed" in each)
        return int(line.split(":")[1].split("/")[0])

    def totals(self) -> tuple[int, int]:
        """The rows of the table, and the sum of their balances."""
        asked = f"SELECT count(*), sum({BALANCES[self.table]})::bigint FROM pgbench_{self.table}"
        return self.connection.execute(asked.encode()).fetchone()

    def end(self) -> dict[int, int]:
        """The end of the topic, by partition."""
        with _consumer(self.address) as consumer:
            partitions = consumer.list_topics(self.topic, timeout=20).topics[self.topic].partitions
            return {
                each: consumer.get_watermark_offsets(TopicPartition(self.topic, each), timeout=20)[1]
                for each in partitions
            }

    def bytes_of_change(self, most: int = 2000) -> float:
        """Bytes of key and value that a change has, without the schemas that come with each; of the newest ones."""
        sizes: list[int] = []
        with _consumer(self.address) as consumer:
            ends = self.end()
            consumer.assign([TopicPartition(self.topic, each, max(0, end - most)) for each, end in ends.items()])
            while len(sizes) < min(most, sum(ends.values())):
                for message in consumer.consume(1000, 1.0):
                    value, key = message.value(), message.key()
                    if value is not None:
                        sizes.append(_payload(value) + _payload(key or b""))
        return sum(sizes) / len(sizes)


def _payload(data: bytes) -> int:
    return len(data) - max(0, data.find(b'"payload":'))


@contextmanager
def _consumer(address: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench-mirror", "log_level": 0})
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def pgbench_source(folder: Path, address: str, scale: int, table: PbTable, partitions: int) -> Iterator[PgbenchSource]:
    """Fill a database, and wait until the topic has its rows by Debezium's first snapshot.

    Args:
        folder: Folder for the worker.
        address: The broker.
        scale: pgbench's: 100,000 accounts each.
        table: Table whose changes are of interest.
        partitions: Number of partitions of the topic.
    """
    import psycopg

    settings = (*LOGICAL, "shared_buffers=256MB", "synchronous_commit=off", "max_wal_size=4GB")
    with (
        database_server(*settings) as server,
        psycopg.connect(server.url, password=PASSWORD, autocommit=True) as connection,
    ):
        _pgbench(server, "-i", "-q", "-s", str(scale))
        create_signals(connection)
        key, balance = KEYS[table], BALANCES[table]
        connection.execute(f"INSERT INTO pgbench_{table} ({key}, {balance}) VALUES ({PROBE}, -1)".encode())
        more = {"topic.creation.default.partitions": str(partitions)}
        jvm = ("-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
        with debezium_worker(folder, address, server, PREFIX, [f"pgbench_{table}"], more=more, options=jvm) as worker:
            worker.wait_until_running()
            wait_for(lambda: follows(connection, PREFIX), "Debezium's first snapshot", _SNAPSHOT_SECONDS)
            yield PgbenchSource(server, connection, table, address)


def _pgbench(server: DatabaseServer, *arguments: str) -> str:
    done = subprocess.run(
        [str(client("pgbench")), "-h", "127.0.0.1", "-p", str(server.port), "-U", USER, *arguments, DATABASE],
        env={**os.environ, "PGPASSWORD": PASSWORD},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FrazilError(f"pgbench failed: {done.stderr[-500:]}", fix="read its output")
    return done.stdout
