"""Records of the growth benchmark: the same for the same numbers, all of them good."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.clients.kafka.record_producer import RecordProducer

PAYMENT_SCHEMA = (
    "id string not null, payer string not null, amount decimal(12,2) not null, created_at timestamptz not null, "
    "document string, type string"
)
_PAYMENT = (
    '{"amount":%d.%02d,"created_at":"%sT10:11:12.345Z","document":"invoice-%08d","id":"%032x","payer":"payer-%05d",'
    '"type":"%s"}'
)
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_TYPES = ("card", "transfer", "cash", "voucher")
_KINDS = ("bigint", "double", "string", "boolean", "timestamptz")
_WIDE_DISTINCT = 1000
_FLUSH_SECONDS = 120.0


def payments(count: int, days: int) -> Iterator[bytes]:
    """Payments of about 170 bytes, each of one of so many days."""
    rng = random.Random(7)
    dates = [f"{_FIRST_DAY + timedelta(days=n):%Y-%m-%d}" for n in range(days)]
    for number in range(count):
        euros, cents = divmod(rng.randrange(100_000), 100)
        payer, kind = number * 7919 % 20_000, _TYPES[number // 4 % 4]
        yield (_PAYMENT % (euros, cents, rng.choice(dates), number, rng.getrandbits(128), payer, kind)).encode()


def wide_schema(columns: int) -> str:
    """A schema of so many columns of five kinds; the first is a text that every record has."""
    others = (f"c{n:03d} {_KINDS[n % len(_KINDS)]}" for n in range(1, columns))
    return ", ".join(["c000 string not null", *others])


def wide(count: int, columns: int) -> Iterator[bytes]:
    """Records with a value in each column of `wide_schema`: about 16 bytes a column, a thousand different ones."""
    rng = random.Random(7)
    distinct = [_wide(rng, columns) for _ in range(min(count, _WIDE_DISTINCT))]
    return itertools.islice(itertools.cycle(distinct), count)


def _wide(rng: random.Random, columns: int) -> bytes:
    made = {
        "bigint": lambda: str(rng.getrandbits(40)),
        "double": lambda: f"{rng.random():.6f}",
        "string": lambda: f'"{rng.getrandbits(48):012x}"',
        "boolean": lambda: ("false", "true")[rng.getrandbits(1)],
        "timestamptz": lambda: f'"2026-01-01T{rng.randrange(24):02d}:10:11Z"',
    }
    fields = [f'"c000":"{rng.getrandbits(48):012x}"']
    fields += [f'"c{n:03d}":{made[_KINDS[n % len(_KINDS)]]()}' for n in range(1, columns)]
    return ("{" + ",".join(fields) + "}").encode()


def fill(address: str, topic: str, partitions: int, values: Iterable[bytes]) -> int:
    """Make a topic of so many partitions and produce to them in turn; returns the bytes of the values."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    producer = RecordProducer(**{"bootstrap.servers": address, "queue.buffering.max.messages": 1_000_000})
    size = 0
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
        size += len(value)
    if left := producer.flush(_FLUSH_SECONDS):
        raise SystemExit(f"topic {topic}: {left:,} records were not acknowledged")
    return size
