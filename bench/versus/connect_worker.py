"""Kafka Connect worker with the Apache Iceberg sink, on this machine, from the resolved jars, on loopback only."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.versus.deployment import BenchDeployment
from bench.versus.sink_config import SinkConfig, sink_properties, worker_properties
from jobs.errors import FrazilError
from jobs.install.artifacts import OnProgress, resolve_jars
from jobs.install.preflight import check_java
from jobs.local_broker.config import HOST, free_ports
from jobs.system.processes import start_time, stop_process

HEAP = "2g"
# The collector with the most throughput on few cores; frazil's JVM has it, too.
JVM = (f"-Xmx{HEAP}", "-XX:+UseParallelGC", "-Djava.awt.headless=true")
CONNECT_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
_READY_SECONDS = 90.0
_GRACE_SECONDS = 20.0
_POLL_SECONDS = 0.1
LOG4J2 = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = connect.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = WARN
rootLogger.appenderRef.file.ref = file
logger.sink.name = org.apache.iceberg.connect
logger.sink.level = INFO
logger.report.name = org.apache.iceberg.metrics
logger.report.level = INFO
"""


class ConnectWorker:
    """A standalone worker that lands one topic in the table of a home; as a context manager it runs for its length.

    Entering returns at once: `wait_until_running` waits until the connector and its tasks run. What it says is in
    `connect.log` and `connect.out` of its folder.

    Args:
        home: Whose table it lands in; the table is made if it is not there.
        address: The broker.
        sink: How it is set up.
        on_progress: Told when jars are fetched.
    """

    def __init__(
        self, home: BenchDeployment, address: str, sink: SinkConfig, on_progress: OnProgress | None = None
    ) -> None:
        self.folder: Path = home.path / "connect"
        self.log: Path = self.folder / "connect.log"
        self._home: BenchDeployment = home
        self._address: str = address
        self._sink: SinkConfig = sink
        self._name: str = f"iceberg-{home.path.name}-{os.getpid()}-{time.time_ns() % 10**9}"
        self._rest: str = f"http://{HOST}:{free_ports(secure=False).plain}"
        self._say: OnProgress = on_progress or (lambda _: None)
        self._process: subprocess.Popen[bytes] | None = None
        self._started: str | None = None

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The JVM."""
        assert self._process is not None, "it has not been started"
        return self._process.pid

    def prepare(self) -> None:
        """Make the table, the control topic and the files, so that only the worker itself is left to start."""
        resolve_jars("connect", on_progress=self._say)
        self._home.create_table()
        # Two tasks that turn it on at once can make one of them fail; the file keeps it.
        with contextlib.closing(sqlite3.connect(self._home.path / ".frazil" / "catalog.db")) as catalog_file:
            catalog_file.execute("PRAGMA journal_mode=WAL")
        self.folder.mkdir(parents=True, exist_ok=True)
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        for future in admin.create_topics([NewTopic(self._control_topic, 1, 1)]).values():
            future.result(20)
        written(self.folder / "worker.properties", worker_properties(self._sink, self._address, self._rest))
        catalog = self._home.deployment.settings().catalog
        written(self.folder / "sink.properties", sink_properties(self._sink, self._name, self._control_topic, catalog))
        (self.folder / "log4j2.properties").write_text(LOG4J2)

    def start(self) -> None:
        """Start the JVM."""
        jars = os.pathsep.join(map(str, resolve_jars("connect")))
        options = [*JVM, "-Dlog4j2.configurationFile=log4j2.properties"]
        with (self.folder / "connect.out").open("wb") as output:
            self._process = subprocess.Popen(
                # The sink looks for the worker's file on this command line.
                [
                    str(check_java().executable),
                    *options,
                    "-cp",
                    jars,
                    CONNECT_MAIN,
                    "worker.properties",
                    "sink.properties",
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._started = start_time(self._process.pid)

    def stop(self) -> None:
        """End the JVM; nothing happens if it is not there."""
        if self._process is None:
            return
        if self._process.poll() is None:
            stop_process(self._process.pid, self._started, _GRACE_SECONDS)
        self._process.wait()

    def wait_until_running(self) -> None:
        """Until the connector and all its tasks run.

        Raises:
            FrazilError: They do not within a minute and a half, or one has failed.
        """
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            states = self.states()
            if len(states) == 1 + self._sink.tasks and set(states) == {"RUNNING"}:
                return
            self.check()
            time.sleep(_POLL_SECONDS)
        raise self._error(f"The Connect worker was not ready within {_READY_SECONDS:.0f} s")

    def lives(self) -> bool:
        """Whether the JVM is there; asks nothing of it."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise if the worker has ended or something in it has failed.

        Raises:
            FrazilError: With the end of its log.
        """
        if self._process is not None and self._process.poll() is not None:
            raise self._error(f"The Connect worker ended with status {self._process.returncode}")
        for part in self._parts():
            if part["state"] == "FAILED":
                raise self._error(f"The Iceberg sink has failed: {part.get('trace', 'it does not say why')}")

    def states(self) -> list[str]:
        """The states of the connector and its tasks; none while the worker does not answer."""
        return [part["state"] for part in self._parts()]

    def _parts(self) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"{self._rest}/connectors/{self._name}/status", timeout=5) as answer:
                status: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return []
        return [status["connector"], *status["tasks"]]

    @property
    def _control_topic(self) -> str:
        return f"control-{self._name}"

    def _error(self, message: str) -> FrazilError:
        tail = ""
        for path in (self.log, self.folder / "connect.out"):
            with contextlib.suppress(FileNotFoundError):
                tail += "".join(path.read_text(errors="replace").splitlines(keepends=True)[-15:])
        return FrazilError(f"{message}; the end of {self.log}:\n{tail}", fix=f"read {self.log}")


def written(path: Path, properties: Mapping[str, str]) -> None:
    """Write a file of Java properties."""
    # Java takes a backslash as the start of an escape; no other value here has anything to escape.
    path.write_text("".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items()))
