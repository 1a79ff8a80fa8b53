"""A driver that only beats: for tests of what starts, watches and ends drivers. Same arguments, files and signals.

It takes the lease, writes heartbeats, and obeys the control file and SIGTERM, in a few hundred milliseconds and without
a JVM. `STANDIN` in its environment, words separated by commas, makes it misbehave: `die` at once with a line on
standard error; `silent`: never beat; `deaf`: ignore the control file and SIGTERM; `grandchild`: leave a process in a
group of its own that ignores SIGTERM; `fail`: end with an error after the first beat; `operator`: the same with one
that only an operator can answer; `slow`: stay `starting`; `kept`: have a keeper; `lands`: say that it has
committed a batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.settings import load_settings
from jobs.state.lease import Lease, LeaseHeldError
from jobs.state.store import StateStore
from jobs.state.stream_folder import stream_folder
from jobs.stream.flush import FlushWatch
from jobs.stream.heartbeat_thread import HeartbeatThread
from jobs.supervise.control_request import read_control
from jobs.supervise.heartbeat import LastError
from jobs.supervise.keeper_record import BEAT_MARK
from jobs.supervise.keeper_start import KeeperStarter, keeper_policy
from jobs.supervise.launchers.driver_identity import take_launched_file
from jobs.supervise.launches import SPEC_FILE

_POLL_SECONDS = 0.02
GRANDCHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def main() -> int:
    """Drive, as far as anybody can see; returns the exit status of the real driver."""
    options = _options()
    how = set(filter(None, os.environ.get("STANDIN", "").split(",")))
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(number))
    if "grandchild" in how:
        subprocess.Popen([sys.executable, "-c", GRANDCHILD], process_group=0)
    if "die" in how:
        sys.exit("no such thing")
    while "silent" in how:
        time.sleep(_POLL_SECONDS)
    settings = load_settings(options.settings, home=options.home)
    folder = stream_folder(settings, options.stream)
    take_launched_file(folder)
    spec = load_stream(folder.root / SPEC_FILE)
    lease = Lease(folder.store, spec.stream, settings.lease_ttl.total_seconds())
    log = folder.root / "logs" / "driver.log"
    given = ["--settings", str(options.settings)] if options.settings else []
    arguments = ["--home", str(options.home), *given, "--stream", options.stream]
    keeper = KeeperStarter(folder, spec.stream, options.attempt, arguments, keeper_policy(spec.restart), settings)

    def on_heartbeat() -> None:
        if "kept" in how:
            keeper.ensure()
        if folder.store.shared:
            folder.store.local.put(BEAT_MARK, b"", durable=False)

    with HeartbeatThread(
        folder.store, spec.stream, generation(spec, settings), options.attempt, log, on_heartbeat
    ) as heartbeat:
        on_heartbeat()
        if "lands" in how:
            # Imported here: it brings PyIceberg, and the others start in a third of the time without it.
            from jobs.stream.results import BatchDone

            counts = {"snapshot_id": None, "dead_letter_snapshot_id": None, "refusals": 0}
            landed = BatchDone(0, Counts(read=1, landed=1), 0.1, 0.1, 0.1, {}, None)
            heartbeat.work.done(landed, {}, time.time(), **counts)
        try:
            heartbeat.change(epoch=lease.acquire(above=0))
        except LeaseHeldError as held:
            heartbeat.change(state="fenced", error=_error("error", held.message, held.fix))
            return 3
        try:
            while "slow" in how and not terminated:
                time.sleep(_POLL_SECONDS)
            if how & {"fail", "operator"}:
                kind = "operator" if "operator" in how else "error"
                heartbeat.change(state="failed", error=_error(kind, "the broker is made of cheese.", "eat it"))
                return 1
            return _drive(folder.store, options.attempt, heartbeat, terminated, deaf="deaf" in how)
        finally:
            lease.release()


def _drive(store: StateStore, attempt: int, heartbeat: HeartbeatThread, terminated: list[int], *, deaf: bool) -> int:
    flush = FlushWatch(heartbeat)
    while True:
        control = read_control(store)
        if not deaf and (control.mode == "stopped" or control.end_attempt >= attempt):
            heartbeat.change(state="stopped")
            return 0
        if not deaf and terminated:
            heartbeat.change(state="terminated")
            return 143
        state = "paused" if control.mode == "paused" else "running"
        if heartbeat.state != state:
            heartbeat.change(state=state)
        if not deaf:
            flush.look(_NoLogs())
        time.sleep(_POLL_SECONDS)


class _NoLogs:
    """Topics without a partition."""

    def latest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {}


def _error(kind: Any, message: str, fix: str | None) -> LastError:
    return LastError(message, kind, time.time(), fix)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
