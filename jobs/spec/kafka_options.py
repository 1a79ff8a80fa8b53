"""Options of Kafka's clients that a file may set: which ones, what they may be, and which client gets them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from jobs.spec.base import Problem, problems_at

OptionValue = int | bool | str
_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KafkaOption:
    """One option that may be set.

    Attributes:
        bounds: Of a whole number, both included.
        words: Of a word, all that are allowed; empty: any text.
        clients: ``reading``: consumers that read records; ``all``: every client of librdkafka; ``planner``: Spark's
            alone.
        librdkafka: Its name there, where it is another one.
        java: Its name for the Java client of Spark's planner; None: that does not get it.
    """

    kind: Literal["number", "flag", "word", "text"]
    clients: Literal["reading", "all", "planner"]
    bounds: tuple[int, int] = (0, 0)
    words: tuple[str, ...] = ()
    librdkafka: str | None = None
    java: str | None = None


def _number(
    clients: Literal["reading", "all", "planner"],
    least: int,
    most: int,
    *,
    java: str | None = None,
    name: str | None = None,
) -> KafkaOption:
    return KafkaOption("number", clients, (least, most), librdkafka=name, java=java)


KNOWN: dict[str, KafkaOption] = {
    "client.id": KafkaOption("text", "all", java="client.id"),
    "client.rack": KafkaOption("text", "reading"),
    "client.dns.lookup": KafkaOption(
        "word",
        "all",
        words=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        java="client.dns.lookup",
    ),
    "fetch.min.bytes": _number("reading", 1, 100_000_000),
    "fetch.wait.max.ms": _number("reading", 0, 5_000),
    "fetch.max.bytes": _number("reading", 1_000_000, _MAX_INT32 - 512),
    "max.partition.fetch.bytes": _number("reading", 1024, 1_000_000_000, name="fetch.message.max.bytes"),
    "fetch.error.backoff.ms": _number("reading", 0, 5_000),
    "receive.message.max.bytes": _number("reading", 1_000_512, _MAX_INT32),
    "queued.min.messages": _number("reading", 1, 10_000_000),
    "queued.max.messages.kbytes": _number("reading", 1, 2_097_151),
    "socket.keepalive.enable": KafkaOption("flag", "all"),
    "socket.nagle.disable": KafkaOption("flag", "all"),
    "socket.send.buffer.bytes": _number("all", 1024, 100_000_000, java="send.buffer.bytes"),
    "socket.receive.buffer.bytes": _number("all", 1024, 100_000_000, java="receive.buffer.bytes"),
    "socket.connection.setup.timeout.ms": _number("all", 1_000, 600_000, java="socket.connection.setup.timeout.ms"),
    "socket.max.fails": _number("all", 0, 1_000_000),
    "connections.max.idle.ms": _number("all", 1_000, _MAX_INT32, java="connections.max.idle.ms"),
    "reconnect.backoff.ms": _number("all", 0, 60_000, java="reconnect.backoff.ms"),
    "reconnect.backoff.max.ms": _number("all", 0, 60_000, java="reconnect.backoff.max.ms"),
    "retry.backoff.ms": _number("all", 1, 60_000, java="retry.backoff.ms"),
    "retry.backoff.max.ms": _number("all", 1, 60_000, java="retry.backoff.max.ms"),
    "metadata.max.age.ms": _number("all", 1_000, 86_400_000, java="metadata.max.age.ms"),
    "broker.address.ttl": _number("all", 0, 86_400_000),
    "broker.address.family": KafkaOption("word", "all", words=("any", "v4", "v6")),
    "request.timeout.ms": _number("planner", 1_000, 600_000, java="request.timeout.ms"),
    "default.api.timeout.ms": _number("planner", 1_000, 600_000, java="default.api.timeout.ms"),
}
"""What may be set, by its name."""

_OTHER_NAMES = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
_OFFSETS = "positions are in the tables' own snapshots, so that nothing is lost or doubled"
_NO_GROUP = "no consumer group is joined: tasks are assigned the offsets of their batch"
_REASONS = {
    "group.id": f"is not for a file to set: {_NO_GROUP}; source.group commits positions for lag dashboards",
    "group.instance.id": f"has no meaning: {_NO_GROUP}",
    "group.protocol": f"has no meaning: {_NO_GROUP}",
    "session.timeout.ms": f"has no meaning: {_NO_GROUP}",
    "heartbeat.interval.ms": f"has no meaning: {_NO_GROUP}",
    "max.poll.interval.ms": f"has no meaning: {_NO_GROUP}",
    "max.poll.records": "has no meaning: source.max_records_per_batch bounds a batch",
    "partition.assignment.strategy": f"has no meaning: {_NO_GROUP}",
    "auto.offset.reset": "is not for a file to set: an offset that the log lacks stops the stream, and is never jumped "
    "over; source.start says where a new stream begins",
    "enable.auto.commit": f"is not for a file to set: {_OFFSETS}",
    "enable.auto.offset.store": f"is not for a file to set: {_OFFSETS}",
    "auto.commit.interval.ms": f"is not for a file to set: {_OFFSETS}",
    "isolation.level": "is kafka.isolation in frazil.yaml",
    "bootstrap.servers": "is kafka.bootstrap_servers in frazil.yaml",
    "metadata.broker.list": "is kafka.bootstrap_servers in frazil.yaml",
    "socket.timeout.ms": "is kafka.request_timeout in frazil.yaml",
    "enable.partition.eof": "is not for a file to set: the end of a range is known by it",
    "check.crcs": "is not for a file to set: frazil checks each record's sum",
    "allow.auto.create.topics": "is not for a file to set: reading never makes a topic",
    "statistics.interval.ms": "is not for a file to set: whether a task gets on is seen by it",
    "key.deserializer": "has no meaning: the decode block of the stream's file says what bytes become",
    "value.deserializer": "has no meaning: the decode block of the stream's file says what bytes become",
    "interceptor.classes": "has no meaning: records do not pass through Java",
    "debug": "is not for a file to set: what clients print could hold secrets",
}
_BLOCKS = (
    (("security.", "sasl.", "ssl."), "is a matter of kafka.security in frazil.yaml, which takes secrets as references"),
    (("kafka.",), "is written without the kafka. in front"),
)
_TEXT = re.compile(r"[A-Za-z0-9._-]{1,200}")
# librdkafka's own, as far as one option is held against another.
_RECONNECT, _RECONNECT_MAX, _FETCH_MAX = 100, 10_000, 4 * 1024 * 1024
_JAVA_REQUEST, _JAVA_API = 30_000, 60_000


def option_problems(options: Mapping[str, OptionValue]) -> list[tuple[str, str]]:
    """Options that disagree with each other: which one, and why. Each by itself is valid."""

    def number(name: str, otherwise: int) -> int:
        return int(options.get(name, otherwise))

    problems: list[tuple[str, str]] = []
    first, longest = number("reconnect.backoff.ms", _RECONNECT), number("reconnect.backoff.max.ms", _RECONNECT_MAX)
    if first > longest:
        at = "reconnect.backoff.ms" if "reconnect.backoff.ms" in options else "reconnect.backoff.max.ms"
        problems.append((at, f"reconnect.backoff.ms ({first}) is above reconnect.backoff.max.ms ({longest})"))
    if (first := number("retry.backoff.ms", 0)) > (longest := number("retry.backoff.max.ms", 60_000)):
        problems.append(("retry.backoff.ms", f"is above retry.backoff.max.ms ({longest})"))
    most = number("fetch.max.bytes", _FETCH_MAX)
    if "receive.message.max.bytes" in options and number("receive.message.max.bytes", 0) < most + 512:
        problems.append(("receive.message.max.bytes", f"must be at least fetch.max.bytes ({most}) and 512 more"))
    if number("fetch.min.bytes", 1) > most:
        problems.append(("fetch.min.bytes", f"is above fetch.max.bytes ({most})"))
    one, all_ = number("request.timeout.ms", _JAVA_REQUEST), number("default.api.timeout.ms", _JAVA_API)
    if "default.api.timeout.ms" in options and all_ < one:
        problems.append(("default.api.timeout.ms", f"is below request.timeout.ms ({one})"))
    return problems


def _checked(value: object) -> Any:
    if not isinstance(value, Mapping):
        return value
    problems: list[Problem] = []
    found: dict[str, OptionValue] = {}
    for name, given in value.items():
        option = KNOWN.get(name) if isinstance(name, str) else None
        text = _refusal(str(name)) if option is None else _misfit(option, given)
        if text is None:
            found[str(name)] = given
        else:
            problems.append(((str(name),), text))
    if not problems:
        problems = [((name,), text) for name, text in option_problems(found)]
    if problems:
        raise problems_at(problems)
    return dict(sorted(found.items()))


def _refusal(name: str) -> str:
    word = name.strip().lower()
    if (other := _OTHER_NAMES.get(word)) is not None:
        return f"is {other} here"
    if (reason := _REASONS.get(word)) is not None:
        return reason
    for prefixes, reason in _BLOCKS:
        if word.startswith(prefixes):
            return reason
    near = difflib.get_close_matches(word, [*KNOWN, *_OTHER_NAMES], n=1, cutoff=0.75)
    if near:
        return f"unknown option; did you mean '{_OTHER_NAMES.get(near[0], near[0])}'?"
    return "is no option that a file may set; docs/kafka-options.md lists them"


def _misfit(option: KafkaOption, given: object) -> str | None:
    if option.kind == "flag":
        return None if isinstance(given, bool) else "must be true or false"
    if option.kind == "number":
        least, most = option.bounds
        if isinstance(given, bool) or not isinstance(given, int):
            return f"must be a whole number without a unit, {least} to {most}"
        return None if least <= given <= most else f"must be {least} to {most}"
    if option.kind == "word":
        return None if given in option.words else f"must be one of {', '.join(option.words)}"
    if isinstance(given, str) and _TEXT.fullmatch(given):
        return None
    return "must be text of letters, digits, '.', '_' and '-', 200 at most; secrets have no place here"


KafkaOptions = Annotated[dict[str, int | bool | str], BeforeValidator(_checked)]
"""Options by name, in order, all of them known and valid."""


def connection_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Those for any client of librdkafka, by its names."""
    return {KNOWN[name].librdkafka or name: value for name, value in options.items() if KNOWN[name].clients == "all"}


def reading_options(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Those for a consumer of librdkafka that reads records, by its names."""
    return {KNOWN[name].librdkafka or name: v for name, v in options.items() if KNOWN[name].clients != "planner"}


def planner_options(options: Mapping[str, OptionValue], stream: str) -> dict[str, str]:
    """Those for the Java client of Spark's planner, by its names.

    Args:
        stream: Whose planner it is. Its `client.id` names the stream: Java wants another one for each client of a JVM.
    """
    found = {java: str(value) for name, value in options.items() if (java := KNOWN[name].java) is not None}
    if "client.id" in found:
        found["client.id"] += f"-planner-{stream}"
    return found
