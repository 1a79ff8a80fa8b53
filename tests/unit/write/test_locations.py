"""Locations of tables: what lies under them, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.write.locations import state_under


@pytest.mark.parametrize(
    ("location", "state", "under"),
    [
        ("file:///data/table", "/data/table/state", True),
        ("/data/table", "/data/table", True),
        ("file:///data/a%20b", "/data/a b/state", True),
        ("file:///data/table", "/data/table2", False),
        ("file:///data/table/state", "/data/table", False),
        ("s3://data/table", "/data/table/state", False),
    ],
)
def test_what_lies_under_a_location(location: str, state: str, under: bool) -> None:
    assert state_under(location, Path(state)) is under


def test_links_do_not_hide_where_the_state_is(tmp_path: Path) -> None:
    (tmp_path / "table" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "table" / "state")
    assert state_under(f"file://{tmp_path}/table", tmp_path / "link" / "streams")
