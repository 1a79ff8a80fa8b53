"""Local broker: a real Kafka broker on this machine, one KRaft node from the resolved jars, on loopback only.

Its folder holds `server.properties` (ports), `address` (while it is up), `pid.json`, `broker.log`, `broker.out` (what
the JVM itself said) and `data/`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from jobs.install.artifacts import OnProgress, resolve_jars
from jobs.install.preflight import check_java
from jobs.local_broker.config import (
    LOG4J2,
    Ports,
    choose_ports,
    read_ports,
    server_properties,
)
from jobs.local_broker.errors import BrokerError
from jobs.local_broker.process import BrokerProcess, PortTakenError
from jobs.local_broker.service_process import service_lock
from jobs.local_broker.storage import cluster_id, format_storage
from jobs.state.durable_files import write_durably
from jobs.system.ports import HOST, is_port_free
from jobs.system.private_files import keep_private, private_folder, private_opener
from jobs.system.processes import is_alive

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What is known about the local broker without asking it.

    Args:
        running: Whether its process lives.
        address: `host:port` for clients, while it is up.
        pid: Its process, while it lives.
        cluster_id: None before the first start.
        log: Its log file.
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
        folder: Its folder, made if it is not there.
        detached: Let it live on when this process and its terminal are gone.
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
            BrokerError: It ended or did not answer in time; with the end of its log.
            ArtifactError: Its jars are damaged or could not be fetched.
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
        """End the broker, whoever started it; returns whether it ran. What it stored stays."""
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
