"""What holds of every plan, whatever the table and the policy."""

import json
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.maintain.health_facts import PartitionFacts, TableFacts
from jobs.maintain.plan import ACTIONS, plan_json
from jobs.maintain.planner import plan
from jobs.spec.maintenance_policy import Policy
from tests.unit.maintain.plan_fixtures import (
    DAY,
    HOUR,
    LOOKED,
    NOW,
    carried_out,
    partition,
    policy,
    table,
    with_snapshots,
)

sizes = st.lists(st.floats(0.001, 300), max_size=30)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionFacts:
    deletes = draw(st.sampled_from([0, 0, 0, 1, 3, 12]))
    ago = draw(st.sampled_from([None, timedelta(minutes=1), 2 * HOUR, 3 * DAY]))
    more = {
        "delete_files": deletes,
        "delete_bytes": deletes * 900,
        "position_deletes": deletes * draw(st.integers(0, 900)),
    }
    return partition("", *draw(sizes), ago=ago, **more)


@st.composite
def tables(draw: st.DrawFn) -> TableFacts:
    drawn = draw(st.lists(partitions(), max_size=6))
    named = [replace(each, name=f"d{index}") for index, each in enumerate(drawn)]
    facts = table(*named, manifests=draw(st.integers(1, 300)), manifest_bytes=draw(st.integers(1, 10**9)))
    facts = replace(
        facts,
        mixed_specs=draw(st.booleans()),
        delete_manifests=draw(st.integers(0, 1)),
        format_version=draw(st.sampled_from([1, 2, 2, 3])),
        properties=draw(st.sampled_from([{}, {"frazil.ledger.a": "1"}, {"gc.enabled": "false"}])),
        streams=(),
    )
    minutes = draw(st.lists(st.integers(0, 6000), min_size=1, max_size=400))
    return with_snapshots(facts, [NOW - timedelta(minutes=each) for each in minutes])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    compact = {
        "target": draw(st.sampled_from(["128MB", "10MB", "100MB"])),
        "fragment": draw(st.sampled_from(["1/8", 0.01, 0.9])),
        "min_files": draw(st.integers(2, 20)),
    }
    if draw(st.booleans()):
        compact |= {"strategy": draw(st.sampled_from(["sort", "zorder"])), "sort_by": ["a", "b"]}
    expire = {"max_snapshots": draw(st.integers(10, 300)), "keep": draw(st.sampled_from(["1h", "24h"]))}
    if draw(st.booleans()):
        expire["time_travel"] = "1h"
    return policy(compact=compact, expire=expire, budget=draw(st.sampled_from(["200MB", "1GB", "50GB"])))


@settings(max_examples=150, deadline=None)
@given(tables(), policies())
def test_of_every_plan(facts: TableFacts, drawn: Policy) -> None:
    found = plan(facts, drawn, LOOKED, NOW)
    assert plan(facts, drawn, LOOKED, NOW) == found
    assert found.bytes <= drawn.budget
    compacted = [step.scope for step in found.steps if step.action == "compact"]
    assert len(compacted) == len(set(compacted))
    assert [ACTIONS.index(step.action) for step in found.steps] == sorted(ACTIONS.index(s.action) for s in found.steps)
    assert all(step.reason and step.seconds > 0 for step in found.steps)
    told = {each.action for each in (*found.steps, *found.skips)}
    assert told >= {"compact", "manifests", "expire", "orphans", "metadata"} - (
        {"compact"} if not facts.partitions else set()
    )
    done = {(step.action, step.scope) for step in found.steps}
    assert not done & {(skip.action, skip.scope) for skip in found.skips}
    json.dumps(plan_json(found))


@st.composite
def evolved(draw: st.DrawFn) -> TableFacts:
    """A table that was not partitioned at first, by days since."""
    before = partition("", *draw(sizes))
    days = [replace(partition(f"d{index}", *draw(sizes)), spec_id=1) for index in range(draw(st.integers(1, 4)))]
    facts = table(before, *days, spec_id=1, manifests=draw(st.integers(1, 60)), manifest_bytes=200_000)
    return replace(facts, mixed_specs=bool(before.files))


@settings(max_examples=150, deadline=None)
@given(evolved())
def test_no_file_is_rewritten_by_two_steps_after_a_change_of_the_partitioning(facts: TableFacts) -> None:
    """A step on files without partitions takes the small ones of all of them: no condition leaves any out."""
    found = plan(facts, policy(), LOOKED, NOW)
    steps = [step for step in found.steps if step.action == "compact"]
    whole = [step for step in steps if step.partition and not step.partition.values]
    assert len(whole) <= 1
    for step in whole:
        limit = int(step.detail["min_file_size_bytes"])
        touched = [each for each in facts.partitions or () if not each.values or len(each.smaller(limit)) > 1]
        assert steps == [step]
        assert step.files_before == sum(each.files for each in touched)
        assert step.bytes == sum(sum(each.smaller(limit)) for each in touched)


@settings(max_examples=100, deadline=None)
@given(tables(), policies())
def test_what_is_done_stays_done(facts: TableFacts, drawn: Policy) -> None:
    """Without new commits the plans come to an end, whatever the hour.

    At the same moment after one run; after two, where the deletes that made a hot partition wait went in the first.
    """
    drawn = drawn.model_copy(update={"budget": 10**15})
    history = LOOKED
    merged = facts.delete_files > 0
    for hours in (0, 0, 2, 4, 30, 60, 61):
        now = NOW + hours * HOUR
        found = plan(facts, drawn, history, now)
        facts, history = carried_out(found, facts, history, now)
        again = plan(facts, drawn, history, now)
        assert {step.action for step in again.steps} <= ({"compact"} if merged and not facts.delete_files else set())
        facts, history = carried_out(again, facts, history, now)
        assert plan(facts, drawn, history, now).steps == ()
        merged = facts.delete_files > 0
    assert found.steps == ()
