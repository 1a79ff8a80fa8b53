"""Benchmark of main's age: written directly, and published by contract like in a Dagster run, by turns."""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.gated_deployment import SIDES, STREAM, TABLE, Side, deployment
from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog, find_table, quick_catalog
from jobs.clients.kafka.record_producer import ensure_topic
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.quality.contracts.gate_judge import ContractJudge
from jobs.quality.publishing.gated import publish_if_fit
from jobs.quality.publishing.main_freshness import main_freshness
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.stamp_history import history
from orchestration.cli.local.demo.payments import PaymentProducer
from orchestration.sensors.due_runs import INTERVAL_SECONDS
from orchestration.sensors.publications import PublicationsCursor, run_publications_tick
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY = ("measuring the cost of write-audit-publish", "python -m bench.gated")
_SAMPLE_SECONDS = 0.5
_START_SECONDS = 300.0
_SHORTEST_SECONDS = 60.0
"""Least value of `publish.every`."""


@dataclass(slots=True)
class Publisher:
    """Publishes a gated stream as the product does: the sensor's tick says when, the check's function does it.

    Only the process is another: a Dagster run's own start comes on top of each publication.

    Attributes:
        home: The deployment.
        every: Seconds from one to the next. Less than a minute, which no file may say, is counted here.
        seconds: Duration of each publication.
        cpu_seconds: CPU time of this process for each publication.
        rows: Number of rows of each publication.
    """

    home: Path
    every: float
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def publish(self) -> None:
        """Judge and publish what has landed, in this process."""
        settings = load_settings(None, home=self.home)
        spec = load_stream(self.home / "streams" / f"{STREAM}.yaml")
        began, used = time.monotonic(), time.process_time()
        with connect_catalog(settings) as catalog:
            judge = ContractJudge(spec, settings, catalog, _no_spark, engine="pandas", by="bench")
            done = publish_if_fit(spec, settings, catalog, "bench", judge, judge.judged_by)
        if done.became == "held":
            raise FrazilError(f"it was quarantined: {done.verdict}", fix="python -m bench.gated")
        if done.became == "published" and done.interval is not None:
            self.seconds.append(time.monotonic() - began)
            self.cpu_seconds.append(time.process_time() - used)
            self.rows.append(done.interval.rows)

    def go_on(self, ends: threading.Event) -> None:
        """Publish whenever it is due, until it ends."""
        memory, placed, last = PublicationsCursor(), Deployment.at(self.home), 0.0
        settings = load_settings(None, home=self.home)
        look = INTERVAL_SECONDS if self.every >= _SHORTEST_SECONDS else min(self.every, 1.0)
        while not ends.wait(look):
            if self.every >= _SHORTEST_SECONDS:
                due = run_publications_tick(placed, lambda: quick_catalog(settings), memory, (), time.time()).start
            else:
                due = time.monotonic() - last >= self.every and has_branch(settings)
            if due:
                last = time.monotonic()
                self.publish()


def _no_spark() -> SparkSession:
    raise FrazilError("unpublished rows are checked by pandas here.", fix="a lower --rate, or a lower --every")


def has_branch(settings: Settings) -> bool:
    """Whether the stream has begun its branch: before that there is nothing to publish."""
    try:
        with quick_catalog(settings) as catalog:
            table = find_table(catalog, TABLE)
    except FrazilError:
        # The catalog is made by the driver.
        return False
    return table is not None and "ingest" in table.metadata.refs


def through(home: Path, side: Side) -> float | None:
    """Time through which main is complete, as status and checks compute it; seconds since 1970, None if unknown."""
    try:
        with quick_catalog(load_settings(None, home=home)) as catalog:
            table = find_table(catalog, TABLE)
    except FrazilError:
        # The catalog is made by the driver.
        return None
    if table is None:
        return None
    if side == "direct":
        newest = history(table.metadata, STREAM).newest
        return newest.valid_through_ms / 1000 if newest and newest.valid_through_ms else None
    found = main_freshness(table.metadata, STREAM, "ingest")
    if found is None:
        return None
    newest = history(on_branch(table, "ingest").metadata, STREAM).newest
    landed = newest.valid_through_ms / 1000 if newest and newest.valid_through_ms else None
    return found.through(landed)


def freshness(home: Path, address: str, side: Side, number: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Age of main, sampled while a driver lands and, for a write-audit-publish stream, a publisher publishes.

    Args:
        home: Folder of a new deployment.
        address: Address of the broker.
        side: The side that runs.
        number: Number of the pair.
        arguments: Arguments of the command: `seconds`, `rate`, `every`.
    """
    topic = f"fresh-{side}-{number}"
    deployment(home, address, side, topic, {"every": "1s"})
    ensure_topic(address, topic)
    producer = PaymentProducer(address, topic, 0, 10**9, arguments.rate)
    control, sampled, publisher = StreamControl(home, None, STREAM), list[float](), Publisher(home, arguments.every)
    producer.start()
    try:
        control.start(*_BY)
        with _publishing(publisher, side):
            # Of a gated stream from the first publication on, so that every round has the same part of a period.
            wait(lambda: through(home, side) is not None and begun(publisher, side), f"main, {side}", _START_SECONDS)
            until = time.monotonic() + arguments.seconds
            while time.monotonic() < until:
                if (at := through(home, side)) is not None:
                    sampled.append(time.time() - at)
                time.sleep(_SAMPLE_SECONDS)
    finally:
        control.stop(*_BY)
        producer.stop()
    found: dict[str, Any] = {
        "side": side,
        "round": number,
        "samples": len(sampled),
        "median_age": statistics.median(sampled),
        "greatest_age": max(sampled),
    }
    if publisher.seconds:
        found |= {
            "publications": len(publisher.seconds),
            "publication_seconds": statistics.median(publisher.seconds),
            "publication_cpu_seconds": statistics.median(publisher.cpu_seconds),
            "publication_rows": statistics.median(publisher.rows),
        }
    print(json.dumps(found), flush=True)
    return found


def begun(publisher: Publisher, side: Side) -> bool:
    """Whether the side is in its steady state: nothing is published by a direct stream."""
    return side == SIDES[0] or bool(publisher.seconds)


@contextmanager
def _publishing(publisher: Publisher, side: Side) -> Iterator[None]:
    ends, raised = threading.Event(), list[BaseException]()

    def go_on() -> None:
        try:
            publisher.go_on(ends)
        except BaseException as problem:
            raised.append(problem)

    thread = threading.Thread(target=go_on, name="publisher")
    if side == "gated":
        thread.start()
    try:
        yield
    finally:
        ends.set()
        if thread.ident:
            thread.join()
    if raised:
        raise raised[0]


def wait(there: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition.

    Raises:
        FrazilError: The condition does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise FrazilError(f"{what} was not there within {seconds:.0f} s", fix="python -m bench.gated")
        time.sleep(_SAMPLE_SECONDS)
