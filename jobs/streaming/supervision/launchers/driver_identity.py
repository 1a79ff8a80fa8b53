"""Identity of a driver that was started elsewhere: what it was given tells its launcher and its handle."""

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
# The supervisor starts such a driver again, and a keeper beside it would do so behind its launcher's back.
KEEPER_OFF: Mapping[str, str] = {"FRAZIL_KEEPER": "off"}
_NAMES: Mapping[str, LauncherName] = {"spark_submit": "spark_submit", "kubernetes": "kubernetes"}
_STORE_SECONDS = 600.0
_STORE_PAUSE_SECONDS = 2.0
_SUBMISSION = re.compile(r"driver-[0-9]+-[0-9]+")


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """What this process is to its launcher.

    Attributes:
        launcher: By which it was started.
        handle: By what that launcher finds it; empty for a process that its machine's launcher has started.
    """

    launcher: LauncherName = LOCAL
    handle: str = ""

    @property
    def remote(self) -> bool:
        """Whether it runs where only its launcher can find it."""
        return self.launcher != LOCAL


def own_identity() -> DriverIdentity:
    """What this process is to its launcher, by its environment."""
    name = _NAMES.get(os.environ.get(LAUNCHER_VARIABLE, ""), LOCAL)
    return DriverIdentity(name, os.environ.get(HANDLE_VARIABLE, "") if name != LOCAL else "")


def submission_of(folder: Path) -> str:
    """The id of the submission that a worker of Spark runs in a folder; empty if it is another folder."""
    return folder.name if _SUBMISSION.fullmatch(folder.name) else ""


def take_launched_file(folder: StreamFolder) -> None:
    """Have the configuration that was launched on this machine, where another one launched it.

    A store that does not answer is waited for, as by a driver that runs, for as long as a start may take.

    Raises:
        FrazilError, OSError: It cannot be read, or written.
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
    """Record by what this driver is found, unless its launcher has, or nobody has launched it elsewhere.

    A launcher that is killed between a submission and its note leaves a driver that only it could name.
    """
    me = own_identity()
    if not (me.remote and me.handle):
        return
    with contextlib.suppress(OSError):
        # Where this cannot be written now, the lease cannot be taken either, and that is told.
        noted = read_launched_process(store)
        if noted is None or noted.attempt < beat.attempt:
            write_launched_process(store, itself(beat))


def itself(beat: Heartbeat, group: str | None = None) -> LaunchedProcess:
    """This process as its launches are recorded."""
    me = own_identity()
    who = (beat.attempt, beat.generation, beat.pid, beat.started, beat.boot, beat.host, beat.since, group)
    return LaunchedProcess(*who, me.launcher, me.handle)
