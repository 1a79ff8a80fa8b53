"""Discards under generated stories of landings, judgements, replays, crashes and lost state, on a real catalog."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from jobs.base.errors import FrazilError
from tests.unit.quality.publishing.branch_world import AtStep, Killed
from tests.unit.quality.publishing.discard_world import DiscardWorld
from tests.unit.quality.publishing.test_publish_story import BranchStory

STEPS = (
    *("inside_hold", "discard_after_mark", "discard_before_letters", "discard_after_letters", "discard_after_commit"),
    *("publish_before_commit", "inside_publish", "publish_after_commit"),
)


class DiscardStory(BranchStory):
    """Bad rows are held, released or discarded; letters come back; others write; processes die."""

    world: DiscardWorld

    @initialize()
    def begin(self) -> None:
        self.start(DiscardWorld)

    @rule(rows=st.integers(1, 2), bad=st.booleans())
    def land(self, rows: int, bad: bool) -> None:
        ids = self.world.land(rows)
        self.landed += ids
        self.world.bad |= set(ids) if bad else set()

    @rule(first=st.integers(0, 6))
    def kafka_forgets(self, first: int) -> None:
        self.world.log.first = max(first, self.world.log.first)

    @rule()
    def another_contract(self) -> None:
        self.world.correct()

    @rule()
    def replay(self) -> None:
        self.world.replay()

    def unless_unfinished(self, act) -> None:
        """Nothing passes the gate while a discard is unfinished; and nothing else is refused."""
        open_, nothing = self.world.discards.unfinished, self.world.gate.held is None
        try:
            act()
        except FrazilError as refused:
            if open_ is None and not nothing:
                raise AssertionError("nothing else is refused") from refused

    @rule()
    def publish(self) -> None:
        self.unless_unfinished(self.world.publish_gated)

    @rule()
    def release(self) -> None:
        self.unless_unfinished(self.world.release)

    @rule()
    def discard(self) -> None:
        self.unless_unfinished(self.world.discard)
        assert self.world.discards.unfinished is None

    @rule(name=st.sampled_from(STEPS), what=st.sampled_from(["publish_gated", "release", "discard", "discard"]))
    def die(self, name: str, what: str) -> None:
        with AtStep(name) as armed:
            try:
                self.unless_unfinished(getattr(self.world, what))
            except Killed:
                assert armed.passed

    @rule(name=st.sampled_from(STEPS[1:4]), what=st.sampled_from(["append", "land", "compact"]))
    def meanwhile(self, name: str, what: str) -> None:
        actions = {"append": self.append, "land": lambda: self.land(1, False), "compact": self.compact}
        with AtStep(name, actions[what]):
            self.unless_unfinished(self.world.discard)

    @invariant()
    def main_has_no_row_twice_and_none_that_only_a_letter_has(self) -> None:
        if not hasattr(self, "world"):
            return
        main = self.world.rows()
        assert main == Counter(self.foreign) + Counter(set(self.landed) & set(main))
        letters = self.world.letters()
        seen = Counter((each["first_seen"], each["offset"]) for each in letters)
        assert max(seen.values(), default=1) == 1, "no letter is there twice"
        newest = {each["offset"]: each["state"] for each in letters}
        waiting = {offset for offset, state in newest.items() if state != "replayed"}
        assert not {each for each in self.landed if each % 1_000_000 in waiting} & set(main)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.lose_state()
        if self.world.discards.unfinished:
            self.world.discard()
        self.another_contract()
        self.publish()
        newest = {each["offset"]: each["state"] for each in self.world.letters()}
        kept = [each for each in self.landed if newest.get(each % 1_000_000, "replayed") == "replayed"]
        assert self.world.rows() == Counter(self.foreign + kept), "a record is in main, or a letter waits"
        self.replay()
        self.publish()
        assert self.world.rows() == Counter(self.foreign + self.landed), "all come back"
        assert self.world.gate.held is None


def test_any_story_of_discards(tmp_path: Path) -> None:
    DiscardStory.home = tmp_path
    slow = [HealthCheck.too_slow]
    limits = settings(max_examples=10, stateful_step_count=12, deadline=None, suppress_health_check=slow)
    run_state_machine_as_test(DiscardStory, settings=limits)
