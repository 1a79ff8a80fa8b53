"""Local registry: a real schema registry with Confluent's API on this machine, on loopback only.

It is Apicurio's. Its folder holds `address` (while it is up), `pid.json`, `registry.log` and, unless all is to be
forgotten when it ends, `data/`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from jobs.base.errors import FrazilError
from jobs.base.system.ports import HOST, free_ports
from jobs.base.system.private_files import private_folder
from jobs.base.system.processes import is_alive
from jobs.clients.install.artifacts import (
    ArtifactError,
    OnProgress,
    resolve_jars,
    unpacked,
)
from jobs.clients.install.preflight import check_java
from jobs.clients.state_store.durable_files import write_durably
from jobs.local.broker.service_process import ServiceProcess, service_lock

_API = "/apis/ccompat/v7"
# As Confluent's registries start; Apicurio asks for nothing.
_COMPATIBILITY = b'{"compatibility":"BACKWARD"}'
_READY_DEADLINE_SECONDS = 180.0
_STOP_GRACE_SECONDS = 10.0
_REQUEST_SECONDS = 5.0
_POLL_SECONDS = 0.05
_ATTEMPTS = 3
_SHOWN_LINES = 12


class LocalRegistryError(FrazilError):
    """The local schema registry did not start.

    Safe: Nothing was changed.
    Next: read the log that the message names; then `frazil up`
    """


class LocalRegistry:
    """The registry that lives in a folder; any number of processes may start, adopt, ask and stop it.

    As a context manager it starts on entering and stops on leaving.

    Args:
        folder: Folder of the registry, created if it does not exist.
        detached: Whether the registry outlives this process and its terminal.
        keep: Whether registered schemas are kept for the next start; otherwise ids begin with the first one again.
        port: Port to listen on; None for any free port.
        on_progress: Callback with a line of text during slow work.
    """

    def __init__(
        self,
        folder: Path,
        *,
        detached: bool = False,
        keep: bool = True,
        port: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.folder: Path = folder.absolute()
        self.log: Path = self.folder / "registry.log"
        self._process: ServiceProcess = ServiceProcess(self.folder)
        self._detached: bool = detached
        self._keep: bool = keep
        self._port: int | None = port
        self._say: OnProgress = on_progress or (lambda _: None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> str:
        """Start the registry, or adopt the one that runs already, and wait until it answers.

        Returns:
            The URL of its API.

        Raises:
            LocalRegistryError: The registry ended or did not answer in time; the message has the end of its log.
            ArtifactError: The registry's archive is damaged or could not be fetched.
            PreflightError: There is no Java for it.
        """
        private_folder(self.folder)
        if self.running() is None:
            # Before the lock, which nobody waits for as long as a large archive may take.
            check_java()
            registry_application(self._say)
        with service_lock(self.folder, "registry", LocalRegistryError):
            running, url = self.running(), self._noted()
            if running is not None and url is not None and _answers(url):
                return url
            if running is not None:
                self._process.end(*running, _STOP_GRACE_SECONDS)
            url = self._start_new()
            write_durably(self.folder / "address", url.encode())
            return url

    def stop(self) -> bool:
        """Stop the registry, also one of another command; returns whether it ran."""
        if not self.folder.is_dir():
            return False
        with service_lock(self.folder, "registry", LocalRegistryError):
            (self.folder / "address").unlink(missing_ok=True)
            return self._process.stop(_STOP_GRACE_SECONDS)

    def running(self) -> tuple[int, str] | None:
        """Process id and start time, while it lives."""
        return self._process.running()

    def _start_new(self) -> str:
        java, application = str(check_java().executable), registry_application(self._say)
        for attempt in range(1, _ATTEMPTS + 1):
            free, management = free_ports(2)
            port = self._port or free
            url = f"http://{HOST}:{port}{_API}"
            self._say(f"starting the local schema registry on {HOST}:{port}")
            command = [java, *self._options(port, management), "-jar", str(application)]
            pid, started = self._process.launch(command, self.log, detached=self._detached)
            try:
                if self._becomes_ready(url, pid, started):
                    _set_compatibility(url)
                    return url
            except BaseException:
                self._process.end(pid, started, _STOP_GRACE_SECONDS)
                raise
            if attempt == _ATTEMPTS or "already" not in self._log_text():
                raise self._error("The local schema registry ended before it was ready")
        raise AssertionError("every attempt returns, raises or is followed by another")

    def _options(self, port: int, management: int) -> list[str]:
        # What it has answered for is on the disk, also if it is killed.
        database = f"file:{self.folder / 'data' / 'registry'};WRITE_DELAY=0" if self._keep else "mem:registry"
        return [
            *("-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
            *(f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}"),
            *(f"-Dquarkus.management.host={HOST}", f"-Dquarkus.management.port={management}"),
            "-Dquarkus.http.access-log.enabled=false",
            f"-Dapicurio.datasource.url=jdbc:h2:{database}",
        ]

    def _becomes_ready(self, url: str, pid: int, started: str | None) -> bool:
        """Wait until it answers; False if it has ended."""
        deadline = time.monotonic() + _READY_DEADLINE_SECONDS
        while not _answers(url):
            if not is_alive(pid, started):
                return False
            if time.monotonic() > deadline:
                raise self._error(f"The local schema registry did not answer within {_READY_DEADLINE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        return is_alive(pid, started)

    def _noted(self) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "address").read_text()
        return None

    def _log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _error(self, message: str) -> LocalRegistryError:
        tail = "\n".join(f"    {line}" for line in self._log_text().splitlines()[-_SHOWN_LINES:])
        return LocalRegistryError(f"{message}; the end of {self.log}:\n{tail}", fix=f"read {self.log}; then try again")


# Without the proxies of the environment: it listens on loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _answers(url: str) -> bool:
    try:
        with _opener.open(f"{url}/subjects", timeout=_REQUEST_SECONDS) as answer:
            return isinstance(json.load(answer), list)
    except (OSError, http.client.HTTPException, ValueError):
        return False


def _set_compatibility(url: str) -> None:
    request = urllib.request.Request(
        f"{url}/config", _COMPATIBILITY, {"Content-Type": "application/json"}, method="PUT"
    )
    with _opener.open(request, timeout=_REQUEST_SECONDS) as answer:
        answer.read()


def registry_application(on_progress: OnProgress | None = None) -> Path:
    """The jar to start the registry with; its libraries lie beside it.

    Args:
        on_progress: Called with a line of text now and then while the archive is fetched: 109 MB, the first time.

    Raises:
        ArtifactError: The archive could not be fetched, is not the committed one, or has no such jar.
        PreflightError: Java or PySpark, which the download needs, is missing.
    """
    (archive,) = resolve_jars("registry", on_progress=on_progress)
    folder = unpacked(archive)
    found = sorted(folder.glob("*-runner.jar"))
    if len(found) != 1:
        raise ArtifactError(f"{folder} has no registry in it", fix=f"rm -r {folder}; it is unpacked again")
    return found[0]
