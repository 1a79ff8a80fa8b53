"""Whether the topic that a stream's dead letters go to is there; part of `frazil validate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobs.deadletter.outbox.topic import cluster_of, command_to_create
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaUnavailableError, quick_kafka
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.source import Source


@dataclass(frozen=True, slots=True)
class TopicVerdict:
    """What was found, in a sentence, and what to do."""

    verdict: Literal["ok", "wrong", "unchecked"]
    sentence: str
    fix: str | None = None


def check_letter_topic(spec: StreamSpec, settings: Settings) -> TopicVerdict | None:
    """Look for the topic on its own cluster; None for a stream without one."""
    topic = spec.errors.topic
    if topic is None:
        return None
    cluster = cluster_of(topic, settings.kafka)
    try:
        servers = cluster.require_bootstrap()
        found = quick_kafka(cluster).topics(Source(topics=(topic.name,)))
    except KafkaUnavailableError as problem:
        return TopicVerdict("wrong" if problem.refused else "unchecked", problem.message, problem.fix)
    except FrazilError as problem:
        return TopicVerdict(
            "unchecked", f"{problem.message.rstrip('.')}, so {topic.name} was not looked for", problem.fix
        )
    if topic.name in found:
        return TopicVerdict(
            "ok", f"topic {topic.name} ({len(found[topic.name])} partitions) for the dead letters exists"
        )
    if topic.create:
        return TopicVerdict("ok", f"topic {topic.name} for the dead letters is created with the first run")
    return TopicVerdict(
        "wrong",
        f"topic {topic.name} for the dead letters does not exist at {servers}",
        command_to_create(topic, servers),
    )
