"""Schema commands against a real broker: records are generated, and a stream's file is inferred from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result

from jobs.clients.registry.connection import registry_connection
from jobs.clients.registry.lookup import RegistryLookup
from jobs.config.settings.loading import load_stream
from jobs.records.formats.known_formats import FORMATS
from orchestration.cli.main import main
from tests.helpers.topics import messages_of
from tests.integration.pipeline import Pipeline

pytestmark = pytest.mark.integration

COLUMNS = (
    "id string not null, amount decimal(12,2) not null, created_at timestamptz not null, tags list<string>, "
    "payer struct<name: string, age: int>"
)


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), *words])


def test_a_stream_is_inferred_from_the_records_that_another_generates(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    one = pipeline()
    home = one.home
    made = typed(home, "generate", one.stream, "--rate", "5000", "--count", "400", "--bad", "5%", "--seed", "1")
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith(f"{one.stream}: 400 records in topic {one.stream}, among them ")

    file = tmp_path / "inferred.yaml"
    words = ("schema", "infer", one.stream, "--times", "--stream", "inferred", "--output", str(file))
    assert typed(home, *words).exit_code == 0
    spec = load_stream(file)
    assert spec.source.topics == (one.stream,)
    assert {field.name for field in spec.declared_rows.fields} <= {
        field.name for field in one.spec().declared_rows.fields
    }
    again = typed(home, *words)
    assert again.exit_code == 1
    assert "nothing is written over it" in again.stderr


@pytest.mark.parametrize("value", ["avro", "json_schema", "connect_json"])
def test_records_land_or_are_bad_as_was_said(value: str, pipeline: Callable[..., Pipeline], registry: str) -> None:
    one = pipeline()
    settings = yaml.safe_load((one.home / "frazil.yaml").read_text())
    settings["registry"] = {"url": registry, "lag": "100ms"}
    (one.home / "frazil.yaml").write_text(yaml.safe_dump(settings))
    decode = {"value": value, "schema": COLUMNS, "key": {"format": "long", "into": "number"}}
    one.write_spec(decode=decode | {"headers": {"trace": "uuid"}}, table={"name": one.table_name})
    words = ("generate", one.stream, "--rate", "5000", "--count", "300", "--bad", "20%", "--seed", "1")
    if value != "connect_json":
        refused = typed(one.home, *words)
        assert refused.exit_code == 1
        assert f"the registry has no subject {one.stream}-value" in refused.stderr
        made = typed(one.home, *words, "--register")
        assert f"Registered subject {one.stream}-value" in made.stderr
    else:
        made = typed(one.home, *words)
    assert made.exit_code == 0, made.output
    told = made.stdout.partition("among them ")[2]
    bad = sum(int(count) for count, _ in re.findall(r"(\d+) (\w+)", told))

    messages = list(messages_of(one.address, one.stream))
    assert len(messages) == 300
    assert all(message.key() is not None and message.headers() for message in messages)
    rows, asked = one.spec().resolved, one.settings().registry
    assert asked is not None
    decoder = rows.with_schemas(RegistryLookup(registry_connection(asked))).decoder
    decoded = FORMATS[value].reference(decoder).decode(pa.array([each.value() for each in messages], pa.binary()))
    assert (len(decoded.failures), decoded.rows.num_rows) == (bad, 300 - bad)

    # Whoever has only the topic gets the same columns of it.
    inferred = typed(one.home, "schema", "infer", one.stream, "--stream", "inferred")
    assert inferred.exit_code == 0, inferred.output
    found = yaml.safe_load(inferred.stdout)["decode"]
    assert found["value"] == value
    if value == "connect_json":
        names = [each.split()[0] for each in found["schema"]]
        assert names == [field.name for field in rows.schema.fields]
    else:
        assert found["schema"] == "registry"
        # The records are then those of the newest version, whatever the table would be.
        one.write_spec(decode={"value": value, "schema": "registry"}, table={"name": one.table_name})
        more = typed(one.home, "generate", one.stream, "--rate", "5000", "--count", "5")
        assert (more.exit_code, more.stdout) == (0, f"{one.stream}: 5 records in topic {one.stream}\n")
        wrong = typed(one.home, "schema", "infer", one.stream, "--format", "protobuf")
        assert wrong.exit_code == 1
        assert "the registry does not know the schema ids as those of" in wrong.stderr
