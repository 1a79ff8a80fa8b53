"""A dead-letter topic of a Kafka Connect sink, as Connect writes it, and what takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from jobs.dead_letters.connect_queue.importer import QueueResult, import_queue
from jobs.dead_letters.replay.request import ReplayRequest
from tests.helpers.forked import Forked, frazil
from tests.helpers.topics import create_topic
from tests.integration.pipeline import Pipeline, payment

SOURCE = "payments.of.connect"


class Queue:
    """The dead-letter topic of a Connect sink."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline: Pipeline = pipeline
        self.source: str = SOURCE
        self.topic: str = f"{pipeline.stream}_dlq"
        create_topic(pipeline.address, self.topic, 2)
        self.producer: Producer = Producer({"bootstrap.servers": pipeline.address, "acks": "all"})

    def put(
        self,
        kind: str,
        offset: int | None,
        *,
        partition: int = 0,
        before: tuple[Any, ...] = (),
        said: bytes | None = None,
    ) -> None:
        """A letter as Connect writes it; without `offset` as it does with context.headers.enable=false."""
        headers: list[tuple[str, Any]] = [("trace", b"\x01"), *before]
        if offset is not None:
            headers += [
                ("__connect.errors.topic", self.source.encode()),
                ("__connect.errors.partition", b"3"),
                ("__connect.errors.offset", str(offset).encode()),
                ("__connect.errors.connector.name", b"sink"),
                ("__connect.errors.stage", b"VALUE_CONVERTER"),
                ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
                ("__connect.errors.exception.message", said),
            ]
        self.producer.produce(
            self.topic, key=b"k", value=payment(offset or 0, kind), partition=partition, headers=headers
        )
        assert self.producer.flush(120) == 0

    def take(
        self, take: Callable[..., QueueResult] = import_queue, topic: str | None = None, **options: Any
    ) -> QueueResult:
        """Empty it, or another one, in this process."""
        pipeline = self.pipeline
        spec, settings, catalog = pipeline.spec(), pipeline.settings(), pipeline.catalog()
        return take(spec, settings, catalog, topic or self.topic, ReplayRequest(), **options)

    def command(self, steps: str, *more: str) -> int:
        """Empty it by the command, with steps armed; returns the exit status."""
        pipeline = self.pipeline
        command = ("--home", str(pipeline.home), "replay", pipeline.stream, "--from-topic", self.topic, *more)
        return Forked(frazil, *command, env={"FRAZIL_STEPS": steps}, folder=pipeline.home).wait()
