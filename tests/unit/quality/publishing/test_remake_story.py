"""Gated publishing with remakes, compactions of main and expiries under generated stories, on a real catalog."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.quality.publishing.main_freshness import branch_ahead
from jobs.quality.publishing.remake import NotRemadeError
from jobs.tables.commit.history.branch import (
    branches,
    line_property,
    on_branch,
    seen_on,
)
from jobs.tables.commit.history.lineage import ancestors, line_at_head
from jobs.tables.commit.history.stamp_history import history_of
from jobs.tables.ledger.ledger_table import read_ledger
from tests.unit.quality.publishing.branch_world import (
    NAME,
    P0,
    AtStep,
    Killed,
)
from tests.unit.quality.publishing.test_publish_story import GateStory
from tests.unit.quality.publishing.test_remake import REMAKE_STEPS, gated_world, made_again


class RemakeStory(GateStory):
    """As the stories of a gate, with remakes at any time, crashes in them, others meanwhile, and expiry after them."""

    @initialize()
    def begin(self) -> None:
        self.start(gated_world)
        self.bad: set[int] = set()
        self.contract = 0
        self.allowed: set[int] = set()

    def made_again(self) -> None:
        """As maintenance does it: the ledger is filled first."""
        fill_ledger(self.world.catalog(), self.world.settings, [self.world.spec])
        made_again(self.world)

    @rule()
    def remake(self) -> None:
        if self.landed:
            self.made_again()

    @rule(name=st.sampled_from(REMAKE_STEPS))
    def die_in_a_remake(self, name: str) -> None:
        if self.landed:
            with AtStep(name), contextlib.suppress(Killed):
                self.made_again()

    @rule(what=st.sampled_from(["append", "land", "compact", "publish"]))
    def meanwhile_it_is_remade(self, what: str) -> None:
        if self.landed:
            actions = {
                "append": self.append,
                "land": lambda: self.land(1, False),
                "compact": self.compact,
                "publish": self.publish,
            }
            with AtStep("inside_remake", actions[what]):
                self.made_again()

    @rule()
    def take_over(self) -> None:
        self.world.claim()

    @rule()
    def expire(self) -> None:
        """What is not a head, and is published, goes; the line is noted first, as maintenance does."""
        table = self.world.table()
        metadata = table.metadata
        if "ingest" not in metadata.refs:
            return
        fill_ledger(self.world.catalog(), self.world.settings, [self.world.spec])
        heads = {branch: line_at_head(seen_on(metadata, branch)) for branch in branches(metadata)}
        if lines := {line_property(branch): line.text() for branch, line in heads.items() if line}:
            with table.transaction() as change:
                change.set_properties(lines)
        ahead = branch_ahead(metadata, "payments", "ingest")
        since = ahead.kept_from.timestamp() * 1000 if ahead and ahead.snapshots and ahead.kept_from else 2**62
        kept = {ref.snapshot_id for ref in metadata.refs.values()}
        going = [e.snapshot_id for e in metadata.snapshots if e.snapshot_id not in kept and e.timestamp_ms < since - 1]
        if going:
            self.world.table().maintenance.expire_snapshots().by_ids(going).commit()

    @invariant()
    def the_branch_has_all_that_landed_once(self) -> None:
        if hasattr(self, "world") and self.landed:
            there = self.world.rows("ingest")
            assert +(there - Counter(self.foreign)) == Counter(self.landed)
            past = history_of(on_branch(self.world.table(), "ingest"), "payments")
            assert not past.rolled_back
            assert self.world.ends.get("payments", 0) == (past.newest.position[P0] if past.newest else 0)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            super().teardown()
            fill_ledger(self.world.catalog(), self.world.settings, [self.world.spec])
            ends = self.world.ends.get("payments", 0)
            if ends:
                rows = read_ledger(self.world.catalog(), self.world.settings, "payments", NAME)
                ranges = sorted(row.range for row in rows if row.kind == "batch")
                assert [at.start for at in ranges] == [0, *(at.end for at in ranges[:-1])], "each offset once"
                assert ranges[-1].end == ends
            with contextlib.suppress(NotRemadeError):
                self.made_again()
            seen = on_branch(self.world.table(), "ingest").metadata
            assert not any(each.summary is None for each in ancestors(seen))


def test_any_story_of_a_remade_branch(tmp_path: Path) -> None:
    GateStory.home = tmp_path
    slow = [HealthCheck.too_slow]
    # Without a look at each line of code that runs, which would take most of the time.
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    limits = settings(max_examples=4, stateful_step_count=8, deadline=None, suppress_health_check=slow, phases=phases)
    run_state_machine_as_test(RemakeStory, settings=limits)
