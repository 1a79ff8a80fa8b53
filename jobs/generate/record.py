"""Generated record: a record of a stream's format, good or bad in a way that has a name."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of the first record where records have to be the same each time."""


@dataclass(frozen=True, slots=True)
class GeneratedRecord:
    """One record to produce.

    Attributes:
        value: Its bytes.
        kind: `good`, or what is bad about it.
    """

    value: bytes
    kind: str = "good"


class RecordGenerator(Protocol):
    """Makes values of one format and schema."""

    @property
    def bad_kinds(self) -> tuple[str, ...]:
        """The ways in which a value can be bad; none where all bytes are values."""
        ...

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands.

        Args:
            rng: Where all that is random in it is from.
            at: The time of what it tells of.
        """
        ...

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter, for the reason of its kind."""
        ...


def generated(generator: RecordGenerator, seed: str, number: int, at: datetime, bad_share: float) -> GeneratedRecord:
    """The record of a number: the same for the same generator, seed, number and time.

    Args:
        bad_share: From 0 to 1.
    """
    rng = random.Random(f"{seed}/{number}")
    kinds = generator.bad_kinds
    if kinds and rng.random() < bad_share:
        kind = rng.choice(kinds)
        return GeneratedRecord(generator.bad(kind, rng, at), kind)
    return GeneratedRecord(generator.good(rng, at))
