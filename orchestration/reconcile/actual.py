"""Reading what there is of a stream: its lease, its heartbeat, its newest launch. Asks no network."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from jobs.errors import FrazilError
from jobs.state.lease import Lease
from jobs.state.lease_record import LeaseRecord
from jobs.stream.unknown_fields import read_unknown_fields
from jobs.supervise.driver_process import ProcessNote, read_note
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from jobs.supervise.keeper_note import find_keeper
from jobs.supervise.launches import Launch, read_launch
from jobs.system.boot import boot_id
from jobs.system.processes import is_alive
from orchestration.reconcile.facts import Actual, LeaseFacts, LeaseState


def read_actual(
    folder: Path, stream: str, *, launched_for: float | None = None, down_for: float | None = None
) -> Actual:
    """What there is in a stream's state folder. Never raises for what the folder holds.

    Args:
        folder: The state folder; need not be there.
        stream: The stream's id.
        launched_for: For how long the newest launch is known; None for what the wall clock says.
        down_for: For how long no driver has been seen; None if nobody kept count.
    """
    try:
        # The newest launch first, so that a driver that begins to beat meanwhile is not taken for a former one.
        launch = read_launch(folder)
        beat = read_heartbeat(folder)
        lease = _lease(folder, stream)
        process = _lives(beat)
        if process is False and beat is not None and not beat.final:
            # It may have said its last word just now.
            beat = read_heartbeat(folder)
            process = _lives(beat)
    except FrazilError as problem:
        return Actual(beat=_beat(folder), process=_lives(_beat(folder)), problem=problem.message, fix=problem.fix)
    except OSError as problem:
        return Actual(problem=f"the state folder {folder} cannot be read: {problem.strerror}", fix=f"ls -l {folder}")
    note = read_note(folder) if launch is not None else None
    if launched_for is None:
        launched_for = max(0.0, time.time() - launch.at) if launch else 0.0
    return Actual(
        lease=lease,
        beat=beat,
        beat_age=beat.age() if beat else 0.0,
        process=process,
        launch=launch,
        launched_for=launched_for,
        down_for=down_for,
        unknown_fields=read_unknown_fields(folder),
        keeper=_keeper(folder, launch),
        unstarted=launch is not None and _is_unstarted(launch, note),
    )


def _keeper(folder: Path, launch: Launch | None) -> int | None:
    note = find_keeper(folder, launch.attempt) if launch is not None else None
    return note.pid if note is not None else None


def _is_unstarted(launch: Launch, note: ProcessNote | None) -> bool:
    if note is None or note.attempt < launch.attempt:
        return True
    here = (note.boot, note.host) == (boot_id(), socket.gethostname())
    return here and not is_alive(note.pid, note.started)


def _beat(folder: Path) -> Heartbeat | None:
    try:
        return read_heartbeat(folder)
    except OSError:
        return None


def _lives(beat: Heartbeat | None) -> bool | None:
    return beat.process_lives() if beat is not None else None


def _lease(folder: Path, stream: str) -> LeaseFacts:
    record = Lease(folder, stream, 0.0).read()
    if record is None:
        return LeaseFacts()
    return LeaseFacts(_lease_state(record), record.epoch, record.pid, record.started, record.boot, record.host)


def _lease_state(record: LeaseRecord) -> LeaseState:
    if record.released:
        return "released"
    if record.expired():
        return "expired"
    return "live" if record.held() else "dead"
