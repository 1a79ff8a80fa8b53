"""Which manifests and properties a plan has written."""

from typing import Any

import pytest

from tests.unit.maintenance.plan_fixtures import (
    LOOKED,
    MB,
    NOW,
    carried_out,
    made,
    partition,
    skips_of,
    steps_of,
    table,
)


@pytest.mark.parametrize(
    ("more", "after"),
    [
        ({"manifests": 100, "manifest_bytes": 100 * 3 * MB}, None),
        ({"manifests": 101, "manifest_bytes": 101 * 3 * MB}, 38),
        ({"manifests": 200, "manifest_bytes": 200 * 8 * MB}, None),
        ({"manifests": 20, "manifest_bytes": 20_000}, None),
        ({"manifests": 21, "manifest_bytes": 21_000}, 1),
        ({"manifests": 21, "manifest_bytes": 21_000, "delete_manifests": 3}, 2),
        ({"manifests": 21, "manifest_bytes": 21 * 3 * MB}, None),
        ({"manifests": 21, "manifest_bytes": 21 * 3 * MB, "mixed_specs": True}, 9),
        ({"manifests": 3, "manifest_bytes": 3_000, "mixed_specs": True}, None),
        ({"manifests": 0, "manifest_bytes": 0}, None),
    ],
)
def test_manifests(more: dict[str, Any], after: int | None) -> None:
    found = made(table(partition("d", 120), **more))
    steps = steps_of(found, "manifests")
    assert [step.files_after for step in steps] == ([] if after is None else [after])
    assert len(steps) + len(skips_of(found, "manifests")) == 1


def test_what_a_compaction_adds_is_merged_in_the_same_run() -> None:
    """20 manifests are well; the 21st, of the compaction, made the next plan want them merged."""
    facts = table(partition("d", *[1.0] * 12), manifests=20, manifest_bytes=20_000)
    found = made(facts)
    assert [step.action for step in found.steps] == ["compact", "manifests"]
    assert "20 manifests of 1,000 bytes on average, and up to 1 more by the steps before" in found.steps[1].reason
    after, history = carried_out(found, facts, LOOKED, NOW)
    assert made(after, history).steps == ()
    alone = made(table(partition("d", 120), manifests=20, manifest_bytes=20_000))
    assert alone.steps == ()


def test_manifests_of_several_specs_never_become_one() -> None:
    groups = {"manifests": 24, "manifest_bytes": 24_000, "mixed_specs": True, "manifest_groups": (20_000, 2_000, 2_000)}
    (step,) = steps_of(made(table(partition("d", 120), **groups)), "manifests")
    assert step.files_after == 3
    # As large as the table's own property says, which is what Iceberg goes by.
    own = {**groups, "properties": {"commit.manifest.target-size-bytes": "4000"}}
    assert steps_of(made(table(partition("d", 120), **own)), "manifests")[0].files_after == 7
    wide = {**groups, "manifest_groups": (2_000,) * 12}
    assert steps_of(made(table(partition("d", 120), **wide)), "manifests")[0].files_after == 12
    too_wide = {**groups, "manifest_groups": (1_800,) * 13}
    (skip,) = skips_of(made(table(partition("d", 120), **too_wide)), "manifests")
    assert "13 would be left, too many to pay" in skip.reason


def test_properties_are_set_on_frazil_s_own_tables() -> None:
    facts = table(partition("d", 120), properties={"frazil.stamp.a": "{}"}, previous_metadata=70)
    (step,) = made(facts).steps
    assert step.detail == {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
    }
    assert (step.files_before, step.files_after) == (70, 50)
    other = made(table(partition("d", 120), properties={}, streams=()))
    assert other.steps == ()
    assert "frazil does not write this table" in skips_of(other, "metadata")[0].reason
