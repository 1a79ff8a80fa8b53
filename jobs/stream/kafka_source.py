"""Options of Spark's Kafka source for a stream."""

from __future__ import annotations

import re

from jobs.commit.offsets import Positions, spark_offsets
from jobs.spec.kafka_options import planner_options
from jobs.spec.models import StreamSpec
from jobs.spec.security import java_options
from jobs.spec.settings import KafkaSettings
from jobs.spec.units import format_duration


def kafka_source_options(
    spec: StreamSpec, kafka: KafkaSettings, begin: Positions, topics: list[str], *, drain: bool, most: int | None = None
) -> dict[str, str]:
    """Options for `spark.readStream.format("kafka")`; they hold the password, so they are never logged.

    Args:
        begin: The first offset of every partition of every subscribed topic; Spark accepts no less.
        topics: The subscribed topics that exist.
        most: How many records a batch may read; None: as the file says.
        drain: Read what is there and end: then nothing waits for more.
    """
    # Never the spec's own pattern: Spark reads it as Java does, and takes each topic in which it *finds* a match. The
    # topics are those that the spec means, by name; one that comes later is for the next query.
    subscription = (
        {"subscribePattern": f"^(?:{'|'.join(map(re.escape, topics))})$"}
        if spec.source.topics_pattern is not None
        else {"subscribe": ",".join(topics)}
    )
    kafka = kafka.with_options(spec.source.options)
    told = {f"kafka.{key}": value for key, value in planner_options(kafka.options, spec.stream).items()}
    security = {f"kafka.{key}": value for key, value in java_options(kafka.security).items()}
    most = most or spec.source.max_records_per_batch
    waiting: dict[str, str] = {}
    if not drain and spec.source.min_records_per_batch and spec.source.max_delay:
        waiting = {
            "minOffsetsPerTrigger": str(min(spec.source.min_records_per_batch, most)),
            "maxTriggerDelay": format_duration(spec.source.max_delay),
        }
    return {
        **told,
        "kafka.bootstrap.servers": kafka.require_bootstrap(),
        "kafka.isolation.level": kafka.isolation,
        **subscription,
        "startingOffsets": spark_offsets(begin),
        "maxOffsetsPerTrigger": str(most),
        **waiting,
        # Spark then fails where records are missing, and the stream's own rules say what it means.
        "failOnDataLoss": "true",
        **security,
    }
