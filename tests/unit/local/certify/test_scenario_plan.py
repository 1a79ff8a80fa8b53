"""Which start dies where: every step often enough, recovery behind something to recover, and time for it to be told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.base.errors import FrazilError
from jobs.base.failpoints import STEPS as EVERY_STEP
from jobs.local.certify.scenario_plan import (
    ASLEEP,
    COMMIT_KINDS,
    EXTRA,
    LEAVES_A_COMMIT,
    LEAVES_A_RECORD,
    MERGER_ASLEEP,
    MERGER_SLEEPS_AT,
    NEEDS_A_RECORD,
    RANDOM,
    STEPS,
    Scenario,
    plan_scenarios,
    select_steps,
)
from jobs.local.certify.shapes import SHAPES

steps = st.lists(st.sampled_from([*STEPS, *EXTRA]), min_size=1, unique=True)
numbers = st.integers(0, 10_000)
SHAPES_OF = {
    "route": "routed",
    "named tables": "named",
    "publish": "gated",
    "mirror": "mirrored",
    MERGER_ASLEEP: "mirrored",
}


def timed(scenarios: list[Scenario]) -> list[Scenario]:
    """Those whose time to recover is told: the next start commits before it dies."""
    return [
        scenario
        for scenario, after in zip(scenarios, [*scenarios[1:], None], strict=True)
        if after is None or not after.early
    ]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("all", {*STEPS, *EXTRA} - {"inside_tasks"}),
        ("all, executor", {*STEPS, *EXTRA}),
        ("executor", {"inside_tasks"}),
        ("commit", {name for name, step in STEPS.items() if step.kind in COMMIT_KINDS}),
        ("route", {"after_table_commit"}),
        ("mirror", {name for name in EVERY_STEP if name.startswith("mirror_")}),
        ("recovery", {name for name, step in STEPS.items() if step.kind == "recovery"}),
        ("take-over", {name for name, step in STEPS.items() if step.kind == "take over"}),
        ("dead letters", {name for name, step in STEPS.items() if step.kind == "dead letters"}),
        ("after_tasks, random", {"after_tasks", RANDOM}),
    ],
)
def test_steps_are_chosen(words: str, meant: set[str]) -> None:
    assert set(select_steps(words)) == meant


def test_an_unknown_step_is_refused_with_the_nearest() -> None:
    with pytest.raises(FrazilError) as refused:
        select_steps("after_taks")
    assert "after_taks" in refused.value.message
    assert refused.value.fix == "did you mean after_tasks?"
    with pytest.raises(FrazilError):
        select_steps(" , ")


@pytest.mark.parametrize("seed", range(20))
def test_the_default_certificate(seed: int) -> None:
    scenarios = plan_scenarios(select_steps("all,executor"), 3, seed)
    counts = Counter(scenario.step for scenario in scenarios if scenario.asked_for)
    for name, step in STEPS.items():
        assert counts[name] == (3 if step.kind in (*COMMIT_KINDS, "route") else 1)
    assert counts[RANDOM] >= 3
    assert counts[ASLEEP] == 1
    # Nothing has to be added, and every step's time to recover is told.
    assert all(scenario.asked_for for scenario in scenarios)
    assert {scenario.step for scenario in timed(scenarios)} == {*STEPS, *EXTRA}
    # Each stream once: nothing of one follows another one's, and only those steps are another's that it lacks.
    shapes = [scenario.shape for scenario in scenarios]
    assert shapes == sorted(shapes, key=SHAPES.index)
    assert set(shapes) == set(SHAPES)
    for scenario in scenarios:
        kind = STEPS[scenario.step].kind if scenario.step in STEPS else scenario.step
        assert scenario.shape == SHAPES_OF.get(kind, "plain")


def test_every_step_of_a_publication_is_tried() -> None:
    asked = {
        name
        for name, step in EVERY_STEP.items()
        if name.startswith("publish_") or name in ("inside_publish", "inside_hold")
    }
    assert set(select_steps("publish")) == asked
    assert set(select_steps("route")) == {"after_table_commit"}
    planned = plan_scenarios(select_steps("publish"), 1, 3)
    assert {scenario.step for scenario in planned if scenario.holds} == {"inside_hold", "publish_after_hold"}
    assert {scenario.arming for scenario in planned} == {""}, "the action dies, not the driver"


def test_what_merges_sleeps_at_each_of_its_steps_in_turn() -> None:
    planned = plan_scenarios([MERGER_ASLEEP], 3 * len(MERGER_SLEEPS_AT), 3)
    assert {scenario.at for scenario in planned} == set(MERGER_SLEEPS_AT)


@given(steps, st.integers(1, 4), numbers)
def test_any_plan(names: list[str], runs: int, seed: int) -> None:
    scenarios = plan_scenarios(names, runs, seed)
    assert [scenario.number for scenario in scenarios] == list(range(1, len(scenarios) + 1))
    assert {scenario.step for scenario in scenarios if scenario.asked_for} == set(names)
    for before, scenario in zip([None, *scenarios], scenarios, strict=False):
        if scenario.step in NEEDS_A_RECORD:
            assert before is not None
            assert before.step in (LEAVES_A_COMMIT if scenario.step == "after_recovery_commit" else LEAVES_A_RECORD)
            assert before.manner == "batch"
        if scenario.early and before is not None:
            assert before.manner != "roll", "a roll may start the next driver, which has to be one that works"
        if not scenario.asked_for:
            assert scenario.step in LEAVES_A_RECORD


@given(steps, st.integers(1, 4), numbers)
def test_the_same_seed_makes_the_same_plan(names: list[str], runs: int, seed: int) -> None:
    assert plan_scenarios(names, runs, seed) == plan_scenarios(names, runs, seed)


def test_what_is_armed() -> None:
    by_step = {scenario.step: scenario for scenario in plan_scenarios(select_steps("all,executor"), 1, 0)}
    assert by_step["after_tasks"].arming == "after_tasks=kill@2"
    assert by_step["before_schema_commit"].arming == "before_schema_commit=kill@1"
    for name in ("before_new_tables", "after_new_tables"):
        # The first tables of a driver are those that the one before it has left unmade.
        assert (by_step[name].arming, by_step[name].shape) == (f"{name}=kill@2", "named")
    assert by_step["before_claim"].arming == "before_claim=kill@1"
    assert by_step["before_release"].arming == "before_release=kill@1"
    assert by_step["between_drivers"].arming == "", "the action dies, not the driver"
    assert by_step[ASLEEP].arming in ("before_commit=stop@2", "after_lease_check=stop@2")
    assert by_step[MERGER_ASLEEP].arming == "mirror_before_publish=stop@2"
    # The first merge of a driver is what the one before it has left.
    assert by_step["mirror_after_merge"].arming == "mirror_after_merge=kill@2"
    assert by_step[RANDOM].arming == ""
    assert by_step["inside_tasks"].arming == "inside_tasks=kill@2"
