"""Checks of streams against the brokers: the topics that they read, and those that their dead letters go to."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.commit.log_state import without_id
from jobs.commit.offsets import TopicPartition
from jobs.deadletter.outbox.topic import cluster_of, command_to_create
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog, KafkaUnavailableError, quick_kafka
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.source import Source
from orchestration.cli.validate.findings import Finding

_NEWER_BROKERS = "read it from brokers that speak the protocol of Kafka 2.1 at least, 2.8 for ids"


def connected_kafka(specs: list[StreamSpec], settings: Settings) -> KafkaLog | Finding:
    """The brokers, asked once whether they answer; or why the topics cannot be checked."""
    not_checked = "so the topics were not checked"
    try:
        kafka = quick_kafka(settings.kafka)
        for spec in specs[:1]:
            kafka.topics(spec.source)
        return kafka
    except KafkaUnavailableError as problem:
        verdict = "wrong" if problem.refused else "unchecked"
        return Finding(None, "kafka", verdict, f"{problem.message}; {not_checked}", problem.fix)
    except FrazilError as problem:
        return Finding(None, "kafka", "unchecked", f"{problem.message.rstrip('.')}, {not_checked}", problem.fix)


def check_options(spec: StreamSpec, settings: Settings) -> Finding | None:
    """Whether the options of Kafka's clients in the stream's file disagree with those of the settings."""
    try:
        settings.kafka.with_options(spec.source.options)
    except FrazilError as problem:
        return Finding(spec.stream, "spec", "wrong", problem.message, problem.fix)
    return None


def check_topics(spec: StreamSpec, kafka: KafkaLog) -> Finding:
    """Whether the topics of a stream are there, and would be known again."""
    try:
        topics = kafka.topics(spec.source)
        doubt = _check_identities(spec, kafka, topics)
    except FrazilError as problem:
        return Finding(spec.stream, "topic", "unchecked", problem.message, problem.fix)
    found = ", ".join(f"{name} ({len(partitions)} partitions)" for name, partitions in topics.items())
    missing = [topic for topic in spec.source.topics or () if topic not in topics]
    if missing:
        return Finding(
            spec.stream,
            "topic",
            "wrong",
            f"topic {', '.join(missing)} does not exist",
            f"create it, or correct source.topics of stream {spec.stream}",
        )
    if doubt is not None:
        return doubt
    if spec.source.topics_pattern is None:
        return Finding(spec.stream, "topic", "ok", f"topic {found} exists")
    if not topics:
        return Finding(spec.stream, "topic", "unchecked", f"no topic matches {spec.source.topics_pattern} as yet")
    return Finding(spec.stream, "topic", "ok", f"{len(topics)} topics match: {found}")


def _check_identities(spec: StreamSpec, kafka: KafkaLog, topics: Mapping[str, list[int]]) -> Finding | None:
    """Whether a topic that is deleted and created again would be noticed; None where nothing is to be said of it."""
    nameless = without_id(kafka.identities(topics))
    if not nameless:
        return None
    ends = kafka.ends(TopicPartition(topic, number) for topic in nameless for number in topics[topic])
    untold = sorted(set(nameless) - {partition.topic for partition in ends.leader_epochs})
    if untold:
        sentence = f"the brokers give topic {', '.join(untold)} neither an id nor leader epochs"
        return Finding(spec.stream, "topic", "wrong", sentence, _NEWER_BROKERS)
    sentence = f"topic {', '.join(nameless)} has no id: if it is created anew, leader epochs alone can tell"
    return Finding(spec.stream, "topic", "ok", sentence, _NEWER_BROKERS)


def check_letter_topic(spec: StreamSpec, settings: Settings) -> Finding | None:
    """Look for the topic of a stream's dead letters on its own cluster; None for a stream without one."""
    topic = spec.errors.topic
    if topic is None:
        return None
    cluster = cluster_of(topic, settings.kafka)
    try:
        servers = cluster.require_bootstrap()
        found = quick_kafka(cluster).topics(Source(topics=(topic.name,)))
    except KafkaUnavailableError as problem:
        return Finding(spec.stream, "topic", "wrong" if problem.refused else "unchecked", problem.message, problem.fix)
    except FrazilError as problem:
        sentence = f"{problem.message.rstrip('.')}, so {topic.name} was not looked for"
        return Finding(spec.stream, "topic", "unchecked", sentence, problem.fix)
    what = f"topic {topic.name} for the dead letters"
    if topic.name in found:
        sentence = f"topic {topic.name} ({len(found[topic.name])} partitions) for the dead letters exists"
        return Finding(spec.stream, "topic", "ok", sentence)
    if topic.create:
        return Finding(spec.stream, "topic", "ok", f"{what} is created with the first run")
    return Finding(
        spec.stream, "topic", "wrong", f"{what} does not exist at {servers}", command_to_create(topic, servers)
    )
