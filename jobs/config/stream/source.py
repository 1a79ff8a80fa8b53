"""Source block of a stream's YAML file: its topics, and the offsets at which it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Discriminator, Field, Tag

from jobs.config.documents.base import (
    MAX_INT64,
    AnyInt,
    Problem,
    SpecModel,
)
from jobs.config.documents.units import Duration, Size
from jobs.config.services.kafka_options import KafkaOptions
from jobs.config.values.fields import PositiveInt

_MAX_PARTITION = 2**31 - 1
_LEAST_BYTES = 1024 * 1024
# Kafka's internal topics, which no pattern matches.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def topic_name(value: str) -> str:
    """Returns the name of a topic.

    Raises:
        ValueError: If it cannot be one.
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        raise ValueError("is not the name of a topic: letters, digits, '.', '_' and '-', 249 at most")
    return value


def _source_topic(value: str) -> str:
    try:
        return topic_name(value)
    except ValueError as error:
        raise ValueError(f"{error}; or use topics_pattern") from None


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value


def _group(value: str) -> str:
    if not value.strip() or len(value) > 249 or any(ord(letter) < 32 for letter in value):
        raise ValueError("is not the name of a consumer group: 1 to 249 letters, such as frazil-payments")
    return value


def _instant(value: object) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("must be a time such as 2026-01-31T08:00:00Z") from None
    if not isinstance(value, datetime):
        raise ValueError("must be a time such as 2026-01-31T08:00:00Z; put it in quotes")
    if value.tzinfo is None:
        raise ValueError("must say its zone, such as 2026-01-31T08:00:00Z or 2026-01-31T09:00:00+01:00")
    return value


Topic = Annotated[str, AfterValidator(_source_topic)]
Offsets = dict[Annotated[AnyInt, Field(ge=0, le=_MAX_PARTITION)], Annotated[AnyInt, Field(ge=0, le=MAX_INT64)]]


class StartTimestamp(SpecModel):
    """Start at the first record that is not older than a time.

    Args:
        timestamp: Time with its zone. A partition without such a record starts at its end.
    """

    example = "{timestamp: '2026-01-31T08:00:00Z'}"

    timestamp: Annotated[AwareDatetime, BeforeValidator(_instant)]


class StartOffsets(SpecModel):
    """Start at given offsets.

    Args:
        offsets: Next offset to read, by topic and partition. Partitions that are not listed start at their earliest
            record.
    """

    example = "{offsets: {payments: {0: 17}}}"

    offsets: dict[Topic, Offsets]


def _start_kind(value: object) -> str | None:
    if isinstance(value, str):
        return "@name"
    if isinstance(value, StartTimestamp) or (
        isinstance(value, dict) and "timestamp" in value and "offsets" not in value
    ):
        return "@timestamp"
    if isinstance(value, StartOffsets) or (isinstance(value, dict) and "offsets" in value and "timestamp" not in value):
        return "@offsets"
    return None


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("@name")]
    | Annotated[StartTimestamp, Tag("@timestamp")]
    | Annotated[StartOffsets, Tag("@offsets")],
    Discriminator(
        _start_kind,
        custom_error_type="frazil_start",
        custom_error_message="must be earliest, latest, {timestamp: 2026-01-31T08:00:00Z} or "
        "{offsets: {topic: {0: 17}}}",
    ),
]


class Source(SpecModel):
    """What is read. Exactly one of ``topics`` and ``topics_pattern`` is given.

    Args:
        topics: Names of the topics.
        topics_pattern: Regular expression (Python) that the whole name of a topic must match. Matching topics that
            appear later join.
        start: Where a stream without a position starts. A stream with one goes on from there, and ``start`` may change
            without effect.
        max_records_per_batch: Upper limit of records in a batch, over all partitions.
        max_bytes_per_batch: Approximate upper limit of bytes in a batch, estimated from earlier records. At least
            ``1MB``.
        min_records_per_batch: A running stream waits for so many records, or for ``max_delay``. A one-off run does not
            wait.
        max_delay: Longest wait for ``min_records_per_batch``, counted from the last batch. Both are given or neither.
        group: Consumer group that positions are committed to, for lag dashboards only. frazil never reads it.
        options: Options of Kafka's clients for this stream, over ``kafka.options`` of the settings.
    """

    example = "{topics: [payments], options: {client.rack: rack-a}}"

    topics: tuple[Topic, ...] | None = None
    topics_pattern: Annotated[str, AfterValidator(_pattern)] | None = None
    start: Start = "earliest"
    max_records_per_batch: PositiveInt = 1_000_000
    max_bytes_per_batch: Size | None = None
    min_records_per_batch: PositiveInt | None = None
    max_delay: Duration | None = None
    group: Annotated[str, AfterValidator(_group)] | None = None
    options: KafkaOptions = Field(default_factory=dict)

    def _problems(self) -> Iterator[Problem]:
        if self.topics is None and self.topics_pattern is None:
            yield (), "needs topics, or topics_pattern"
            return
        if self.topics is not None and self.topics_pattern is not None:
            yield ("topics_pattern",), "cannot be set beside topics; give one of them"
            return
        yield from self._bounds_disagree()
        if self.topics == ():
            yield ("topics",), "must name at least one topic"
        for index, topic in enumerate(self.topics or ()):
            if topic in (self.topics or ())[:index]:
                yield ("topics", index), f"the topic '{topic}' is here twice"
        if isinstance(self.start, StartOffsets):
            for topic in self.start.offsets:
                if not self.reads(topic):
                    yield ("start", "offsets", topic), "is not a topic of this stream"

    def _bounds_disagree(self) -> Iterator[Problem]:
        if self.max_bytes_per_batch is not None and self.max_bytes_per_batch < _LEAST_BYTES:
            yield ("max_bytes_per_batch",), "must be at least 1MB, which a single record may have"
        if self.min_records_per_batch is None:
            if self.max_delay is not None:
                yield ("max_delay",), "goes with min_records_per_batch; give both or none"
        elif self.max_delay is None:
            yield ("min_records_per_batch",), "needs max_delay, such as 5m: the longest that records wait for others"
        elif self.min_records_per_batch > self.max_records_per_batch:
            yield ("min_records_per_batch",), f"is above max_records_per_batch ({self.max_records_per_batch})"

    def reads(self, topic: str) -> bool:
        """Whether a topic is one of the stream's; a pattern has to match the whole name.

        Only this function evaluates the pattern, because other programs read regular expressions differently.
        """
        if self.topics is not None:
            return topic in self.topics
        return topic not in INTERNAL_TOPICS and re.fullmatch(self.topics_pattern or "", topic) is not None
