"""`frazil init`: a new deployment that validates, made from a file of records; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestration.cli.main import main
from resources.deployment import Deployment

RECORDS = [
    {"id": "a1", "amount": 12.5, "at": "2026-11-30T10:00:00Z", "tags": ["x"]},
    {"id": "a2", "amount": 7.25, "at": "2026-11-30T10:01:00Z", "tags": []},
]


def records_file(folder: Path, text: str | None = None) -> Path:
    file = folder / "Orders 2026.jsonl"
    lines = "\n\n".join(json.dumps(record) for record in RECORDS) + "\n" if text is None else text
    file.write_text(lines)
    return file


def test_a_deployment_for_a_file_of_records_validates(tmp_path: Path) -> None:
    file, folder = records_file(tmp_path), tmp_path / "lake"
    shown = CliRunner().invoke(main, ["init", str(folder), "--records", str(file), "--times"])
    assert shown.exit_code == 0, shown.output
    assert f"frazil generate orders_2026 --from '{file}'" in shown.output
    (spec,), errors = Deployment.at(folder).streams()
    assert errors == []
    assert (spec.stream, spec.table.name) == ("orders_2026", "landing.orders_2026")
    columns = {
        field.name: str(field.field_type) for field in spec.table_schema.fields if not field.name.startswith("_kafka")
    }
    assert columns["at"] == "timestamptz"
    assert set(columns) >= {"id", "amount", "at", "tags"}
    checked = CliRunner().invoke(main, ["--home", str(folder), "validate"])
    assert checked.exit_code == 0, checked.output
    assert (folder / ".gitignore").read_text().splitlines()[-1] == "/.frazil/"


def test_brokers_and_a_catalog_are_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    options = ["--records", str(records_file(tmp_path)), "--brokers", "kafka.example.com:9092"]
    options += ["--catalog", "https://catalog.example.com", "--warehouse", "prod"]
    shown = CliRunner().invoke(main, ["init", str(folder), *options])
    assert shown.exit_code == 0, shown.output
    assert "frazil up" not in shown.output
    settings = Deployment.at(folder).settings()
    assert settings.kafka.require_bootstrap() == "kafka.example.com:9092"
    assert settings.catalog.properties["uri"] == "https://catalog.example.com"
    assert settings.catalog.properties["warehouse"] == "prod"


def test_without_records_it_names_the_command_that_makes_a_stream(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["init", str(tmp_path / "lake")])
    assert shown.exit_code == 0, shown.output
    assert "frazil schema infer TOPIC --output streams/TOPIC.yaml" in shown.output
    assert Deployment.at(tmp_path / "lake").settings().kafka.is_embedded


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--warehouse", "prod"], "name it with --catalog"),
        (["--topic", "orders"], "name the brokers with --brokers"),
    ],
)
def test_options_that_need_another_one(tmp_path: Path, options: list[str], said: str) -> None:
    shown = CliRunner().invoke(main, ["init", str(tmp_path / "lake"), *options])
    assert shown.exit_code == 2
    assert said in shown.output
    assert not (tmp_path / "lake").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    records_file(tmp_path)
    shown = CliRunner().invoke(main, ["init", str(tmp_path)])
    assert shown.exit_code == 1
    assert "is not empty, and nothing is written over" in shown.output


def test_a_file_without_records_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    shown = CliRunner().invoke(main, ["init", str(folder), "--records", str(records_file(tmp_path, "[1]\n\nno\n"))])
    assert shown.exit_code == 1
    assert "no line is a JSON object with a field" in shown.output
    assert not folder.exists()
