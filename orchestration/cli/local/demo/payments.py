"""Payments of the demo, about one in a hundred of them bad; and the producer that writes them into their topic."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from jobs.base.errors import FrazilError
from jobs.clients.kafka.record_producer import RecordProducer

Kind = Literal["good", "truncated_json", "wrong_type", "missing_field", "empty_value", "tombstone"]
BAD_KINDS: tuple[Kind, ...] = ("truncated_json", "wrong_type", "missing_field", "empty_value", "tombstone")
BAD_SHARE = 0.01

_TYPES = ("card", "transfer", "cash", "voucher")
_WORDS = ("invoice", "order", "receipt", "refund", "subscription", "ticket")
_DAYS = 3
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Payment:
    """Payment record to produce.

    Attributes:
        key: The payer, so that a payer's payments stay in order.
        value: JSON of about 170 bytes, or what is bad in its place; None is a tombstone.
        kind: `good`, or what is bad about it.
    """

    key: bytes | None
    value: bytes | None
    kind: str


MakePayment: TypeAlias = Callable[[int, datetime], Payment]
"""Makes the payment of a number, created at a time."""


def payments(first: int, count: int, now: datetime, make: MakePayment | None = None) -> Iterator[Payment]:
    """Payments `first` to `first + count - 1`, created over the three days before `now`.

    Args:
        first: The number of the first one; the same number gives the same payment but for its time.
        now: The time that the newest one is created at, UTC.
        make: Makes each; as JSON without it.
    """
    make = make or payment
    step = timedelta(days=_DAYS) / max(count, 1)
    begin = now.astimezone(UTC) - timedelta(days=_DAYS)
    for index in range(count):
        yield make(first + index, begin + step * (index + 1))


def payment(number: int, created_at: datetime) -> Payment:
    """The payment of a number, as JSON."""
    rng = random.Random(number)
    payer = f"payer-{rng.randrange(20_000):05d}"
    record: dict[str, object] = {
        "amount": round(rng.lognormvariate(3.5, 1.1), 2),
        "created_at": created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "document": f"{rng.choice(_WORDS)}-{rng.randrange(10**8):08d}",
        "id": f"{rng.getrandbits(128):032x}",
        "payer": payer,
        "type": rng.choice(_TYPES),
    }
    kind: Kind = rng.choice(BAD_KINDS) if rng.random() < BAD_SHARE else "good"
    return Payment(payer.encode(), _value(record, kind, rng), kind)


def _value(record: dict[str, object], kind: Kind, rng: random.Random) -> bytes | None:
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


class PaymentProducer(threading.Thread):
    """Produces payments in the background; `join` it, then `check` it.

    Args:
        per_second: Payments a second; None for as fast as the broker takes them.
        make: Makes each; as JSON without it.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        first: int,
        count: int,
        per_second: float | None = None,
        make: MakePayment | None = None,
    ) -> None:
        super().__init__(name="payments", daemon=True)
        self._topic: str = topic
        self._make: MakePayment | None = make
        self._first: int = first
        self._count: int = count
        self._pause: float = 1 / per_second if per_second else 0.0
        self._stop_early: threading.Event = threading.Event()
        self._problem: BaseException | None = None
        self.kinds: Counter[str] = Counter()
        self._producer: RecordProducer = RecordProducer(**{"bootstrap.servers": address})

    @property
    def acknowledged(self) -> int:
        """Payments that the broker has."""
        return self._producer.acknowledged

    def run(self) -> None:
        """Produce everything; an error is kept for `check`."""
        try:
            self._produce()
        except BaseException as problem:
            self._problem = problem

    def _produce(self) -> None:
        for number, payment in enumerate(payments(self._first, self._count, datetime.now(UTC), self._make)):
            if self._stop_early.wait(self._pause) if self._pause else self._stop_early.is_set():
                break
            self._producer.produce(self._topic, payment.value, payment.key)
            self.kinds[payment.kind] += 1
            if self._pause or number % 1000 == 0:
                self._producer.poll()
        self._producer.flush()

    def stop(self) -> None:
        """Produce no more, and wait for what is on its way."""
        self._stop_early.set()
        with contextlib.suppress(RuntimeError):
            self.join(5)

    def check(self) -> None:
        """Raise unless every payment was acknowledged by the broker.

        Raises:
            FrazilError: A payment was not acknowledged.
        """
        if self._problem is not None or self._producer.refused is not None or self.acknowledged != self._count:
            raise FrazilError(
                f"{self.acknowledged:,} of {self._count:,} payments were acknowledged by the broker: "
                f"{self._problem or self._producer.refused or 'the rest was not sent in time'}",
                fix="frazil demo",
            )
