"""Error handling: the block ``errors`` of a stream, for records that fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import comb
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from jobs.config.documents.base import (
    ChangesRows,
    Flag,
    Problems,
    SpecModel,
    problems_at,
)
from jobs.config.documents.secrets import Secret
from jobs.config.documents.units import Duration, format_duration, parse_duration
from jobs.config.services.security import KafkaSecurity
from jobs.config.stream.source import topic_name
from jobs.config.values.fields import BootstrapServers, PositiveInt, TableName
from jobs.config.values.mask import NO_MASK, Mask

_DAY = timedelta(days=1)


def _retry_timeout(value: object) -> Any:
    if value == "forever":
        return value
    if value == -1 and not isinstance(value, bool):
        raise ValueError("must be forever, or a duration such as 5m; found -1")
    if value == timedelta(0) or (not isinstance(value, bool) and value in (0, "0", "0s")):
        return timedelta(0)
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{error}; or forever, or 0s for none") from None


def _at_least_a_day(value: timedelta) -> timedelta:
    if value < _DAY:
        raise ValueError("must be at least 1d: dead letters are deleted by days")
    return value


RetryTimeout = Annotated[
    timedelta | Literal["forever"],
    BeforeValidator(_retry_timeout),
    PlainSerializer(
        lambda value: value if isinstance(value, str) else format_duration(value) if value else "0s", return_type=str
    ),
]
Ratio = Annotated[float, Field(gt=0, le=1)]


class Retry(SpecModel):
    """How long a batch is tried again within its driver when a service is unavailable.

    Args:
        timeout: Time from the first attempt. ``0s`` tries once, ``forever`` never gives up.
        max_delay: Longest pause between attempts. Pauses start at 300 ms and double.
    """

    example = "{timeout: 5m}"

    timeout: RetryTimeout = timedelta(0)
    max_delay: Duration = timedelta(seconds=60)


class StopWindow(SpecModel):
    """A limit over the batches of the last while, which a restart of the stream does not change.

    Args:
        of: Length of the window.
        ratio: Share of failed records above which the stream stops.
        count: Failed records above which the stream stops.
    """

    example = "{of: 10m, ratio: 0.05}"

    of: Duration
    ratio: Ratio | None = None
    count: PositiveInt | None = None

    def _problems(self) -> Problems:
        if self.ratio is None and self.count is None:
            yield (), "needs ratio or count"


class StopAbove(SpecModel):
    """Stops the stream, before the commit, if more records than this failed.

    Args:
        ratio: Share of failed records in a batch above which the stream stops, over 0 and at most 1.
        min_records: Smaller batches and windows are not judged by a ratio. Without it, chance is ruled out by a
            binomial test.
        first_min_records: As ``min_records``, until the stream has landed its first record. Without it, ``min_records``
            counts.
        count: Failed records in a batch above which the stream stops.
        window: The same limits over several batches.
    """

    example = "{ratio: 0.05}"

    ratio: Ratio | None = None
    min_records: PositiveInt | None = None
    first_min_records: PositiveInt | None = None
    count: PositiveInt | None = None
    window: StopWindow | None = None

    def _problems(self) -> Problems:
        if self.ratio is None and self.count is None and self.window is None:
            yield (), "needs ratio, count or window"


DEFAULT_STOP = StopAbove(ratio=0.5, first_min_records=20)
"""Default limit: if more records fail than land, the schema or the producer is not the expected one. For a new stream,
whose schema is unproven, fewer records suffice."""

MOST_BY_CHANCE = 1000
"""Number of records from which on a ratio counts without the test for chance."""
_CHANCE = 0.001


def exceeds_ratio(failed: int, read: int, ratio: float, enough: int) -> bool:
    """Whether more records failed than a ratio allows, and not just by chance.

    Few records may exceed a ratio by chance: one bad record among ten is 10 %. So a small count exceeds it only if a
    source with exactly this ratio has as many failures at most once in a thousand times (binomial distribution).

    Args:
        failed: Number of failed records.
        read: Number of records read.
        ratio: Allowed ratio.
        enough: Number of records from which on the ratio alone decides; at most `MOST_BY_CHANCE`.
    """
    if failed <= ratio * read or read >= min(enough, MOST_BY_CHANCE):
        return failed > ratio * read
    tail = (comb(read, count) * ratio**count * (1 - ratio) ** (read - count) for count in range(failed, read + 1))
    return sum(tail) <= _CHANCE


def _stop_above(value: object) -> Any:
    """Convert `off` to no limit; so is null, which dumps of versions before the default contain."""
    if value is None or value is False or value == "off":
        return None
    if not isinstance(value, (dict, StopAbove)):
        raise ValueError("must be off, or a mapping with ratio, count or window")
    return value


class DeadLetterCluster(SpecModel):
    """Another Kafka than the settings', for the dead-letter topic. Secrets are references, as in the settings.

    Args:
        bootstrap_servers: Brokers as ``host:port``, several as a list or with commas.
        security: How the publisher proves itself. Paths are absolute.
    """

    example = "{bootstrap_servers: 'broker:9092'}"

    bootstrap_servers: BootstrapServers
    security: KafkaSecurity | None = None

    @model_validator(mode="before")
    @classmethod
    def _paths_hold_everywhere(cls, data: Any) -> Any:
        security = data.get("security") if isinstance(data, dict) else None
        if isinstance(security, dict):
            given = {name: security.get(name) for name in ("ca", "certificate", "key")}
            relative = [n for n, v in given.items() if isinstance(v, str) and v and not v.startswith(("/", "~", "${"))]
            if relative:
                sentence = "must be an absolute path: a driver runs from a copy of this file in another folder"
                raise problems_at([(("security", name), sentence) for name in relative])
        return data


class DeadLetterTopic(SpecModel):
    """The topic that repeats the dead-letter table for readers of Kafka Connect's dead letters.

    Args:
        name: Name of the topic.
        create: Creates the topic if it does not exist.
        partitions: Partitions of a topic that frazil creates. Without it, 1.
        replication_factor: Replication factor of a topic that frazil creates. Required with ``create``.
        publish: Publishes only dead letters newer than the topic (``new``), or all (``all``).
        stops: Has no effect. Files of earlier releases that have it stay valid.
        kafka: Cluster of the topic. Without it, the settings' Kafka.
    """

    example = "{name: payments-dead}"

    name: Annotated[str, AfterValidator(topic_name)]
    create: Flag = False
    partitions: PositiveInt | None = None
    replication_factor: PositiveInt | None = None
    publish: Literal["new", "all"] = "new"
    stops: Flag = False
    kafka: DeadLetterCluster | None = None

    def _problems(self) -> Problems:
        if self.create and self.replication_factor is None:
            yield ("replication_factor",), "is required with create: true, such as 3; 1 for a lone broker"
        given = [name for name in ("partitions", "replication_factor") if getattr(self, name) is not None]
        if not self.create:
            yield from (((name,), "is used only if frazil creates the topic; add create: true") for name in given)


def _letter_topic(value: object) -> Any:
    """Convert a plain name to an existing topic in the settings' Kafka."""
    if isinstance(value, str):
        return DeadLetterTopic(name=topic_name(value))
    if value is not None and not isinstance(value, (dict, DeadLetterTopic)):
        raise ValueError("must be the name of a topic, or a mapping with name")
    return value


class DeadLetters(SpecModel):
    """Where dead letters are kept, for how long, and what they leave out.

    Args:
        table: Name of the dead-letter table. Without it, the stream's table with ``_dead``.
        topic: Topic that repeats the table in Kafka Connect's form. A plain name is a topic that exists.
        keep: Age after which dead letters may be deleted, at least ``1d``. Without it, they stay.
        mask: Parts of a record that its dead letter does not keep.
    """

    example = "{table: orders.payments_dead}"

    table: TableName | None = None
    topic: Annotated[DeadLetterTopic | None, BeforeValidator(_letter_topic)] = None
    keep: Annotated[Duration, AfterValidator(_at_least_a_day)] | None = None
    mask: Annotated[Mask, ChangesRows(("errors", "mask"), unless=NO_MASK)] = NO_MASK


class Replay(SpecModel):
    """How dead letters are replayed.

    Args:
        automatic: Starts a replay when the configuration has changed and a sample succeeds. Otherwise it is proposed.
        park_after: Failed replays after which a dead letter is exhausted and left alone until an operator names it.
        rate: Upper limit of records per second of a replay. Without it, no limit.
    """

    automatic: Flag = False
    park_after: PositiveInt = 3
    rate: PositiveInt | None = None


class Errors(SpecModel):
    """What a record that fails does.

    Args:
        tolerance: ``none`` stops the stream at the first failure, ``data`` makes dead letters of bad data, ``all`` also
            of faults of frazil at a record.
        retry: How long a batch is retried when a service is unavailable.
        stop_above: Circuit breaker: how many records may fail before the stream stops. ``off`` removes the limit.
        dead_letters: Where dead letters are kept, and for how long.
        replay: How dead letters are replayed.
    """

    example = "{tolerance: data, stop_above: {ratio: 0.05}}"

    tolerance: Annotated[Literal["none", "data", "all"], ChangesRows()] = "data"
    retry: Retry = Retry()
    stop_above: Annotated[StopAbove | None, BeforeValidator(_stop_above)] = DEFAULT_STOP
    dead_letters: Annotated[DeadLetters | None, ChangesRows(written=lambda spec, _: spec.dead_letter_table)] = None
    replay: Replay = Replay()

    @property
    def mask(self) -> Mask:
        """Parts of a record that dead letters do not keep."""
        return self.dead_letters.mask if self.dead_letters else NO_MASK

    @property
    def keep(self) -> timedelta | None:
        """How long dead letters are kept; None for ever."""
        return self.dead_letters.keep if self.dead_letters else None

    @property
    def topic(self) -> DeadLetterTopic | None:
        """The dead-letter topic, if there is one."""
        return self.dead_letters.topic if self.dead_letters else None


def dead_letter_secrets(errors: Errors) -> Iterator[Secret]:
    """Yields every secret of the block, so that ``frazil validate`` can report variables that are not set."""
    security = errors.topic.kafka.security if errors.topic and errors.topic.kafka else None
    yield from security.secrets if security is not None else ()
