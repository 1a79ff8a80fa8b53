"""What a shell completes: commands, options and streams, over click's own protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from orchestration.cli.main import _COMMANDS, _TAKE_STREAMS, main
from resources.deployment_folder import stream_names
from tests.unit.orchestration.deployments import deployment_in

ROOT = Path(__file__).resolve().parents[4]
HEAVY = ("pyarrow", "pyiceberg", "pydantic", "pyspark", "dagster", "rich")


def completed(*words: str, home: Path) -> list[str]:
    """What is offered for the last word."""
    environment = {"_FRAZIL_COMPLETE": "bash_complete", "FRAZIL_HOME": str(home)}
    environment |= {"COMP_WORDS": " ".join(("frazil", *words)), "COMP_CWORD": str(len(words))}
    result = CliRunner().invoke(main, prog_name="frazil", env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


def test_commands_and_options(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    found = completed("re", home=home)
    assert found == ["resume", "restart", "replay", "release", "reset-offsets", "register", "registry"]
    assert completed("--ho", home=home) == ["--home"]
    assert completed("status", "--js", home=home) == ["--json"]
    assert completed("letters", "payments", "--stat", home=home) == ["--state"]
    assert "dismissed" in completed("letters", "payments", "--state", "dis", home=home)


@pytest.mark.parametrize("command", sorted(_TAKE_STREAMS))
def test_streams_of_every_command_that_takes_them(command: str, tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds")
    assert completed(command, "", home=home) == ["payments", "refunds"]
    assert completed(command, "ref", home=home) == ["refunds"]
    real = main.get_command(click.Context(main), command)
    assert real is not None
    first = next(each for each in real.params if isinstance(each, click.Argument))
    assert first.name in ("stream", "streams", "tables")


def test_no_other_command_begins_with_a_stream() -> None:
    for name in set(_COMMANDS) - _TAKE_STREAMS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        arguments = [each.name for each in command.params if isinstance(each, click.Argument)]
        assert not {"stream", "streams"} & {*arguments}, name


def test_streams_behind_options_and_in_sub_commands(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds")
    assert completed("status", "--json", "pay", home=home) == ["payments"]
    assert completed("stop", "payments", "", home=home) == ["payments", "refunds"]
    assert completed("mirror", "run", "", home=home) == ["payments", "refunds"]
    assert completed("schema", "diff", "ref", home=home) == ["refunds"]
    # The home on the line goes before that of the environment.
    other = deployment_in(tmp_path / "other", "orders")
    assert completed("--home", str(other), "status", "", home=home) == ["orders"]


def test_names_come_from_lines_of_the_files(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    (home / "streams" / "a.yml").write_text("# stream: no\nstream: 'quoted'  # the first\n")
    (home / "streams" / "b.yaml").write_text("source: {}\n  stream: within\n")
    (home / "streams" / "c.yaml").mkdir()
    (home / "streams" / "d.yaml").write_text("stream: $(touch${IFS}x)\nstream: `id`\nstream: *\n")
    assert stream_names(home) == ["payments", "quoted"]
    assert stream_names(tmp_path / "nowhere") == []


def test_completing_a_stream_loads_nothing_heavy_and_makes_nothing(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    code = (
        "import json, sys; from orchestration.cli.main import main\n"
        "try: main(prog_name='frazil')\n"
        f"except SystemExit: print(json.dumps(sorted({{*{HEAVY!r}}} & {{*sys.modules}})), file=sys.stderr)"
    )
    environment = os.environ | {"_FRAZIL_COMPLETE": "bash_complete", "COMP_WORDS": "frazil replay ", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment | {"FRAZIL_HOME": str(home)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "plain,payments\n"
    assert json.loads(done.stderr) == []
    assert [path.name for path in home.iterdir()] == ["streams"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_says_how_to_put_it_in_place(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell], prog_name="something")
    assert result.exit_code == 0
    assert result.stdout.startswith("# To put it in place: ")
    assert f"_FRAZIL_COMPLETE={shell}_complete" in result.stdout
    if interpreter := shutil.which(shell):
        subprocess.run([interpreter, "-n"], input=result.stdout, text=True, check=True)


def test_another_shell_is_refused() -> None:
    assert CliRunner().invoke(main, ["completion", "tcsh"]).exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="no Bash on this machine")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments", "refunds")
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "frazil"
    command.write_text(f"#!{sys.executable}\nfrom orchestration.cli.main import main\nmain()\n")
    command.chmod(0o755)
    script = (
        'eval "$(frazil completion bash)"; COMP_WORDS=(frazil replay re); COMP_CWORD=2; '
        '_frazil_completion frazil; echo "${COMPREPLY[@]}"'
    )
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FRAZIL_HOME": str(home),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "refunds\n"
