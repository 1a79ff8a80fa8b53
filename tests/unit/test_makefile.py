"""What the Makefile's verbs give the processes that they start."""

from __future__ import annotations

import os
import subprocess
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
