"""The demo's payments: the same every time, and bad in every way that is promised."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.schema.parser import parse_schema
from orchestration.cli.demo.payments import BAD_KINDS, payments

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
SCHEMA = "id string not null, payer string not null, amount decimal(12,2) not null, created_at timestamptz not null, \
document string, type string"
ERROR_CLASSES = {
    "truncated_json": {"malformed_json"},
    "wrong_type": {"wrong_type"},
    "missing_field": {"missing_field"},
    "empty_value": {"empty_value"},
}


def test_the_same_numbers_give_the_same_payments() -> None:
    assert list(payments(100, 50, NOW)) == list(payments(100, 50, NOW))
    ids = {json.loads(p.value)["id"] for p in payments(0, 500, NOW) if p.kind == "good" and p.value}
    assert len(ids) == sum(p.kind == "good" for p in payments(0, 500, NOW))


def test_about_one_in_a_hundred_is_bad_in_each_of_the_ways() -> None:
    kinds = Counter(payment.kind for payment in payments(0, 50_000, NOW))
    assert set(kinds) == {"good", *BAD_KINDS}
    assert 0.005 < 1 - kinds["good"] / 50_000 < 0.015


def test_payments_look_as_promised() -> None:
    sample = [payment for payment in payments(0, 2_000, NOW) if payment.kind == "good"]
    sizes = [len(payment.value or b"") for payment in sample]
    assert 150 < sum(sizes) / len(sizes) < 190
    for payment in sample:
        record = json.loads(payment.value or b"")
        assert list(record) == ["amount", "created_at", "document", "id", "payer", "type"]
        assert payment.key == record["payer"].encode()


def test_the_decoder_takes_every_payment_for_what_it_is() -> None:
    made = list(payments(0, 20_000, NOW))
    decoded = JsonReferenceDecoder(parse_schema(SCHEMA)).decode(pa.array([p.value for p in made], pa.binary()))
    assert {made[row].kind for row in decoded.positions.tolist()} == {"good"}
    assert {made[row].kind for row in decoded.tombstones.tolist()} == {"tombstone"}
    for failure in decoded.failures:
        assert failure.error_class in ERROR_CLASSES[made[failure.row].kind], made[failure.row]
    assert len(decoded.positions) == sum(payment.kind == "good" for payment in made)
    first = json.loads(made[int(decoded.positions[0])].value or b"", parse_float=Decimal)
    assert decoded.rows.column("amount")[0].as_py() == first["amount"]
