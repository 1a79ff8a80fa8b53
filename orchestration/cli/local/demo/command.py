"""Command `frazil demo`: payments from a producer through Kafka and Spark into an Iceberg table, run by Dagster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click
from rich.console import Console

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.install.preflight import preflight
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.record_producer import ensure_topic
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from orchestration.cli.common.interrupts import Interrupts
from orchestration.cli.local.demo.format_payments import DEMO_FORMATS, format_deployment, payment_maker
from orchestration.cli.local.demo.payments import MakePayment, PaymentProducer
from orchestration.cli.local.demo.report import (
    Demo,
    StampedCounts,
    print_report,
    stamped_counts,
    table_sums,
)
from orchestration.cli.local.dev.command import local_services
from orchestration.cli.local.dev.dagster_api import FINISHED, AssetJob, why_failed
from orchestration.cli.local.dev.services import DagsterServices
from orchestration.cli.streams.status.output import ago
from orchestration.cli.streams.status.stream_status import utc
from orchestration.formatting import thousands
from resources.deployment import Deployment

PER_SECOND = 50
_SHOW_SECONDS = 0.5
_LINE_SECONDS = 10.0
STREAM = "payments"
_LOADED_SECONDS = 400.0
_NOTHING_LANDS_SECONDS = 300.0


def show_arriving(
    console: Console,
    store: StateStore,
    producer: PaymentProducer,
    check: Callable[[], None],
    *,
    until: float = float("inf"),
) -> None:
    """Produce slowly and show the heartbeat of the stream's driver, until an interrupt.

    Args:
        console: Console for the lines.
        store: State store of the stream, with its heartbeat.
        producer: Producer that is started here, and stopped at the end.
        check: Function that raises if a service has ended.
        until: Time of the end, on the monotonic clock.
    """
    producer.start()
    try:
        told = 0.0
        while time.monotonic() < until:
            check()
            if time.monotonic() - told >= _LINE_SECONDS:
                told = time.monotonic()
                console.print(arriving(read_heartbeat(store), producer.acknowledged), markup=False, soft_wrap=True)
            time.sleep(_SHOW_SECONDS)
    finally:
        producer.stop()


def arriving(beat: Heartbeat | None, produced: int) -> str:
    """Line of the live view about the running stream."""
    if beat is None:
        return f"{produced:,} more produced; the driver has not reported yet"
    work, state = beat.work, beat.state if beat.error is None else f"{beat.state}: {beat.error.message[:60]}"
    return (
        f"{produced:,} more produced; {state}: batch {thousands(work.batch)}, {work.landed:,} landed, "
        f"{work.dead:,} dead, {work.recent.rate:,.0f}/s, lag {thousands(work.total_lag)}, "
        f"last commit {ago(utc(work.last_commit_at))}"
    )


@click.command()
@click.option("--once", is_flag=True, help="End when all is landed; exit status 0 only if the sums are right.")
@click.option("--payments", type=click.IntRange(1), default=200_000, show_default=True, help="How many to produce.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", *DEMO_FORMATS]),
    default="json",
    show_default=True,
    help="Format of the payments; all but json in a home of their own, .frazil/demo/FORMAT. So is json without a "
    f"stream {STREAM}.",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the web UI.  [default: 3000, or the next free one]"
)
@click.pass_obj
def demo(deployment: Deployment, once: bool, payments: int, format_: str, port: int | None) -> None:
    """Show everything: produce payments, some of them bad, land them through Dagster, and add them up.

    The stream then runs on, and payments keep coming, until Ctrl-C, which ends everything that the demo started. A
    second demo goes on at the first one's end.
    """
    started = time.monotonic()
    preflight()
    if format_ != "json" or not has_payments(deployment):
        deployment = format_deployment(deployment, format_)
        click.echo(f"This demo has a home of its own; other commands find it with --home {deployment.home}", err=True)
    spec = deployment.stream(STREAM)
    settings = deployment.prepared_settings()
    if not settings.kafka.is_embedded:
        raise FrazilError(
            f"The demo produces made-up payments, and the settings name brokers: {settings.kafka.bootstrap_servers}.",
            fix="run it in a folder without frazil.yaml: it then uses a local broker",
        )
    if not spec.continuous:
        raise FrazilError(
            f"The demo follows a stream that runs all the time, and stream {STREAM} runs on request.",
            fix=f"write trigger: {{every: 10s}} into streams/{STREAM}.yaml",
        )
    console = Console(highlight=False)
    with Interrupts() as interrupts, local_services(deployment, port, interrupts, end_streams=True) as services:
        console.print(f"Broker at {settings.kafka.require_bootstrap()}; Dagster starts at {services.url}")
        landing = _Landing(spec, deployment, services, payments, started, console)
        facts = landing.run()
        print_report(console, facts, services.url, landing.beat())
        if once:
            click.get_current_context().exit(0 if facts.right else 1)
        console.print("The stream runs on, and payments keep coming; Ctrl-C ends what the demo started.\n")
        show_arriving(console, landing.store, landing.trickle(), services.check)


def has_payments(deployment: Deployment) -> bool:
    """Whether the deployment has the demo's stream, as a checkout of frazil has, or files that cannot be read."""
    if not deployment.streams_folder.is_dir():
        return False
    specs, errors = deployment.streams()
    return bool(errors) or any(spec.stream == STREAM for spec in specs)


class _Landing:
    """Landing of the demo's payments, from the first payment to the last row."""

    def __init__(
        self,
        spec: StreamSpec,
        deployment: Deployment,
        services: DagsterServices,
        payments: int,
        started: float,
        console: Console,
    ) -> None:
        settings = deployment.settings()
        address = settings.kafka.require_bootstrap()
        topic = (spec.source.topics or (STREAM,))[0]
        ensure_topic(address, topic)
        self._spec: StreamSpec = spec
        self._services: DagsterServices = services
        self._console: Console = console
        self._started: float = started
        self._keys: list[list[str]] = [[settings.catalog.name, *table.split(".")] for table in spec.target_names]
        self._catalog = connect_catalog(settings)
        self._kafka: KafkaLog = KafkaLog(settings.kafka)
        self._before: StampedCounts = stamped_counts(self._catalog, spec)
        log = self._kafka.state(spec.source)
        self._waiting_before: int = sum(
            max(0, end - self._before.position.get(at, log.earliest[at])) for at, end in log.latest.items()
        )
        self._payments: int = payments
        self._make: MakePayment | None = payment_maker(spec, topic, settings)
        self._producer: PaymentProducer = PaymentProducer(
            address, topic, sum(log.latest.values()), payments, make=self._make
        )
        self._address: str = address
        self._topic: str = topic
        self.store: StateStore = stream_folder(settings, spec.stream).store
        self._first_row_seconds: float | None = None
        self._seen: list[tuple[float, int]] = []
        self._told: tuple[str, int] | None = None

    def run(self) -> Demo:
        """Produce and land everything, and count it."""
        self._producer.start()
        expected = self._waiting_before + self._payments
        try:
            job = self._wait_for_dagster()
            self._follow(self._services.api.launch(job, self._keys))
            self._wait_until_landed(expected)
        finally:
            self._producer.stop()
        self._producer.check()
        now = self._now()
        return Demo(
            produced=self._producer.acknowledged,
            waiting_before=self._waiting_before,
            landed=now.totals.landed - self._before.totals.landed,
            dead=now.totals.dead - self._before.totals.dead,
            tombstones=now.totals.tombstones - self._before.totals.tombstones,
            tables=table_sums(self._catalog, self._spec, self._kafka),
            asset=self._keys[0],
            stream=self._spec.stream,
            first_row_seconds=self._first_row_seconds,
            seconds=time.monotonic() - self._started,
        )

    def beat(self) -> Heartbeat | None:
        """The newest heartbeat of the stream's driver; None if there is none."""
        return read_heartbeat(self.store)

    def trickle(self) -> PaymentProducer:
        """Producer of further payments, slow and endless."""
        first = sum(self._kafka.state(self._spec.source).latest.values())
        return PaymentProducer(self._address, self._topic, first, sys.maxsize, per_second=PER_SECOND, make=self._make)

    def _wait_until_landed(self, expected: int) -> None:
        """Follow the stream until all is landed.

        Raises:
            FrazilError: The driver has ended, or nothing lands any more.
        """
        while (now := self._now()).passed - self._before.passed < expected or not now.whole:
            self._services.check()
            beat = self.beat()
            if beat is not None and beat.state == "failed" and beat.error is not None:
                raise FrazilError(beat.error.message, fix=beat.error.fix)
            if self._seen and time.monotonic() - self._seen[-1][0] > _NOTHING_LANDS_SECONDS:
                raise FrazilError(
                    f"Nothing has landed for {_NOTHING_LANDS_SECONDS:.0f} s.", fix=f"frazil status {STREAM}"
                )
            self._show(beat.state if beat else "the driver starts")
            time.sleep(0.3)
        self._show("landed")

    def _wait_for_dagster(self) -> AssetJob:
        deadline = time.monotonic() + _LOADED_SECONDS
        while time.monotonic() < deadline:
            self._services.check()
            job = self._services.api.find(self._keys[0])
            if job is not None:
                return job
            self._show("Dagster starts")
            time.sleep(0.2)
        raise FrazilError(
            f"Dagster did not load the streams within {_LOADED_SECONDS:.0f} s.", fix=f"read {self._services.home}/*.log"
        )

    def _follow(self, run_id: str) -> None:
        words = {"QUEUED": "run waits", "STARTING": "run starts", "STARTED": "Spark works"}
        while True:
            self._services.check()
            status = self._services.api.status(run_id)
            self._show(words.get(status, status.lower()) if status else "Dagster does not answer")
            if status in FINISHED:
                break
            time.sleep(0.3)
        if status != "SUCCESS":
            raise FrazilError(
                f"Dagster's run {run_id[:8]} ended as {status}: {why_failed(self._services.home, run_id)}",
                fix=f"read {self._services.home}/storage/{run_id}/compute_logs, then run the demo again",
            )

    def _now(self) -> StampedCounts:
        return stamped_counts(self._catalog, self._spec)

    def _show(self, note: str) -> None:
        done = self._now().passed - self._before.passed
        if done and self._first_row_seconds is None:
            self._first_row_seconds = time.monotonic() - self._started
        if not self._seen or self._seen[-1][1] != done:
            self._seen.append((time.monotonic(), done))
        rate = 0.0
        if len(self._seen) > 1:
            (before, less), (last, more) = self._seen[-2:]
            rate = (more - less) / max(last - before, 1e-9)
        produced = self._waiting_before + self._producer.acknowledged
        if (note, done) != self._told:
            self._told = (note, done)
            self._console.print(f"{note}: {done:,} of {produced:,} records landed, {rate:,.0f}/s", markup=False)
