"""What the Makefile's verbs give the processes that they start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOW = "include Makefile\nshow:\n\t@env\n"


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
