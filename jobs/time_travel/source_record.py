"""Source record: the record itself, in Kafka: the command that reads it back, and whether Kafka still has it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jobs.commit.offsets import TopicPartition
from jobs.errors import FrazilError
from jobs.kafka.metadata import quick_kafka
from jobs.spec.secrets import REFERENCE, Secret
from jobs.spec.security import KafkaSecurity
from jobs.spec.settings import KafkaSettings
from jobs.spec.source import Source

State = Literal["kept", "removed", "not written", "another", "unknown"]
_FORMAT = r"offset %o, timestamp %T, key %K bytes, value %S bytes, headers %h\n%k\n%s\n"
_NO_BROKERS = "HOST:PORT"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record in Kafka.

    Attributes:
        state: `kept`: the log reaches from before it to behind it; `removed`: it begins later, by retention or because
            somebody deleted records; `not written`: it ends before, or there is no such partition; `another`: the topic
            or its log is another one since, so that the offset is of another record; `unknown`: see `why`.
        command: Reads it with kcat, whose format prints the offset that was read: a topic that is compacted may give
            the next one. Secrets stand in it as variables or files, and reach kcat by its standard input.
        first, end: Where the log begins and ends; None if it is not known.
        why: What is to be said beside: why nothing is known, or that there is no such partition.
    """

    state: State
    command: str
    first: int | None = None
    end: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class SourceLogs:
    """Where logs begin and end, asked once for all records.

    Attributes:
        bounds: First offset and end, by partition.
        why: Why nothing is known; empty if something is.
        absent: Partitions that their topics do not have, with how many those have.
    """

    settings: KafkaSettings
    bounds: Mapping[TopicPartition, tuple[int, int]]
    why: str = ""
    absent: Mapping[TopicPartition, str] = field(default_factory=dict)

    def record(self, partition: TopicPartition, offset: int, *, another: bool = False) -> SourceRecord:
        """A record of them.

        Args:
            another: Whether its coordinates are another record's since.
        """
        command = read_command(self.settings, partition, offset)
        if partition in self.absent and not another:
            return SourceRecord("not written", command, why=self.absent[partition])
        if partition not in self.bounds:
            return SourceRecord("another" if another else "unknown", command, why=self.why)
        first, end = self.bounds[partition]
        state: State = "removed" if offset < first else "not written" if offset >= end else "kept"
        return SourceRecord("another" if another else state, command, first, end)


def source_logs(settings: KafkaSettings, partitions: Collection[TopicPartition]) -> SourceLogs:
    """Ask Kafka where logs begin and end; brokers that do not answer cost a few seconds, and are no error."""
    wanted = list(dict.fromkeys(partitions))
    try:
        kafka = quick_kafka(settings)
        # As they were named, whether Kafka takes such names or not.
        there = kafka.topics(Source.model_construct(topics=tuple(dict.fromkeys(each.topic for each in wanted))))
        absent = {each: _partitions(each.topic, there[each.topic]) for each in wanted if _is_absent(each, there)}
        asked = [each for each in wanted if each not in absent]
        first, end = (kafka.earliest(asked), kafka.ends(asked).watermarks) if asked else ({}, {})
    except FrazilError as problem:
        return SourceLogs(settings, {}, problem.message)
    return SourceLogs(settings, {each: (first[each], end[each]) for each in asked}, absent=absent)


def _is_absent(partition: TopicPartition, there: Mapping[str, Collection[int]]) -> bool:
    # A topic without any may be one that the user must not see: Kafka says which when it is asked for offsets.
    numbers = there.get(partition.topic, ())
    return bool(numbers) and partition.partition not in numbers


def _partitions(topic: str, numbers: Collection[int]) -> str:
    count = len(numbers)
    return f"topic {topic} has {count} partition{'' if count == 1 else 's'}" + (
        f", 0 to {count - 1}" if count > 1 else ", 0"
    )


def read_command(settings: KafkaSettings, partition: TopicPartition, offset: int) -> str:
    """The command that prints one record of Kafka as it is; it needs kcat on the machine."""
    try:
        servers = settings.require_bootstrap()
    except FrazilError:
        servers = _NO_BROKERS
    told = _options(settings.security)
    plain = {name: value for name, value in told.items() if isinstance(value, str)}
    options = "".join(f" -X {shlex.quote(f'{name}={value}')}" for name, value in plain.items())
    secret = " ".join(_shell_word(name, value) for name, value in told.items() if not isinstance(value, str))
    # `printf` is the shell's own: no other user's list of processes shows what it prints.
    before, given = (f"printf '%s\\n' {secret} | ", " -F /dev/stdin") if secret else ("", "")
    place = f"-t {shlex.quote(partition.topic)} -p {partition.partition} -o {offset} -c 1"
    return f"{before}kcat -C -e -q{given} -b {shlex.quote(servers)}{options} {place} -f {shlex.quote(_FORMAT)}"


def _options(security: KafkaSecurity | None) -> dict[str, str | Secret]:
    """Those of librdkafka, with secrets as they are written."""
    if security is None or security.protocol == "PLAINTEXT":
        return {}
    told: dict[str, str | Secret | None] = {"security.protocol": security.protocol}
    told |= {"sasl.mechanism": security.mechanism, "sasl.username": security.user, "sasl.password": security.password}
    if security.oauth:
        told |= security.oauth.unrevealed()
    if security.kerberos:
        told |= security.kerberos.librdkafka()
    if security.uses_tls:
        told |= {
            "ssl.ca.location": str(security.ca) if security.ca else None,
            "ssl.certificate.location": str(security.certificate) if security.certificate else None,
            "ssl.key.location": str(security.key or security.certificate) if security.certificate else None,
            "ssl.key.password": security.key_password,
            "ssl.endpoint.identification.algorithm": None if security.verify_hostname else "none",
        }
    return {name: value for name, value in told.items() if value is not None}


def _shell_word(name: str, secret: Secret) -> str:
    # Within double quotes a shell puts what a variable or a command holds in the place of its name, and no more.
    text, at = "", 0
    for match in REFERENCE.finditer(secret.template):
        text += _escaped(secret.template[at : match.start()])
        text += f"${{{match[1]}}}" if match[1] else f"$(cat {shlex.quote(match[2])})"
        at = match.end()
    return f'"{name}={text}{_escaped(secret.template[at:])}"'


def _escaped(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)
