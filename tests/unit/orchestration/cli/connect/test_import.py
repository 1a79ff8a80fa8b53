"""`frazil import`: questions, dry runs, JSON, and no secret in any output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.helpers.command import frazil

CONFIG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
    "iceberg.catalog.token": "hunter2-token",
    "task.max": "2",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path)


def write(tmp_path: Path, **keys: Any) -> Path:
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"name": "orders", "config": {**CONFIG, **keys}}))
    return path


def run(source: Path, *options: str) -> Result:
    return frazil(str(source.parent / "home"), "import", str(source), *options)


def test_it_writes_and_says_what_and_what_comes_next(source: Path) -> None:
    result = run(source)
    assert result.exit_code == 0, result.output
    assert "New: streams/orders.yaml, frazil.yaml" in result.output
    assert "4 files written" in result.output
    assert "Set before the first run: CATALOG_TOKEN" in result.output
    assert "Next: frazil validate" in result.output
    assert "hunter2" not in result.output
    page = (source.parent / "home/import-report.md").read_text()
    assert "| `task.max` | – | no connector reads it; it may mean tasks.max |" in page
    assert "| `iceberg.catalog.token` | in the clear | `catalog.properties.token: ${env:CATALOG_TOKEN}` |" in page
    again = run(source)
    assert "Nothing has changed" in again.output


def test_a_dry_run_writes_nothing(source: Path) -> None:
    result = run(source, "--dry-run")
    assert "Nothing was written." in result.output
    assert not (source.parent / "home").exists()


def test_json_is_one_document_without_secrets(source: Path) -> None:
    result = run(source, "--json")
    facts = json.loads(result.stdout)
    assert facts["files"] == {"streams/orders.yaml": "create", "frazil.yaml": "create"}
    assert facts["report"]["counts"]["no_effect"] == 1
    assert facts["written"] == ["streams/orders.yaml", "frazil.yaml", "import-report.md", "import-report.json"]
    assert "hunter2" not in result.output


def test_into_another_folder(source: Path) -> None:
    assert run(source, "--into", str(source.parent / "new")).exit_code == 0
    assert (source.parent / "new/streams/orders.yaml").exists()


def edit(source: Path) -> Path:
    run(source)
    stream = source.parent / "home/streams/orders.yaml"
    stream.write_text(stream.read_text() + "description: ours\n")
    return stream


def test_an_edited_file_needs_consent(source: Path) -> None:
    stream = edit(source)
    changed = write(source.parent, topics="returns")
    result = run(changed)
    assert result.exit_code == 2
    assert "--yes" in result.output
    assert "-description: ours" in result.output
    assert "ours" in stream.read_text()
    assert run(changed, "--keep").exit_code == 0
    assert "ours" in stream.read_text()


def test_an_edited_file_is_replaced_with_yes(source: Path) -> None:
    stream = edit(source)
    assert run(write(source.parent, topics="returns"), "--yes").exit_code == 0
    assert "ours" not in stream.read_text()


def test_settings_with_other_values_need_consent_and_stay(source: Path) -> None:
    settings = source.parent / "home/frazil.yaml"
    settings.parent.mkdir()
    settings.write_text("catalog: {name: mine, properties: {type: rest, uri: 'http://mine'}}\n")
    result = run(source)
    assert result.exit_code == 2
    assert "catalog.name, catalog.properties.uri, catalog.properties.token" in " ".join(result.output.split())
    assert run(source, "--yes").exit_code == 0
    assert settings.read_text().startswith("catalog: {name: mine, properties: {type: rest, uri: 'http://mine'}}\n")


def test_only_named_connectors(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    path.write_text(json.dumps({name: {**CONFIG, "iceberg.tables": f"shop.{name}"} for name in ("a", "b")}))
    assert run(path, "--connector", "b").exit_code == 0
    assert [file.name for file in (tmp_path / "home/streams").iterdir()] == ["b.yaml"]
    missing = run(path, "--connector", "c")
    assert (missing.exit_code, "There is no connector c in" in missing.output) == (1, True)


def test_sources_without_connectors_are_named(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    result = run(tmp_path / "package.json")
    assert result.exit_code == 1
    assert "has no connector: no connector.class in it" in " ".join(result.output.split())
    (tmp_path / "worker.properties").write_text("bootstrap.servers=kafka:9092\n")
    result = run(tmp_path / "worker.properties")
    assert "has keys of a worker alone" in " ".join(result.output.split())
    assert "beside the worker's file" in " ".join(result.output.split())


def test_a_password_in_the_clear_is_refused_and_not_repeated(source: Path) -> None:
    result = frazil(
        str(source.parent), "import", "http://127.0.0.1:1", "--connect-user", "me", "--connect-password", "hunter2"
    )
    assert result.exit_code == 1
    assert "--connect-password takes a reference" in result.output
    assert "hunter2" not in result.output


def test_a_user_needs_a_password(source: Path) -> None:
    assert "--connect-user needs --connect-password" in run(source, "--connect-user", "me").output
