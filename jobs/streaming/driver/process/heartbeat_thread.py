"""Heartbeat thread of a driver: writes its heartbeat while the driver is busy."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from jobs.base.system.boot import boot_clock, boot_id
from jobs.base.system.processes import start_time
from jobs.base.system.threads import background_thread
from jobs.clients.state_store.store import StateStore
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.supervision.documents.heartbeat import (
    HEARTBEAT_SECONDS,
    Heartbeat,
    State,
    Work,
    read_heartbeat,
    write_heartbeat,
)

log = logging.getLogger(__name__)


class HeartbeatThread:
    """Writes this process's heartbeat every two seconds and whenever its state changes.

    As a context manager it starts in the state `starting`, and writes the state set last on exit.

    Args:
        stream, generation, attempt: The stream that this driver runs, its generation, and the number of the launch.
        on_heartbeat: Called with every heartbeat of the thread, for periodic checks.

    Attributes:
        superseded: Whether a later attempt writes heartbeats, so that this one stops writing.
    """

    def __init__(
        self,
        store: StateStore,
        stream: str,
        generation: str,
        attempt: int,
        log_file: Path,
        on_heartbeat: Callable[[], object] = lambda: None,
        every_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        now = time.time()
        pid = os.getpid()
        self.work: WorkLog = WorkLog(now)
        self._work: Callable[[float], Work] = self.work.work
        self._store: StateStore = store
        self._on_heartbeat: Callable[[], object] = on_heartbeat
        self._every: float = every_seconds
        self._guard: threading.Lock = threading.Lock()
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = background_thread(self._write_for_ever, "heartbeat")
        self._failing: bool = False
        self.superseded: bool = False
        self._newest: Heartbeat = Heartbeat(
            stream=stream,
            generation=generation,
            attempt=attempt,
            pid=pid,
            started=str(start_time(pid)),
            boot=boot_id(),
            host=socket.gethostname(),
            since=now,
            state="starting",
            state_since=now,
            beat=boot_clock(),
            beat_wall=now,
            log=str(log_file),
        )

    def __enter__(self) -> Self:
        self.write()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self.write()

    @property
    def store(self) -> StateStore:
        """The stream's part of the state store."""
        return self._store

    @property
    def state(self) -> State:
        """The driver's present state."""
        return self._newest.state

    def current(self) -> Heartbeat:
        """The present heartbeat."""
        now = time.time()
        with self._guard:
            work = self._work(now)
            return msgspec.structs.replace(self._newest, beat=boot_clock(), beat_wall=now, work=work)

    def follow(self, work: Callable[[float], Work]) -> None:
        """Report another work than that of `work` from now on; called with a time, seconds since 1970."""
        self._work = work

    def change(self, **fields: Any) -> None:
        """Change fields of the heartbeat, and write it at once if the state changes.

        A new state counts from now on, unless `state_since` is given.
        """
        with self._guard:
            before = self._newest.state
            if fields.get("state", before) != before:
                fields.setdefault("state_since", time.time())
            self._newest = msgspec.structs.replace(self._newest, **fields)
            changed = self._newest.state != before
        if changed:
            log.info("%s", self._newest.state)
            self.write()

    def write(self) -> None:
        """Write the heartbeat now, unless a later attempt writes already.

        An error of the disk is logged once, and does not stop the stream.
        """
        try:
            other = read_heartbeat(self._store)
            if other is not None and other.attempt > self._newest.attempt:
                self.superseded = True
                return
            write_heartbeat(self._store, self.current())
            self._failing = False
        except OSError as problem:
            if not self._failing:
                log.warning("the heartbeat cannot be written: %s", problem)
            self._failing = True

    def _write_for_ever(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.write()
                self._on_heartbeat()
            except Exception:
                # After any error, a driver that lands records has to go on reporting.
                if not self._failing:
                    log.warning("the heartbeat goes on after", exc_info=True)
                self._failing = True
