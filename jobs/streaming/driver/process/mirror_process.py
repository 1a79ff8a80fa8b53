"""Mirror process of a driver: it merges the stream's changes into its mirrors, and ends with the driver."""

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
    """Sees to it that the mirrors of a stream are merged into while its driver runs.

    Args:
        command: What starts it; none where there is nothing to merge.
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
        """Of the process, while it lives."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def ensure(self) -> None:
        """Start it unless it lives; to be called with every heartbeat."""
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
            # In the driver's session: whoever ends what a driver has left ends this as well.
            self._child = subprocess.Popen(self._command, env=self._environment, stdin=subprocess.PIPE, close_fds=True)
        except OSError as problem:
            log.warning("the process that merges into mirrors could not be started: %s", problem)

    def end(self) -> None:
        """Let it end after the merge that is under way, and wait for that for some seconds; none is started again."""
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
    """The process of a stream's driver.

    Args:
        spec: The stream, of whose mirrors some may have `every`.
        arguments: The home folder and the settings file of the deployment, as a driver is given them; None if it was
            given none.
    """
    if arguments is None or all(each.every is None for each in spec.mirrors):
        return MirrorProcess(())
    return MirrorProcess((sys.executable, "-m", "jobs.mirrors.main", *arguments, "--stream", spec.stream))
