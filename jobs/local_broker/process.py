"""Process of the local broker: its JVM is started, found again by any process, awaited and ended."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.local_broker.config import Ports
from jobs.local_broker.errors import BrokerError, last_kafka_lines
from jobs.local_broker.service_process import ServiceProcess
from jobs.local_broker.storage import cluster_id
from jobs.system.ports import HOST
from jobs.system.processes import is_alive

_READY_DEADLINE_SECONDS = 180.0
_STOP_GRACE_SECONDS = 20.0
_POLL_SECONDS = 0.05


class PortTakenError(Exception):
    """Another process took one of the broker's ports before it did."""


class BrokerProcess:
    """The broker's JVM, known by the process id and start time in `pid.json` of its folder.

    Args:
        folder: The broker's.

    Attributes:
        log: Its log file.
    """

    def __init__(self, folder: Path) -> None:
        self.log: Path = folder / "broker.log"
        self._folder: Path = folder
        self._service: ServiceProcess = ServiceProcess(folder)

    def running(self) -> tuple[int, str] | None:
        """Process id and start time, while it lives."""
        return self._service.running()

    def start(self, java: Sequence[str], ports: Ports, *, detached: bool) -> None:
        """Start the JVM, and wait until it answers.

        Args:
            java: The command up to the class path, included.
            ports: That it listens on.
            detached: Let it live on when this process and its terminal are gone.

        Raises:
            PortTakenError: A port is no longer free.
            BrokerError: It ended or did not answer in time; with the end of its log.
        """
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.log.with_name("broker.log.previous"))
        pid, started = self._service.launch(
            [*java, "kafka.Kafka", "server.properties"], self._folder / "broker.out", detached=detached
        )
        try:
            self.wait_until_ready(ports, pid, started)
        except BaseException:
            self._service.end(pid, started, 2.0)
            raise

    def wait_until_ready(self, ports: Ports, pid: int, started: str | None) -> None:
        """Wait until our own cluster answers on the port. Raises as `start` does."""
        deadline = time.monotonic() + _READY_DEADLINE_SECONDS
        answered: str | None = None
        while answered is None:
            if not is_alive(pid, started):
                if "Address already in use" in self._log_text():
                    raise PortTakenError
                raise self.error("The local broker ended before it was ready")
            if time.monotonic() > deadline:
                raise self.error(f"The local broker did not answer within {_READY_DEADLINE_SECONDS:.0f} s")
            answered = _cluster_behind(ports.plain)
            if answered is None:
                time.sleep(_POLL_SECONDS)
        if answered != cluster_id(self._folder):
            raise self.error(
                f"Another Kafka cluster ({answered}) answers on {HOST}:{ports.plain}, not the one in {self._folder}"
            )

    def stop(self) -> bool:
        """End it, whoever started it; returns whether it ran."""
        return self._service.stop(_STOP_GRACE_SECONDS)

    def error(self, message: str) -> BrokerError:
        """The error with the end of the log."""
        tail = last_kafka_lines(self._log_text())
        return BrokerError(f"{message}; the end of {self.log}:\n{tail}", fix=f"read {self.log}; then frazil up")

    def _log_text(self) -> str:
        parts = (path.read_text(errors="replace") for path in (self.log, self._folder / "broker.out") if path.exists())
        return "".join(parts)


def _cluster_behind(port: int) -> str | None:
    """The id of the cluster that answers on the port, or None if nobody does."""
    # A plain connection first: librdkafka would write every refusal to the terminal.
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return None
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    conf: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{port}", "log_level": 0, "error_cb": lambda _: None}
    client = AdminClient(conf)
    try:
        metadata = client.list_topics(timeout=5.0)
    except KafkaException:
        return None
    return metadata.cluster_id if metadata.brokers else None
