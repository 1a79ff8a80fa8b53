"""Publishing under generated stories of landings, other writers, crashes and lost state, on a real catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from jobs.base.errors import FrazilError
from jobs.quality.publishing.gate import Gate, Verdict
from jobs.quality.publishing.gated import publish_if_fit, release
from jobs.quality.publishing.interval import Interval
from tests.unit.quality.publishing.branch_world import (
    STEPS,
    AtStep,
    BranchWorld,
    Killed,
)


class BranchStory(RuleBasedStateMachine):
    """What happens to a branch and to main whoever publishes: landings of replays, other writers, lost state.

    Attributes:
        foreign: Ids of rows that others have appended to main.
        landed: Ids of the stream's rows, in the order of their commits.
    """

    home: Path
    number = 0

    def start(self, world: Callable[[Path], BranchWorld] = BranchWorld) -> None:
        """The world of one story."""
        BranchStory.number += 1
        self.world = world(self.home / f"story-{BranchStory.number}")
        self.foreign: list[int] = []
        self.landed: list[int] = []

    @rule()
    def replay(self) -> None:
        self.landed += self.world.land(1, "payments~replay")

    @rule()
    def append(self) -> None:
        self.foreign += self.world.append_to_main(1)

    @rule()
    def compact(self) -> None:
        self.world.compact()

    @rule()
    def lose_state(self) -> None:
        self.world.lose_state()


class PublishStory(BranchStory):
    """Landing, publishing, others, crashes and lost state in any order."""

    @initialize(rows=st.integers(0, 2))
    def begin(self, rows: int) -> None:
        self.start()
        self.foreign += self.world.append_to_main(rows) if rows else []
        self.others: list[int] = []
        self.published = 0

    @rule(rows=st.integers(1, 3), files=st.integers(1, 2))
    def land(self, rows: int, files: int) -> None:
        self.landed += self.world.land(rows, files=files)

    @rule()
    def another_stream(self) -> None:
        self.others += self.world.land(1, "others")

    @rule()
    def take_over(self) -> None:
        self.world.claim()

    @rule()
    def publish(self) -> None:
        self.world.publish()
        self.published = len(self.landed)

    @rule(name=st.sampled_from(STEPS))
    def die(self, name: str) -> None:
        with AtStep(name) as armed:
            try:
                self.world.publish()
                assert not armed.passed
                self.published = len(self.landed)
            except Killed:
                if name == "publish_after_commit":
                    self.published = len(self.landed)

    @rule(name=st.sampled_from(STEPS[:2]), what=st.sampled_from(["append", "land", "compact"]))
    def meanwhile(self, name: str, what: str) -> None:
        with AtStep(name, {"append": self.append, "land": lambda: self.land(1, 1), "compact": self.compact}[what]):
            self.world.publish()
        self.published = len(self.landed)

    @invariant()
    def main_has_what_was_published_once(self) -> None:
        if hasattr(self, "world"):
            assert self.world.rows() == Counter(self.foreign + self.landed[: self.published])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.lose_state()
            self.world.publish()
            assert self.world.rows() == Counter(self.foreign + self.landed)
            assert +(self.world.rows("ingest") - Counter(self.foreign)) == Counter(self.landed + self.others)


def test_any_story(tmp_path: Path) -> None:
    PublishStory.home = tmp_path
    limits = settings(
        max_examples=12, stateful_step_count=10, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(PublishStory, settings=limits)


GATE_STEPS = (*STEPS, "publish_before_verdict", "publish_after_verdict", "inside_hold", "publish_after_hold")


class GateStory(BranchStory):
    """Good and bad rows, judgements, releases, corrected contracts, others, crashes and lost state in any order."""

    @initialize()
    def begin(self) -> None:
        self.start()
        self.bad: set[int] = set()
        self.contract = 0
        # What may stand in main although a contract once refused it.
        self.allowed: set[int] = set()

    def judge(self, interval: Interval) -> Verdict:
        ids = self.world.ids_in(interval.files)
        found = self.bad.intersection(ids)
        return Verdict(not found, tuple(map(str, sorted(found))), str(self.contract), len(ids))

    @property
    def gate(self) -> Gate:
        return Gate.of(self.world.table().metadata.properties, "payments")

    @rule(rows=st.integers(1, 2), bad=st.booleans())
    def land(self, rows: int, bad: bool) -> None:
        ids = self.world.land(rows)
        self.landed += ids
        self.bad |= set(ids) if bad else set()

    @rule()
    def another_contract(self) -> None:
        self.contract += 1
        self.allowed |= self.bad
        self.bad = set()

    @rule()
    def publish(self) -> None:
        publish_if_fit(self.world.spec, self.world.settings, self.world.catalog(), "x", self.judge, str(self.contract))
        waits = Counter(self.landed) - self.world.rows()
        assert bool(waits) == (self.gate.held is not None), "what main lacks is held, and nothing else is"

    @rule()
    def let_go(self) -> None:
        held = self.gate.held
        refused = set(map(int, held.reasons)) if held else set()
        try:
            release(self.world.spec, self.world.settings, self.world.catalog(), "x", "y")
            self.allowed |= refused
        except FrazilError:
            assert held is None

    @rule(name=st.sampled_from(GATE_STEPS), releases=st.booleans())
    def die(self, name: str, releases: bool) -> None:
        held = self.gate.held
        with AtStep(name) as armed:
            try:
                (self.let_go if releases else self.publish)()
            except Killed:
                assert armed.passed
        if releases and held and self.gate.held is None:
            self.allowed |= set(map(int, held.reasons))

    @rule(what=st.sampled_from(["append", "land", "compact"]), bad=st.booleans())
    def meanwhile(self, what: str, bad: bool) -> None:
        actions = {"append": self.append, "land": lambda: self.land(1, bad), "compact": self.compact}
        with AtStep("publish_after_verdict", actions[what]):
            publish_if_fit(
                self.world.spec, self.world.settings, self.world.catalog(), "x", self.judge, str(self.contract)
            )

    @invariant()
    def main_has_a_prefix_and_nothing_that_was_refused(self) -> None:
        if not hasattr(self, "world"):
            return
        there = self.world.rows() - Counter(self.foreign)
        assert self.world.rows() - there == Counter(self.foreign)
        assert there == Counter(self.landed[: there.total()])
        assert not (set(there) & self.bad) - self.allowed

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.lose_state()
            self.another_contract()
            self.publish()
            assert self.world.rows() == Counter(self.foreign + self.landed)


def test_any_story_of_a_gate(tmp_path: Path) -> None:
    GateStory.home = tmp_path
    slow = [HealthCheck.too_slow]
    limits = settings(max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=slow)
    run_state_machine_as_test(GateStory, settings=limits)
