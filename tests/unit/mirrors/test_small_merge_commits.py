"""Commits of small merges: to a branch, while others commit to it, to main, or alter the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from jobs.mirrors.merge.small_merge.small_merge import merge_small
from jobs.mirrors.model.merge_plan import MergePlan, MergeResult
from jobs.tables.commit.stamp.errors import CommitRefusedError
from tests.helpers.mirror_changes import rows_of
from tests.helpers.mirror_world import MirrorWorld, change

BRANCH = "b"


class Begun:
    """A merge that has begun: its branch is there, the table is as it read it, and others may act meanwhile."""

    def __init__(self, home: Path) -> None:
        self.world = MirrorWorld(home, None, "id long, name string, note string", ["id"])
        self.world.land(rows_of(3))
        self.world.merged(by="process")
        self.world.land([change("u", 10, id=1, name="new", note="x"), change("d", 11, id=2)])
        head = self.world.mirror.metadata.current_snapshot_id
        assert head is not None
        self.head: int = head
        self.world.mirror.manage_snapshots().create_branch(head, BRANCH).commit()
        self.seen: Table = self.world.mirror

    def somebody_appends(self, branch: str) -> None:
        rows = [{"id": 9, "name": "theirs"}]
        self.world.mirror.append(pa.Table.from_pylist(rows, schema=self.seen.schema().as_arrow()), branch=branch)

    def merge(self, mirror: Table) -> MergeResult | None:
        plan = MergePlan("shop", ("id",), self.world.columns, self.world.state, 0)
        return merge_small(self.world.changelog, self.world.files, mirror, BRANCH, plan)

    @property
    def branch(self) -> int:
        return self.world.mirror.metadata.refs[BRANCH].snapshot_id

    def names_on_branch(self) -> list[str]:
        found = self.world.mirror.scan(snapshot_id=self.branch).to_arrow().to_pylist()
        return sorted(row["name"] for row in found)


def test_whoever_finds_the_branch_moved_commits_nothing(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.somebody_appends(BRANCH)
    files = {*tmp_path.rglob("*.avro")}
    with pytest.raises(CommitRefusedError, match=r"branch b of mirror shop\.customers is not as this merge began"):
        begun.merge(begun.seen)
    # Whoever refuses may have a copy of the commit under way, so its data files are left to the removal of orphans.
    assert {*tmp_path.rglob("*.avro")} == files
    result = begun.merge(begun.world.mirror)
    assert result is not None and result.snapshots == (begun.branch,)
    assert begun.names_on_branch() == ["n0", "new", "theirs"]
    assert begun.world.mirror.metadata.current_snapshot_id == begun.head


def test_whoever_commits_to_main_meanwhile_does_not_refuse_a_merge(tmp_path: Path) -> None:
    """The publication does, and then it is merged anew."""
    begun = Begun(tmp_path)
    begun.somebody_appends("main")
    result = begun.merge(begun.seen)
    assert result is not None and result.snapshots == (begun.branch,)
    assert begun.names_on_branch() == ["n0", "new"]
    assert len(begun.world.rows()) == 4


@pytest.mark.parametrize("altered", ["partitions", "columns"])
def test_a_table_that_is_altered_meanwhile_refuses_a_merge(tmp_path: Path, altered: str) -> None:
    """Its manifests would tell of files in other partitions than they were written for."""
    begun = Begun(tmp_path)
    if altered == "partitions":
        with begun.world.mirror.update_spec() as update:
            update.add_field("name", IdentityTransform())
    else:
        with begun.world.mirror.update_schema() as columns:
            columns.add_column("more", LongType())
    with pytest.raises(CommitRefusedError, match="columns or partitions of mirror"):
        begun.merge(begun.seen)
    assert begun.branch == begun.head
