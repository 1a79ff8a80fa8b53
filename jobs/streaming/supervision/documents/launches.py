"""Launch records: the newest launch of a stream's driver, and the process that it started.

`launch.json` is written before the process starts, `process.json` as soon as it has. With the launch its configuration
is kept, so that a stream can be started again as it was while its file in `streams/` cannot be read.
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
# A driver reads it as a file of its folder: what is wrong with it is told by file and line.
SPEC_FILE = "launched.yaml"
# What the handle of each launcher is.
_HANDLES: dict[LauncherName, str] = {"spark_submit": "submission", "kubernetes": "pod"}
# The configuration of the newest launch, where another machine made it.
_ELSEWHERE = "launched-elsewhere.yaml"


class KeptRestart(msgspec.Struct, frozen=True):
    """A driver that its keeper started.

    Attributes:
        attempt: Its launch.
        at: Seconds since 1970.
        why: What had become of the driver before it.
    """

    attempt: int
    at: float
    why: str


class Launch(msgspec.Struct, frozen=True):
    """One launch.

    Attributes:
        attempt: Grows by one with every launch.
        generation: Of the configuration that was launched.
        file: The stream's file as it was found, for messages; its text is kept as `launched.yaml`.
        failures: How many launches before this one failed in a row without getting anywhere in between.
        at: Seconds since 1970.
        reason: Why it was launched, as the operator, the supervisor or the keeper said it.
        kept: How many launches of the stream were its keepers', ever.
        kept_newest: The newest of them, in their order.
        group: The group whose driver carries the stream; None where it has a driver of its own.
        deaths: How many drivers of the group before this launch died in a row with something of this stream at hand.
        launcher: By which the driver is started; `local` where a release wrote this that had no other.
        handle: By what that launcher finds it, where it is known before the start.
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
        # Whoever launches holds the stream's control lock.
        store.put(LAUNCH_KEY, content)
        return
    store.local.put(SPEC_FILE, text)
    former = store.get(LAUNCH_KEY)
    newest = _decoded(former)
    taken = newest is not None and newest.attempt >= launch.attempt
    if taken or not store.replace_if_unchanged(LAUNCH_KEY, former, content):
        raise LaunchedElsewhereError("another machine has just launched the stream.", fix="frazil status")
    # Whoever was slower may have written his over it.
    store.put(SPEC_FILE, text)


def launched_file(folder: StreamFolder) -> Path:
    """The configuration of the newest launch, as a file of this machine; it need not be there."""
    store = folder.store
    if not store.shared:
        return folder.root / SPEC_FILE
    content, local = store.get(SPEC_FILE), store.local
    if content is not None and local.get(_ELSEWHERE) != content:
        local.put(_ELSEWHERE, content)
    return folder.root / _ELSEWHERE


def failures_in_a_row(launch: Launch | None, beat: Heartbeat | None, stable_seconds: float) -> int:
    """How many launches failed in a row, the newest included; for a driver that is known to be gone.

    A driver fails if it ends with an error, without a word, or because another took its stream. One that was asked to
    end, or that finished, did not fail. What counts is progress, not how long it took: a driver that has committed a
    batch starts the count anew, and so does one that ran for a stable time without a record to commit. A commit does
    not where another driver took the stream: two deployments with one catalog would otherwise take it from each other
    for ever, without a pause.

    Args:
        beat: The newest heartbeat, of whatever attempt.
        stable_seconds: How long a driver has to have run to count as stable.
    """
    if launch is None:
        return 0
    if beat is None or beat.attempt < launch.attempt:
        # It died before its first beat.
        return launch.failures + 1
    if beat.final and beat.state not in ("failed", "fenced"):
        return 0
    made_progress = beat.work.made_progress and beat.state != "fenced"
    had_nothing_to_do = beat.state != "starting" and beat.work.busy_since is None and not beat.work.last_lag
    stable = had_nothing_to_do and beat.beat_wall - beat.since >= stable_seconds
    return 1 if made_progress or stable else launch.failures + 1


def deaths_in_a_row(launch: Launch | None, beat: Heartbeat | None) -> int:
    """How many drivers of a group died in a row with something of a stream at hand; of one that is known to be gone.

    Args:
        launch: The stream's newest launch.
        beat: The newest heartbeat, of whatever attempt.
    """
    if launch is None:
        return 0
    if beat is None or beat.attempt < launch.attempt:
        # Nothing of it was begun.
        return launch.deaths
    if beat.final or not (beat.state == "starting" or beat.work.busy_since is not None):
        return 0
    return 1 if beat.work.made_progress else launch.deaths + 1


def pause_before(failures: int, first: float, longest: float) -> float:
    """Seconds to wait before a launch after so many failed ones in a row: 0, then `first`, doubling up to `longest`."""
    if failures <= 1:
        return 0.0
    # 60 doublings of the shortest pause are longer than any that can be configured.
    return min(first * 2.0 ** min(failures - 2, 60), longest)


class LaunchedProcess(msgspec.Struct, frozen=True):
    """The process of the newest launch.

    Attributes:
        pid, started, boot, host: Of a process that its launcher sees; 0 and empty where it runs elsewhere, until it
            says so itself.
        at: Seconds since 1970.
        group: The group that the process carries; None if it is the stream's alone.
        launcher: By which it was started; `local` where a release wrote this that had no other.
        handle: By what that launcher finds it: the id of a submission, the name of a pod. Empty with `local`, and with
            another one where it was refused.
        problem: Why it was refused.
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
        """Whether only its launcher can tell whether it lives, and end it."""
        return self.launcher != LOCAL

    def process_lives(self) -> bool | None:
        """Whether it runs; None if that cannot be told from this host, or from this container."""
        return None if self.remote else lives_here(self.pid, self.started, self.boot, self.host)


def process_name(process: LaunchedProcess) -> str:
    """What messages call it: by its number on its host, by what its launcher knows it by, or both."""
    seen = f"process {process.pid} on {process.host}" if process.pid else ""
    handle = f"{_HANDLES.get(process.launcher, process.launcher)} {process.handle}" if process.handle else ""
    return f"{seen}, {handle}" if seen and handle else seen or handle or "a driver that was refused"


def planned_process(launch: Launch) -> LaunchedProcess | None:
    """The process of a launch that nobody has recorded, as far as the launch tells where it would be."""
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
