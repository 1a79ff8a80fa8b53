"""A plan of expiry says what is done: the same snapshots, and nothing is due after it, whoever holds what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata

from jobs.errors import FrazilError
from jobs.maintain.plan import Plan
from jobs.maintain.planner import plan
from jobs.maintain.snapshot_holds import readers
from jobs.maintain.snapshot_retention import ExpiryCutoff, Hold, expiry_cutoff, kept_snapshots, time_of
from jobs.spec.maintenance_policy import Policy
from tests.unit.maintain import plan_fixtures
from tests.unit.maintain.snapshot_metadata import NAME, NOW
from tests.unit.maintain.snapshot_metadata import table as metadata_of

MINUTE = timedelta(minutes=1)


@st.composite
def metadatas(draw: st.DrawFn) -> TableMetadata:
    """A table with tags, branches, and a reader somewhere."""
    ages = sorted(draw(st.lists(st.integers(0, 6000), min_size=1, max_size=80)), reverse=True)
    number = st.integers(1, len(ages))
    refs: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True)):
        kind = draw(st.sampled_from(["tag", "branch"]))
        refs[name] = {"snapshot-id": draw(number), "type": kind}
    reader = draw(st.sampled_from([None, "snapshot", "time"]))
    at = str(draw(number)) if reader == "snapshot" else (NOW - MINUTE * draw(st.integers(0, 6000))).isoformat()
    properties = {"frazil.reader.r": at} if reader else {}
    return metadata_of([MINUTE * age for age in ages], refs=refs, properties=properties)


policies = st.builds(
    lambda keep, least, more, travels: Policy.model_validate(
        {
            "expire": {
                "keep": keep,
                "min_snapshots": least,
                "max_snapshots": least + more,
                "time_travel": "1h" if travels else "none",
            }
        }
    ),
    st.sampled_from(["1h", "24h"]),
    st.integers(1, 20),
    st.integers(0, 60),
    st.booleans(),
)


def planned(metadata: TableMetadata, policy: Policy, holds: list[Hold]) -> tuple[Plan, ExpiryCutoff]:
    cutoff = expiry_cutoff(metadata, policy.expire, [*readers(metadata, NOW), *holds], NOW, NAME)
    times = [time_of(snapshot) for snapshot in metadata.snapshots]
    facts = plan_fixtures.with_snapshots(plan_fixtures.table(plan_fixtures.partition("d", 120)), times)
    return plan(facts, policy, plan_fixtures.LOOKED, NOW, cutoff=cutoff), cutoff


def expired(metadata: TableMetadata, cutoff: ExpiryCutoff) -> TableMetadata:
    """As the procedure leaves it, called as it is."""
    stay = kept_snapshots(metadata, cutoff.older_than, cutoff.retain_last, NOW)
    return metadata.model_copy(update={"snapshots": [each for each in metadata.snapshots if each.snapshot_id in stay]})


@settings(max_examples=300, deadline=None)
@given(metadatas(), policies, st.lists(st.integers(0, 6000), max_size=2))
def test_the_plan_is_what_is_done_and_nothing_is_due_after_it(
    metadata: TableMetadata, policy: Policy, held: list[int]
) -> None:
    holds = [Hold("ledger", NOW - MINUTE * age, "") for age in held]
    try:
        found, cutoff = planned(metadata, policy, holds)
    except FrazilError:
        assume(False)
        return
    steps = [step for step in found.steps if step.action == "expire"]
    for step in steps:
        after = expired(metadata, cutoff)
        assert (step.files_before, step.files_after) == (len(metadata.snapshots), len(after.snapshots))
        assert step.files_after < step.files_before
        again, _ = planned(after, policy, holds)
        assert [each for each in again.steps if each.action == "expire"] == []
    if not steps:
        # Whatever could go is not worth it: few, and not too many there.
        assert cutoff.going == 0 or (cutoff.going < 20 and len(metadata.snapshots) <= policy.expire.max_snapshots)


@settings(max_examples=100, deadline=None)
@given(metadatas(), policies)
def test_what_is_held_is_said(metadata: TableMetadata, policy: Policy) -> None:
    found, cutoff = planned(metadata, policy, [Hold("reader of all", NOW - MINUTE * 6001, "")])
    assert cutoff.going == 0
    assert [each for each in found.steps if each.action == "expire"] == []
    (skip,) = (each for each in found.skips if each.action == "expire")
    due = len(metadata.snapshots) > policy.expire.max_snapshots
    assert not due or "for " in skip.reason
