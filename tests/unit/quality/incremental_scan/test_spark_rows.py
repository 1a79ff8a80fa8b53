"""Which reader Spark gets for the files of a selection."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue

from jobs.quality.incremental_scan import spark_rows
from jobs.quality.incremental_scan.row_selection import RowSelection
from jobs.quality.incremental_scan.spark_rows import rows_to_read_again
from tests.helpers.landed_table import LandedTable


def test_files_of_a_catalog_that_the_jvm_does_not_know_are_read_through_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    landed = LandedTable(tmp_path / "home")
    landed.land((0, 0, 4))
    table = landed.table
    selection = RowSelection(table, None, tuple(each.file for each in table.scan(AlwaysTrue()).plan_files()))
    unknown = landed.settings.catalog.model_copy(update={"properties": {"type": "in-memory"}})
    settings = landed.settings.model_copy(update={"catalog": unknown})
    kept: list[str] = []
    frame: Any = SimpleNamespace(persist=lambda: kept.append("kept"), unpersist=kept.clear)
    monkeypatch.setattr(spark_rows, "spark_frame", lambda *_: frame)
    session: Any = SimpleNamespace()
    with caplog.at_level(logging.INFO, "jobs.quality.incremental_scan.spark_rows"), contextlib.ExitStack() as until:
        assert rows_to_read_again(selection, ["id"], session, settings, until) is frame
        assert kept == ["kept"]
    assert kept == []
    assert "Spark cannot be configured for a catalog of type in-memory" in caplog.text
