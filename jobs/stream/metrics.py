"""Metrics of a driver's streams, as OpenMetrics on loopback, for those who watch Kafka with Prometheus already."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from jobs.commit.lateness import LATENESS_MS, Lateness
from jobs.errors import FrazilError
from jobs.supervise.heartbeat import Heartbeat, Offsets, State

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
# A client that connects and says nothing is let go after this, so that `stop` never waits for longer.
_CLIENT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Plain:
    """A metric that has no label but the stream.

    Args:
        name: Without the `_total` that OpenMetrics adds to a counter's samples.
        value: Its value; None leaves it out.
    """

    name: str
    help: str
    value: Callable[[Heartbeat], float | None]
    unit: str = ""


_COUNTERS = (
    _Plain("frazil_records_read", "Records read from Kafka since the driver started.", lambda b: b.work.read),
    _Plain("frazil_records_landed", "Records that reached the table.", lambda b: b.work.landed),
    _Plain("frazil_tombstones", "Records without a value, which land nowhere.", lambda b: b.work.tombstones),
    _Plain("frazil_filtered", "Records that the stream's transforms dropped.", lambda b: b.work.filtered),
    _Plain("frazil_records_late", "Records that came later than the watermark.", lambda b: b.work.late),
    _Plain("frazil_batches", "Batches that committed something.", lambda b: b.work.batches),
    _Plain(
        "frazil_batch_seconds", "Time spent in batches, commits included.", lambda b: b.work.batch_seconds, "seconds"
    ),
    _Plain("frazil_commit_seconds", "Time spent in commits.", lambda b: b.work.commit_seconds, "seconds"),
    _Plain(
        "frazil_commit_refusals",
        "Commits refused because somebody else had committed to the table first; they were made again.",
        lambda b: b.work.refusals,
    ),
)
_GAUGES = (
    _Plain(
        "frazil_last_batch_seconds", "How long the newest batch took.", lambda b: b.work.last_batch_seconds, "seconds"
    ),
    _Plain("frazil_last_commit_seconds", "How long its commits took.", lambda b: b.work.last_commit_seconds, "seconds"),
    _Plain(
        "frazil_last_commit_timestamp_seconds",
        "When the newest batch was committed, since 1970.",
        lambda b: b.work.last_commit_at,
        "seconds",
    ),
    _Plain(
        "frazil_valid_through_timestamp_seconds",
        "Every record that had come by then is in the tables; since 1970.",
        lambda b: None if b.work.valid_through_ms is None else b.work.valid_through_ms / 1000,
        "seconds",
    ),
    _Plain(
        "frazil_watermark_timestamp_seconds",
        "No record with an earlier event time is awaited any more; since 1970.",
        lambda b: None if b.work.watermark_ms is None else b.work.watermark_ms / 1000,
        "seconds",
    ),
    _Plain(
        "frazil_lateness_greatest_seconds",
        "By how much the latest record came behind the watermark since the driver started.",
        lambda b: None if b.work.watermark_ms is None else b.work.latest_ms / 1000,
        "seconds",
    ),
    _Plain(
        "frazil_event_time_least_timestamp_seconds",
        "The least event time of the newest batch's rows; since 1970.",
        lambda b: None if b.work.event_ms is None else b.work.event_ms[0] / 1000,
        "seconds",
    ),
    _Plain(
        "frazil_event_time_greatest_timestamp_seconds",
        "The greatest event time of the newest batch's rows; since 1970.",
        lambda b: None if b.work.event_ms is None else b.work.event_ms[1] / 1000,
        "seconds",
    ),
    _Plain(
        "frazil_consumer_lag_timestamp_seconds",
        "When the consumer lag was looked up, since 1970.",
        lambda b: b.work.lag_at,
        "seconds",
    ),
    _Plain(
        "frazil_undecided_records",
        "Records of open transactions behind the end that the consumer lag is counted to.",
        lambda b: b.work.total_undecided,
        "records",
    ),
    _Plain(
        "frazil_undecided_since_timestamp_seconds",
        "Since when they have waited without any being decided, where they wait longest, since 1970.",
        lambda b: b.work.undecided_since,
        "seconds",
    ),
    _Plain(
        "frazil_unpublished_letters",
        "Dead letters in the table that their topic lacks.",
        lambda b: b.unpublished_letters,
    ),
    _Plain(
        "frazil_driver_start_timestamp_seconds", "When the driver started, since 1970.", lambda b: b.since, "seconds"
    ),
)


def metrics_of(beat: Heartbeat) -> Iterator[Metric]:
    """The metrics of one beat; each has the label `stream`, and what is not known yet is left out."""
    stream, work = beat.stream, beat.work
    for plain in _COUNTERS:
        counter = CounterMetricFamily(plain.name, plain.help, labels=["stream"], unit=plain.unit)
        counter.add_metric([stream], plain.value(beat) or 0)
        yield counter
    for plain in _GAUGES:
        value = plain.value(beat)
        if value is not None:
            gauge = GaugeMetricFamily(plain.name, plain.help, labels=["stream"], unit=plain.unit)
            gauge.add_metric([stream], value)
            yield gauge
    if work.watermark_ms is not None or work.late:
        yield _lateness(stream, work.late_by)
    dead = CounterMetricFamily("frazil_records_dead", "Records in the dead letters.", labels=["stream", "reason"])
    for reason, count in sorted(work.reasons.items()):
        dead.add_metric([stream, reason], count)
    yield dead
    warned = CounterMetricFamily(
        "frazil_rule_warnings", "Landed rows that broke a rule which only warns.", labels=["stream", "rule"]
    )
    for rule, count in sorted(work.warned.items()):
        warned.add_metric([stream, rule], count)
    yield warned
    letters = CounterMetricFamily(
        "frazil_parked_letters", "Dead letters made for tables that are parked.", labels=["stream", "table"]
    )
    for table, count in sorted(work.parked_letters.items()):
        letters.add_metric([stream, table], count)
    yield letters
    since = GaugeMetricFamily(
        "frazil_parked_since_timestamp_seconds",
        "Since when a table is parked, since 1970.",
        labels=["stream", "table"],
        unit="seconds",
    )
    for table, at in sorted(work.parked.items()):
        since.add_metric([stream, table], at / 1000)
    yield since
    unknown = CounterMetricFamily(
        "frazil_unknown_fields",
        "Landed records with a key that the schema does not declare.",
        labels=["stream", "path"],
    )
    for path, count in sorted(work.unknown_fields.items()):
        unknown.add_metric([stream, path], count)
    yield unknown
    if work.knows_lag:
        yield _by_partition(
            "frazil_consumer_lag_records",
            "Records between the position and the log's end.",
            stream,
            work.lag,
            "records",
        )
    yield _by_partition("frazil_position_offset", "The next offset to be landed.", stream, work.position, "")
    state = GaugeMetricFamily("frazil_driver_state", "1 for the driver's state, else 0.", labels=["stream", "state"])
    for name in get_args(State):
        state.add_metric([stream, name], float(name == beat.state))
    yield state
    yield InfoMetricFamily(
        "frazil_driver",
        "The driver that answers.",
        value={
            "stream": stream,
            "generation": beat.generation,
            "attempt": str(beat.attempt),
            "epoch": str(beat.epoch),
        },
    )


def metrics_of_all(beats: Iterable[Heartbeat]) -> Iterator[Metric]:
    """The metrics of several streams: of each name one metric, with the samples of all."""
    found: dict[str, Metric] = {}
    for beat in beats:
        for metric in metrics_of(beat):
            known = found.setdefault(metric.name, metric)
            if known is not metric:
                known.samples.extend(metric.samples)
    return iter(found.values())


def _lateness(stream: str, late_by: Lateness) -> Metric:
    """Without a sum: of a late record only its step is kept."""
    found = HistogramMetricFamily(
        "frazil_lateness_seconds",
        "By how much late records came behind the watermark.",
        labels=["stream"],
        unit="seconds",
    )
    bounds = [f"{each / 1000:.1f}" for each in LATENESS_MS]
    counted = list(zip([*bounds, "+Inf"], itertools.accumulate(late_by), strict=True))
    found.add_metric([stream], counted, sum_value=None)
    return found


def _by_partition(name: str, help_text: str, stream: str, offsets: Offsets, unit: str) -> Metric:
    gauge = GaugeMetricFamily(name, help_text, labels=["stream", "topic", "partition"], unit=unit)
    for topic, partitions in sorted(offsets.items()):
        for partition, value in sorted(partitions.items(), key=lambda item: int(item[0])):
            gauge.add_metric([stream, topic, partition], value)
    return gauge


class MetricsServer:
    """Serves the metrics of a driver over HTTP, on loopback only; as a context manager, for the length of the block.

    Args:
        current: The newest beat of each stream; asked at every scrape, from the server's threads.
        port: The port to listen on; 0 for a free one.

    Raises:
        FrazilError: The port cannot be had.
    """

    def __init__(self, current: Callable[[], Iterable[Heartbeat]], port: int = 0) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Beats(current))
        handler = type("Handler", (_Handler,), {"registry": registry})
        try:
            self._server: _Server = _Server((ADDRESS, port), handler)
        except OSError as problem:
            raise FrazilError(
                f"metrics cannot be served on {ADDRESS}:{port}: {problem.strerror}.",
                fix="choose another port, or none, and a free one is taken",
            ) from None
        self._thread: threading.Thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True
        )

    def __enter__(self) -> MetricsServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where to scrape."""
        return f"http://{ADDRESS}:{self._server.server_port}/metrics"

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more; when this returns, the port is free and no thread is left. A second time does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Beats(Collector):
    def __init__(self, current: Callable[[], Iterable[Heartbeat]]) -> None:
        self._current: Callable[[], Iterable[Heartbeat]] = current

    def collect(self) -> Iterator[Metric]:
        return metrics_of_all(self._current())


class _Handler(MetricsHandler):
    timeout = _CLIENT_SECONDS


class _Server(ThreadingHTTPServer):
    # Closing waits for the answers under way.
    daemon_threads = False
    block_on_close = True

    def handle_error(self, request: object, client_address: object) -> None:
        # The library would print a stack trace for every client that hangs up.
        log.debug("a scrape from %s failed", client_address, exc_info=True)
