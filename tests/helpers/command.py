"""The `frazil` command in this process, on a deployment's home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from orchestration.cli.main import main


def frazil(place: Path | Any, *arguments: str) -> Result:
    """Result of a command.

    Args:
        place: The home, or a test's world that has one.
    """
    return CliRunner().invoke(main, ["--home", str(getattr(place, "home", place)), *arguments])
