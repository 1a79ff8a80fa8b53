"""Mirror process of a driver: merges the stream's changes into its mirrors, and ends with the driver."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.config.stream.models import StreamSpec

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 30.0
_END_SECONDS = 10.0


class MirrorProcess:
    """Keeps a process running that merges a stream's mirrors while its driver runs.

    Args:
        command: Command that starts it; empty if there is nothing to merge.
    """

    def __init__(self, command: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted: bool = bool(command)
        self._command: tuple[str, ...] = tuple(command)
        root = str(Path(__file__).resolve().parents[4])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(filter(None, paths if root in paths else [root, *paths]))
        self._environment: dict[str, str] = {**os.environ, "PYTHONPATH": path}
        self._clock: Callable[[], float] = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._not_before: float = 0.0
        self._changing: threading.Lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """PID of the process, while it lives."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def ensure(self) -> None:
        """Start it unless it runs; call this with every heartbeat."""
        with self._changing:
            if self._wanted and self.pid is None and self._clock() >= self._not_before:
                self._start()

    def _start(self) -> None:
        if self._child is not None:
            status = self._child.poll()
            log.warning("the process that merges into mirrors ended with status %s; it is started again", status)
            if self._child.stdin is not None:
                self._child.stdin.close()
        self._not_before = self._clock() + _AGAIN_SECONDS
        try:
            # It is in the driver's session, so that ending a dead driver's processes ends it as well.
            self._child = subprocess.Popen(self._command, env=self._environment, stdin=subprocess.PIPE, close_fds=True)
        except OSError as problem:
            log.warning("the process that merges into mirrors could not be started: %s", problem)

    def end(self) -> None:
        """Ask it to end after the present merge, and wait some seconds for that; it is not started again."""
        with self._changing:
            self._wanted = False
        child = self._child
        if child is None or child.stdin is None:
            return
        child.stdin.close()
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def mirror_process(spec: StreamSpec, arguments: Sequence[str] | None) -> MirrorProcess:
    """The mirror process of a stream's driver.

    Args:
        spec: The stream, some of whose mirrors may have `every`.
        arguments: Home folder and settings file of the deployment, as passed to the driver; None if it got none.
    """
    if arguments is None or all(each.every is None for each in spec.mirrors):
        return MirrorProcess(())
    return MirrorProcess((sys.executable, "-m", "jobs.mirrors.main", *arguments, "--stream", spec.stream))
