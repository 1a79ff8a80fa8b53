"""Worker of Kafka Connect on the loopback, from resolved jars: standalone, with its connectors from files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jobs.base.errors import FrazilError
from jobs.base.system.ports import HOST, free_ports
from jobs.base.system.processes import start_time, stop_process
from jobs.clients.install.preflight import check_java

CONNECT_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
SMALL_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
LOG4J2 = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = connect.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = WARN
rootLogger.appenderRef.file.ref = file
"""
_READY_SECONDS = 300.0
_GRACE_SECONDS = 20.0
_POLL_SECONDS = 0.1


class ConnectWorker:
    """A worker and its connectors; as a context manager it runs for its length.

    Entering returns at once: `wait_until_running` waits until the connectors and their tasks run. The worker logs to
    `connect.log` and `connect.out` in its folder. Source offsets are in `offsets`, so that a restarted worker goes on.

    Args:
        folder: Folder of the worker, created if it does not exist.
        address: Address of the broker.
        jars: Class path of the worker.
        settings: Further settings of the worker, beside the address, the REST listener and the file of offsets.
        connectors: Configuration of each connector by its name, including `tasks.max`.
        options: Options of the JVM.
        log4j2: Configuration of its logs.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        jars: Sequence[Path],
        *,
        settings: Mapping[str, str],
        connectors: Mapping[str, Mapping[str, str]],
        options: Sequence[str] = SMALL_JVM,
        log4j2: str = LOG4J2,
    ) -> None:
        self.folder: Path = folder
        self.log: Path = folder / "connect.log"
        self.rest: str = f"http://{HOST}:{free_ports(1)[0]}"
        self._jars: Sequence[Path] = jars
        self._settings: Mapping[str, str] = {
            "bootstrap.servers": address,
            "listeners": self.rest,
            "offset.storage.file.filename": "offsets",
            **settings,
        }
        self.connectors: Mapping[str, Mapping[str, str]] = connectors
        self._options: Sequence[str] = options
        self._log4j2: str = log4j2
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
        """Make the files, so that only the worker itself is left to start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        written(self.folder / "worker.properties", self._settings)
        for name, properties in self.connectors.items():
            written(self.folder / f"{name}.properties", {"name": name, **properties})
        (self.folder / "log4j2.properties").write_text(self._log4j2)

    def start(self) -> None:
        """Start the JVM."""
        with (self.folder / "connect.out").open("ab") as output:
            self._process = subprocess.Popen(
                # The Iceberg sink looks for the worker's file on this command line.
                [
                    *(str(check_java().executable), *self._options, "-Dlog4j2.configurationFile=log4j2.properties"),
                    *("-cp", os.pathsep.join(map(str, self._jars)), CONNECT_MAIN, "worker.properties"),
                    *(f"{name}.properties" for name in self.connectors),
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

    def restart_connectors(self) -> None:
        """Restart the connectors and their tasks, which write to `offsets` where they are."""
        for name in self.connectors:
            url = f"{self.rest}/connectors/{name}/restart?includeTasks=true&onlyFailed=false"
            urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60).close()

    def offsets_written(self) -> int:
        """Time when `offsets` was last written; nanoseconds since 1970, 0 if never."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "offsets").stat().st_mtime_ns
        return 0

    def forget_offsets(self) -> None:
        """Let the connectors begin anew when the worker, which is not there, is started."""
        (self.folder / "offsets").unlink(missing_ok=True)

    def kill(self) -> None:
        """End the JVM with SIGKILL: what it has not written to `offsets` it does again."""
        assert self._process is not None, "it has not been started"
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def wait_until_running(self) -> None:
        """Wait until all connectors and their tasks run.

        Raises:
            FrazilError: A connector or task has failed, or does not run within a minute and a half.
        """
        expected = sum(1 + int(each.get("tasks.max", "1")) for each in self.connectors.values())
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            states = self.states()
            if len(states) == expected and set(states) == {"RUNNING"}:
                return
            self.check()
            time.sleep(_POLL_SECONDS)
        raise self._error(f"The Connect worker was not ready within {_READY_SECONDS:.0f} s")

    def lives(self) -> bool:
        """Whether the JVM runs; sends it no request."""
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise if the worker has ended or something in it has failed.

        Raises:
            FrazilError: The worker or a part of it has failed; the message has the end of the log.
        """
        if self._process is not None and self._process.poll() is not None:
            raise self._error(f"The Connect worker ended with status {self._process.returncode}")
        for part in self._parts():
            if part["state"] == "FAILED":
                raise self._error(f"A connector has failed: {part.get('trace', 'it does not say why')}")

    def states(self) -> list[str]:
        """The states of the connectors and their tasks; none while the worker does not answer."""
        return [part["state"] for part in self._parts()]

    def _parts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for name in self.connectors:
            try:
                with urllib.request.urlopen(f"{self.rest}/connectors/{name}/status", timeout=60) as answer:
                    status: dict[str, Any] = json.load(answer)
            except (urllib.error.URLError, OSError, ValueError):
                return []
            found += [status["connector"], *status["tasks"]]
        return found

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
