"""What keeps files that nobody refers to: too many, two styles of one place, something else that lies there."""

from __future__ import annotations

import pytest

from jobs.maintain.orphan_removal import (
    OrphanScan,
    OrphansRefusedError,
    foreign_content,
    refuse_too_many,
    refuse_two_names,
)
from jobs.spec.maintenance_policy import Orphans
from tests.unit.maintain.contexts import listed


@pytest.mark.parametrize(
    ("orphans", "all_", "words"),
    [
        (20, 40, None),
        (21, 200, None),
        (21, 100, r"21 of 100 files \(21%\) would be deleted, more than orphans.max_share \(20%\)"),
        (51, 1000, r"more than orphans.max_files \(50\)"),
    ],
)
def test_too_many(orphans: int, all_: int, words: str | None) -> None:
    found = OrphanScan(all_, all_ - orphans, tuple(listed(f"data/{n}.parquet") for n in range(orphans)))
    if words is None:
        refuse_too_many("t", found, Orphans(max_files=50))
        return
    with pytest.raises(OrphansRefusedError, match=words):
        refuse_too_many("t", found, Orphans(max_files=50))


def test_two_styles_of_one_place() -> None:
    refuse_two_names(
        "t", "s3://lake/t", ["s3a://lake/t/data/a", "s3://other/elsewhere/data/a", "gs://lake/elsewhere/a"]
    )
    refuse_two_names("t", "/lake/t", ["file:///lake/t/data/a", "file:/lake/t/data/b", "/lake/t/c"])
    for other in ("gs://lake/t/data/a", "s3://backup/t/data/a", "/t/data/a"):
        with pytest.raises(OrphansRefusedError, match="two styles of one place"):
            refuse_two_names("t", "s3://lake/t", [other])


@pytest.mark.parametrize("within", ["data/state=CA/a.parquet", "data/offsets/a.parquet", "metadata/1.metadata.json"])
def test_ordinary_files_are_no_checkpoints(within: str) -> None:
    assert foreign_content([listed(within)]) is None
