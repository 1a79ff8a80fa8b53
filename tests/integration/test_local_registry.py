"""A stream of Avro with the embedded default: `frazil up` starts the registry that it needs, `frazil down` ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from orchestration.cli.local.broker import local_registry
from resources.deployment import Deployment
from tests.integration.test_first_hour import done

pytestmark = pytest.mark.integration
STREAM = """\
stream: orders
source: {topics: [orders]}
decode: {value: avro, schema: registry}
table: {name: shop.orders}
"""
SCHEMA = "id string not null, amount decimal(12,2)"


def test_up_starts_the_registry_of_a_stream_and_down_ends_it(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "orders.yaml").write_text(STREAM)
    deployment = Deployment.at(tmp_path)
    assert "Next: frazil up" in done(tmp_path, "validate")
    try:
        said = done(tmp_path, "up")
        assert "The local schema registry is up at http://127.0.0.1:" in said
        assert "The local schema registry runs already" in done(tmp_path, "up")
        # With columns in the file the generator knows what to register; then they are those of the registry.
        declared = STREAM.replace("schema: registry", f'schema: "{SCHEMA}"')
        (tmp_path / "streams" / "orders.yaml").write_text(declared)
        done(tmp_path, "generate", "orders", "--count", "300", "--rate", "1000", "--register")
        (tmp_path / "streams" / "orders.yaml").write_text(STREAM)
        assert "registry: subject orders-value is at version 1, AVRO" in done(tmp_path, "validate")
        done(tmp_path, "run", "orders")
        with connect_catalog(deployment.settings()) as catalog:
            assert catalog.load_table("shop.orders").scan().to_arrow().num_rows == 300
    finally:
        said = done(tmp_path, "down")
    assert "The local schema registry is stopped." in said
    registry = local_registry(deployment)
    assert registry is not None and registry.running() is None
