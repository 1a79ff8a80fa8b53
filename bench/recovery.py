"""Recovery benchmark, how long a killed driver's stream is without a commit: `python -m bench.recovery`.

Starts `frazil dev` on a deployment of its own in a temporary folder, with the embedded broker, a stream of the demo's
payments and a producer that never pauses. Again and again, at a random moment, the driver is killed with SIGKILL; what
is measured is the time from there to the next commit of a batch, as the table's own snapshots have it. Whoever starts
the driver again, its keeper or Dagster's sensor, is left to the deployment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from bench.drain import SPEC
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.record_producer import ensure_topic
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings, load_settings
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.launches import read_launch
from jobs.tables.commit.history.stamp_history import stamped_snapshots
from orchestration.cli.local.demo.payments import PaymentProducer

STREAM = "payments"
TABLE = "orders.payments"
_START_SECONDS = 300.0
_BACK_SECONDS = 180.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill of a driver, and the recovery.

    Attributes:
        attempt: Attempt of the killed driver.
        seconds: Seconds until the next commit of a batch.
        by: Starter of the next driver: its watchdog (`keeper`), or the `supervisor`.
        recovered: Whether that commit was the killed driver's batch, from its pending record.
    """

    attempt: int
    seconds: float
    by: str
    recovered: bool


def main() -> None:
    """Kill as often as asked, and print each kill, the median and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=float, default=500.0, help="payments a second")
    parser.add_argument("--every", default="1s", help="the stream's trigger")
    parser.add_argument("--seed", type=int, default=7, help="of the moments")
    parser.add_argument("--json", type=Path, help="also write the facts of every kill there")
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    kills: list[Kill] = []
    with tempfile.TemporaryDirectory(prefix="frazil-recovery-") as folder:
        home = Path(folder)
        settings = deployment(home, arguments.every)
        with developing(home), producing(home, arguments.rate):
            for number in range(1, arguments.kills + 1):
                kills.append(kill(settings, dice.uniform(1.0, 4.0)))
                print(f"kill {number}: {line(kills[-1])}", flush=True)
            StreamControl(home, None, STREAM).stop("the bench ends", "bench.recovery")
    print(summary(kills))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in kills], indent=2))


def deployment(home: Path, every: str) -> Settings:
    """A deployment as `frazil` makes it by default, with the demo's stream."""
    (home / "streams").mkdir(parents=True)
    spec = yaml.safe_load(SPEC.read_text()) | {"trigger": {"every": every}}
    (home / "streams" / f"{STREAM}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return load_settings(None, home=home)


@contextlib.contextmanager
def developing(home: Path) -> Iterator[None]:
    """`frazil dev`, ended with the block, and the local broker with it."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "dev"]
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with (home / "dev.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}
        )
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"frazil dev ended: {(home / 'dev.log').read_text()}")
    finally:
        with contextlib.suppress(Exception):
            StreamControl(home, None, STREAM).stop("the bench ends", "bench.recovery")
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        LocalBroker(home / ".frazil" / "broker").stop()


@contextlib.contextmanager
def producing(home: Path, rate: float) -> Iterator[None]:
    """Payments at a steady rate for as long as the block takes."""
    broker = LocalBroker(home / ".frazil" / "broker")
    wait(lambda: broker.status().running and broker.status().address, "the broker", _START_SECONDS)
    address = broker.status().address or ""
    ensure_topic(address, STREAM)
    producer = PaymentProducer(address, STREAM, 0, 10**9, rate)
    producer.start()
    try:
        yield
    finally:
        producer.stop()
        producer.join(60)
    produced = sum(producer.kinds.values())
    if producer.acknowledged != produced:
        raise SystemExit(f"{producer.acknowledged:,} of {produced:,} payments were acknowledged by the broker.")


def kill(settings: Settings, after: float) -> Kill:
    """Kill the driver so many seconds after it has settled, and wait for the next commit."""
    store = stream_folder(settings, STREAM).store

    def beat() -> Heartbeat | None:
        return read_heartbeat(store)

    def settled() -> bool:
        newest = beat()
        return newest is not None and newest.state == "running" and newest.work.batches >= 3

    wait(settled, "a driver with three batches", _START_SECONDS)
    time.sleep(after)
    killed = beat()
    assert killed is not None
    at = time.time()
    os.kill(killed.pid, signal.SIGKILL)

    def back() -> bool:
        newest = beat()
        return newest is not None and newest.attempt > killed.attempt and newest.work.batches > 0

    wait(back, "the next driver's commit", _BACK_SECONDS)
    launch = read_launch(store)
    by = "keeper" if launch is not None and launch.reason.startswith("its watchdog") else "supervisor"
    with connect_catalog(settings) as catalog:
        metadata = catalog.load_table(TABLE).metadata
        commits = (
            (snapshot.timestamp_ms / 1000 - at, stamp.batch)
            for snapshot, stamp in stamped_snapshots(metadata, STREAM)
            if stamp.kind == "batch" and stamp.epoch > killed.epoch and snapshot.timestamp_ms / 1000 > at
        )
        seconds, batch = next(commits)
    return Kill(killed.attempt, seconds, by, recovered=batch > 0)


def line(found: Kill) -> str:
    """A kill in one line."""
    record = ", from the pending record" if found.recovered else ""
    return f"attempt {found.attempt}, the next commit after {found.seconds:.1f} s{record}, by its {found.by}"


def summary(kills: list[Kill]) -> str:
    """The figures that the README quotes."""
    seconds = [each.seconds for each in kills]
    keepers = sum(each.by == "keeper" for each in kills)
    return (
        f"{len(kills)} kills under frazil dev, kill to next commit: median {statistics.median(seconds):.1f} s, worst "
        f"{max(seconds):.1f} s; {keepers} started again by the watchdog"
    )


def wait(condition: Callable[[], object], what: str, seconds: float) -> None:
    """Wait until a condition holds.

    Raises:
        SystemExit: The condition does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:.0f} s for {what}")
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main()
