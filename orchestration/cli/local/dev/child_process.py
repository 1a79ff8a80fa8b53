"""Child processes that a command starts and ends again, with everything that they start in their turn."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.base.system.private_files import private_folder, private_opener
from jobs.base.system.processes import session_members

_POLL_SECONDS = 0.05
_LOG_TAIL_LINES = 15


class Child:
    """A process in a session of its own, so that the terminal's Ctrl-C does not reach it before its owner has decided.

    Args:
        log: File of its output; emptied at the start, with the former one kept as `.previous`.
    """

    def __init__(self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.name: str = name
        self.log: Path = log
        private_folder(log.parent)
        with contextlib.suppress(FileNotFoundError):
            log.replace(log.with_name(f"{log.name}.previous"))
        with open(log, "wb", opener=private_opener) as output:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of the process's session and group."""
        return self._process.pid

    def ending(self) -> str | None:
        """The way it has ended, as the end of a sentence; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-status).name}"
        return f"ended with exit status {status}"

    def last_words(self) -> str:
        """The end of its log, as the end of a sentence."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        tail = "\n".join(f"    {line}" for line in lines)
        return f"the end of {self.log}:\n{tail}"

    def members(self) -> list[int]:
        """The living processes of its session: itself and its descendants, orphans among them."""
        return session_members(self.pid)

    def ask_to_end(self) -> None:
        """Send SIGTERM to all of its processes, and do not wait."""
        _send_all(self.members(), signal.SIGTERM)

    def end(self, grace_seconds: float) -> None:
        """Wait for all of its processes to end; end what is left after the grace with SIGKILL."""
        deadline = time.monotonic() + grace_seconds
        while self._alive() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        while self._alive():
            _send_all(self.members(), signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def _alive(self) -> bool:
        # Asking reaps it, too: a zombie would stay a member of its session.
        return self._process.poll() is None or bool(self.members())


def end_children(children: Sequence[Child], grace_seconds: float = 10.0) -> None:
    """End children and all that they started: all are signalled, then all are waited for."""
    for child in children:
        child.ask_to_end()
    deadline = time.monotonic() + grace_seconds
    for child in children:
        child.end(max(0.0, deadline - time.monotonic()))


def _send_all(pids: Sequence[int], which: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)
