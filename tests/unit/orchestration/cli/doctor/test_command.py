"""`frazil doctor`: an empty folder, no Java, bad files, a broker that is away, and how its lines read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestration.cli.local.doctor import command
from orchestration.cli.main import main
from orchestration.cli.stream_files.validate.findings import Finding
from tests.unit.orchestration.deployments import deployment_in


def doctor(home: Path, *options: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Exit status, and verdicts with sentences by subject."""
    shown = CliRunner().invoke(main, ["--home", str(home), "doctor", "--json", *options])
    facts = json.loads(shown.stdout)
    assert facts["healthy"] == (shown.exit_code == 0)
    assert facts["versions"]["frazil"]
    found: dict[str, list[tuple[str, str]]] = {}
    for each in facts["findings"]:
        found.setdefault(each["subject"], []).append((each["verdict"], each["sentence"]))
        if each["verdict"] == "wrong":
            assert each["next"], each
    return shown.exit_code, found


def test_an_empty_folder_without_java_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/no/such/folder")
    status, found = doctor(tmp_path)
    assert status == 1
    ((verdict, sentence),) = found["java"]
    assert (verdict, "No Java was found" in sentence) == ("wrong", True)
    assert found["streams"][0][0] == "unchecked"
    # There is no deployment that has services.
    assert not {"kafka", "catalog", "dagster"} & {*found}
    assert list(tmp_path.iterdir()) == []


def test_the_text_names_the_command_that_mends_it(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    assert {verdict for each in ("kafka", "catalog", "dagster") for verdict, _ in doctor(tmp_path)[1][each]} == {
        "unchecked"
    }
    shown = CliRunner().invoke(main, ["--home", str(tmp_path), "doctor"])
    assert "not checked kafka: The local broker is not running" in shown.stdout
    assert "Next: frazil up" in shown.stdout
    assert "ok          versions: frazil " in shown.stdout


def test_bad_files_and_services_that_are_away_are_each_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "streams" / "bad.yaml").write_text("stream: bad\n")
    monkeypatch.delenv("KEY_OF_NOBODY", raising=False)
    (home / "frazil.yaml").write_text(
        "kafka: {bootstrap_servers: '127.0.0.1:1'}\n"
        "catalog: {properties: {type: rest, uri: 'http://127.0.0.1:1', token: '${env:KEY_OF_NOBODY}'}}\n"
        "registry: {url: 'http://127.0.0.1:1'}\n"
    )
    status, found = doctor(home, "--write-probe")
    assert status == 1
    assert "wrong" in {verdict for verdict, _ in found["streams"]}
    assert any("KEY_OF_NOBODY" in sentence for verdict, sentence in found["settings"] if verdict == "wrong")
    for subject in ("kafka", "registry", "catalog"):
        assert {verdict for verdict, _ in found[subject]} <= {"unchecked", "wrong"}
    assert not (home / ".frazil").exists()


def test_settings_that_cannot_be_read_leave_the_machine_to_be_checked(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "frazil.yaml").write_text("kafka: [\n")
    status, found = doctor(home)
    assert status == 1
    assert found["settings"][0][0] == "wrong"
    assert {"java", "python", "disk", "ports"} <= set(found)
    assert "kafka" not in found


def test_a_check_that_fails_itself_is_a_line_and_the_next_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> list[Finding]:
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(command, "check_packages", fails)
    _, found = doctor(tmp_path)
    assert ("wrong", "the check failed: RuntimeError: no such thing") in found["packages"]
    assert found["ports"]
