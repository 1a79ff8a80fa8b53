"""Kafka Connect worker with the Apache Iceberg sink, on this machine, from the resolved jars, on loopback only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.versus.deployment import BenchDeployment
from bench.versus.sink_config import SinkConfig, sink_properties, worker_properties
from jobs.clients.install.artifacts import OnProgress, resolve_jars
from tests.helpers.connect_worker import LOG4J2, ConnectWorker

HEAP = "2g"
# The collector with the most throughput on few cores; frazil's JVM has it, too.
JVM = (f"-Xmx{HEAP}", "-XX:+UseParallelGC", "-Djava.awt.headless=true")
COMMITS_LOGGED = f"""\
{LOG4J2}logger.sink.name = org.apache.iceberg.connect
logger.sink.level = INFO
logger.report.name = org.apache.iceberg.metrics
logger.report.level = INFO
"""


class SinkWorker(ConnectWorker):
    """A standalone worker that lands one topic in the table of a home; as a context manager it runs for its length.

    Args:
        home: Whose table it lands in; the table is made if it is not there.
        address: The broker.
        sink: Settings of the sink.
        on_progress: Called when jars are fetched.
    """

    def __init__(
        self, home: BenchDeployment, address: str, sink: SinkConfig, on_progress: OnProgress | None = None
    ) -> None:
        name = f"iceberg-{home.path.name}-{os.getpid()}-{time.time_ns() % 10**9}"
        self._home: BenchDeployment = home
        self._address: str = address
        self._control_topic: str = f"control-{name}"
        super().__init__(
            home.path / "connect",
            address,
            resolve_jars("connect", on_progress=on_progress),
            settings=worker_properties(sink),
            connectors={name: sink_properties(sink, self._control_topic, home.deployment.settings().catalog)},
            options=JVM,
            log4j2=COMMITS_LOGGED,
        )

    def prepare(self) -> None:
        """Make the table, the control topic and the files, so that only the worker itself is left to start."""
        self._home.create_table()
        # Two tasks that turn it on at once can make one of them fail; the file keeps it.
        with contextlib.closing(sqlite3.connect(self._home.path / ".frazil" / "catalog.db")) as catalog_file:
            catalog_file.execute("PRAGMA journal_mode=WAL")
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        for future in admin.create_topics([NewTopic(self._control_topic, 1, 1)]).values():
            future.result(20)
        super().prepare()
