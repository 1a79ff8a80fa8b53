"""`frazil validate` of wrong files: all mistakes in one run, one `Next:` for each file, and their places as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from tests.unit.orchestration.deployments import deployment_in

WRONG = """\
stream: broken
source: {topics: [broken]}
decode:
  value: json
  schema: |
    id string not null,
    payer string nul,
    amount decimal(12,2)
transform:
  - where: amout > 0
table:
  name: orders.broken
  partition_by: [bucket(16, id), day(amount)]
  sort_by: [amountt]
  identifier_fields: [amount]
  properties: {write.format.default: orc, write.parquet.compression-codec: lead}
errors:
  dead_letters: {mask: {columns: [ID]}}
trigger: 60s
"""
PLACES = [
    (7, "decode.schema"),
    (10, "transform[0].where"),
    (13, "table.partition_by[0]"),
    (13, "table.partition_by[2]"),
    (14, "table.sort_by[0]"),
    (15, "table.identifier_fields[0]"),
    (16, "table.properties.write.format.default"),
    (16, "table.properties.write.parquet.compression-codec"),
    (18, "errors.dead_letters.mask.columns[0]"),
    (19, "trigger"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment with one good stream and one wrong file; the current folder."""
    deployment_in(tmp_path, "payments")
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    (tmp_path / "streams" / "wrong.yaml").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def frazil(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "validate", *arguments])


@pytest.mark.parametrize("named", [[], ["broken"], ["wrong"], ["payments", "broken"]])
def test_all_mistakes_of_a_file_in_one_form_with_one_next(home: Path, named: list[str]) -> None:
    shown = frazil(home, *named)
    assert shown.exit_code == 1
    lines = [line for line in shown.output.splitlines() if "streams/wrong.yaml" in line]
    *problems, fix = lines
    assert fix.strip() == "Next: correct streams/wrong.yaml, then run `frazil validate`"
    assert all(line.startswith("wrong       broken: spec: streams/wrong.yaml:") for line in problems)
    places = [line.split("streams/wrong.yaml:")[1].split(": ")[:2] for line in problems]
    assert [(int(at.split(":")[0]), key) for at, key in places] == PLACES
    assert ("ok          payments: spec:" in shown.output) == (named in ([], ["payments", "broken"]))
    assert "ok          broken" not in shown.output


def test_json_has_file_and_line(home: Path) -> None:
    facts = json.loads(frazil(home, "broken", "--json").stdout)
    assert facts["valid"] is False
    wrong = [each for each in facts["findings"] if each["verdict"] == "wrong"]
    assert [(each["file"], each["line"]) for each in wrong] == [("streams/wrong.yaml", line) for line, _ in PLACES]
    keys = {"stream", "subject", "verdict", "sentence", "next", "file", "line"}
    assert all(each.keys() == keys for each in facts["findings"])


def test_a_stream_that_no_file_has(home: Path) -> None:
    (home / "streams" / "wrong.yaml").unlink()
    shown = frazil(home, "paymens")
    assert shown.exit_code != 0
    assert "did you mean payments?" in str(shown.output) + str(shown.exception)


def test_mistakes_of_the_settings_have_one_next(home: Path) -> None:
    (home / "streams" / "wrong.yaml").unlink()
    (home / "frazil.yaml").write_text(
        "kafka: {request_timeout: 5, isolatin: read_committed}\nlease_ttl: 1 minute\nspark: 4\n"
    )
    shown = frazil(home)
    assert shown.exit_code == 1
    lines = [line for line in shown.output.splitlines() if "frazil.yaml" in line]
    assert [line.split("frazil.yaml:")[1].split(": ")[1] for line in lines[:-1]] == [
        "kafka.request_timeout", "kafka.isolatin", "lease_ttl", "spark",
    ]  # fmt: skip
    assert lines[-1].strip() == "Next: correct frazil.yaml, then run `frazil validate`"
    assert lines[2].endswith("; write 1m")
    assert "ok          settings" not in shown.output


def test_a_file_that_is_no_yaml_is_one_problem_by_its_name(home: Path) -> None:
    (home / "streams" / "wrong.yaml").write_text("stream: [\n")
    shown = frazil(home, "wrong")
    assert shown.exit_code == 1
    assert "wrong       spec: streams/wrong.yaml:2:1: is not YAML" in shown.output


def test_a_contradiction_leaves_no_ok_of_the_same_file(home: Path) -> None:
    (home / "streams" / "wrong.yaml").unlink()
    file = home / "streams" / "payments.yaml"
    file.write_text(file.read_text() + "maintenance: {expire: {max_snapshots: 5}}\n")
    shown = frazil(home)
    assert shown.exit_code == 1
    assert "wrong       payments: spec: " in shown.output
    assert "ok          payments: spec: " not in shown.output
