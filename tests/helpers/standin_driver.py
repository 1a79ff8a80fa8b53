"""A driver that only beats: for tests of what starts, watches and ends drivers. Same arguments, files and signals.

It takes the lease, writes heartbeats, and obeys the control file and SIGTERM, in a few hundred milliseconds: without a
JVM, and without the specs and what these import, as its launch says under which generation it runs. `STANDIN` in its
environment, words separated by commas, makes it misbehave: `die` at once with a line on standard error; `silent`: never
beat; `deaf`: ignore the control file and SIGTERM; `grandchild`: leave a process in a group of its own that ignores
SIGTERM; `fail`: end with an error after the first beat; `operator`: the same with one that only an operator can answer;
`slow`: stay `starting`; `kept`: have a keeper; `lands`: say that it has committed a batch.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from jobs.clients.state_store.lease import Lease, LeaseHeldError
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.services.trigger import Restart
from jobs.config.settings.settings import load_settings
from jobs.streaming.driver.process.flush import FlushWatch
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.documents.heartbeat import LastError
from jobs.streaming.supervision.documents.launches import SPEC_FILE, read_launch
from jobs.streaming.supervision.keeper.keeper_start import KeeperStarter, keeper_policy
from jobs.streaming.supervision.launchers.driver_identity import take_launched_file
from jobs.tables.commit.stamp.lateness import NONE_LATE
from jobs.tables.commit.stamp.log_state import LogState

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
    launch, spec = read_launch(folder.store), yaml.safe_load((folder.root / SPEC_FILE).read_text(encoding="utf-8"))
    assert launch is not None, "whoever starts a driver notes its launch before"
    lease = Lease(folder.store, options.stream, settings.lease_ttl.total_seconds())
    log = folder.root / "logs" / "driver.log"
    given = ["--settings", str(options.settings)] if options.settings else []
    arguments = ["--home", str(options.home), *given, "--stream", options.stream]
    policy = keeper_policy(Restart.model_validate(spec.get("restart", {})))
    keeper = KeeperStarter(folder, options.stream, options.attempt, arguments, policy, settings)

    def on_heartbeat() -> None:
        if "kept" in how:
            keeper.ensure()

    with HeartbeatThread(
        folder.store, options.stream, launch.generation, options.attempt, log, on_heartbeat
    ) as heartbeat:
        on_heartbeat()
        if "lands" in how:
            counts = {"snapshot_id": None, "dead_letter_snapshot_id": None, "refusals": 0}
            heartbeat.work.done(_landed(), {}, time.time(), **counts)
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
            flush.look(_no_topics)
        time.sleep(_POLL_SECONDS)


def _no_topics() -> LogState:
    return LogState({}, {}, {})


def _landed() -> Any:
    """A `BatchDone` of one record: the module of the real one takes a second to import."""
    counts = SimpleNamespace(read=1, landed=1, dead=0, tombstones=0, filtered=0)
    events = SimpleNamespace(late_records=0, late=NONE_LATE, latest_ms=0, span_ms=None)
    by_name: dict[str, Any] = {key: {} for key in ("lag", "undecided", "reasons", "unknown_fields", "warned", "parked")}
    times = {"seconds": 0.1, "commit_seconds": 0.1, "valid_through_ms": None, "watermark_ms": None}
    return SimpleNamespace(batch=0, counts=counts, events=events, **by_name, **times)


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
