"""Process of a local service: started in a folder, and found again there by any process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import private_opener
from jobs.base.system.processes import is_alive, start_time, stop_process
from jobs.clients.state_store.durable_files import write_durably

_LOCK_DEADLINE_SECONDS = 300.0


class ServiceProcess:
    """A service's process, known by the process id and start time in `pid.json` of its folder.

    Args:
        folder: The service's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Path = folder
        self._note: Path = folder / "pid.json"

    def running(self) -> tuple[int, str] | None:
        """Process id and start time, while it lives."""
        try:
            noted = json.loads(self._note.read_bytes())
            pid, started = noted["pid"], noted["started"]
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return (pid, started) if is_alive(pid, started) else None

    def launch(self, command: Sequence[str], output: Path, *, detached: bool) -> tuple[int, str | None]:
        """Start it in its folder; returns process id and start time.

        Args:
            command: Command to run.
            output: Output file, which is replaced; like all files of the process it is readable only by its owner.
            detached: Whether it outlives this process and its terminal.
        """
        with open(output, "wb", opener=private_opener) as file:
            # Always a group of its own: Ctrl-C in the terminal reaches frazil, which then ends the service in order.
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=detached,
                process_group=None if detached else 0,
                umask=0o077,
            )
        started = start_time(process.pid)
        write_durably(self._note, json.dumps({"pid": process.pid, "started": started}).encode())
        # From here on it is known by pid and start time, to this process as to any other. A status that is set keeps
        # Python from warning that a child is forgotten while it runs.
        process.returncode = 0
        return process.pid, started

    def end(self, pid: int, started: str | None, grace_seconds: float) -> None:
        """End it in order, and with SIGKILL after the grace."""
        stop_process(pid, started, grace_seconds)
        # Only a child of this process can be waited for.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        self._note.unlink(missing_ok=True)

    def stop(self, grace_seconds: float) -> bool:
        """Stop the process, also one of another command; returns whether it ran."""
        running = self.running()
        if running is not None:
            self.end(*running, grace_seconds)
        else:
            self._note.unlink(missing_ok=True)
        return running is not None


@contextlib.contextmanager
def service_lock(folder: Path, service: str, error: type[FrazilError]) -> Iterator[None]:
    """Let one process at a time start or stop the service of a folder.

    Args:
        folder: The service's.
        service: Name of the service in the message.
        error: Raised if another process holds the lock for two minutes.
    """
    try:
        with exclusive(folder / "lock", deadline_seconds=_LOCK_DEADLINE_SECONDS):
            yield
    except TimeoutError:
        raise error(
            f"Another process has been starting or stopping the {service} in {folder} for"
            f" {_LOCK_DEADLINE_SECONDS:.0f} s",
            fix="wait for it, or end it",
        ) from None
