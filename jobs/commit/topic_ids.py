"""Kafka's ids of topics, and brokers without them: before Kafka 2.8, and some that only speak its protocol."""

from __future__ import annotations

from collections.abc import Mapping

# What a client shows where the broker gives no id: 128 bits, all 0.
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def has_id(identity: str | None) -> bool:
    """Whether Kafka gave this topic an id."""
    return bool(identity) and identity != NO_ID


def another_topic(before: str | None, now: str | None) -> bool:
    """Whether two ids say that a topic is not the one it was; where either is not known, they say nothing."""
    return has_id(before) and has_id(now) and before != now


def without_id(topics: Mapping[str, str]) -> tuple[str, ...]:
    """Those of some topics, by name, that have no id."""
    return tuple(sorted(topic for topic, identity in topics.items() if not has_id(identity)))
