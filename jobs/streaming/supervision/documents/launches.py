"""Launch records: the newest launch of a stream's driver, and the process that it started.

`launch.json` is written before the process starts, `process.json` right after. The launch's configuration is stored
with it, so that a stream can be started again unchanged while its file in `streams/` cannot be read.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.processes import lives_here
from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.services.launcher_name import LOCAL, LauncherName
from jobs.streaming.supervision.documents.heartbeat import Heartbeat

LAUNCH_KEY = "launch.json"
PROCESS_KEY = "process.json"
# A driver reads it as a file of its folder, so that errors name file and line.
SPEC_FILE = "launched.yaml"
# Noun for the handle of each launcher.
_HANDLES: dict[LauncherName, str] = {"spark_submit": "submission", "kubernetes": "pod"}
# Configuration of the newest launch, if another machine made it.
_ELSEWHERE = "launched-elsewhere.yaml"


class KeptRestart(msgspec.Struct, frozen=True):
    """A driver that its watchdog started.

    Attributes:
        attempt: Number of its launch.
        at: Seconds since 1970.
        why: What had happened to the former driver.
    """

    attempt: int
    at: float
    why: str


class Launch(msgspec.Struct, frozen=True):
    """One launch.

    Attributes:
        attempt: Grows by one with every launch.
        generation: Generation of the launched configuration.
        file: Path of the stream's file, for messages; its text is stored as `launched.yaml`.
        failures: Number of consecutive failed launches before this one, without progress in between.
        at: Seconds since 1970.
        reason: Reason given by the operator, the supervisor or the watchdog.
        kept: Number of all launches of the stream by watchdogs.
        kept_newest: The newest of them, in order.
        group: Group whose driver runs the stream; None for a driver of its own.
        deaths: Number of consecutive drivers of the group that died while this stream was opening or had a batch.
        launcher: Launcher of the driver; `local` in documents of releases without another one.
        handle: The launcher's handle for it, if it is known before the start.
    """

    attempt: int
    generation: str
    file: str
    failures: int
    at: float
    reason: str = ""
    kept: int = 0
    kept_newest: tuple[KeptRestart, ...] = ()
    group: str | None = None
    deaths: int = 0
    launcher: LauncherName = LOCAL
    handle: str = ""


_LAUNCHES = typed_decoder(Launch)


def read_launch(store: StateStore) -> Launch | None:
    """The newest launch; None if the stream was never launched."""
    return _decoded(store.get(LAUNCH_KEY))


def _decoded(content: bytes | None) -> Launch | None:
    with contextlib.suppress(*DAMAGED):
        return _LAUNCHES.decode(content or b"")
    return None


class LaunchedElsewhereError(FrazilError):
    """Another machine launched the stream at the same time.

    Safe: One driver runs.
    Next: `frazil status S`
    """


def write_launch(store: StateStore, launch: Launch, spec_text: str) -> None:
    """Record a launch durably, its configuration first.

    Raises:
        LaunchedElsewhereError: Another machine was quicker: nothing may be launched here.
    """
    text, content = spec_text.encode(), msgspec.json.encode(launch)
    store.put(SPEC_FILE, text)
    if not store.shared:
        # The launcher of the driver holds the stream's control lock.
        store.put(LAUNCH_KEY, content)
        return
    store.local.put(SPEC_FILE, text)
    former = store.get(LAUNCH_KEY)
    newest = _decoded(former)
    taken = newest is not None and newest.attempt >= launch.attempt
    if taken or not store.replace_if_unchanged(LAUNCH_KEY, former, content):
        raise LaunchedElsewhereError("another machine has just launched the stream.", fix="frazil status")
    # A slower launch may have overwritten the text.
    store.put(SPEC_FILE, text)


def launched_file(folder: StreamFolder) -> Path:
    """Configuration of the newest launch as a file on this machine; it need not exist."""
    store = folder.store
    if not store.shared:
        return folder.root / SPEC_FILE
    content, local = store.get(SPEC_FILE), store.local
    if content is not None and local.get(_ELSEWHERE) != content:
        local.put(_ELSEWHERE, content)
    return folder.root / _ELSEWHERE


def failures_in_a_row(launch: Launch | None, beat: Heartbeat | None, stable_seconds: float) -> int:
    """Number of consecutive failed launches, the newest included; for a driver that is known to be dead.

    A driver fails if it ends with an error, without a last heartbeat, or because another one took its stream. A driver
    that was asked to end, or that finished, did not fail. The count begins again after a driver that committed a batch,
    or that ran for a stable time without a record to commit. A commit does not reset it if another driver took the
    stream: otherwise two deployments with one catalog would take it from each other for ever, without a pause.

    Args:
        beat: The newest heartbeat, of any attempt.
        stable_seconds: Running time after which a driver counts as stable.
    """
    if launch is None:
        return 0
    if beat is None or beat.attempt < launch.attempt:
        # It died before its first heartbeat.
        return launch.failures + 1
    if beat.final and beat.state not in ("failed", "fenced"):
        return 0
    made_progress = beat.work.made_progress and beat.state != "fenced"
    had_nothing_to_do = beat.state != "starting" and beat.work.busy_since is None and not beat.work.last_lag
    stable = had_nothing_to_do and beat.beat_wall - beat.since >= stable_seconds
    return 1 if made_progress or stable else launch.failures + 1


def deaths_in_a_row(launch: Launch | None, beat: Heartbeat | None) -> int:
    """Number of consecutive drivers of a group that died while a stream was opening or had a batch.

    Args:
        launch: The stream's newest launch.
        beat: The newest heartbeat, of any attempt.
    """
    if launch is None:
        return 0
    if beat is None or beat.attempt < launch.attempt:
        # The stream was not begun.
        return launch.deaths
    if beat.final or not (beat.state == "starting" or beat.work.busy_since is not None):
        return 0
    return 1 if beat.work.made_progress else launch.deaths + 1


def pause_before(failures: int, first: float, longest: float) -> float:
    """Seconds to wait before a launch after consecutive failures: 0, then `first`, doubling up to `longest`."""
    if failures <= 1:
        return 0.0
    # 60 doublings of the shortest pause exceed every configurable one.
    return min(first * 2.0 ** min(failures - 2, 60), longest)


class LaunchedProcess(msgspec.Struct, frozen=True):
    """The process of the newest launch.

    Attributes:
        pid, started, boot, host: Identity of a process that its launcher sees; 0 and empty if it runs elsewhere, until
        it reports itself.
        at: Seconds since 1970.
        group: Group that the process runs; None if it runs one stream.
        launcher: Launcher that started it; `local` in documents of releases without another one.
        handle: The launcher's handle for it: the id of a submission, or the name of a pod. Empty with `local`, and if
            another launcher refused it.
        problem: Reason of the refusal.
    """

    attempt: int
    generation: str
    pid: int
    started: str
    boot: str
    host: str
    at: float
    group: str | None = None
    launcher: LauncherName = LOCAL
    handle: str = ""
    problem: str = ""

    @property
    def remote(self) -> bool:
        """Whether only its launcher can see and end it."""
        return self.launcher != LOCAL

    def process_lives(self) -> bool | None:
        """Whether it runs; None if this host or container cannot see it."""
        return None if self.remote else lives_here(self.pid, self.started, self.boot, self.host)


def process_name(process: LaunchedProcess) -> str:
    """Name for messages: its pid and host, its launcher's handle, or both."""
    seen = f"process {process.pid} on {process.host}" if process.pid else ""
    handle = f"{_HANDLES.get(process.launcher, process.launcher)} {process.handle}" if process.handle else ""
    return f"{seen}, {handle}" if seen and handle else seen or handle or "a driver that was refused"


def planned_process(launch: Launch) -> LaunchedProcess | None:
    """Presumed process of a launch that was not recorded, as far as the launch determines it."""
    if launch.launcher == LOCAL or not launch.handle:
        return None
    who = (launch.attempt, launch.generation, 0, "", "", "", launch.at, launch.group)
    return LaunchedProcess(*who, launch.launcher, launch.handle)


_PROCESSES = typed_decoder(LaunchedProcess)


def write_launched_process(store: StateStore, process: LaunchedProcess) -> None:
    """Record the process of a launch durably."""
    store.put(PROCESS_KEY, msgspec.json.encode(process))


def read_launched_process(store: StateStore) -> LaunchedProcess | None:
    """The process of the newest launch; None if there never was one."""
    with contextlib.suppress(*DAMAGED):
        return _PROCESSES.decode(store.get(PROCESS_KEY) or b"")
    return None
