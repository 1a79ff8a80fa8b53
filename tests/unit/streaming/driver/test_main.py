"""The driver's process, as it is started from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["jobs.streaming.driver.main", "jobs.runtime.driver"])
def test_it_starts_by_its_name_and_by_the_former_one(name: str) -> None:
    said = subprocess.run([sys.executable, "-m", name], capture_output=True, text=True, check=False, timeout=300)
    assert said.returncode == 2
    assert "usage: python -m jobs.streaming.driver.main" in said.stderr
