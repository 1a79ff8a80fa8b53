"""A remake that is refused reads the manifests that it has read no second time, so it does not fall behind for ever."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile

from jobs.tables.commit.history.branch import on_branch
from tests.unit.quality.publishing.branch_world import AtStep
from tests.unit.quality.publishing.test_remake import gated_world, made_again


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = gated_world(tmp_path / "world")
    rows = [each for _ in range(6) for each in world.land(1)]
    world.publish()
    world.compact()
    head = on_branch(world.table(), "ingest").current_snapshot()
    assert head is not None
    published = {each.manifest_path for each in head.manifests(world.table().io)}
    assert len(published) == 6
    rows += world.land(1)
    reads: Counter[str] = Counter()
    fetch = ManifestFile.fetch_manifest_entry

    def counted(self: ManifestFile, *arguments: Any, **more: Any) -> Any:
        reads[self.manifest_path] += 1
        return fetch(self, *arguments, **more)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    with AtStep("inside_remake", lambda: rows.extend(world.land(1))) as armed:
        made_again(world)
    assert armed.passed, "it was refused once"
    assert {reads[path] for path in published} == {1}
    assert world.rows("ingest") == Counter(rows)
