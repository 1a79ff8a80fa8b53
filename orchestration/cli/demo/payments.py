"""Payments of the demo: generated, the same for the same numbers, and about one in a hundred of them bad."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

Kind = Literal["good", "truncated_json", "wrong_type", "missing_field", "empty_value", "tombstone"]
BAD_KINDS: tuple[Kind, ...] = ("truncated_json", "wrong_type", "missing_field", "empty_value", "tombstone")
BAD_SHARE = 0.01

_TYPES = ("card", "transfer", "cash", "voucher")
_WORDS = ("invoice", "order", "receipt", "refund", "subscription", "ticket")
_DAYS = 3


@dataclass(frozen=True, slots=True)
class Payment:
    """One record to produce.

    Attributes:
        key: The payer, so that a payer's payments stay in order.
        value: JSON of about 170 bytes, or what is bad in its place; None is a tombstone.
        kind: What it is, for whoever counts.
    """

    key: bytes
    value: bytes | None
    kind: Kind


Record: TypeAlias = dict[str, object]
WriteValue: TypeAlias = Callable[[Record, datetime, Kind, random.Random], bytes | None]
"""Writes a payment, created at a time, as a value of some kind."""


def payments(first: int, count: int, now: datetime, write: WriteValue | None = None) -> Iterator[Payment]:
    """Payments `first` to `first + count - 1`, created over the three days before `now`.

    Args:
        first: The number of the first one; the same number gives the same payment but for its time.
        count: How many.
        now: The time that the newest one is created at, UTC.
        write: Writes values; as JSON without it.
    """
    step = timedelta(days=_DAYS) / max(count, 1)
    begin = now.astimezone(UTC) - timedelta(days=_DAYS)
    for index in range(count):
        yield payment(first + index, begin + step * (index + 1), write)


def payment(number: int, created_at: datetime, write: WriteValue | None = None) -> Payment:
    """The payment of a number."""
    rng = random.Random(number)
    payer = f"payer-{rng.randrange(20_000):05d}"
    record: Record = {
        "amount": round(rng.lognormvariate(3.5, 1.1), 2),
        "created_at": created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "document": f"{rng.choice(_WORDS)}-{rng.randrange(10**8):08d}",
        "id": f"{rng.getrandbits(128):032x}",
        "payer": payer,
        "type": rng.choice(_TYPES),
    }
    kind: Kind = rng.choice(BAD_KINDS) if rng.random() < BAD_SHARE else "good"
    return Payment(payer.encode(), (write or json_value)(record, created_at, kind, rng), kind)


def json_value(record: Record, _: datetime, kind: Kind, rng: random.Random) -> bytes | None:
    """A payment as JSON, or what is bad in its place."""
    if kind == "tombstone":
        return None
    if kind == "empty_value":
        return b""
    if kind == "wrong_type":
        record["amount"] = rng.choice(("a lot", True, [1, 2], {"value": 3}))
    if kind == "missing_field":
        del record[rng.choice(("id", "payer", "amount", "created_at"))]
    value = json.dumps(record, separators=(",", ":")).encode()
    # Cut within the object, so that no prefix of it is JSON.
    return value[: rng.randrange(1, len(value))] if kind == "truncated_json" else value
