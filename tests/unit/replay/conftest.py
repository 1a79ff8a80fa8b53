from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.deadletter.letters_world import LettersWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LettersWorld]:
    made = LettersWorld(tmp_path / "deployment")
    yield made
    made.close()
