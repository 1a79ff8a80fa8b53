"""Start of a driver's keeper: the small process beside it that starts it again at once when it is killed.

A driver sees to it that it has a keeper, with every heartbeat, and the keeper to it that there is a driver. So either
may be killed; only if both are, within the two seconds between two heartbeats, it takes the supervisor to start the
stream again.
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
    """`restart` of a stream's file as a keeper is started with it."""
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
    """What starts a keeper.

    Args:
        folder: The stream's.
        stream: The stream's id.
        attempt: The launch that it keeps; `pid` its process.
        arguments: What a driver is started with, but for its attempt.
        policy: When it is started again.
        settings: Name the store of the stream's documents, if its folder does not have them.
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
        # Secrets are references in it, to variables of the environment that the keeper gets.
        order |= {"state": str(settings.state), "store": settings.state_store.model_dump(mode="json")}
    return (sys.executable, "-m", "jobs.streaming.supervision.keeper.keeper_process", json.dumps(order))


class KeeperStarter:
    """Sees to it that a driver has a keeper. Made early: the keeper gets the environment as it was then.

    With `FRAZIL_KEEPER=off` there is none, as where a container that is started again does the same.

    Args: As of `keeper_command`; the process is this one.
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
        # A keeper is of this machine, and so is what it says of itself.
        self._store: StateStore = folder.store.local
        self._command: tuple[str, ...] = keeper_command(
            folder, stream, attempt, os.getpid(), arguments, policy, settings
        )
        root = str(Path(__file__).resolve().parents[4])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(filter(None, paths if root in paths else [root, *paths]))
        environment = {name: value for name, value in os.environ.items() if name != DRIVER_VARIABLE}
        # What stands in the file of the settings is in no command, which everybody may read.
        environment |= written_variables(settings.state_store.secrets if settings.state_store is not None else ())
        self._environment: Mapping[str, str] = environment | {"PYTHONPATH": path}
        self._child: subprocess.Popen[bytes] | None = None
        self._not_before: float = 0.0

    def ensure(self) -> None:
        """Start a keeper unless one lives; to be called with every heartbeat."""
        if not self.on or (self._child is not None and self._child.poll() is None):
            return
        if time.monotonic() < self._not_before:
            return
        keeper = read_keeper(self._store)
        if keeper is not None and keeper.lives():
            return
        # One that ends as soon as it was started is not tried with every heartbeat.
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
            # A stream without a keeper is started again by the supervisor.
            log.warning("no keeper could be started: %s", problem)
            self._not_before = time.monotonic() + 60 * _AGAIN_SECONDS
