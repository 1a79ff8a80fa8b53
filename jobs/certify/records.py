"""The records of a certificate: payments, the same for the same seed and number, about one in thirty of them bad."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

SCHEMA = (
    "id string not null, payer string not null, amount decimal(12,2) not null, created_at timestamptz not null, "
    "type string"
)
BAD_SHARE = 0.035

Kind = Literal["good", "truncated", "wrong_type", "missing_field", "null_in_required", "empty", "tombstone"]
BAD_KINDS: tuple[Kind, ...] = ("truncated", "wrong_type", "missing_field", "null_in_required", "empty", "tombstone")

_REQUIRED = ("id", "payer", "amount", "created_at")
_TYPES = ("card", "transfer", "cash", "voucher")


class Fate(IntEnum):
    """Where a record has to be in the end; nowhere, for the last two."""

    LANDED = 1
    DEAD = 2
    TOMBSTONE = 3
    PASSED_OVER = 4


@dataclass(frozen=True, slots=True)
class Record:
    """One record to produce.

    Attributes:
        value: JSON of about 150 bytes, or what is bad in its place; None is a tombstone.
    """

    number: int
    key: bytes
    value: bytes | None
    kind: Kind

    @property
    def fate(self) -> Fate:
        """What has to become of it."""
        if self.kind == "tombstone":
            return Fate.TOMBSTONE
        return Fate.LANDED if self.kind == "good" else Fate.DEAD


def record(seed: int, number: int) -> Record:
    """The record of a number."""
    rng = random.Random(f"{seed}/{number}")
    payer = f"payer-{rng.randrange(20_000):05d}"
    fields: dict[str, object] = {
        "id": f"{rng.getrandbits(96):024x}",
        "payer": payer,
        "amount": rng.randrange(1, 10_000_000) / 100,
        "created_at": f"2026-01-31T{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}Z",
        "type": rng.choice(_TYPES),
    }
    kind: Kind = rng.choice(BAD_KINDS) if rng.random() < BAD_SHARE else "good"
    return Record(number, payer.encode(), _value(fields, kind, rng), kind)


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
