"""Start of a driver's watchdog: the small process beside it that restarts it at once when it is killed.

With every heartbeat a driver makes sure that it has a watchdog, and the watchdog makes sure that there is a driver. So
either may be killed. Only if both are killed within the two seconds between two heartbeats, the supervisor has to start
the stream again.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.base.system.processes import start_time
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.documents.secrets import written_variables
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE
from jobs.streaming.supervision.documents.keeper_record import read_keeper
from jobs.streaming.supervision.keeper.keeper_restart import RestartPolicy

if TYPE_CHECKING:
    from jobs.config.services.trigger import Restart
    from jobs.config.settings.settings import Settings

log = logging.getLogger(__name__)

SWITCH = "FRAZIL_KEEPER"
_AGAIN_SECONDS = 10.0


def keeper_policy(restart: Restart) -> RestartPolicy:
    """`restart` of a stream's file, as a watchdog's policy."""
    return RestartPolicy(
        restart.max_restarts,
        restart.first_delay.total_seconds(),
        restart.longest_delay.total_seconds(),
        restart.stable_after.total_seconds(),
    )


def keeper_command(
    folder: StreamFolder,
    stream: str,
    attempt: int,
    pid: int,
    arguments: Sequence[str],
    policy: RestartPolicy,
    settings: Settings,
) -> tuple[str, ...]:
    """Command that starts a watchdog.

    Args:
        folder: Folder of the stream.
        stream: The stream's id.
        attempt: Number of the launch that it watches; `pid` is its process.
        arguments: Arguments of a driver, without the attempt.
        policy: Rules for restarts.
        settings: Settings with the store of the stream's documents, if it is not the folder.
    """
    order: dict[str, Any] = {
        "folder": str(folder.root),
        "stream": stream,
        "attempt": attempt,
        "pid": pid,
        "started": start_time(pid),
        "arguments": list(arguments),
        "policy": msgspec.to_builtins(policy),
    }
    if settings.state_store is not None:
        # Secrets in it are references to variables of the environment, which the watchdog inherits.
        order |= {"state": str(settings.state), "store": settings.state_store.model_dump(mode="json")}
    return (sys.executable, "-m", "jobs.streaming.supervision.keeper.keeper_process", json.dumps(order))


class KeeperStarter:
    """Starts watchdogs of a driver. It is created early: the watchdog gets the environment of that moment.

    `FRAZIL_KEEPER=off` disables it, such as if containers are restarted from outside.

    Args: As of `keeper_command`, with this process as the driver.
    """

    def __init__(
        self,
        folder: StreamFolder,
        stream: str,
        attempt: int,
        arguments: Sequence[str],
        policy: RestartPolicy,
        settings: Settings,
    ) -> None:
        self.on: bool = os.environ.get(SWITCH, "").strip().lower() not in ("off", "no", "false", "0")
        # A watchdog belongs to this machine, and so does its record.
        self._store: StateStore = folder.store.local
        self._command: tuple[str, ...] = keeper_command(
            folder, stream, attempt, os.getpid(), arguments, policy, settings
        )
        root = str(Path(__file__).resolve().parents[4])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(filter(None, paths if root in paths else [root, *paths]))
        environment = {name: value for name, value in os.environ.items() if name != DRIVER_VARIABLE}
        # Plain secrets of the settings file must not be in a command, which everybody may read.
        environment |= written_variables(settings.state_store.secrets if settings.state_store is not None else ())
        self._environment: Mapping[str, str] = environment | {"PYTHONPATH": path}
        self._child: subprocess.Popen[bytes] | None = None
        self._not_before: float = 0.0

    def ensure(self) -> None:
        """Start a watchdog unless one lives; call this with every heartbeat."""
        if not self.on or (self._child is not None and self._child.poll() is None):
            return
        if time.monotonic() < self._not_before:
            return
        keeper = read_keeper(self._store)
        if keeper is not None and keeper.lives():
            return
        # A watchdog that ends right after its start is not retried with every heartbeat.
        self._not_before = time.monotonic() + (_AGAIN_SECONDS if self._child is not None else 0.0)
        try:
            self._child = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                close_fds=True,
            )
        except OSError as problem:
            # Without a watchdog the supervisor starts the stream again.
            log.warning("no watchdog could be started: %s", problem)
            self._not_before = time.monotonic() + 60 * _AGAIN_SECONDS
