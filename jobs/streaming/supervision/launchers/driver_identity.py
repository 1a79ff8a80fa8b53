"""Identity of a driver that was started elsewhere: its launcher and handle, from its environment."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.services.launcher_name import LOCAL, LauncherName
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.launches import (
    SPEC_FILE,
    LaunchedProcess,
    read_launched_process,
    write_launched_process,
)

log = logging.getLogger(__name__)
LAUNCHER_VARIABLE = "FRAZIL_LAUNCHER"
HANDLE_VARIABLE = "FRAZIL_DRIVER_HANDLE"
# The supervisor restarts such drivers. A watchdog beside one would bypass its launcher.
KEEPER_OFF: Mapping[str, str] = {"FRAZIL_KEEPER": "off"}
_NAMES: Mapping[str, LauncherName] = {"spark_submit": "spark_submit", "kubernetes": "kubernetes"}
_STORE_SECONDS = 600.0
_STORE_PAUSE_SECONDS = 2.0
_SUBMISSION = re.compile(r"driver-[0-9]+-[0-9]+")


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """Identity of this process for its launcher.

    Attributes:
        launcher: Launcher that started it.
        handle: The launcher's handle for it; empty for a local process.
    """

    launcher: LauncherName = LOCAL
    handle: str = ""

    @property
    def remote(self) -> bool:
        """Whether only its launcher can find it."""
        return self.launcher != LOCAL


def own_identity() -> DriverIdentity:
    """Identity of this process, from its environment."""
    name = _NAMES.get(os.environ.get(LAUNCHER_VARIABLE, ""), LOCAL)
    return DriverIdentity(name, os.environ.get(HANDLE_VARIABLE, "") if name != LOCAL else "")


def submission_of(folder: Path) -> str:
    """Id of the submission that a Spark worker runs in a folder; empty for any other folder."""
    return folder.name if _SUBMISSION.fullmatch(folder.name) else ""


def take_launched_file(folder: StreamFolder) -> None:
    """Fetch the launched configuration to this machine, if another one launched it.

    Waits for an unavailable store as long as a start may take, like a running driver.

    Raises:
        FrazilError, OSError: The configuration cannot be read, or written.
    """
    if not (own_identity().remote and folder.store.shared):
        return
    deadline = time.monotonic() + _STORE_SECONDS
    while True:
        try:
            content = folder.store.get(SPEC_FILE)
            break
        except OSError as problem:
            if isinstance(problem, PermissionError) or time.monotonic() > deadline:
                raise
            log.warning("the launched file cannot be read, and is tried again: %s", problem)
            time.sleep(_STORE_PAUSE_SECONDS)
    if content is not None:
        folder.store.local.put(SPEC_FILE, content)


def note_itself(store: StateStore, beat: Heartbeat) -> None:
    """Record this driver's handle, unless its launcher has recorded it, or it was not launched elsewhere.

    If a launcher is killed between a submission and its record, only the driver itself knows its handle.
    """
    me = own_identity()
    if not (me.remote and me.handle):
        return
    with contextlib.suppress(OSError):
        # If this cannot be written now, the lease cannot be taken either, and that is reported.
        noted = read_launched_process(store)
        if noted is None or noted.attempt < beat.attempt:
            write_launched_process(store, itself(beat))


def itself(beat: Heartbeat, group: str | None = None) -> LaunchedProcess:
    """This process, as launches record it."""
    me = own_identity()
    who = (beat.attempt, beat.generation, beat.pid, beat.started, beat.boot, beat.host, beat.since, group)
    return LaunchedProcess(*who, me.launcher, me.handle)
