"""Commands that look: in a folder without streams they say what to do, and nowhere do they make a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.cli.test_conventions import ALL, ASK, LOOK
from tests.unit.orchestration.deployments import deployment_in

# They ask Kafka or the registry, and no stream; or look at a file that is named.
NO_STREAM = {
    "import",
    "register",
    "schema infer",
    "contract import",
    "registry status",
    "completion",
    "certify",
    "doctor",
}
# By what they need beside a stream's name.
MORE = {
    "at": ["--offset", "1", "--partition", "0"],
    "query": [],
    "accept": ["--lost-offsets", "--dry-run"],
    "release": ["--dry-run"],
    "discard": ["--dry-run"],
    "reset-offsets": ["--to", "earliest", "--dry-run"],
    "schema apply": ["--dry-run"],
    "mirror accept": ["--new-generation", "--dry-run"],
    "registry forget": ["--dry-run"],
    "letters": [],
    "replay": ["--dry-run"],
    "publish": ["--dry-run"],
    "mirror run": ["--dry-run"],
    "mirror rebuild": ["--dry-run"],
    "tag": ["--list"],
    "schema check": ["--against", "payments-value"],
    "check": ["--dry-run"],
    "backfill": ["--from", "earliest", "--to", "latest", "--dry-run"],
    "compare": ["--with", "orders.payments"],
    "takeover": ["--from-connect", "payments-sink", "--group", "connect-payments-sink", "--dry-run"],
    "start": ["--dry-run"],
    "stop": ["--dry-run"],
    "run": ["--dry-run"],
    "flush": ["--dry-run"],
    "generate": ["--dry-run"],
    "maintain": ["--plan"],
}
# Others test these: some open a browser or a shell, or stay until Ctrl-C.
ELSEWHERE = {"watch", "logs", "query", "shell", "open", "test", "validate"}
LOOKING = sorted({*ALL} & (LOOK | ASK | {*MORE}) - ELSEWHERE - NO_STREAM)


def look(home: Path, name: str, *arguments: str) -> Result:
    """Run a command that looks, with what it needs beside a stream's name."""
    return frazil(home, name, *arguments, *MORE.get(name, []))


def frazil(home: Path, name: str, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), *name.split(), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", LOOKING)
def test_a_folder_without_streams(name: str, tmp_path: Path) -> None:
    said = look(tmp_path, name, *([] if name in ("status", "maintain") else ["payments"]))
    assert said.exit_code in ((0, 1) if name != "schema check" else (2, 3)), said.output
    assert "frazil init FOLDER creates a deployment, and frazil demo shows one" in said.output
    assert entries(tmp_path) == []


@pytest.mark.parametrize(
    "words",
    [
        ["up"],
        ["dev"],
        ["shell", "-c", "1"],
        ["connect-api", "--port", "0"],
        ["run", "--all"],
        ["watch"],
        ["plan"],
        *(
            [action, *of]
            for action in ("start", "stop", "pause", "resume", "restart")
            for of in (["payments"], ["--all"])
        ),
        ["flush", "payments"],
    ],
    ids=" ".join,
)
def test_nothing_starts_in_a_folder_that_is_no_deployment(words: list[str], tmp_path: Path) -> None:
    said = frazil(tmp_path, words[0], *words[1:])
    assert (said.exit_code, said.stdout) == (1, "")
    assert "frazil init FOLDER creates a deployment, and frazil demo shows one" in said.stderr
    assert entries(tmp_path) == []


def test_nobody_is_sent_to_a_command_that_needs_a_deployment(tmp_path: Path) -> None:
    for name in ("validate", "doctor"):
        said = frazil(tmp_path, name)
        assert "frazil init" in said.output
        assert "frazil up" not in said.output and "frazil run" not in said.output


@pytest.mark.parametrize("mark", ["streams", "frazil.yaml", ".frazil"])
def test_a_deployment_has_streams_settings_or_state(mark: str, tmp_path: Path) -> None:
    assert not Deployment.at(tmp_path).exists
    (tmp_path / mark).mkdir()
    Deployment.at(tmp_path).require()


def test_named_settings_make_a_deployment(tmp_path: Path) -> None:
    assert Deployment.at(tmp_path, tmp_path / "elsewhere.yaml").exists


@pytest.mark.parametrize("name", ["status", "run", "maintain", "validate"])
def test_an_empty_folder_of_streams(name: str, tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    said = look(tmp_path, name, *(["--all"] if name == "run" else []))
    assert "frazil schema infer TOPIC --output streams/TOPIC.yaml writes one" in said.output
    assert "stream  table" not in said.output and "result" not in said.output
    assert entries(tmp_path) == ["streams"]


@pytest.mark.parametrize("name", [*LOOKING, "validate"])
def test_a_stream_that_never_ran(name: str, tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    before = entries(home)
    said = look(home, name, "payments")
    assert said.exit_code in ((0, 1) if name != "schema check" else (2, 3)), said.output
    assert said.output
    assert entries(home) == before


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["completion", "bash"], ["stat"]])
def test_help_and_completion(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(main, arguments)
    assert entries(tmp_path) == []
