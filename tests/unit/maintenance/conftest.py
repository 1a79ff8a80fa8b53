"""A lake with three commits of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "home")
    for _ in range(3):
        made.land(days=1, rows=1)
    return made
