"""Facts of streams as tests want them, in memory and on disk."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from jobs.base.system.boot import boot_clock, boot_id
from jobs.base.system.processes import start_time
from jobs.clients.state_store.lease_record import LeaseRecord
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.heartbeat import (
    Heartbeat,
    LastError,
    State,
    Work,
    write_heartbeat,
)
from jobs.streaming.supervision.documents.launches import Launch, LaunchedProcess, write_launch
from jobs.streaming.supervision.processes.actual import ActualState, LeaseHolder, LeaseState
from jobs.streaming.supervision.state.desired import DesiredState

NOW = 1_800_000_000.0
GENERATION = "aaaaaaaaaaaa"
OTHER = "bbbbbbbbbbbb"
PID = 4242


def desired(**changes: Any) -> DesiredState:
    fields: dict[str, Any] = {"stream": "orders", "file": "valid", "generation": GENERATION}
    return DesiredState(**fields | changes)


def beat(state: State = "running", **changes: Any) -> Heartbeat:
    fields: dict[str, Any] = {
        "stream": "orders",
        "generation": GENERATION,
        "attempt": 3,
        "pid": PID,
        "started": "100",
        "boot": "boot",
        "host": "here",
        "since": NOW - 1000,
        "state": state,
        "state_since": NOW - 1000,
        "beat": 0.0,
        "beat_wall": NOW - 1,
        "epoch": 5,
        "log": "/state/driver.log",
    }
    return Heartbeat(**fields | changes)


RUNS = beat()
STARTED_JUST_NOW = beat(since=NOW - 100)


def failed(kind: str = "error", **changes: Any) -> Heartbeat:
    error = LastError("the table was dropped", kind, NOW - 1, "frazil accept orders")  # type: ignore[arg-type]
    return beat("failed", **{"error": error, "since": NOW - 100, "work": Work(batches=0)} | changes)


def fenced(**changes: Any) -> Heartbeat:
    error = LastError("stream orders: another driver took over (epoch 6).", "error", NOW - 1)
    return beat("fenced", **{"error": error, "since": NOW - 100} | changes)


def lease(state: LeaseState = "live", pid: int = PID, started: str = "100") -> LeaseHolder:
    return LeaseHolder(state, 5, pid, started, "boot", "here")


def launch(**changes: Any) -> Launch:
    fields = {"attempt": 3, "generation": GENERATION, "file": "orders.yaml", "failures": 0, "at": NOW - 1000}
    return Launch(**fields | changes)


def note(attempt: int = 3) -> LaunchedProcess:
    """A process that another host has noted for a launch."""
    return LaunchedProcess(attempt, GENERATION, PID, "100", "boot", "here", NOW - 1000)


def actual(heartbeat: Heartbeat | None = RUNS, **changes: Any) -> ActualState:
    """A driver that runs; with what is given changed. What was launched has had a process."""
    launched = changes.pop("launch", launch())
    fields: dict[str, Any] = {
        "lease": lease(),
        "heartbeat_age": 1.0,
        "process": True,
        "launched_for": 1000.0,
        "launched_process": note(launched.attempt) if launched is not None else None,
    }
    return ActualState(heartbeat=heartbeat, launch=launched, **fields | changes)


def gone(heartbeat: Heartbeat | None = STARTED_JUST_NOW, **changes: Any) -> ActualState:
    """A driver that was killed soon after it had started; with what is given changed."""
    return actual(heartbeat, **{"lease": lease("dead"), "process": False, "heartbeat_age": 5.0} | changes)


def stand_in(
    folder: Path,
    stream: str,
    generation: str,
    *,
    pid: int,
    started: str | None = None,
    spec_text: str = "",
    file: str = "",
    failures: int = 0,
    lease_state: str = "held",
    **changes: Any,
) -> Heartbeat:
    """The state folder of a driver that beats: its launch, its lease and its heartbeat."""
    started = str(start_time(pid)) if started is None else started
    now = changes.pop("now")
    beat_now = beat(
        **{
            "stream": stream,
            "generation": generation,
            "attempt": 1,
            "pid": pid,
            "started": started,
            "boot": boot_id(),
            "host": socket.gethostname(),
            "since": now - 700,
            "state_since": now - 690,
            "beat": boot_clock(),
            "beat_wall": now,
        }
        | changes
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_launch(LocalStore(folder), Launch(beat_now.attempt, generation, file, failures, now - 700), spec_text)
    record = LeaseRecord(
        stream=stream,
        epoch=1,
        host=socket.gethostname(),
        boot=boot_id(),
        pid=pid,
        started=started,
        renewed=boot_clock(),
        renewed_wall=now,
        ttl_seconds=3600,
        released=lease_state == "released",
    )
    (folder / "lease-00000001.json").write_bytes(msgspec.json.encode(record))
    write_heartbeat(LocalStore(folder), beat_now)
    return beat_now
