"""A process of its own that need not start Python and import everything first: a fork of one that has.

Python's fork server is such a process: it has one thread and has opened nothing. What it forks is a process like any
other, with a pid, an environment and an exit status of its own, and SIGKILL ends it where it is. To start Python and to
import what a replay needs takes more than a second of CPU; a replay of four letters, a fraction of that.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

# What the server imports with this module, before its first fork.
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401

import orchestration.cli.dead_letters.replay
import orchestration.cli.tables.publish
import orchestration.cli.tables.tag  # noqa: F401
from jobs.base import failpoints as steps
from orchestration.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.02


class Forked:
    """A process that runs a function; used like `subprocess.Popen`.

    Args:
        run: Function of a module, since the process imports it by its name.
        arguments: Arguments of the function.
        env: Environment variables on top of this process's own.
        folder: Folder of the file with its output.
    """

    def __init__(self, run: Callable[..., object], *arguments: Any, env: Mapping[str, str], folder: Path) -> None:
        handle, name = tempfile.mkstemp(".out", dir=folder)
        os.close(handle)
        self._output: Path = Path(name)
        given = (run, arguments, {**os.environ, **env}, name)
        self._process: ForkServerProcess = _server().Process(target=_run, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def send_signal(self, which: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self._process.exitcode is None:
            os.kill(self.pid, which)

    def kill(self) -> None:
        """Send it SIGKILL, if it lives."""
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float = 120.0) -> int:
        """Wait for its end; returns the exit status, minus the signal's number if one ended it."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, f"it has not ended within {seconds:.0f} s: {self.said()}"
        return self._process.exitcode

    def said(self) -> str:
        """Output of the process so far."""
        return self._output.read_text()

    def wait_until_stopped(self, seconds: float = 60.0) -> None:
        """Wait until SIGSTOP has stopped it."""
        deadline = time.monotonic() + seconds
        while not is_stopped(self.pid):
            assert self._process.exitcode is None, f"it has ended: {self.said()}"
            assert time.monotonic() < deadline, f"it was not stopped within {seconds:.0f} s"
            time.sleep(_POLL_SECONDS)


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has stopped a process."""
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True).stdout
    return state.startswith("T")


def frazil(*arguments: str) -> None:
    """The command, as a process runs it."""
    main(arguments, prog_name="frazil")


@functools.cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    # It finds this package where this process does, and has no threads of NumPy's that a fork would lose.
    given = {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        context.set_forkserver_preload([__name__])
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def _run(run: Callable[..., object], arguments: tuple[Any, ...], env: dict[str, str], output: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    handle = os.open(output, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(handle, standard)
    # As in every process: the steps that FRAZIL_STEPS names are read when the module is imported.
    importlib.reload(steps)
    run(*arguments)
