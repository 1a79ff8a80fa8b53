"""Sides of the latency benchmark, each landing a topic in a table of its own until the block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import yaml

from bench.versus.connect_worker import SinkWorker
from bench.versus.deployment import STREAM, BenchDeployment
from bench.versus.sink_config import SinkConfig
from jobs.streaming.supervision.control.stream_control import StreamControl

_BY = ("measuring latency", "python -m bench.latency")
# An answer as soon as there is a record; the comparison of throughput waits for more of them.
_CONSUMER = {"fetch.min.bytes": "1"}
_CONNECT_DEFAULT = {"offset.flush.interval.ms": "60000"}

Side = Callable[[Path, str, str, int], AbstractContextManager[BenchDeployment]]
"""Given a folder to be made, the broker, the topic, and the seconds from one commit to the next."""


@contextmanager
def frazil(folder: Path, address: str, topic: str, every: int) -> Iterator[BenchDeployment]:
    """A driver of its own, started as an operator starts it."""
    home = BenchDeployment.make(folder, address, topic, "small")
    spec_file = folder / "streams" / f"{STREAM}.yaml"
    spec = yaml.safe_load(spec_file.read_text()) | {"trigger": {"every": f"{every}s"}}
    spec_file.write_text(yaml.safe_dump(spec))
    control = StreamControl(folder, None, STREAM)
    try:
        control.start(*_BY)
        yield home
    finally:
        control.stop(*_BY)


@contextmanager
def connect(folder: Path, address: str, topic: str, every: int) -> Iterator[BenchDeployment]:
    """A worker with two tasks whose idle tasks answer a commit within a second."""
    with _worker(folder, address, SinkConfig(topic, tasks=2, commit_ms=1000 * every, consumer=_CONSUMER)) as home:
        yield home


@contextmanager
def connect_default(folder: Path, address: str, topic: str, every: int) -> Iterator[BenchDeployment]:
    """The same with the worker's default `offset.flush.interval.ms`: an idle task sits in a poll for a minute."""
    sink = SinkConfig(topic, tasks=2, commit_ms=1000 * every, consumer=_CONSUMER, worker=_CONNECT_DEFAULT)
    with _worker(folder, address, sink) as home:
        yield home


SIDES: dict[str, Side] = {"frazil": frazil, "connect": connect, "connect-default": connect_default}


@contextmanager
def _worker(folder: Path, address: str, sink: SinkConfig) -> Iterator[BenchDeployment]:
    home = BenchDeployment.make(folder, address, sink.topic, "small")
    with SinkWorker(home, address, sink) as worker:
        worker.wait_until_running()
        yield home
        worker.check()
