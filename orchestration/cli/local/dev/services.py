"""Services of Dagster on a deployment, code server, webserver and daemon: started, and ended together.

One `frazil dev` runs them at a time: it locks a file in which it notes who it is. The lock goes with the process, and
what a killed one has left running is ended by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

import orchestration
from jobs.base.errors import FrazilError
from jobs.base.system.ports import free_ports, is_port_free
from jobs.base.system.processes import (
    command_of,
    is_alive,
    start_time,
    wait_until_dead,
)
from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from orchestration.cli.common.dagster_instance import WORKSPACE, make_instance
from orchestration.cli.local.dev.child_process import Child, end_children
from orchestration.cli.local.dev.code_server import MODULE, CodeServerPlace, shared_location
from orchestration.cli.local.dev.dagster_api import DagsterClient, end_runs
from resources.deployment import HOME_VARIABLE, SETTINGS_VARIABLE, Deployment

PORT = 3000
_NEAR = 100
FILE = "services.json"
_END_SECONDS = 10.0
_POLL_SECONDS = 0.1


class PortClaim:
    """A free port of 127.0.0.1, kept from other `frazil` processes until it is let go, or this one has ended.

    Dagster's webserver binds some seconds after the port was found free. Two that start at once would both find the
    same one, and the loser would talk to the winner's Dagster and take it for its own.

    Args:
        wanted: The port; None for the usual one, or the next free one if that is taken.

    Raises:
        FrazilError: The port that is wanted is taken.
    """

    def __init__(self, wanted: int | None = None, *, usual: int = PORT) -> None:
        self._lock: int | None = None
        for port in (*range(usual, usual + _NEAR), *free_ports(1)) if wanted is None else (wanted,):
            if is_port_free(port) and self._claimed(port):
                self.port: int = port
                return
        if wanted is not None:
            raise FrazilError(f"Port {wanted} is taken.", fix="name another one with --port")
        raise FrazilError("No port is free on 127.0.0.1.")

    def _claimed(self, port: int) -> bool:
        path = Path(tempfile.gettempdir()) / f"frazil-port-{port}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            # Another user's: whoever that is has it, or had it.
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Service(msgspec.Struct, frozen=True):
    """A process of the deployment's services, identified by pid and start time."""

    pid: int
    started: str


class Claim(msgspec.Struct, frozen=True):
    """The owner of the deployment's services.

    Attributes:
        since: Seconds since 1970.
        url: URL of the web UI; empty until it is known.
        services: The processes by name.
    """

    pid: int
    since: float
    url: str = ""
    services: dict[str, Service] = {}


class ServicesLock:
    """The claim of this process on a deployment's services, from `acquire` to `release`.

    Args:
        folder: Dagster's home of the deployment; created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._path: Path = folder / FILE
        self._lock: int | None = None
        self._claim: Claim = Claim(os.getpid(), 0.0)

    def acquire(self) -> dict[str, int]:
        """Claim the services, unless this process has them already.

        Returns:
            The services that a killed claimant had left running, and that were ended: pids by name.

        Raises:
            FrazilError: Another process has the services; the message names the process, its start and its URL.
        """
        if self._lock is not None:
            return {}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            former = _read(lock)
            os.close(lock)
            raise _refused(former) from None
        former = _read(lock)
        self._lock = lock
        self._claim = Claim(os.getpid(), time.time())
        self._write()
        return _end_leftovers(former.services) if former is not None else {}

    def record_url(self, url: str) -> None:
        """Note where the web UI is."""
        self._claim = msgspec.structs.replace(self._claim, url=url)
        self._write()

    def record_services(self, services: Mapping[str, int]) -> None:
        """Note the services' processes, by name, so that the next claimant finds them if this one is killed."""
        noted = {name: Service(pid, started) for name, pid in services.items() if (started := start_time(pid))}
        self._claim = msgspec.structs.replace(self._claim, services=noted)
        self._write()

    def release(self) -> None:
        """Let others have them."""
        if self._lock is not None:
            os.truncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def _write(self) -> None:
        # Rewritten in place: the lock belongs to the file, not to its name.
        if self._lock is not None:
            data = msgspec.json.encode(self._claim)
            os.pwrite(self._lock, data, 0)
            os.truncate(self._lock, len(data))


def running_services(folder: Path) -> Claim | None:
    """The owner of a deployment's running services; None if there is none.

    Args:
        folder: Dagster's home of the deployment; it need not exist.
    """
    try:
        file = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Shared, and for no longer than this call.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return _read(file) or Claim(0, 0.0)
    finally:
        os.close(file)


def recorded_url(folder: Path) -> str | None:
    """Address of the web UI that a living process runs for a deployment; None if there is none yet, or none at all.

    Args:
        folder: Dagster's home of the deployment.
    """
    services = running_services(folder)
    return services.url or None if services is not None else None


def _read(file: int) -> Claim | None:
    with contextlib.suppress(*DAMAGED):
        return decode_json(os.pread(file, os.fstat(file).st_size, 0), Claim)
    return None


def _refused(claim: Claim | None) -> FrazilError:
    if claim is None:
        return FrazilError("Another process is just starting or ending this deployment's services.", fix="try again")
    since = datetime.fromtimestamp(claim.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = f", Dagster at {claim.url}" if claim.url else ""
    look = f"open {claim.url}; or " if claim.url else ""
    return FrazilError(
        f"This deployment's services run already: process {claim.pid}, since {since}{where}.",
        fix=f"{look}end that one first, with Ctrl-C or kill {claim.pid}",
    )


def _end_leftovers(services: Mapping[str, Service]) -> dict[str, int]:
    """End what a killed claimant left, and of it only the services: runs that are under way may finish."""
    left = {name: each for name, each in services.items() if is_alive(each.pid, each.started)}
    for each in left.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    for each in left.values():
        if not wait_until_dead(each.pid, each.started, max(0.0, deadline - time.monotonic())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
            wait_until_dead(each.pid, each.started, _END_SECONDS)
    return {name: each.pid for name, each in left.items()}


class DagsterServices:
    """The services of one deployment: a code server, and webserver and daemon, which share it.

    Args:
        port: Port of the web UI; None for 3000, or the next free one if that is taken.
    """

    def __init__(self, deployment: Deployment, port: int | None = None) -> None:
        if importlib.util.find_spec("dagster_webserver") is None:
            raise FrazilError("Dagster's web UI is not installed.", fix="pip install 'frazil[ui]'")
        self._deployment: Deployment = deployment
        self._children: list[Child] = []
        self._serving: dict[str, Child] = {}
        self._since: float = time.time()
        self._wanted_port: int | None = port
        self._port_claim: PortClaim | None = None
        self._code_place: CodeServerPlace | None = None
        self.home: Path = deployment.embedded / "dagster"
        self._claim: ServicesLock = ServicesLock(self.home)

    @property
    def url(self) -> str:
        """The URL of the UI for a browser."""
        return f"http://127.0.0.1:{self._port()}"

    @property
    def api(self) -> DagsterClient:
        """The services' own API."""
        return DagsterClient(self.url)

    def claim(self) -> None:
        """Make sure that this is the only process that runs these services; `stop` lets others have them.

        Raises:
            FrazilError: Another process runs the services, which the message names; or the port is taken.
        """
        left = self._claim.acquire()
        if left:
            named = ", ".join(f"{name} (process {pid})" for name, pid in left.items())
            click.echo(f"Ended what a killed `frazil dev` had left running: {named}.", err=True)
        try:
            self._claim.record_url(self.url)
        except FrazilError:
            self._claim.release()
            raise

    def start(self) -> None:
        """Start all; returns before webserver and daemon answer.

        Raises:
            FrazilError: Another process runs the services, or the code server ended.
        """
        self.start_code()
        self.wait_for_code()
        self.start_clients()

    def start_code(self) -> None:
        """Start the code server, the first of the services; returns before it answers.

        Raises:
            FrazilError: Another process runs the services.
        """
        self.claim()
        make_instance(self.home)
        self.start_code_server()

    def wait_for_code(self) -> None:
        """Wait until the code server has loaded the definitions, or cannot, which Dagster's UI then shows.

        Raises:
            FrazilError: The code server has ended.
        """
        while self._code_place is not None and not self._code_place.answers():
            self.check()
            time.sleep(_POLL_SECONDS)

    def start_clients(self) -> None:
        """Start webserver and daemon, which ask the code server; returns before they answer."""
        self.start_webserver()
        self.start_daemon()

    def start_code_server(self) -> Child | None:
        """Start the code server; None if the workspace has other code locations, which each client then loads."""
        name = shared_location(self._workspace())
        if name is None:
            return None
        self._code_place = CodeServerPlace(name)
        return self._start("code server", self._code_place.command())

    def start_webserver(self) -> Child:
        """Start the webserver."""
        command = ["dagster_webserver", *self.code(), "-h", "127.0.0.1", "-p", str(self._port())]
        return self._start("webserver", command)

    def start_daemon(self) -> Child:
        """Start the daemon."""
        return self._start("daemon", ["dagster._daemon", "run", *self.code()])

    def code(self) -> list[str]:
        """The code's place: the code server; without one a workspace file, or else the module."""
        if self._code_place is not None:
            return ["-w", str(self._code_place.workspace)]
        found = self._workspace()
        return ["-w", str(found)] if found is not None else ["-m", MODULE]

    def _workspace(self) -> Path | None:
        places = (self._deployment.home / WORKSPACE, self.home / WORKSPACE)
        return next((place for place in places if place.exists()), None)

    def check(self) -> None:
        """Check that no service has ended.

        Raises:
            FrazilError: A service has ended; the message has the end of its log.
        """
        for child in self._serving.values():
            if (how := child.ending()) is not None:
                raise FrazilError(
                    f"{child.name} {how}. Running streams go on without a supervisor; {child.last_words()}",
                    fix=f"read {child.log}; then frazil dev",
                )

    def stop(self) -> None:
        """End the runs of these services that are under way, then both services, and whatever they started."""
        if self._children:
            end_runs(self.home, self._sockets(), self._since, 8.0)
        end_children(self._children)
        self._children.clear()
        self._serving.clear()
        if self._code_place is not None:
            self._code_place.remove()
            self._code_place = None
        if self._port_claim is not None:
            self._port_claim.release()
            self._port_claim = None
        self._claim.release()

    def _port(self) -> int:
        # Not before it is needed: what a killed one has left may be ended first, and its port be free again.
        if self._port_claim is None:
            self._port_claim = PortClaim(self._wanted_port)
        return self._port_claim.port

    def _sockets(self) -> set[str]:
        """The sockets of the code servers that these services started."""
        commands = (command_of(pid) for child in self._children for pid in child.members())
        found = (re.search(r"--socket[= ](\S+)", command) for command in commands)
        return {match[1] for match in found if match}

    def _start(self, name: str, module: list[str]) -> Child:
        env = {
            "DAGSTER_HOME": str(self.home),
            HOME_VARIABLE: str(self._deployment.home),
            "PYTHONPATH": _python_path(),
            "PYTHONUNBUFFERED": "1",
        }
        if self._deployment.settings_file is not None:
            env[SETTINGS_VARIABLE] = str(self._deployment.settings_file)
        command = [sys.executable, "-m", *module]
        log = self.home / f"{name.replace(' ', '-')}.log"
        child = Child(f"Dagster's {name}", command, log=log, env=env, cwd=self._deployment.home)
        self._serving[name] = child
        # One that was replaced may have left something behind.
        self._children = [*(each for each in self._children if each.members()), child]
        self._claim.record_services({name: each.pid for name, each in self._serving.items()})
        return child


def _python_path() -> str:
    root = str(Path(orchestration.__path__[0]).resolve().parent)
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
