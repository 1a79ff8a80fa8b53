"""Payments that are produced: all of them good, an id of its own for each, the same for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

Size: TypeAlias = Literal["small", "1k"]

_CHUNK = 50_000
_DAYS = 3
_FIRST = np.datetime64("2026-01-01T00:00:00.000", "ms")
_PAYERS = 20_000

SMALL_SCHEMA = """\
id string not null,
payer string not null,
amount decimal(12,2) not null,
created_at timestamptz not null,
document string,
type string"""

LARGE_SCHEMA = (
    SMALL_SCHEMA
    + """,
currency string, status string, channel string, reference string, end_to_end_id string, description string,
fee decimal(12,2), tax decimal(12,2), exchange_rate double, risk_score double, retries int, sequence bigint,
recurring boolean, refund boolean, settled_at timestamptz, booked_on date,
ip string, user_agent string, device_id string, session_id string,
merchant struct<id string, name string, category int, city string, country string, postcode string>,
address struct<street string, city string, country string, postcode string>,
card struct<brand string, last4 string, expires string>,
tags list<string>"""
)

_SMALL = b'{"amount":%s,"created_at":"%sZ","document":"%s-%08d","id":"%s","payer":"payer-%05d","type":"%s"}'
_LARGE = (
    b'{"amount":%s,"created_at":"%sZ","document":"%s-%08d","id":"%s","payer":"payer-%05d","type":"%s",'
    b'"currency":"%s","status":"%s","channel":"%s","reference":"RF%010d","end_to_end_id":"%s","description":"%s",'
    b'"fee":%s,"tax":%s,"exchange_rate":%.6f,"risk_score":%.4f,"retries":%d,"sequence":%d,'
    b'"recurring":%s,"refund":%s,"settled_at":"%sZ","booked_on":"%s",'
    b'"ip":"10.%d.%d.%d","user_agent":"%s","device_id":"%s","session_id":"%s",'
    b'"merchant":{"id":"merchant-%05d","name":"%s","category":%d,"city":"%s","country":"%s","postcode":"%05d"},'
    b'"address":{"street":"%s %d","city":"%s","country":"%s","postcode":"%05d"},'
    b'"card":{"brand":"%s","last4":"%04d","expires":"%02d/%02d"},"tags":["%s","%s"]}'
)
_TYPES = (b"card", b"transfer", b"cash", b"voucher")
_WORDS = (b"invoice", b"order", b"receipt", b"refund", b"subscription", b"ticket")
_CURRENCIES = (b"EUR", b"USD", b"GBP", b"CHF", b"SEK", b"PLN")
_STATES = (b"accepted", b"pending", b"settled", b"reversed")
_CHANNELS = (b"web", b"mobile", b"terminal", b"api")
_CITIES = (b"Lisbon", b"Uppsala", b"Ghent", b"Graz", b"Tartu", b"Turin", b"Malaga", b"Brno", b"Cork", b"Lyon")
_COUNTRIES = (b"PT", b"SE", b"BE", b"AT", b"EE", b"IT", b"ES", b"CZ", b"IE", b"FR")
_BRANDS = (b"visa", b"mastercard", b"amex")
_AGENTS = tuple(b"Mozilla/5.0 (X11; Linux x86_64) Firefox/%d.0" % n for n in range(90, 130))


@dataclass(frozen=True, slots=True)
class Payments:
    """Payments in the order in which they are produced.

    Args:
        keys: The payers.
        values: JSON.
        cents: The sum of their amounts.
    """

    keys: list[bytes]
    values: list[bytes]
    cents: int


def schema_text(size: Size) -> str:
    """The columns that a stream declares to land them."""
    return SMALL_SCHEMA if size == "small" else LARGE_SCHEMA


def payments(size: Size, count: int) -> Iterator[Payments]:
    """Yield payments in chunks, created over three days, the oldest first, as in a table's partitions.

    Args:
        size: Size of each payment: about 170 bytes, or about 1,000.
        count: Number of all payments.
    """
    random = np.random.default_rng(7)
    for first in range(0, count, _CHUNK):
        yield _chunk(size, random, first, min(_CHUNK, count - first), count)


def _chunk(size: Size, random: np.random.Generator, first: int, rows: int, count: int) -> Payments:
    def among(values: tuple[bytes, ...]) -> Iterator[bytes]:
        return map(values.__getitem__, random.integers(0, len(values), rows).tolist())

    def below(limit: int) -> list[int]:
        return random.integers(0, limit, rows).tolist()

    def money(mean: float) -> tuple[list[bytes], int]:
        cents = np.rint(random.lognormal(mean, 1.1, rows) * 100).astype(np.int64).clip(1, 10**9)
        return [repr(each / 100).encode() for each in cents.tolist()], int(cents.sum())

    step = _DAYS * 86_400_000 / count
    milliseconds = ((first + np.arange(1, rows + 1)) * step).astype(np.int64)
    payers = below(_PAYERS)
    amounts, cents = money(3.5)
    columns: list[Any] = [
        amounts,
        _times(_FIRST + milliseconds),
        among(_WORDS),
        below(10**8),
        _hexadecimal(random, rows),
        payers,
        among(_TYPES),
    ]
    if size == "1k":
        columns += [among(_CURRENCIES), among(_STATES), among(_CHANNELS), below(10**10), _hexadecimal(random, rows)]
        columns += [_descriptions(random, rows), money(0.5)[0], money(2.0)[0]]
        columns += [random.random(rows).tolist(), random.random(rows).tolist(), below(4), range(first, first + rows)]
        columns += [among((b"true", b"false")), among((b"true", b"false"))]
        columns += [_times(_FIRST + milliseconds + 90_061_001), _days(_FIRST + milliseconds + 172_800_000)]
        columns += [below(256), below(256), below(256), among(_AGENTS)]
        columns += [_hexadecimal(random, rows), _hexadecimal(random, rows)]
        columns += [below(5000), _descriptions(random, rows, words=2), below(9999), among(_CITIES), among(_COUNTRIES)]
        columns += [below(10**5), _descriptions(random, rows, words=1), below(400), among(_CITIES), among(_COUNTRIES)]
        columns += [below(10**5), among(_BRANDS), below(10**4), below(12), below(30)]
        columns += [among(_WORDS), among(_CHANNELS)]
    template = _SMALL if size == "small" else _LARGE
    values = list(map(template.__mod__, zip(*columns, strict=True)))
    return Payments([b"payer-%05d" % payer for payer in payers], values, cents)


def _times(times: Any) -> list[bytes]:
    return np.datetime_as_string(times, unit="ms").astype("S").tolist()


def _days(times: Any) -> list[bytes]:
    return np.datetime_as_string(times, unit="D").astype("S").tolist()


def _hexadecimal(random: np.random.Generator, rows: int) -> list[bytes]:
    """A text of 32 digits for each."""
    text = random.bytes(16 * rows).hex().encode()
    return [text[at : at + 32] for at in range(0, len(text), 32)]


def _descriptions(random: np.random.Generator, rows: int, words: int = 6) -> list[bytes]:
    vocabulary = np.array([b"%s%03d" % (word, n) for word in _WORDS for n in range(100)], dtype=object)
    return [b" ".join(line) for line in vocabulary[random.integers(0, len(vocabulary), (rows, words))].tolist()]
