"""Which deployments have a local schema registry beside the local broker, and what names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.settings.settings import Settings
from orchestration.cli.local.broker import local_registry
from resources.deployment import Deployment

JSON = """\
stream: orders
source: {topics: [orders]}
decode: {value: json, schema: "id string not null"}
table: {name: shop.orders}
"""
AVRO_KEYS = JSON.replace("decode: {", "decode: {key: {format: avro, schema: registry, into: key}, ")
ELSEWHERE = "registry: {url: 'http://registry.example.com'}\n"
OTHER_BROKERS = "kafka: {bootstrap_servers: 'kafka.example.com:9092'}\n"


def deployment(home: Path, streams: str, settings: str = "") -> Deployment:
    (home / "streams").mkdir()
    (home / "streams" / "orders.yaml").write_text(streams)
    # A stream that cannot be read keeps nobody from starting the others.
    (home / "streams" / "bad.yaml").write_text("stream: [\n")
    (home / "frazil.yaml").write_text(settings or "{}\n")
    return Deployment.at(home)


def of_format(format_: str) -> str:
    return JSON.replace('value: json, schema: "id string not null"', f"value: {format_}, schema: registry")


@pytest.mark.parametrize(
    ("streams", "settings", "local"),
    [
        (of_format("avro"), "", True),
        (of_format("protobuf"), "", True),
        (of_format("json_schema"), "", True),
        (AVRO_KEYS, "", True),
        (JSON, "", False),
        (of_format("avro"), ELSEWHERE, False),
        (of_format("avro"), OTHER_BROKERS, False),
    ],
)
def test_a_stream_that_needs_one_has_one_beside_the_local_broker(
    tmp_path: Path, streams: str, settings: str, local: bool
) -> None:
    made = deployment(tmp_path, streams, settings)
    specs, errors = made.streams()
    assert (len(specs), len(errors)) == (1, 1), errors
    registry = local_registry(made)
    assert (registry is not None) == local
    # Looking makes nothing.
    assert not (tmp_path / ".frazil").exists()


def test_one_that_was_started_is_named_by_the_settings_whatever_becomes_of_the_stream(tmp_path: Path) -> None:
    made = deployment(tmp_path, JSON)
    (tmp_path / ".frazil" / "registry").mkdir(parents=True)
    registry = made.settings().registry
    assert registry is not None and registry.is_local
    assert local_registry(made) is not None


def test_what_to_do_without_one(tmp_path: Path) -> None:
    assert Settings.embedded(tmp_path).registry_fix == "frazil up"
    elsewhere = deployment(tmp_path, of_format("avro"), OTHER_BROKERS).settings()
    assert elsewhere.registry_fix == "add to frazil.yaml: registry: {url: https://HOST:PORT}"
