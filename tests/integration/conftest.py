"""Pipelines that integration tests make on the shared broker."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.maintenance.plan.iceberg_procedures import Procedures
from tests.integration.pipeline import Pipeline


@pytest.fixture
def pipeline(broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Pipeline]:
    """Makes a pipeline of the test's own, with its topic."""

    def make(*, topic: bool = True, **options: Any) -> Pipeline:
        name = re.sub(r"[^a-z0-9_]", "_", request.node.name.removeprefix("test_").lower())
        if len(name) > 60:
            # Cases of one test have the same beginning.
            name = f"{name[:51]}_{zlib.crc32(name.encode()):08x}"
        made = Pipeline(tmp_path / "deployment", broker, name, **options)
        if topic:
            made.create_topic()
        return made

    return make


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Iceberg take what lies there for older: it sweeps nothing of the last day, and no object can be aged."""
    remove, ago = Procedures.remove_files, timedelta(days=30)

    def removed(self: Procedures, files: Sequence[tuple[str, datetime]], older_than: datetime) -> list[str]:
        return remove(self, [(path, changed - ago) for path, changed in files], older_than - ago)

    monkeypatch.setattr(Procedures, "remove_files", removed)
