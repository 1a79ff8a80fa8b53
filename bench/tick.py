"""Tick of the supervisor over many streams whose drivers are at work: `python -m bench.tick [--streams 300]`.

The documents of so many streams are written as the driver of a group writes them, this process in its place, and the
tick of the sensor `frazil_reconcile` looks at them, with brokers and catalog away. Dagster's own part is not in it.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import yaml

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock, boot_id
from jobs.base.system.processes import start_time
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work, write_heartbeat
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    write_launch,
    write_launched_process,
)
from orchestration.reconcile.cursor import SensorCursor
from orchestration.sensors.reconcile import run_reconcile_tick
from resources.deployment import Deployment

_SCHEMA = "id string not null, n long, at timestamptz, amount decimal(12,2)"


def written(home: Path, count: int) -> Deployment:
    """A deployment with so many streams."""
    (home / "streams").mkdir()
    settings = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "groups": {"default": "small"}}
    (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
    for number in range(count):
        document = {
            "stream": f"s{number:04}",
            "source": {"topics": [f"s{number:04}"]},
            "decode": {"value": "json", "schema": _SCHEMA},
            "table": {"name": f"lake.s{number:04}", "partition_by": ["day(at)"]},
            "trigger": {"every": "10s"},
        }
        (home / "streams" / f"s{number:04}.yaml").write_text(yaml.safe_dump(document))
    return Deployment.at(home)


def launched(spec: StreamSpec, settings: Settings, text: str = "") -> None:
    """Note that this process drives a stream, launched from a text."""
    folder, now = stream_folder(settings, spec.stream), time.time()
    folder.root.mkdir(parents=True)
    runs, pid = generation(spec, settings), os.getpid()
    write_launch(folder.store, Launch(1, runs, f"streams/{spec.stream}.yaml", 0, now, group="small"), text)
    note = LaunchedProcess(1, runs, pid, str(start_time(pid)), boot_id(), socket.gethostname(), now, "small")
    write_launched_process(folder.store, note)


def beat(spec: StreamSpec, settings: Settings) -> None:
    """Write the heartbeat of a stream at work."""
    now, pid = time.time(), os.getpid()
    topic = spec.stream
    work = Work(batches=5, position={topic: {"0": 5}}, lag={topic: {"0": 0}}, lag_at=now, last_commit_at=now)
    who = (spec.stream, generation(spec, settings), 1, pid, str(start_time(pid)), boot_id(), socket.gethostname())
    made = Heartbeat(*who, now, "running", now, boot_clock(), now, epoch=1, group="small", work=work)
    write_heartbeat(stream_folder(settings, spec.stream).store, made)


def away() -> NoReturn:
    """Raise the error of an unavailable broker or catalog."""
    raise FrazilError("away")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--ticks", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        deployment = written(Path(folder), args.streams)
        settings, (specs, _) = deployment.settings(), deployment.streams()
        for spec in specs:
            launched(spec, settings)
            lease = stream_lease(settings, spec.stream)
            lease.acquire(0)
            held.callback(lease.release)
        memory = SensorCursor()
        for number in range(args.ticks):
            for spec in specs:
                beat(spec, settings)
            began, cpu = time.perf_counter(), time.process_time()
            tick = run_reconcile_tick(deployment, away, away, memory, {}, lambda names: {}, time.time(), boot_clock())
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            print(f"tick {number}: {seconds:.2f} s, {cpu:.2f} s of processor time; {tick.sentence}")


if __name__ == "__main__":
    main()
