"""Metrics of a driver's streams, as OpenMetrics on loopback, for teams that watch Kafka with Prometheus."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from http.server import ThreadingHTTPServer
from typing import Any

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

from jobs.base.errors import FrazilError
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.measures import OF_DRIVER, OF_WORK, Measure
from jobs.tables.commit.stamp.lateness import LATENESS_MS

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
# Silent clients are disconnected after this, so that `stop` never waits longer.
_CLIENT_SECONDS = 2.0


_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
_BOUNDS = [*(f"{bound / 1000:.1f}" for bound in LATENESS_MS), "+Inf"]


def metrics_of_all(beats: Iterable[Heartbeat]) -> Iterator[Metric]:
    """Metrics of streams by their heartbeats. Each has the label `stream`, and unknown values are left out."""
    streams = [(beat.stream, beat) for beat in beats]
    values = [(each, [(stream, each.source(beat.work)) for stream, beat in streams]) for each in OF_WORK]
    values += [(each, [(stream, each.source(beat)) for stream, beat in streams]) for each in OF_DRIVER]
    for measure, of_streams in values:
        known = [(stream, value) for stream, value in of_streams if value is not None or measure.type == "counter"]
        if measure.metric and known:
            yield _metric(measure, known)


def _metric(measure: Measure[Any], known: Sequence[tuple[str, Any]]) -> Metric:
    """One metric with the samples of all streams."""
    name, text = measure.metric, measure.help
    if measure.type == "info":
        family = InfoMetricFamily(name, text, labels=["stream"])
        for stream, value in known:
            family.add_metric([stream], value)
        return family
    labels = ["stream"] if measure.type == "histogram" else ["stream", *measure.labels]
    family = _FAMILIES[measure.type](name, text, labels=labels, unit=measure.unit)
    for stream, value in known:
        if isinstance(family, HistogramMetricFamily):
            counts = list(zip(_BOUNDS, itertools.accumulate(value.values()), strict=True))
            # The histogram has no sum: only the bucket of a late record is stored.
            family.add_metric([stream], counts, sum_value=None)
        else:
            for label_values, number in _samples(value, len(measure.labels)):
                family.add_metric([stream, *label_values], number)
    return family


def _samples(value: Any, labels: int) -> Iterator[tuple[tuple[str, ...], float]]:
    """Numbers of a measure, each with the values of its labels."""
    if not labels:
        yield (), value or 0
    for name, part in sorted(value.items()) if labels else ():
        if labels == 1:
            yield (name,), part
        else:
            yield from (((name, key), part[key]) for key in sorted(part, key=int))


class MetricsServer:
    """Serves the metrics of a driver over HTTP, on loopback only; as a context manager, during the block.

    Args:
        current: Returns the newest heartbeat of each stream; called at every scrape, in the server's threads.

    Raises:
        FrazilError: The port is not available.
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
        """URL to scrape."""
        return f"http://{ADDRESS}:{self._server.server_port}/metrics"

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; on return the port is free and no thread is left. A second call does nothing."""
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
    # Closing waits for running requests.
    daemon_threads = False
    block_on_close = True

    def handle_error(self, request: object, client_address: object) -> None:
        # The library would print a stack trace for every client that disconnects.
        log.debug("a scrape from %s failed", client_address, exc_info=True)
