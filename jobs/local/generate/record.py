"""Generated record: a record of a stream's formats, good or bad in a way that has a name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of the first record where records have to be the same each time."""


@dataclass(frozen=True, slots=True)
class GeneratedRecord:
    """Generated record to produce.

    Attributes:
        value: Bytes of the value.
        kind: `good`, or what is bad about it.
        key: Key, if the stream's rows have columns of it.
        headers: Headers, if the stream's rows have columns of them.
    """

    value: bytes
    kind: str = "good"
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class ValueGenerator(Protocol):
    """Makes values of one format and schema, or keys."""

    @property
    def bad_kinds(self) -> Mapping[str, str]:
        """Ways in which a value can be bad, with the class of the dead letter; empty if all bytes are values."""
        ...

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands.

        Args:
            rng: Source of randomness.
            at: Time of the event.
        """
        ...

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter for this reason."""
        ...


@dataclass(frozen=True, slots=True)
class HeaderGenerator:
    """Makes one header.

    Attributes:
        name: Name of the header.
        value: Makes its bytes.
    """

    name: str
    value: Callable[[random.Random, datetime], bytes]


@dataclass(frozen=True)
class RecordGenerator:
    """Makes records.

    Attributes:
        value: Makes values.
        key: Makes keys; None where rows have no column of them.
        headers: Make those headers that rows have columns of.
    """

    value: ValueGenerator
    key: ValueGenerator | None = None
    headers: tuple[HeaderGenerator, ...] = ()

    @property
    def bad_kinds(self) -> Mapping[str, str]:
        """The ways in which a record's value can be bad, with the class of the dead letter."""
        return self.value.bad_kinds

    def good(self, rng: random.Random, at: datetime) -> GeneratedRecord:
        """A record that lands."""
        return self._with_value(self.value.good(rng, at), "good", rng, at)

    def bad(self, kind: str, rng: random.Random, at: datetime) -> GeneratedRecord:
        """A record that becomes a dead letter, for the reason of its kind."""
        return self._with_value(self.value.bad(kind, rng, at), kind, rng, at)

    def _with_value(self, value: bytes, kind: str, rng: random.Random, at: datetime) -> GeneratedRecord:
        key = self.key.good(rng, at) if self.key is not None else None
        return GeneratedRecord(value, kind, key, tuple((each.name, each.value(rng, at)) for each in self.headers))


def generated(generator: RecordGenerator, seed: str, number: int, at: datetime, bad_share: float) -> GeneratedRecord:
    """The record of a number: the same for the same generator, seed, number and time.

    Args:
        bad_share: Share of bad records, from 0 to 1.
    """
    rng = random.Random(f"{seed}/{number}")
    kinds = list(generator.bad_kinds)
    if kinds and rng.random() < bad_share:
        return generator.bad(rng.choice(kinds), rng, at)
    return generator.good(rng, at)
