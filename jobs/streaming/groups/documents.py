"""Documents of a group's streams for its driver: launches, processes and last heartbeats."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.generation import generation
from jobs.config.settings.groups import group_of
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.streaming.driver.process.logs import driver_log
from jobs.streaming.groups.members import Member
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.documents.heartbeat import (
    Heartbeat,
    LastError,
    State,
    write_heartbeat,
)
from jobs.streaming.supervision.documents.launches import (
    KeptRestart,
    Launch,
    LaunchedProcess,
    launched_file,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.launchers.choice import looker
from jobs.streaming.supervision.launchers.driver_identity import itself
from jobs.streaming.supervision.processes.actual import Driver, read_certain
from jobs.streaming.supervision.processes.groups import DriverGroup

log = logging.getLogger(__name__)

_KEPT_NEWEST = 5


class MemberDocuments:
    """State documents in the folders of a group's streams.

    Args:
        process: The group's driver (this process), as launches record it.
    """

    def __init__(self, group: DriverGroup, process: LaunchedProcess) -> None:
        self._group: DriverGroup = group
        self._settings: Settings = group.settings
        self._process: LaunchedProcess = process

    def member(self, stream: str, launch: Launch) -> Member:
        """Present state of a stream with this newest launch.

        Raises:
            UnreadableStateError, FrazilError: A document cannot be read.
        """
        store = stream_folder(self._settings, stream).store
        actual = read_certain(store, stream, looker(self._settings))
        driver, note = actual.driver, actual.launched_process
        # Its newest launch may name this very process, which has not begun it yet.
        driven = actual.other_holder is not None or (driver is not None and not self._is_own(driver))
        given_here = note is not None and (
            note.handle == self._process.handle if note.remote else note.host == self._process.host
        )
        if store.shared and not given_here and actual.awaited:
            # It was given to the driver of another machine, which may be about to begin it.
            driven = True
        return Member(stream, launch, read_control(store), actual.heartbeat, driven)

    def _is_own(self, driver: Driver) -> bool:
        """Whether a driver is this very process; by its handle if only its launcher sees it."""
        me, noted = self._process, driver.launched
        if noted is not None and noted.remote and noted.handle == me.handle:
            return True
        return (driver.pid, driver.started) == (me.pid, me.started)

    def is_named(self, launch: Launch) -> bool:
        """Whether the file that a stream was launched from exists, and names this group, if it can be read."""
        # The path may be relative to the launcher's folder or to the deployment.
        places = (Path(launch.file), self._settings.home / launch.file)
        file = next((each for each in places if each.exists()), None)
        if file is None:
            return False
        with contextlib.suppress(FrazilError, OSError):
            return group_of(load_stream(file), self._settings) == self._group.name
        return True

    def launched_anew(self, member: Member, folder: StreamFolder) -> Launch:
        """Next launch of a stream that an earlier driver of the group left without a last heartbeat."""
        former, kept = member.launch, launched_file(folder)
        attempt, now = former.attempt + 1, time.time()
        why = f"the driver of group {self._group.name} ended without a report"
        launch = msgspec.structs.replace(
            former,
            attempt=attempt,
            generation=generation(load_stream(kept), self._settings),
            failures=0,
            deaths=member.deaths,
            at=now,
            reason=why,
            kept=former.kept + 1,
            kept_newest=(*former.kept_newest, KeptRestart(attempt, now, why))[-_KEPT_NEWEST:],
            # Until the launch's process is recorded, these name the driver that is about to begin it.
            launcher=self._process.launcher,
            handle=self._process.handle,
        )
        write_launch(folder.store, launch, kept.read_text(encoding="utf-8"))
        return launch

    def note(self, folder: StreamFolder, launch: Launch) -> None:
        """Record this process as the process of a stream's launch."""
        note = msgspec.structs.replace(
            self._process,
            attempt=launch.attempt,
            generation=launch.generation,
            at=time.time(),
            group=self._group.name,
        )
        write_launched_process(folder.store, note)

    def say(self, member: Member, state: State, error: LastError | None = None) -> None:
        """Write a last heartbeat for a stream that is not started."""
        folder, launch, beat = stream_folder(self._settings, member.stream), member.launch, member.heartbeat
        if error is not None:
            log.error("stream %s: %s", member.stream, error.message)
        if beat is None or beat.attempt != launch.attempt:
            me, now = self._process, time.time()
            who = (member.stream, launch.generation, launch.attempt, me.pid, me.started, me.boot, me.host)
            log_file = str(driver_log(self._group.folder.root))
            beat = Heartbeat(*who, now, state, now, boot_clock(), now, log=log_file, group=self._group.name)
        said = msgspec.structs.replace(beat, state=state, state_since=time.time(), error=error)
        write_heartbeat(folder.store, said)


def process_note(attempt: int, beat: Heartbeat, group: str) -> LaunchedProcess:
    """This process, as launches of the group's streams record it."""
    return msgspec.structs.replace(itself(beat, group), attempt=attempt, at=time.time())
