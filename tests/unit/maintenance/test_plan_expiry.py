"""A plan of expiry says what is done, whoever holds what; and when orphans are looked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.plan.plan import Plan
from jobs.maintenance.plan.planner import plan
from jobs.maintenance.plan.snapshot_retention import (
    ExpiryCutoff,
    SnapshotHold,
    expiry_cutoff,
    kept_snapshots,
    snapshot_time,
)
from jobs.maintenance.run.snapshot_holds import reader_holds
from tests.unit.maintenance.plan_fixtures import (
    DAY,
    HOUR,
    LOOKED,
    MINUTE,
    NOW,
    every,
    made,
    partition,
    policy,
    skips_of,
    steps_of,
    table,
    with_snapshots,
)
from tests.unit.maintenance.snapshot_metadata import NAME
from tests.unit.maintenance.snapshot_metadata import table as metadata_of


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


def planned(metadata: TableMetadata, policy: Policy, holds: list[SnapshotHold]) -> tuple[Plan, ExpiryCutoff]:
    cutoff = expiry_cutoff(metadata, policy.expire, [*reader_holds(metadata, NOW), *holds], NOW, NAME)
    times = [snapshot_time(snapshot) for snapshot in metadata.snapshots]
    facts = with_snapshots(table(partition("d", 120)), times)
    return plan(facts, policy, LOOKED, NOW, cutoff=cutoff), cutoff


def expired(metadata: TableMetadata, cutoff: ExpiryCutoff) -> TableMetadata:
    """As the procedure leaves it, called as it is."""
    stay = kept_snapshots(metadata, cutoff.older_than, cutoff.retain_last, NOW)
    return metadata.model_copy(update={"snapshots": [each for each in metadata.snapshots if each.snapshot_id in stay]})


@settings(max_examples=300, deadline=None)
@given(metadatas(), policies, st.lists(st.integers(0, 6000), max_size=2))
def test_the_plan_is_what_is_done_and_nothing_is_due_after_it(
    metadata: TableMetadata, policy: Policy, held: list[int]
) -> None:
    holds = [SnapshotHold("ledger", NOW - MINUTE * age, "") for age in held]
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
    found, cutoff = planned(metadata, policy, [SnapshotHold("reader of all", NOW - MINUTE * 6001, "")])
    assert cutoff.going == 0
    assert [each for each in found.steps if each.action == "expire"] == []
    (skip,) = (each for each in found.skips if each.action == "expire")
    due = len(metadata.snapshots) > policy.expire.max_snapshots
    assert not due or "for " in skip.reason


def gone(found: Plan) -> int:
    return sum(int(step.detail["go"]) for step in steps_of(found, "expire"))


@pytest.mark.parametrize(
    ("facts", "keys", "go"),
    [
        (every(MINUTE, 300), {}, 0),
        (every(MINUTE, 301), {}, 1),
        (every(MINUTE, 360), {}, 60),
        (every(10 * MINUTE, 300), {}, 300 - 145),
        (every(MINUTE, 100), {"keep": "1h"}, 39),
        (every(MINUTE, 80), {"keep": "1h"}, 0),
        (every(DAY, 8), {}, 0),
        (every(DAY, 12), {}, 2),
        (every(MINUTE, 20, oldest=47 * HOUR), {}, 0),
        (every(MINUTE, 20, oldest=49 * HOUR), {}, 1),
        (every(MINUTE, 1000), {"keep": "6h", "time_travel": "6h", "max_snapshots": 100}, 1000 - 361),
        (every(MINUTE, 400), {"time_travel": "24h"}, 0),
        (every(MINUTE, 1000), {"max_snapshots": 100, "min_snapshots": 100}, 900),
    ],
)
def test_how_many_snapshots_go(facts: TableFacts, keys: dict[str, Any], go: int) -> None:
    found = made(facts, expire=keys)
    assert gone(found) == go
    assert len(steps_of(found, "expire")) + len(skips_of(found, "expire")) == 1
    for step in steps_of(found, "expire"):
        assert (step.files_before, step.files_after, step.bytes) == (facts.snapshots, facts.snapshots - go, 0)


def test_the_reasons_of_expiry() -> None:
    def said(facts: TableFacts, **keys: Any) -> str:
        found = made(facts, expire=keys)
        return [*steps_of(found, "expire"), *skips_of(found, "expire")][0].reason

    assert said(every(MINUTE, 360)) == (
        "360 snapshots (at least 10, at most 300): 60 too many, the oldest that goes of 6 h ago."
    )
    assert said(every(10 * MINUTE, 290)) == (
        "290 snapshots (at least 10, at most 300): 145 are older than 1d, the oldest that goes of 2 days ago."
    )
    assert said(every(MINUTE, 400), time_travel="24h") == (
        "Nothing may go: 400 snapshots (at least 10, at most 300). 100 of those that are due stay, for "
        "expire.time_travel."
    )
    assert said(every(MINUTE, 80), keep="1h") == (
        "Not worth it yet: 19 of 80 snapshots (at least 10, at most 300) may go; at 20 they do, or once "
        "one is a day older."
    )


def test_a_promise_that_the_number_cannot_keep_is_warned_of() -> None:
    facts = replace(every(MINUTE, 60), commits_per_day=1440.0)
    (warning,) = made(facts, expire={"time_travel": "24h"}).warnings
    assert warning == (
        "At 1,440 commits a day, expire.max_snapshots (300) reaches 5 h back, less than expire.time_travel "
        "promises (1d). "
        "The promise is kept: there will be about 1,440 snapshots, and each commit takes longer for it. Use a longer "
        "trigger, or promise less."
    )
    assert made(facts, expire={"time_travel": "5h"}).warnings == ()
    assert made(facts).warnings == ()


def test_nothing_is_deleted_where_others_own_the_files() -> None:
    facts = replace(every(MINUTE, 400), properties={"gc.enabled": "FALSE", "frazil.stamp.a": ""})
    found = made(facts, MaintenanceHistory())
    assert [step.action for step in found.steps] == ["metadata"]
    assert all("gc.enabled=false" in skips_of(found, action)[0].reason for action in ("expire", "orphans"))


@pytest.mark.parametrize(("days", "due"), [(6.9, False), (7, True)])
def test_orphans_are_looked_for_every_so_often(days: float, due: bool) -> None:
    done = MaintenanceHistory().done("orphans", NOW - timedelta(days=days))
    found = made(table(partition("d", 120)), done)
    assert bool(steps_of(found, "orphans")) == due
    for step in found.steps:
        assert step.reason.startswith("Last looked for 7 days ago, which is done every 7d: files older than 7d")
        assert step.detail == {"older_than": (NOW - 7 * DAY).isoformat(), "max_share": 0.2, "max_files": 100_000}


def test_a_young_table_has_no_orphans_yet() -> None:
    young = table(partition("d", 120), sequence=1)
    assert "the table is younger than 7d" in skips_of(made(young, MaintenanceHistory()), "orphans")[0].reason
    assert "younger" in skips_of(made(table(snapshot_id=None), MaintenanceHistory()), "orphans")[0].reason
    for old in (replace(young, sequence=2), with_snapshots(young, [NOW - 8 * DAY])):
        assert steps_of(made(old, MaintenanceHistory()), "orphans")[0].reason.startswith("Never looked for yet")


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        (every(MINUTE, 400), {"time_travel": "24h"}),
        (replace(every(HOUR, 11, oldest=60 * DAY), refs=("kept",)), {}),
    ],
    ids=["promised by time_travel", "held by a tag"],
)
def test_a_refused_expiry_that_could_take_nothing_is_no_step(facts: TableFacts, rules: dict[str, Any]) -> None:
    found = plan(facts, policy(expire=rules), LOOKED, NOW, cutoff="Table x was rolled back")
    assert steps_of(found, "expire") == []
    assert len(skips_of(found, "expire")) == 1
