"""Payments in formats with a schema: the home of each, and what is produced there."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.formats.known_formats import FORMATS
from jobs.generate.derived_schema import derived_schema
from orchestration.cli.demo.format_payments import DEMO_FORMATS, format_deployment, payment_maker
from orchestration.cli.demo.payments import payments
from resources.deployment import Deployment
from tests.helpers.registry_server import RegistryServer, serving

NOW = datetime(2026, 1, 31, tzinfo=UTC)


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
    declared = format_deployment(columns, "connect_json").stream("payments").table_schema.fields
    with serving(RegistryServer()) as server:
        server.newest["payments-value"] = (kind or "", derived_schema(name, declared[:6], "payment"))
        (deployment.home / "frazil.yaml").write_text(f"registry: {{url: '{server.url}', timeout: 5s}}\n")
        make = payment_maker(spec, "payments", deployment.settings())
    assert make is not None
    kinds = Counter(each.kind for each in payments(0, 5_000, NOW, make))
    assert len(kinds) > 2 and 4_900 < kinds["good"] < 5_000
