"""What the tests of supervision share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A deployment whose drivers only beat; they end with the test."""
    made = World(tmp_path)
    yield made
    end_all(made)
