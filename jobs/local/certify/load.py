"""The load of a certificate: records, about one in thirty of them bad, produced with what has to become of each.

The same seed gives the same records: payments, or what another maker makes.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from confluent_kafka import Message

from jobs.base.errors import FrazilError
from jobs.clients.kafka.record_producer import RecordProducer
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.local.certify.shapes import TYPES
from jobs.tables.commit.stamp.offsets import TopicPartition

SCHEMA = (
    "id string not null, payer string not null, amount decimal(12,2) not null, created_at timestamptz not null, "
    "type string"
)
BAD_SHARE = 0.035

Kind = Literal["good", "truncated", "wrong_type", "missing_field", "null_in_required", "empty", "tombstone"]
BAD_KINDS: tuple[Kind, ...] = ("truncated", "wrong_type", "missing_field", "null_in_required", "empty", "tombstone")

Fates = dict[int, npt.NDArray[np.uint8]]
"""The `Fate` of the record at each offset, by partition."""
Added = dict[str, dict[int, npt.NDArray[np.int64]]]
"""Value of each offset's row, or NO_VALUE, by later field and partition."""
NO_VALUE = -1
Types = dict[int, npt.NDArray[np.uint8]]
"""Type of the record at each offset, as its index among all types, by partition."""
MOST_TYPES = 250
_FURTHER_SHARE = 0.25

_REQUIRED = ("id", "payer", "amount", "created_at")


class Fate(IntEnum):
    """The fate of a record of the load, where it has to be in the end; nowhere, for the last two."""

    LANDED = 1
    DEAD = 2
    TOMBSTONE = 3
    PASSED_OVER = 4


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the load.

    Attributes:
        value: JSON of about 150 bytes, or what is bad in its place; None is a tombstone.
        type: Type by which a routed stream sends rows to their tables.
    """

    number: int
    key: bytes
    value: bytes | None
    kind: Kind
    type: str

    @property
    def fate(self) -> Fate:
        """Expected fate of the record."""
        if self.kind == "tombstone":
            return Fate.TOMBSTONE
        return Fate.LANDED if self.kind == "good" else Fate.DEAD


def record_to_load(seed: int, number: int, added: Sequence[str] = (), further: Sequence[str] = ()) -> Record:
    """The record of the load that has a number; each of the added fields has that number as its value.

    Args:
        seed: Seed of the load.
        number: Number of the record.
        added: Fields that came later.
        further: Types that came later, which one record in four has.
    """
    rng = random.Random(f"{seed}/{number}")
    payer = f"payer-{rng.randrange(20_000):05d}"
    fields: dict[str, object] = {
        "id": f"{rng.getrandbits(96):024x}",
        "payer": payer,
        "amount": rng.randrange(1, 10_000_000) / 100,
        "created_at": f"2026-01-31T{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}Z",
        "type": rng.choice(TYPES),
        **dict.fromkeys(added, number),
    }
    if further and rng.random() < _FURTHER_SHARE:
        fields["type"] = rng.choice(further)
    kind: Kind = rng.choice(BAD_KINDS) if rng.random() < BAD_SHARE else "good"
    type_ = str(fields["type"])
    return Record(number, payer.encode(), _value(fields, kind, rng), kind, type_)


def _value(fields: dict[str, object], kind: Kind, rng: random.Random) -> bytes | None:
    if kind == "tombstone":
        return None
    if kind == "empty":
        return b""
    if kind == "wrong_type":
        fields["amount"] = rng.choice(("a lot", True, [1, 2], {"value": 3}))
    if kind == "missing_field":
        del fields[rng.choice(_REQUIRED)]
    if kind == "null_in_required":
        fields[rng.choice(_REQUIRED)] = None
    value = json.dumps(fields, separators=(",", ":")).encode()
    # Cut within the object, so that no prefix of it is JSON.
    return value[: rng.randrange(1, len(value))] if kind == "truncated" else value


RecordMaker = Callable[[int, int, Sequence[str], Sequence[str]], Record]
"""Makes the record of a seed and a number, with fields and types that came later."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected fates of the produced records.

    Attributes:
        fates: Fates by partition and offset.
        added: Values of each offset's row, by later field.
        types: Types by partition and offset; empty if no row goes by its type.
        names: Names of all types.
    """

    fates: Fates
    added: Added = field(default_factory=dict)
    types: Types = field(default_factory=dict)
    names: Sequence[str] = TYPES

    def landed(self, types: Collection[str] = TYPES) -> dict[int, npt.NDArray[np.bool_]]:
        """Whether the record of each offset has to be a row of one of these types, by partition."""
        numbers = [self.names.index(each) for each in types]
        return {
            partition: (fates == Fate.LANDED) & np.isin(self.types[partition], numbers)
            if partition in self.types
            else fates == Fate.LANDED
            for partition, fates in self.fates.items()
        }


class Load:
    """Records produced to the topic. The broker's acknowledgements give their offsets.

    Args:
        kafka: Settings of the brokers.
        topic: Nobody else produces to it.
        partitions: Number of partitions.
        seed: The same seed gives the same records, in the same partitions.
        make: Makes the record of a number, as `record_to_load` does.
        place: Returns the partition of a record, given their number; None: the seed decides.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        partitions: int,
        seed: int,
        make: RecordMaker = record_to_load,
        place: Callable[[Record, int], int] | None = None,
    ) -> None:
        self.topic: str = topic
        self.seed: int = seed
        self._make: RecordMaker = make
        self._place: Callable[[Record, int], int] = place or self._by_seed
        self._partitions: int = partitions
        self._next: int = 0
        self._fates: list[bytearray] = [bytearray() for _ in range(partitions)]
        self._types: list[bytearray] = [bytearray() for _ in range(partitions)]
        self._numbers: list[array[int]] = [array("q") for _ in range(partitions)]
        # The first record with each later field.
        self._added: dict[str, int] = {}
        self._further: list[str] = []
        self._misplaced: str | None = None
        options = {"bootstrap.servers": kafka.require_bootstrap(), **librdkafka_options(kafka.security)}
        self._producer: RecordProducer = RecordProducer(**options, **{"linger.ms": 5})

    def produce(self, count: int) -> None:
        """Produce the next records, and wait until the brokers have them.

        Raises:
            FrazilError: The brokers do not accept the records.
        """
        for number in range(self._next, self._next + count):
            made = self._make(self.seed, number, list(self._added), self._further)
            self._send(self._place(made, self._partitions), made)
        self._next += count
        left = self._producer.flush()
        refused = self._misplaced or self._producer.refused
        if left or refused:
            raise FrazilError(
                f"topic {self.topic}: the brokers did not take the load: {refused or f'{left} records wait'}.",
                fix="check `kafka` in the settings with `frazil validate`",
            )

    @property
    def produced(self) -> int:
        """Records that the brokers have."""
        return sum(map(len, self._fates))

    def fates(self) -> Fates:
        """Expected fate of the record at each offset, by partition."""
        return {number: np.frombuffer(bytes(fates), dtype=np.uint8) for number, fates in enumerate(self._fates)}

    def expected(self) -> Expected:
        """Expected fates of all produced records."""
        types = {number: np.frombuffer(bytes(each), dtype=np.uint8) for number, each in enumerate(self._types)}
        return Expected(self.fates(), self.added(), types, self.type_names)

    @property
    def type_names(self) -> tuple[str, ...]:
        """Types of the records so far, then those that may follow."""
        return (*TYPES, *self._further)

    def add_type(self) -> None:
        """Give some of the next records a type that none had before; nothing happens once there are very many."""
        if len(self.type_names) < MOST_TYPES:
            self._further.append(f"new_{len(self._further) + 1}")

    def add_field(self) -> None:
        """Give the next records, and all behind them, a field that none had before."""
        self._added[f"added_{len(self._added) + 1}"] = self._next

    def added(self) -> Added:
        """Values of each offset's row, by later field."""
        found: Added = {}
        for name, first in self._added.items():
            found[name] = {}
            for partition, fates in self.fates().items():
                numbers = np.array(self._numbers[partition], dtype=np.int64)
                found[name][partition] = np.where((fates == Fate.LANDED) & (numbers >= first), numbers, NO_VALUE)
        return found

    def ends(self) -> dict[TopicPartition, int]:
        """The next offset of each partition."""
        return {TopicPartition(self.topic, number): len(fates) for number, fates in enumerate(self._fates)}

    def pass_over(self, partition: int, start: int, end: int) -> None:
        """The records `[start, end)` of a partition are skipped on purpose, and have to be nowhere."""
        self._fates[partition][start:end] = bytes([Fate.PASSED_OVER]) * (end - start)

    def numbers(self, partition: int, start: int, end: int) -> list[int]:
        """The numbers of the records `[start, end)` of a partition that have to land."""
        fates = self._fates[partition][start:end]
        numbers = self._numbers[partition][start:end]
        return [number for number, fate in zip(numbers, fates, strict=True) if fate == Fate.LANDED]

    def _by_seed(self, made: Record, partitions: int) -> int:
        return random.Random(f"{self.seed}/partition/{made.number}").randrange(partitions)

    def _send(self, partition: int, made: Record) -> None:
        delivered = partial(self._delivered, made)
        self._producer.produce(self.topic, made.value, made.key, partition=partition, on_delivery=delivered)
        self._producer.poll()

    def _delivered(self, made: Record, message: Message) -> None:
        number, offset = message.partition() or 0, message.offset()
        fates = self._fates[number]
        if offset != len(fates):
            self._misplaced = f"partition {number}: offset {offset} where {len(fates)} was next"
            return
        fates.append(made.fate)
        self._types[number].append(self.type_names.index(made.type))
        self._numbers[number].append(made.number)
