"""Screenshots of Dagster's pages for the docs: `python -m tests.screenshots` writes `docs/images/dagster-*.png`.

The deployments are prepared: state documents as drivers write them, tables with a few commits, and ticks of the
sensors whose events go to a real instance. Dagster's webserver serves them, and headless Chromium looks at them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from PIL import Image

from jobs.base.system.ports import free_ports
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import state_store
from jobs.quality.publishing.gate import answers_to_held
from jobs.quality.publishing.main_freshness import MainFreshness
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import LastError, Recent, Work
from jobs.tables.commit.stamp.stamp_fields import Counts
from orchestration.cli.common.dagster_instance import WORKSPACE, make_instance
from orchestration.cli.local.dev.child_process import Child, end_children
from orchestration.cli.local.dev.dagster_api import FINISHED, DagsterClient
from orchestration.jobs.halted import JOB as HALTED_JOB
from orchestration.jobs.halted import halted_run
from orchestration.reconcile.cursor import SensorCursor
from orchestration.reconcile.supervisor_heartbeat import read_supervisor_heartbeat
from orchestration.sensors.halts import HaltsCursor, new_halts
from tests.helpers.import_order import ROOT
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.reconcile.supervised_deployment import World, dead_process, make_table, work

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 200 * 1024
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


# No daemon runs, so a run that is launched does not wait in a queue.
_INSTANCE = """\
telemetry: {enabled: false}
nux: {enabled: false}
freshness: {enabled: true}
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
"""
_WORKSPACE = "load_from: [{python_module: {module_name: orchestration.definitions, location_name: frazil}}]\n"
_LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
    ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


@dataclass(frozen=True, slots=True)
class Page:
    """One picture.

    Attributes:
        name: Of the file, after `dagster-`.
        path: Of the page on the webserver.
        height: Of the window in pixels.
    """

    name: str
    path: str
    height: int = 1000


class Prepared:
    """A deployment with its Dagster instance, whose webserver can be looked at."""

    def __init__(self, home: Path) -> None:
        self.world: World = World(home)
        self.dagster: Path = home / ".frazil" / "dagster"
        self.dagster.mkdir(parents=True)
        (self.dagster / "dagster.yaml").write_text(_INSTANCE)
        (self.dagster / WORKSPACE).write_text(_WORKSPACE)
        make_instance(self.dagster)

    def tick(self, now: float | None = None) -> None:
        """A tick of the reconcile sensor, with its events in the instance."""
        done = self.world.tick(now)
        with dg.DagsterInstance.from_config(str(self.dagster)) as instance:
            for event in done.events:
                instance.report_runless_asset_event(event)

    def report_halts(self, url: str) -> None:
        """Launch the run that the sensor of halted streams asks for, and wait until it has failed."""
        supervisor = read_supervisor_heartbeat(state_store(self.world.settings))
        found = new_halts(supervisor, HaltsCursor(), time.time())
        if not found:
            return
        api, request = DagsterClient(url), halted_run(found, time.time())
        selector = {"repositoryLocationName": "frazil", "repositoryName": "__repository__", "jobName": HALTED_JOB}
        params = {"selector": selector, "runConfigData": request.run_config, "mode": "default"}
        launched = api.ask(_LAUNCH, params=params)["launchRun"]
        wait_for(lambda: api.status(launched["run"]["runId"]) in FINISHED, "the run to fail")

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """The address of the webserver."""
        (port,) = free_ports(1)
        home = str(self.world.deployment.home)
        env = {"DAGSTER_HOME": str(self.dagster), "FRAZIL_HOME": home, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "dagster_webserver", "-w", str(self.dagster / WORKSPACE)]
        child = Child(
            "Dagster's webserver", [*command, "-h", "127.0.0.1", "-p", str(port)],
            log=self.dagster / "webserver.log", env={**os.environ, **env}, cwd=self.world.deployment.home,
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert child.ending() is None, child.last_words()
            with contextlib.suppress(OSError):
                return bool(DagsterClient(url).ask("query { version }", 5))
            return False

        try:
            wait_for(answers, "the webserver to answer")
            self.report_halts(url)
            yield url
        finally:
            end_children([child])


def browser() -> str:
    """The headless browser of this machine."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"error: none of these is installed: {', '.join(BROWSERS)}")
    return found


def take(url: str, page: Page, folder: Path) -> tuple[Path, float]:
    """Take a picture of a page; returns the file, and the seconds until it was taken."""
    file = folder / f"dagster-{page.name}.png"
    with tempfile.TemporaryDirectory() as profile:
        began = time.monotonic()
        subprocess.run(
            [
                browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--hide-scrollbars", "--no-first-run", f"--user-data-dir={profile}",
                f"--window-size=1500,{page.height}", "--virtual-time-budget=20000", f"--screenshot={file}",
                f"{url}{page.path}",
            ],
            check=True, capture_output=True, timeout=180,
        )  # fmt: skip
        seconds = time.monotonic() - began
    # A page is no photograph: 256 colours are enough.
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(256).save(file, optimize=True)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"error: {file} has {size:,} bytes, more than {MOST_BYTES:,}: make its window smaller")
    return file, seconds


def report_again(world: World) -> None:
    """Let the next tick report all streams: reports are minutes apart, and the memory forgets when the last one was."""
    for remembered in world.memory.streams.values():
        remembered.sink_at = remembered.dead_at = remembered.checks_at = remembered.state_at = 0
    world.memory.reported_at = 0


def drive(prepared: Prepared, stream: str, batches: int, **changes: Any) -> None:
    """Let a stream land batches, and tick the sensor after each."""
    world, topic = prepared.world, f"{stream}.v1"
    for batch in range(batches):
        now, read = time.time(), 12_000 * (batch + 1)
        snapshot = make_table(world, Counts(read=read, landed=read - 3 * batch, dead=3 * batch), stream)
        waiting = 900 * (batch % 3)
        done = Work(
            batch=batch, batches=batch + 1, read=read, landed=read - 3 * batch, dead=3 * batch,
            reasons={"wrong_type": 3 * batch} if batch else {}, snapshot_id=snapshot, last_commit_at=now - 4,
            last_commit_seconds=0.21 + 0.04 * (batch % 4), last_batch_seconds=1.1 + 0.3 * (batch % 3), lag_at=now - 2,
            valid_through_ms=int(now - 5) * 1000, position={topic: {"0": read // 2, "1": read // 2}},
            lag={topic: {"0": waiting, "1": 0}}, recent=Recent(300, 12_000 * (batch + 1), 12_000 * batch, 3 * batch),
        )  # fmt: skip
        world.drive(stream, work=done, log=str(write_log(world, stream)), **changes)
        report_again(world)
        prepared.tick()


def write_log(world: World, stream: str) -> Path:
    """The log of a stream's driver."""
    folder = world.folder(stream)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "driver.log"
    lines = [f"12:00:{second:02d} batch {second}: 12,000 records in 1.2 s" for second in range(20)]
    log.write_text("\n".join([*lines, "12:00:21 error: the driver ends: see below", ""]))
    return log


def one_stream(home: Path) -> Prepared:
    """One stream that runs, with some batches."""
    made = Prepared(home)
    made.world.write("payments")
    drive(made, "payments", 8)
    return made


def every_stop(home: Path) -> Prepared:
    """A stream for each way in which one stands still, beside two that run."""
    made = Prepared(home)
    world, now = made.world, time.time()
    names = (
        "payments",
        "refunds",
        "chargebacks",
        "accounts",
        "ledger",
        "cards",
        "devices",
        "sessions",
        "limits",
        "fees",
    )
    for name in names:
        world.write(name)
    for name in ("payments", "refunds", "devices"):
        drive(made, name, 2)

    def ended(stream: str, **changes: Any) -> None:
        gone = {**dead_process(), "lease_state": "released", "state_since": now - 1260, "since": now - 1500}
        world.drive(stream, log=str(write_log(world, stream)), work=Work(), **gone | changes)

    lost = LastError("offsets 120 to 4,311 of chargebacks.v1:3 are missing in Kafka.", "operator", now - 1260,
                     "frazil accept chargebacks --lost-offsets")  # fmt: skip
    ended("chargebacks", state="failed", error=lost)
    failed = LastError("412 of the next 1,000 records failed.", "operator", now - 1260,
                       "frazil preview accounts --failed", failed=412, read=1000)  # fmt: skip
    ended("accounts", state="failed", error=failed)
    dropped = LastError("table orders.ledger was dropped and made again by somebody else.", "error", now - 900,
                        "frazil accept ledger --table orders.ledger")  # fmt: skip
    ended("ledger", state="failed", error=dropped, failures=20)
    world.drive("cards", state="retrying", work=work(7),
                error=LastError("Kafka does not answer.", "away", now - 60, "frazil validate cards"))  # fmt: skip
    world.file("devices").write_text(world.file("devices").read_text().replace("decode:", "decod:"))
    world.drive("sessions", state="paused", work=work(3))
    write_control(LocalStore(world.folder("sessions")), ControlRequest("paused", by="jo", reason="upgrade", at=now))
    ended("limits", state="stopped")
    write_control(LocalStore(world.folder("limits")), ControlRequest("stopped", by="jo", at=now))
    world.drive("fees", work=work(9, unanswered_since=now - 400))
    made.world.memory = SensorCursor.from_cursor(None)
    made.world.memory.away_until = 2**40
    made.tick()
    return made


def more_stops(home: Path) -> Prepared:
    """A stream that another driver fenced, one with a suspended table, and one with quarantined rows."""
    made = Prepared(home)
    world, now = made.world, time.time()
    world.write("accounts")
    tables = ", ".join(f"{{match: {name}, table: orders.{name}}}" for name in ("cards", "wires", "checks"))
    world.write("transfers", f"route: {{by: id, tables: [{tables}]}}\n")
    world.write(
        "payments",
        "contract:\n  expectations:\n    - expect_column_values_to_not_be_null: {column: amount}\n"
        "publish: {gate: contract, every: 5m}\n",
    )
    for stream in ("accounts", "transfers", "payments"):
        drive(made, stream, 3)
    other = LastError("stream accounts: another driver took over (epoch 6).", "error", now - 1260)
    world.drive("accounts", state="fenced", error=other, work=work(4), log=str(write_log(world, "accounts")),
                **dead_process(), lease_state="released", state_since=now - 1260, since=now - 1500)  # fmt: skip
    parked = work(250, dead=412, parked={"orders.wires": int(now - 4000) * 1000}, parked_letters={"orders.wires": 402})
    world.drive("transfers", log=str(write_log(world, "transfers")), state_since=now - 3, work=parked)
    world.drive("payments", work=work(3), state_since=now - 3, log=str(write_log(world, "payments")))
    held = world.memory.streams["payments"]
    held.main = MainFreshness(
        True, 36_000, int(now - 2400) * 1000,
        held="expect_column_values_to_not_be_null(amount): 12 of 36,000 rows", held_fix=answers_to_held("payments"),
    )  # fmt: skip
    held.main_at = int(time.time())
    report_again(world)
    made.tick()
    return made


def fifty_in_a_group(home: Path) -> Prepared:
    """Fifty streams that one driver carries."""
    made = Prepared(home)
    for number in range(50):
        made.world.write(f"s{number:02d}", "group: all\n")
    for number in range(50):
        now = time.time()
        done = Work(lag={f"s{number:02d}.v1": {"0": number % 7}}, lag_at=now, valid_through_ms=int(now) * 1000 - 5000,
                    recent=Recent(300, 3000 * number, 3000 * number), last_commit_at=now - number)  # fmt: skip
        made.world.drive(f"s{number:02d}", work=done, group="all")
    made.tick()
    return made


def three_hundred_tables(home: Path) -> Prepared:
    """One stream whose records go to three hundred tables."""
    made = Prepared(home)
    tables = ", ".join(f"{{match: t{number:03d}, table: orders.t{number:03d}}}" for number in range(300))
    made.world.write("orders", f"route: {{by: id, tables: [{tables}]}}\n")
    drive(made, "orders", 2)
    return made


PAGES: dict[str, tuple[Callable[[Path], Prepared], Sequence[Page]]] = {
    "one": (
        one_stream,
        (
            Page("stream", "/assets/frazil/orders/payments", 1500),
            Page("checks", "/assets/frazil/orders/payments?view=checks&checkDetail=driver_alive"),
            Page("reports", "/assets/frazil/orders/payments?view=events"),
            Page("graph", "/locations/frazil/asset-groups/payments/lineage"),
        ),
    ),
    "stops": (
        every_stop,
        (
            Page("first-page", "/", 500),
            Page("runs", "/runs", 400),
            Page("overview", "/assets/frazil/supervisor"),
            Page("halted", "/assets/frazil/orders/chargebacks", 1500),
            Page("halted-checks", "/assets/frazil/orders/chargebacks?view=checks&checkDetail=driver_alive"),
            Page("catalog", "/assets"),
        ),
    ),
    "more-stops": (
        more_stops,
        (
            Page("more-stops", "/assets/frazil/supervisor"),
            Page("fenced", "/assets/frazil/orders/accounts", 1500),
            Page("suspended", "/assets/frazil/orders/transfers", 1500),
            Page("suspended-checks", "/assets/frazil/orders/transfers?view=checks"),
            Page("quarantined", "/assets/frazil/orders/payments", 1500),
            Page("quarantined-checks", "/assets/frazil/orders/payments?view=checks"),
        ),
    ),
    "fifty": (fifty_in_a_group, (Page("fifty", "/assets/frazil/supervisor"),)),
    "many": (
        three_hundred_tables,
        (
            Page("many-catalog", "/assets"),
            Page("many-graph", "/locations/frazil/asset-groups/orders/lineage"),
            Page("many-stream", "/assets/frazil/orders/orders"),
        ),
    ),
}


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES)
    parser.add_argument("--only", choices=PAGES, default=None)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, (prepare, pages) in PAGES.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as home, prepare(Path(home) / "deployment").served() as url:
                for page in pages:
                    file, seconds = take(url, page, options.folder)
                    print(f"{file.name}: {file.stat().st_size // 1024} KB, {seconds:.1f} s")


if __name__ == "__main__":
    main()
