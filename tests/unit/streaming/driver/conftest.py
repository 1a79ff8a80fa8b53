"""What the tests of streams share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a deployment."""
    return tmp_path / "deployment"
