"""Local broker: a real Kafka broker on this machine, one KRaft node from the resolved jars, on loopback only.

Its folder holds `server.properties` (ports), `address` (while it is up), `pid.json`, `broker.log`, `broker.out` (what
the JVM itself said) and `data/`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jobs.base.system.ports import HOST, is_port_free
from jobs.base.system.private_files import keep_private, private_folder, private_opener
from jobs.base.system.processes import is_alive
from jobs.clients.install.artifacts import OnProgress, resolve_jars
from jobs.clients.install.preflight import check_java
from jobs.clients.state_store.durable_files import write_durably
from jobs.local.broker.config import (
    LOG4J2,
    BrokerError,
    Ports,
    choose_ports,
    cluster_id,
    format_storage,
    last_kafka_lines,
    read_ports,
    server_properties,
)
from jobs.local.broker.service_process import ServiceProcess, service_lock

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
        log: Path of its log file.
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
            ports: Ports to listen on.
            detached: Whether it outlives this process and its terminal.

        Raises:
            PortTakenError: A port is no longer free.
            BrokerError: The broker ended or did not answer in time; the message has the end of its log.
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
        """Stop the process, also one of another command; returns whether it ran."""
        return self._service.stop(_STOP_GRACE_SECONDS)

    def error(self, message: str) -> BrokerError:
        """The error with the end of the log."""
        tail = last_kafka_lines(self._log_text())
        return BrokerError(f"{message}; the end of {self.log}:\n{tail}", fix=f"read {self.log}; then frazil up")

    def _log_text(self) -> str:
        parts = (path.read_text(errors="replace") for path in (self.log, self._folder / "broker.out") if path.exists())
        return "".join(parts)


def _cluster_behind(port: int) -> str | None:
    """Id of the cluster that answers on the port; None without an answer."""
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


_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Status of the local broker, read without connecting to it.

    Args:
        running: Whether its process lives.
        address: `host:port` for clients, while it is up.
        pid: PID of its process, while it lives.
        cluster_id: Id of its Kafka cluster; None before the first start.
        log: Path of its log file.
    """

    running: bool
    address: str | None
    pid: int | None
    cluster_id: str | None
    log: Path


class LocalBroker:
    """The broker that lives in a folder; any number of processes may start, adopt, ask and stop it.

    As a context manager it starts on entering and stops on leaving.

    Args:
        folder: Folder of the broker; created if it does not exist.
        detached: Whether it outlives this process and its terminal.
        properties: Broker properties on top of frazil's own.
        heap: The JVM's largest heap.
        on_progress: Called with a line of text now and then while something takes its time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        detached: bool = False,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        on_progress: OnProgress | None = None,
    ) -> None:
        self.folder: Path = folder.absolute()
        self._process: BrokerProcess = BrokerProcess(self.folder)
        self._detached: bool = detached
        self._properties: dict[str, str] = dict(properties or {})
        self._heap: str = heap
        self._say: OnProgress = on_progress or (lambda _: None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> str:
        """Start the broker, or adopt the one that runs already, and wait until it answers.

        Returns:
            Its address, `host:port`.

        Raises:
            BrokerError: The broker ended or did not answer in time; the message has the end of its log.
            ArtifactError: The broker's jars are damaged or could not be fetched.
            PreflightError: There is no Java for it.
        """
        private_folder(self.folder)
        keep_private(self.folder)
        with service_lock(self.folder, "broker", BrokerError):
            running = self._process.running()
            ports = self._kept_ports()
            if running is None or ports is None or not self._adopt(ports, *running):
                ports = self._start_new()
            address = f"{HOST}:{ports.plain}"
            write_durably(self.folder / "address", address.encode())
            return address

    def stop(self) -> bool:
        """Stop the broker, also one of another command; returns whether it ran. Its data stays."""
        if not self.folder.is_dir():
            return False
        with service_lock(self.folder, "broker", BrokerError):
            (self.folder / "address").unlink(missing_ok=True)
            return self._process.stop()

    def status(self) -> BrokerStatus:
        """Return what is known about the broker; touches no network."""
        running = self._process.running()
        ports = self._kept_ports()
        up = running is not None and ports is not None and (self.folder / "address").exists()
        return BrokerStatus(
            running=running is not None,
            address=f"{HOST}:{ports.plain}" if up and ports else None,
            pid=running[0] if running else None,
            cluster_id=cluster_id(self.folder),
            log=self._process.log,
        )

    def _adopt(self, ports: Ports, pid: int, started: str) -> bool:
        try:
            self._process.wait_until_ready(ports, pid, started)
        except (BrokerError, PortTakenError):
            # It was about to end when we looked, killed or stopped by somebody; that is no reason not to start it.
            if is_alive(pid, started):
                raise
            return False
        return True

    def _start_new(self) -> Ports:
        java = str(check_java().executable)
        classpath = os.pathsep.join(str(jar) for jar in resolve_jars("broker", on_progress=self._say))
        options = [f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        options += ["-Dlog4j2.configurationFile=log4j2.properties", "-Dlog4j2.disableJmx=true"]
        (self.folder / "address").unlink(missing_ok=True)
        with open(self.folder / "log4j2.properties", "w", opener=private_opener) as file:
            file.write(LOG4J2)
        for attempt in range(1, _ATTEMPTS + 1):
            ports = self._kept_ports()
            if ports is None or not all(map(is_port_free, ports.all())):
                ports = choose_ports()
            text = server_properties(ports, self._properties)
            # It may hold what `properties` brought.
            (self.folder / "server.properties").touch(mode=0o600)
            (self.folder / "server.properties").write_text(text)
            if cluster_id(self.folder) is None:
                self._say("formatting the local broker's storage")
                format_storage(self.folder, java, classpath)
            self._say(f"starting the local broker on {HOST}:{ports.plain}")
            try:
                self._process.start([java, *options, "-cp", classpath], ports, detached=self._detached)
            except PortTakenError:
                if attempt == _ATTEMPTS:
                    raise self._process.error(f"The local broker found its ports taken {_ATTEMPTS} times") from None
                continue
            return ports
        raise AssertionError("every attempt returns, raises or is followed by another")

    def _kept_ports(self) -> Ports | None:
        try:
            return read_ports((self.folder / "server.properties").read_text())
        except FileNotFoundError:
            return None
