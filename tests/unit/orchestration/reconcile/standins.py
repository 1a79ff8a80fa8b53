"""A deployment whose drivers only beat, and the sensor over it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg

from jobs.runtime.boot import boot_clock
from jobs.runtime.open_stream import stream_folder
from jobs.runtime.processes import start_time
from jobs.spec.generation import generation
from jobs.spec.settings import Settings
from jobs.supervise.heartbeat import Heartbeat
from orchestration.reconcile.memory import Memory
from orchestration.reconcile.tick import Tick, run_tick
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import STREAM
from tests.unit.orchestration.reconcile.made import stand_in


class World:
    """A deployment in a folder.

    Attributes:
        memory: The supervisor's, between ticks that are run by `tick`.
    """

    def __init__(self, home: Path) -> None:
        self.deployment: Deployment = Deployment.at(home)
        self.deployment.streams_folder.mkdir(parents=True)
        self.memory: Memory = Memory.from_cursor(None)
        # No broker is meant to be there, so nobody need be asked for one.
        self.memory.away_until = 2**40

    @property
    def settings(self) -> Settings:
        return self.deployment.settings()

    def file(self, stream: str) -> Path:
        return self.deployment.streams_folder / f"{stream}.yaml"

    def folder(self, stream: str) -> Path:
        return stream_folder(self.settings, stream).root

    def write(self, stream: str, more: str = "") -> None:
        """Write a stream's file."""
        self.file(stream).write_text(STREAM.format(stream=stream, topic=f"{stream}.v1") + more)

    def generation(self, stream: str) -> str:
        return generation(self.deployment.stream(stream), self.settings)

    def drive(self, stream: str, **changes: Any) -> Heartbeat:
        """Let this process stand in for the stream's driver."""
        fields: dict[str, Any] = {
            "pid": os.getpid(),
            "now": time.time(),
            "spec_text": self.file(stream).read_text(),
            "file": str(self.file(stream)),
        }
        given = changes.pop("generation", None) or self.generation(stream)
        return stand_in(self.folder(stream), stream, given, **fields | changes)

    def tick(
        self, now: float | None = None, clock: float | None = None, under_way: dict[str, str] | None = None
    ) -> Tick:
        """One tick, with no run known to Dagster but `under_way`."""
        now = time.time() if now is None else now
        clock = boot_clock() if clock is None else clock
        return run_tick(self.deployment, self.memory, {}, lambda streams: {}, now, clock)


def dead_process() -> dict[str, Any]:
    """The pid and start time of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        return {"pid": process.pid, "started": str(start_time(process.pid))}
    finally:
        process.communicate()


def events(tick: Tick | dg.SensorResult, kind: type) -> list[Any]:
    """The tick's events of one kind."""
    found = tick.events if isinstance(tick, Tick) else tick.asset_events
    return [event for event in found or [] if isinstance(event, kind)]
