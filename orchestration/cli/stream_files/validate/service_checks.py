"""Checks of streams and settings against live services: brokers and topics, registry, Spark's master, launchers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError, quick_kafka
from jobs.clients.registry.client import (
    RegistryClient,
    SubjectVersion,
    quick_registry,
)
from jobs.clients.registry.failures import NotInRegistryError, RegistryError, RegistryUnavailableError
from jobs.clients.spark.master import (
    MasterUnavailableError,
    driver_out_of_reach,
    is_local,
    master_of,
    require_master,
)
from jobs.config.documents.base import field_path
from jobs.config.settings.settings import Settings, secret_references
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.config.values.decode import key_subjects, value_subjects
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.streaming.dead_letter_publisher.topic import cluster_of, command_to_create
from jobs.streaming.supervision.launchers.choice import chosen_launcher
from jobs.tables.commit.stamp.log_state import without_id
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.write.locations import local_folder
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import refuse_names
from orchestration.cli.stream_files.validate.findings import Finding

_NEWER_BROKERS = "read it from brokers that speak the protocol of Kafka 2.1 at least, 2.8 for ids"
_ENCRYPT = (
    'set spark.authenticate and spark.network.crypto.enabled to "true" in spark.conf of frazil.yaml, and on the master'
)
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def connected_kafka(specs: list[StreamSpec], settings: Settings) -> KafkaLog | Finding:
    """Connect to the brokers; if that fails, return the reason why the topics cannot be checked."""
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
    """Check that the Kafka client options in the stream's file agree with those in the settings."""
    try:
        settings.kafka.with_options(spec.source.options)
    except FrazilError as problem:
        return Finding(spec.stream, "spec", "wrong", problem.message, problem.fix)
    return None


def check_topics(spec: StreamSpec, kafka: KafkaLog) -> Finding:
    """Check that a stream's topics exist, and that a recreated topic would be noticed."""
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
            f"create it (`frazil generate {spec.stream}` does on the local broker), or correct source.topics of stream "
            f"{spec.stream}",
        )
    if doubt is not None:
        return doubt
    if spec.source.topics_pattern is None:
        return Finding(spec.stream, "topic", "ok", f"topic {found} exists")
    if not topics:
        return Finding(spec.stream, "topic", "unchecked", f"no topic matches {spec.source.topics_pattern} as yet")
    return Finding(spec.stream, "topic", "ok", f"{len(topics)} topics match: {found}")


def _check_identities(spec: StreamSpec, kafka: KafkaLog, topics: Mapping[str, list[int]]) -> Finding | None:
    """Check that a recreated topic would be noticed; None if each topic has an id."""
    nameless = without_id(kafka.identities(topics))
    if not nameless:
        return None
    ends = kafka.ends(TopicPartition(topic, number) for topic in nameless for number in topics[topic])
    untold = sorted(set(nameless) - {partition.topic for partition in ends.leader_epochs})
    if untold:
        sentence = f"the brokers give topic {', '.join(untold)} neither an id nor leader epochs"
        return Finding(spec.stream, "topic", "wrong", sentence, _NEWER_BROKERS)
    sentence = f"topic {', '.join(nameless)} has no id: only leader epochs show if it is recreated"
    return Finding(spec.stream, "topic", "ok", sentence, _NEWER_BROKERS)


def check_letter_topic(spec: StreamSpec, settings: Settings) -> Finding | None:
    """Check that the topic of a stream's dead letters exists on its cluster; None for a stream without such a topic."""
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


def check_registry(specs: list[StreamSpec], settings: Settings) -> Iterator[Finding]:
    """Check the registry, if the settings name one or a stream needs one."""
    needing = [spec for spec in specs if spec.decode.needs_registry]
    if settings.registry is None:
        for spec in needing:
            sentence = f"{spec.decode.of_registry} name their schemas by ids of a registry; "
            local = settings.kafka.is_embedded
            sentence += "the local one has not been started" if local else "frazil.yaml names none"
            yield Finding(spec.stream, "registry", "unchecked" if local else "wrong", sentence, settings.registry_fix)
        return
    try:
        client = quick_registry(settings.registry)
        client.check()
    except RegistryError as problem:
        verdict = "unchecked" if isinstance(problem, RegistryUnavailableError) else "wrong"
        yield Finding(None, "registry", verdict, problem.message, problem.fix)
        return
    except FrazilError as problem:
        yield Finding(None, "registry", "unchecked", problem.message.rstrip("."), problem.fix)
        return
    yield Finding(None, "registry", "ok", f"{client.shown} answers")
    for spec in needing:
        topics = list(spec.source.topics or ())
        for subject in value_subjects(spec.decode, topics):
            yield _check_subject(spec, subject, "decode.value", spec.decode.format, client)
        if spec.decode.key is not None:
            for subject in key_subjects(spec.decode, topics):
                yield _check_subject(spec, subject, "decode.key", spec.decode.key.format, client)
    client.close()


def _check_subject(spec: StreamSpec, subject: str, where: str, format_: str, client: RegistryClient) -> Finding:
    try:
        newest = client.version(subject)
    except NotInRegistryError:
        sentence = f"{client.shown} has no subject {subject}: nothing was produced as yet, or under another name"
        return Finding(spec.stream, "registry", "unchecked", sentence)
    except RegistryError as problem:
        return Finding(spec.stream, "registry", "unchecked", problem.message, problem.fix)
    wanted = FORMATS[format_].registry_kind
    shown = f"subject {subject} is at version {newest.version}, {newest.schema.kind}, id {newest.id}"
    if wanted != newest.schema.kind:
        fix = f"correct {where} of stream {spec.stream}, or the topic"
        return Finding(spec.stream, "registry", "wrong", f"{shown}; {where} is {format_}", fix)
    return Finding(spec.stream, "registry", "ok", shown)


def check_new_columns(spec: StreamSpec, settings: Settings) -> Iterator[Finding]:
    """Check a stream's steps, rules and columns against the newest schema, which would define its table."""
    key = spec.decode.key
    if settings.registry is None or spec.decode.schema_source != "registry":
        return
    if key is not None and key.schema_source != "declared":
        return
    format_ = FORMATS[spec.decode.format]
    try:
        with closing(quick_registry(settings.registry)) as client:
            newest = _newest(client, value_subjects(spec.decode, list(spec.source.topics or ())))
    except FrazilError:
        # `check_registry` reports the registry's problems.
        return
    if newest is None or newest[1].schema.kind != format_.registry_kind or format_.writer_rows is None:
        return
    subject, version = newest
    try:
        rows = format_.writer_rows(version.schema.schema, spec.decode.options)
    except BadWriterSchema as problem:
        sentence = f"subject {subject}, version {version.version}, makes no table: {problem.message}"
        yield Finding(spec.stream, "spec", "wrong", sentence, f"declare the columns in streams/{spec.stream}.yaml")
        return
    problems = spec.problems_of(rows, spec.record_columns)
    if not problems:
        try:
            schema = spec.table_schema_of(rows)
            refuse_names(spec.table.name, schema, partition_spec(spec.table.partition_by, schema))
        except FrazilError as problem:
            sentence = f"subject {subject}, version {version.version}: {problem.message}"
            yield Finding(spec.stream, "spec", "wrong", sentence, problem.fix)
    for place, problem in problems:
        sentence = f"{field_path(place)}: {problem}; the columns are those of subject {subject}"
        yield Finding(
            spec.stream,
            "spec",
            "wrong",
            f"{sentence}, version {version.version}",
            f"correct streams/{spec.stream}.yaml",
        )


def _newest(client: RegistryClient, subjects: Iterable[str]) -> tuple[str, SubjectVersion] | None:
    for subject in subjects:
        try:
            return subject, client.version(subject)
        except NotInRegistryError:
            continue
    return None


def check_cluster(settings: Settings) -> Iterator[Finding]:
    """Check a Spark master other than `local`."""
    master = master_of(settings)
    if is_local(master):
        return
    try:
        require_master(settings)
        apart = driver_out_of_reach(settings)
    except MasterUnavailableError as problem:
        yield Finding(None, "spark", "unchecked", problem.message, problem.fix)
        apart = driver_out_of_reach(settings)
    except FrazilError as problem:
        yield Finding(None, "spark", "wrong", problem.message, problem.fix)
        return
    else:
        if master.startswith("spark://"):
            yield Finding(None, "spark", "ok", f"the master {master} answers")
        else:
            yield Finding(None, "spark", "unchecked", f"whether {master} answers was not asked")
    if apart is not None:
        fix = "set spark.driver.host and spark.driver.bindAddress in spark.conf of frazil.yaml"
        yield Finding(None, "spark", "wrong", f"spark.conf: {apart}", fix)
        if settings.kafka.is_embedded:
            sentence = f"the local broker listens on 127.0.0.1, where tasks on {master} do not find it"
            yield Finding(None, "spark", "wrong", sentence, "set kafka.bootstrap_servers in frazil.yaml")
    warehouse = settings.catalog.properties.get("warehouse")
    if isinstance(warehouse, str) and local_folder(warehouse) is not None:
        sentence = (
            f"the warehouse {warehouse} is a folder, and tasks run on {master}: each of its hosts must have that same "
            "folder mounted. A batch whose files the driver does not find is refused"
        )
        yield Finding(None, "spark", "unchecked", sentence, "put catalog.properties.warehouse into an object store")
    conf = settings.spark.conf
    # Drivers never get the secrets of mirror sources.
    secrets = any(True for _ in secret_references(settings, sources=False))
    if secrets and not any(conf.get(key) == "true" for key in _ENCRYPTED):
        sentence = f"what the driver sends to {master} contains secrets, and Spark does not encrypt it"
        yield Finding(None, "spark", "unchecked", sentence, _ENCRYPT)


def check_launcher(settings: Settings) -> Iterator[Finding]:
    """Check a launcher that starts drivers on other machines."""
    if not settings.drivers.remote:
        return
    try:
        yield Finding(None, "drivers", "ok", chosen_launcher(settings).check())
    except FrazilError as problem:
        yield Finding(None, "drivers", "unchecked", problem.message, problem.fix)
    if settings.kafka.is_embedded:
        sentence = "the local broker listens on 127.0.0.1, where drivers on other machines do not find it"
        yield Finding(None, "drivers", "wrong", sentence, "set kafka.bootstrap_servers in frazil.yaml")
    warehouse = settings.catalog.properties.get("warehouse")
    if isinstance(warehouse, str) and (folder := local_folder(warehouse)) is not None:
        sentence = f"the warehouse is the folder {folder}, which every machine that runs drivers must have mounted"
        yield Finding(None, "drivers", "unchecked", sentence, "put catalog.properties.warehouse into an object store")
