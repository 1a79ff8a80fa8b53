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


@pytest.mark.parametrize(
    ("failing", "status", "said"),
    [
        ("none", 0, ""),
        ("not integration", 2, "error: failed: unit tests, see above"),
        ("integration", 2, "error: failed: tests with real parts, see above"),
        ("any", 2, "error: failed: unit tests and tests with real parts, see above"),
    ],
)
def test_both_halves_of_the_suite_run_and_are_told_of(tmp_path: Path, failing: str, status: int, said: str) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(STAND_IN_PYTHON)
    python.chmod(0o755)
    (tmp_path / "installed").touch()
    told = subprocess.run(
        ["make", "-s", "test", f"VENV={tmp_path}", "PYTEST_ARGS="],
        cwd=ROOT,
        env={**os.environ, "FAILING": failing, "RAN": str(tmp_path / "ran")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "ran").read_text().splitlines() == ["not integration", "integration"]
    assert told.returncode == status
    assert told.stderr.startswith(said)
