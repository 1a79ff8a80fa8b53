"""Mirrors as assets: what their pages say of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Snapshot

from assets.metadata import summed_rows
from assets.mirrors import mirror_assets
from tests.unit.mirrors.mirror_world import MirrorWorld


@pytest.mark.parametrize(
    ("summary", "rows"),
    [({"total-records": "496", "total-position-deletes": "5"}, 491), ({"total-records": "7"}, 7), ({}, 0)],
)
def test_rows_that_delete_files_name_are_not_counted(summary: dict[str, str], rows: int) -> None:
    written = {
        "snapshot-id": 1,
        "timestamp-ms": 1,
        "manifest-list": "list.avro",
        "summary": {"operation": "overwrite", **summary},
    }
    snapshot = Snapshot.model_validate(written)
    assert summed_rows(snapshot) == rows


@pytest.mark.parametrize(("every", "said"), [("30s", "it is merged every 30s."), ("5m", "it is merged every 5m.")])
def test_how_often_it_is_merged_is_said_as_the_file_says_it(tmp_path: Path, every: str, said: str) -> None:
    world = MirrorWorld(tmp_path, every=every)
    (asset,) = mirror_assets(world.spec, world.settings)
    assert said in asset.descriptions_by_key[asset.key]
