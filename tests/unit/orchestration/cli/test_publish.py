"""`frazil publish`: what it shows and does, on a real catalog."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from tests.helpers.command import frazil
from tests.unit.quality.publishing.branch_world import BranchWorld


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


def test_what_would_be_published_is_shown_and_then_published(world: BranchWorld) -> None:
    ids = world.land(3) + world.land(2)
    shown = frazil(world, "publish", "payments", "--dry-run")
    assert (
        "To be published to main of table orders.payments: 5 rows in 2 files of 2 snapshots on ingest." in shown.stdout
    )
    assert "offsets payments-0 [0, 5)" in shown.stdout
    assert world.rows() == Counter()
    done = frazil(world, "publish", "payments")
    assert (done.exit_code, "Published to main of table orders.payments, as snapshot" in done.stdout) == (0, True)
    assert world.rows() == Counter(ids)
    assert "Nothing to publish" in frazil(world, "publish", "payments").stdout


def test_as_a_document(world: BranchWorld) -> None:
    world.land(3)
    facts = json.loads(frazil(world, "publish", "payments", "--json").stdout)
    assert (facts["rows"], facts["files"], facts["branch"]) == (3, 1, "ingest")
    assert (facts["from"], facts["to"]) == ({"payments": {"0": 0}}, {"payments": {"0": 3}})
    assert facts["snapshot_id"] == world.table().metadata.current_snapshot_id


def test_before_the_first_batch(world: BranchWorld) -> None:
    assert "does not exist yet: the stream has landed nothing" in frazil(world, "publish", "payments").stdout


def test_after_a_rollback_of_main(world: BranchWorld) -> None:
    kept = world.land(1)
    world.publish()
    before = world.table().metadata.current_snapshot_id
    gone = world.land(2)
    world.publish()
    update = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": before})
    world.catalog().commit_table(world.table(), (), (update,))
    stopped = frazil(world, "publish", "payments")
    assert stopped.exit_code == 1
    assert "was rolled back to before its last publication" in stopped.stderr
    assert "--after-rollback again" in stopped.stderr
    answered = frazil(world, "publish", "payments", "--after-rollback", "again", "--yes", "--reason", "by mistake")
    assert answered.exit_code == 0, answered.output
    assert "Next: frazil publish payments" in answered.stdout
    assert frazil(world, "publish", "payments").exit_code == 0
    assert world.rows() == Counter(kept + gone)
    summaries = [each.summary for each in world.table().metadata.snapshots]
    assert any("by mistake" in each.additional_properties.get("frazil.stamp", "") for each in summaries if each)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dry-run", "--after-rollback", "again"), "changes nothing"),
        (("--reason", "x"), "go with --after-rollback"),
        (("--after-rollback", "again", "--yes", "--reason", "x"), "has all that was published"),
    ],
)
def test_what_makes_no_sense(world: BranchWorld, arguments: tuple[str, ...], said: str) -> None:
    world.land(1)
    world.publish()
    done = frazil(world, "publish", "payments", *arguments)
    assert done.exit_code == 1
    assert said in done.stderr


def test_a_stream_on_main(world: BranchWorld) -> None:
    file = world.home / "streams" / "payments.yaml"
    file.write_text(file.read_text().replace("branch: ingest", "branch: main"))
    done = frazil(world, "publish", "payments")
    assert done.exit_code == 1
    assert "there is nothing to publish" in done.stderr
    assert "table: {branch: ingest}" in done.stderr


def test_the_status_says_what_main_lacks(world: BranchWorld) -> None:
    world.land(3)
    said = frazil(world, "status", "payments")
    assert "ingest: 3 rows of 1 snapshot are not in main" in said.stdout, said.output
    facts = json.loads(frazil(world, "status", "payments", "--json").stdout)
    (branch,) = (each["branch"] for each in facts["streams"])
    assert (branch["name"], branch["unpublished_rows"], branch["unpublished_snapshots"]) == ("ingest", 3, 1)
    world.publish()
    assert "ingest: main has all of it" in frazil(world, "status", "payments").stdout
