"""A mirror through any story: it is always what its source was at the position that it says.

Batches land, merges are killed at their steps, sleep through take-overs and lose answers; others compact both tables,
and commit to the mirror, at any moment.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitStateUnknownException

from jobs.mirrors.model.mirror_stamp import abandoned_branches
from jobs.tables.commit.stamp.errors import FencedError
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    MIRROR,
    MIRROR_STEPS,
    AtStep,
    Change,
    MirrorWorld,
)

CHANGES = st.lists(st.builds(Change, st.integers(1, 4), st.sampled_from(["a", "b", None])), min_size=1, max_size=4)
ACTIONS = st.one_of(
    st.tuples(st.just("land"), CHANGES),
    st.just(("merge", None)),
    st.tuples(st.just("killed"), st.sampled_from(MIRROR_STEPS)),
    st.tuples(st.just("asleep"), st.sampled_from(MIRROR_STEPS[:3])),
    st.tuples(st.just("compacted"), st.sampled_from(MIRROR_STEPS[:3])),
    st.tuples(st.just("lost answer"), st.booleans()),
    st.tuples(st.just("compact"), st.sampled_from([CHANGELOG, MIRROR])),
    st.tuples(st.just("anew"), st.sampled_from([None, *MIRROR_STEPS])),
)


class Story:
    def __init__(self, home: Path) -> None:
        self.world: MirrorWorld = MirrorWorld(home)
        self.names: Any = itertools.count()

    def land(self, changes: list[Change]) -> None:
        self.world.land(*changes)

    def merge(self, _: None = None) -> None:
        self.world.merge()
        assert self.world.rows() == self.world.source(), "a merge that ends has everything"
        assert not abandoned_branches(self.world.table().metadata)

    def killed(self, step: str) -> None:
        self.world.merge_killed_at(step)

    def asleep(self, step: str) -> None:
        """Another process opens the mirror while this one sleeps, and changes come in between."""
        world = self.world

        def taken_over() -> None:
            world.forget_state()
            world.land(Change(9, f"n{next(self.names)}"))
            world.merge()

        with AtStep(step, taken_over) as at, contextlib.suppress(FencedError):
            world.merge()
            assert not at.passed, "one that was taken over publishes nothing"

    def compacted(self, step: str) -> None:
        world = self.world
        with AtStep(step, lambda: world.compact(MIRROR)):
            self.merge()

    def lost_answer(self, landed: bool) -> None:
        """The catalog answers neither yes nor no to the publication."""
        catalog: Any = type(self.world.catalog())
        known = catalog.commit_table

        def answers_once(self: Any, table: Any, requirements: Any, updates: Any) -> Any:
            if any(type(each).__name__ == "RemoveSnapshotRefUpdate" for each in updates) and len(updates) > 1:
                catalog.commit_table = known
                if landed:
                    known(self, table, requirements, updates)
                raise CommitStateUnknownException("no answer")
            return known(self, table, requirements, updates)

        catalog.commit_table = answers_once
        try:
            self.merge()
        finally:
            catalog.commit_table = known

    def compact(self, name: str) -> None:
        with contextlib.suppress(Exception):
            self.world.table()
            self.world.compact(name)

    def anew(self, step: str | None) -> None:
        if step is not None:
            self.world.merge_killed_at(step, how="anew")
        else:
            self.world.merge(how="anew")
            assert self.world.rows() == self.world.source()

    def tell(self, action: str, what: Any) -> None:
        getattr(self, action.replace(" ", "_"))(what)
        self.world.check()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(ACTIONS, min_size=3, max_size=9))
def test_a_mirror_is_always_its_source_as_of_its_stamp(actions: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder))
        for action, what in actions:
            story.tell(action, what)
        story.land([Change(1, "last")])
        story.merge()
