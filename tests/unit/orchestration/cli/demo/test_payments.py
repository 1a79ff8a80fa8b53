"""The demo's payments: the same every time, and bad in every way that is promised."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.parser import parse_schema
from orchestration.cli.local.demo.command import has_payments
from orchestration.cli.local.demo.format_payments import DEMO_FORMATS, format_deployment, payment_maker, payment_schema
from orchestration.cli.local.demo.payments import BAD_KINDS, payments
from orchestration.cli.local.demo.report import stamped_counts
from resources.deployment import Deployment
from tests.helpers.real_stream import RealStream
from tests.helpers.registry_server import RegistryServer, serving
from tests.helpers.stream_history import FAILED, ROW

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


THEN = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("name", DEMO_FORMATS)
def test_its_home_has_its_stream_and_the_local_registry_if_it_needs_one(tmp_path: Path, name: str) -> None:
    deployment = format_deployment(Deployment.at(tmp_path), name)
    assert deployment.home == tmp_path / ".frazil" / "demo" / name
    spec = deployment.stream("payments")
    assert spec.decode.format == name
    assert spec.decode.needs_registry == (name != "connect_json")
    assert (deployment.settings().registry is not None) == spec.decode.needs_registry


@pytest.mark.parametrize("name", DEMO_FORMATS)
def test_most_of_its_payments_are_good_and_some_are_bad(tmp_path: Path, name: str) -> None:
    columns = Deployment.at(tmp_path)
    deployment = format_deployment(columns, name)
    spec, kind = deployment.stream("payments"), FORMATS[name].registry_kind
    with serving(RegistryServer()) as server:
        server.newest["payments-value"] = (kind or "", payment_schema(name))
        (deployment.home / "frazil.yaml").write_text(f"registry: {{url: '{server.url}', timeout: 5s}}\n")
        make = payment_maker(spec, "payments", deployment.settings())
    assert make is not None
    kinds = Counter(each.kind for each in payments(0, 5_000, THEN, make))
    assert len(kinds) > 2 and 4_900 < kinds["good"] < 5_000


def test_between_the_two_commits_of_a_batch_it_is_not_whole(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    assert stamped_counts(stream.catalog(), stream.spec).passed == 0
    stream.land([ROW, FAILED])
    assert stamped_counts(stream.catalog(), stream.spec).whole
    stream.land([ROW, FAILED, ROW], dead_too=False)
    between = stamped_counts(stream.catalog(), stream.spec)
    assert (between.passed, between.whole) == (5, False)
    stream.land([ROW])
    assert stamped_counts(stream.catalog(), stream.spec).passed == 6


def test_without_a_checkout_the_demo_has_a_stream_of_json(tmp_path: Path) -> None:
    empty = Deployment.at(tmp_path)
    assert not has_payments(empty)
    made = format_deployment(empty, "json")
    (spec,), errors = made.streams()
    assert (spec.stream, spec.decode.format, errors) == ("payments", "json", [])
    assert made.settings().registry is None
    assert payment_maker(spec, "payments", made.settings()) is None
    assert has_payments(made)
    # The columns are those of the checkout's stream, whose payments these are.
    checkout = Deployment.at(Path(__file__).resolve().parents[5]).stream("payments")
    assert spec.declared_rows == checkout.declared_rows
    (made.streams_folder / "payments.yaml").write_text("stream: [")
    assert has_payments(made), "what is wrong with the file is reported"
