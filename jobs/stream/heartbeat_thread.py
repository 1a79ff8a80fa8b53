"""The thread that writes a driver's heartbeat, whatever else the driver is busy with."""

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

from jobs.state.store import StateStore
from jobs.stream.progress import WorkLog
from jobs.supervise.heartbeat import BEAT_SECONDS, Heartbeat, State, read_heartbeat, write_heartbeat
from jobs.system.boot import boot_clock, boot_id
from jobs.system.processes import start_time

log = logging.getLogger(__name__)


class Beater:
    """Writes this process's heartbeat every two seconds and whenever its state changes.

    As a context manager it begins with the state `starting`; on leaving it writes the last word, which is whatever
    state was set last.

    Args:
        store: The stream's part of the state store.
        stream, generation, attempt: What this driver runs, and as which launch.
        log_file: Where it writes its log.
        on_beat: Called with every beat, for what has to be looked after now and then.

    Attributes:
        superseded: A later attempt beats; this one writes no more.
    """

    def __init__(
        self,
        store: StateStore,
        stream: str,
        generation: str,
        attempt: int,
        log_file: Path,
        on_beat: Callable[[], object] = lambda: None,
    ) -> None:
        now = time.time()
        pid = os.getpid()
        self.work: WorkLog = WorkLog(now)
        self._store: StateStore = store
        self._on_beat: Callable[[], object] = on_beat
        self._guard: threading.Lock = threading.Lock()
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = threading.Thread(target=self._beat_for_ever, name="heartbeat", daemon=True)
        self._failing: bool = False
        self.superseded: bool = False
        self._beat: Heartbeat = Heartbeat(
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
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self.beat()

    @property
    def state(self) -> State:
        """The present state."""
        return self._beat.state

    def current(self) -> Heartbeat:
        """The heartbeat as of now."""
        now = time.time()
        with self._guard:
            return msgspec.structs.replace(self._beat, beat=boot_clock(), beat_wall=now, work=self.work.work(now))

    def change(self, **fields: Any) -> None:
        """Change fields of the heartbeat, and write it at once if the state is another."""
        with self._guard:
            before = self._beat.state
            if fields.get("state", before) != before:
                fields["state_since"] = time.time()
            self._beat = msgspec.structs.replace(self._beat, **fields)
            changed = self._beat.state != before
        if changed:
            log.info("%s", self._beat.state)
            self.beat()

    def beat(self) -> None:
        """Write the heartbeat now, unless a later attempt beats already.

        A disk that refuses it is told once, and does not stop the stream.
        """
        try:
            other = read_heartbeat(self._store)
            if other is not None and other.attempt > self._beat.attempt:
                self.superseded = True
                return
            write_heartbeat(self._store, self.current())
            self._failing = False
        except OSError as problem:
            if not self._failing:
                log.warning("the heartbeat cannot be written: %s", problem)
            self._failing = True

    def _beat_for_ever(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            try:
                self.beat()
                self._on_beat()
            except Exception:
                # Whatever it is, a driver that lands records has to go on saying so.
                if not self._failing:
                    log.warning("the heartbeat goes on after", exc_info=True)
                self._failing = True
