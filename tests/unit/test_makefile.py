"""What the Makefile's verbs give the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = "include Makefile\nshow:\n\t@env\n"
STAND_IN_PYTHON = """#!/bin/sh
case "$*" in *pytest*) ;; *) exit 0 ;; esac
while [ "$1" != -m ] || [ "$2" = pytest ]; do shift; done
echo "$2" >> "$RAN"
case "$FAILING" in any|"$2") exit 1 ;; esac
"""


def test_what_is_started_keeps_its_bytecode_also_in_an_image_that_never_writes_any(tmp_path: Path) -> None:
    shown = tmp_path / "show.mk"
    shown.write_text(SHOW)
    told = subprocess.run(
        ["make", "-s", "-f", str(shown), "show"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PASSED_ON": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.partition("=")[0] for line in told.stdout.splitlines()}
    assert "PASSED_ON" in names
    assert "PYTHONDONTWRITEBYTECODE" not in names


def run_make(goal: str, folder: Path, failing: str = "none") -> tuple[list[str], subprocess.CompletedProcess[str]]:
    """Run a goal with a Python that only notes which marks pytest is asked for; returns these, and how make ended."""
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text(STAND_IN_PYTHON)
    python.chmod(0o755)
    (folder / "installed").touch()
    ended = subprocess.run(
        ["make", "-s", goal, f"VENV={folder}", "PYTEST_ARGS="],
        cwd=ROOT,
        env={**os.environ, "FAILING": failing, "RAN": str(folder / "ran")},
        capture_output=True,
        text=True,
        check=False,
    )
    return (folder / "ran").read_text().splitlines(), ended


@pytest.mark.parametrize(("goal", "marks"), [("test", "not rest"), ("test-rest", "rest")])
def test_each_goal_runs_its_part_of_the_suite(tmp_path: Path, goal: str, marks: str) -> None:
    ran, ended = run_make(goal, tmp_path)
    assert (ran, ended.returncode) == ([marks], 0)


@pytest.mark.parametrize(
    ("failing", "status", "message"),
    [
        ("none", 0, ""),
        ("not rest", 2, "error: failed: make test, see above"),
        ("rest", 2, "error: failed: make test-rest, see above"),
        ("any", 2, "error: failed: make test and make test-rest, see above"),
    ],
)
def test_both_parts_of_the_suite_run_and_failures_are_named(
    tmp_path: Path, failing: str, status: int, message: str
) -> None:
    ran, ended = run_make("test-full", tmp_path, failing)
    assert ran == ["not rest", "rest"]
    assert ended.returncode == status
    assert ended.stderr.startswith(message)


def test_the_jvm_artifacts_are_fetched_beside_the_packages(tmp_path: Path) -> None:
    """What comes first is all that fetching needs, from the lock with its hashes."""
    shown = subprocess.run(
        ["make", "-n", "-s", "setup", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (chooses,) = (line for line in shown if line.startswith("sed") and line.endswith("first.lock"))
    subprocess.run(["sh", "-c", chooses], cwd=ROOT, check=True)
    lines = (tmp_path / "first.lock").read_text().splitlines()
    assert {line.partition("==")[0] for line in lines if not line.startswith(" ")} == {"click", "pyspark"}
    assert sum("--hash=sha256:" in line for line in lines) >= 2
    installs = [line for line in shown if " -m pip install " in line and "-e ." not in line]
    assert len(installs) == 3 and all("--require-hashes" in line for line in installs)
    fetches = next(number for number, line in enumerate(shown) if "jobs.clients.install.artifacts" in line)
    assert shown.index(installs[1]) < fetches < shown.index(installs[2])
    program = "import sys, jobs.clients.install.artifacts_main, jobs.clients.install.ivy; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert "click" in modules
    assert not modules & {"msgspec", "pydantic", "rich", "yaml", "pyarrow", "pyiceberg", "dagster", "confluent_kafka"}


def test_the_wheel_is_built_without_a_network_and_without_an_earlier_build() -> None:
    shown = subprocess.run(
        ["make", "-n", "-s", "wheel", "INSTALLED=Makefile"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert shown.index("rm -rf build") < shown.index("pip wheel")
    assert "--no-index" in shown and "--no-build-isolation" in shown
