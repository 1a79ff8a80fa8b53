"""Publishing, holding, releasing, answering and remaking, as processes that are killed at each of their steps."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.quality.publishing.gate import Gate
from jobs.quality.publishing.publishing import publish
from jobs.tables.commit.history.reissue import last_remade
from jobs.tables.commit.stamp.errors import RolledBackError
from tests.helpers.forked import Forked, frazil
from tests.helpers.publishing_processes import judge_and_publish, remake_branch
from tests.unit.quality.publishing.branch_world import BranchWorld
from tests.unit.quality.publishing.test_remake import gated_world

IN_A_PUBLICATION = ("publish_before_commit", "inside_publish", "publish_after_commit")


class Processes:
    """A gated stream's world, and the processes that act on it.

    Args:
        world: What they act on.
    """

    def __init__(self, world: BranchWorld) -> None:
        self.world: BranchWorld = world

    def run(self, act: Callable[..., object], *arguments: Any, step: str = "") -> tuple[int, str]:
        """Run it as a process, killed at a step; its status, or minus the signal's number, and what it printed."""
        steps = f"{step}=kill" if step else ""
        process = Forked(act, *arguments, env={"FRAZIL_STEPS": steps}, folder=self.world.home)
        status, said = process.wait(), process.said()
        if step:
            assert (status, f"step {step}: SIGKILL" in said) == (-signal.SIGKILL, True), said
        return status, said

    def gate(self, bad: Sequence[int] = (), step: str = "") -> str:
        """Judge and publish; what became of it, or nothing of one that was killed."""
        status, said = self.run(judge_and_publish, str(self.world.home), list(bad), step=step)
        assert step or status == 0, said
        return "" if step else said.strip()

    def command(self, *words: str, step: str = "", expect: int = 0) -> str:
        """Run a command of frazil's; what it printed."""
        status, said = self.run(frazil, "--home", str(self.world.home), *words, step=step)
        assert step or status == expect, said
        return said

    @property
    def state(self) -> Gate:
        return Gate.of(self.world.table().metadata.properties, "payments")


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(gated_world(tmp_path / "home"))


@pytest.mark.parametrize("step", ["publish_before_verdict", "publish_after_verdict", *IN_A_PUBLICATION])
def test_a_fit_interval_is_published_once(processes: Processes, step: str) -> None:
    rows = processes.world.land(3)
    processes.gate(step=step)
    done = step == "publish_after_commit"
    assert processes.world.rows() == Counter(rows if done else [])
    rows += processes.world.land(2)
    assert processes.gate() == "published"
    assert processes.world.rows() == Counter(rows)
    assert processes.gate() == "nothing new"


@pytest.mark.parametrize(
    "step", ["publish_before_verdict", "publish_after_verdict", "inside_hold", "publish_after_hold"]
)
def test_main_never_shows_an_unfit_interval(processes: Processes, step: str) -> None:
    good = processes.world.land(2)
    assert processes.gate() == "published"
    bad = processes.world.land(3)
    processes.gate(bad[1:2], step=step)
    held = step == "publish_after_hold"
    assert (processes.world.rows(), processes.state.held is not None) == (Counter(good), held)
    assert processes.gate(bad[1:2]) == ("still held" if held else "held")
    assert processes.world.rows() == Counter(good)
    found = processes.state.held
    assert found is not None
    assert (found.rows, found.reasons) == (3, (f"id {bad[1]} is not accepted",))
    assert {str(p): tuple(range_) for p, range_ in found.ranges.items()} == {"payments-0": (2, 5)}


@pytest.mark.parametrize("step", IN_A_PUBLICATION)
def test_a_release_publishes_what_is_held_once(processes: Processes, step: str) -> None:
    bad = processes.world.land(2)
    assert processes.gate(bad) == "held"
    behind = processes.world.land(1)
    release = "release", "payments", "--reason", "known and harmless", "--yes"
    processes.command(*release, step=step)
    done = step == "publish_after_commit"
    assert processes.world.rows() == Counter(bad if done else [])
    assert (processes.state.held is None, processes.state.generation) == (done, int(done))
    if done:
        assert "no rows are quarantined" in processes.command(*release, expect=1)
    else:
        processes.command(*release)
    assert (processes.world.rows(), processes.state) == (Counter(bad), Gate(1))
    assert processes.gate(bad) == "published"
    assert processes.world.rows() == Counter(bad + behind)


@pytest.mark.parametrize("step", ["remake_before_commit", "inside_remake", "remake_after_commit"])
def test_a_remade_branch_is_whole(processes: Processes, step: str) -> None:
    world = processes.world
    rows = world.land(2) + world.land(2)
    assert processes.gate() == "published"
    world.compact()
    held = world.land(2)
    assert processes.gate(held) == "held"
    behind = world.land(1)
    before = processes.state.held
    processes.run(remake_branch, str(world.home), step=step)
    assert (last_remade(world.table().metadata, "ingest") is not None) == (step == "remake_after_commit")
    assert (world.rows(), world.rows("ingest")) == (Counter(rows), Counter(rows + held + behind))
    status, said = processes.run(remake_branch, str(world.home))
    assert status == 0, said
    after = processes.state.held
    assert before is not None
    assert after is not None
    assert (after.rows, after.ranges, after.reasons, after.since) == (
        before.rows,
        before.ranges,
        before.reasons,
        before.since,
    )
    assert processes.gate(held) == "still held"
    processes.command("release", "payments", "--reason", "known", "--yes")
    rows += held + behind + world.land(1)
    assert processes.gate() == "published"
    assert world.rows() == world.rows("ingest") == Counter(rows)


@pytest.mark.parametrize("answer", ["again", "leave-out"])
@pytest.mark.parametrize("step", ["answer_before_commit", "inside_answer", "answer_after_commit"])
def test_an_answer_to_a_rollback_counts_once(processes: Processes, step: str, answer: str) -> None:
    world = processes.world
    foreign = world.append_to_main(1)
    before = world.table().metadata.current_snapshot_id or 0
    taken_out = world.land(2)
    assert processes.gate() == "published"
    world.table().manage_snapshots().rollback_to_snapshot(before).commit()
    words = "publish", "payments", "--after-rollback", answer, "--reason", "looked at it", "--yes"
    processes.command(*words, step=step)
    assert world.rows() == Counter(foreign), "an answer brings no row"
    answered = step == "answer_after_commit"
    if answered:
        assert "has all that was published" in processes.command(*words, expect=1)
    else:
        with pytest.raises(RolledBackError, match="was rolled back"):
            publish(world.spec, world.settings, world.catalog(), "x")
        processes.command(*words)
    rows = foreign + world.land(1) + (taken_out if answer == "again" else [])
    assert processes.gate() == "published"
    assert world.rows() == Counter(rows)
    with pytest.raises(FrazilError, match="has all that was published"):
        raise FrazilError(processes.command(*words, expect=1))
