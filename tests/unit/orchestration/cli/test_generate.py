"""Options of `frazil generate`: shares, and brokers that are not on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.stream.models import StreamSpec
from jobs.local.generate.record import FIRST_TIME, generated
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from orchestration.cli.local.generate import (
    Share,
    Subjects,
    is_loopback,
    stream_generator,
)
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.orchestration.deployments import deployment_in


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5", 0.5), ("0", 0.0), ("100%", 1.0), (" 2 %", 0.02)])
def test_a_share_may_be_per_cent(text: str, share: float) -> None:
    assert Share().convert(text, None, None) == share


@pytest.mark.parametrize("text", ["x", "101%", "-1", "2", "nan%", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Share().convert(text, None, None)


@pytest.mark.parametrize(
    ("servers", "local"),
    [
        ("127.0.0.1:9092", True),
        ("localhost:9092,127.3.2.1:1", True),
        ("[::1]:9092", True),
        ("broker:9092", False),
        ("127.0.0.1:9092,10.0.0.1:9092", False),
        ("localhost.evil.example:9092", False),
        ("0.0.0.0:9092", False),
    ],
)
def test_brokers_on_this_machine(servers: str, local: bool) -> None:
    assert is_loopback(servers) == local


def test_brokers_elsewhere_need_a_word(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'broker.example:9092'}\n")
    said = CliRunner().invoke(main, ["--home", str(home), "generate", "payments", "--count", "1"])
    assert said.exit_code == 1
    assert "broker.example:9092 are not on this machine" in said.stderr
    assert "--yes" in said.stderr


def test_keys_have_the_columns_that_the_table_or_the_newest_schema_says(tmp_path: Path) -> None:
    key = {"format": "avro", "schema": "registry", "into": "key"}
    avro = '{"type":"record","name":"R","fields":[{"name":"id","type":"string"}]}'
    server = RegistryServer(newest={"t-value": ("AVRO", avro), "t-key": ("AVRO", avro.replace("id", "n"))})
    with serving(server):
        (tmp_path / "frazil.yaml").write_text(f"registry: {{url: '{server.url}', timeout: 5s}}\n")
        settings = Deployment.at(tmp_path).prepared_settings()

        def keys(**more: Any) -> set[bytes | None]:
            stream = {
                "stream": "s",
                "source": {"topics": ["t"]},
                "decode": {"value": "avro", "schema": "registry", "key": key | more},
                "table": {"name": "a.b"},
            }
            spec = StreamSpec.model_validate(stream)
            made = stream_generator(spec, settings, Subjects("t-value", "t-key"))
            return {generated(made, "seed", number, FIRST_TIME, 0).key for number in range(20)}

        # A text behind the id; no key now and then, as the column may be null.
        assert {each[:5] for each in keys() if each is not None} == {b"\0\0\0\0\2"}
        with pytest.raises(FrazilError, match=r"decode\.key\.schema is 'table', and table a\.b does not"):
            keys(format="json", schema="table")
        with connect_catalog(settings) as catalog:
            catalog.create_namespace("a")
            columns = iceberg_schema(parse_schema("id string, key struct<n: string, m: int>"))
            catalog.create_table("a.b", columns)
        assert {each[:1] for each in keys() if each is not None} == {b"\0"}
        assert all(set(json.loads(each)) <= {"n", "m"} for each in keys(format="json", schema="table") if each)
