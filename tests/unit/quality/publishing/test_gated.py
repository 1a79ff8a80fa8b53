"""Gated publishing on a real catalog: main never shows what was judged unfit, unless somebody released it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from jobs.base.errors import FrazilError
from jobs.quality.publishing.gate import Gate, Verdict
from jobs.quality.publishing.gated import (
    HELD_KEY,
    GateResult,
    publish_if_fit,
    release,
)
from jobs.quality.publishing.interval import PUBLISHED_KEY, Interval
from jobs.quality.publishing.main_freshness import branch_ahead
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.commit.stamp.stamp_fields import Decision
from tests.unit.quality.publishing.branch_world import AtStep, BranchWorld, Killed

FIT = "publish_before_verdict", "publish_after_verdict", "publish_before_commit", "inside_publish"
UNFIT = "publish_before_verdict", "publish_after_verdict", "inside_hold"


class Contract:
    """Refuses intervals with one of these ids.

    Args:
        world: Reads the files.
        bad: The ids.
        name: By which it judges.

    Attributes:
        unevaluated: Whether it refuses them since they could not be evaluated.
    """

    def __init__(self, world: BranchWorld, bad: set[int], name: str = "one") -> None:
        self.world, self.bad, self.name = world, bad, name
        self.judged: list[list[int]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.unevaluated = False

    def __call__(self, interval: Interval) -> Verdict:
        ids = self.world.ids_in(interval.files)
        self.judged.append(ids)
        self.meanwhile()
        found = sorted(self.bad.intersection(ids))
        reasons = tuple(f"id {each} is not accepted" for each in found)
        return Verdict(not found, reasons, self.name, len(ids), unevaluated=bool(found) and self.unevaluated)


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home")


def publish(world: BranchWorld, contract: Contract) -> GateResult:
    return publish_if_fit(world.spec, world.settings, world.catalog(), "tester", contract, contract.name)


def let_go(world: BranchWorld) -> GateResult:
    return release(world.spec, world.settings, world.catalog(), "tester", "known and harmless")


def gate(world: BranchWorld) -> Gate:
    return Gate.of(world.table().metadata.properties, "payments")


def summary(world: BranchWorld, snapshot_id: int | None) -> dict[str, str]:
    snapshot = world.table().metadata.snapshot_by_id(snapshot_id or 0)
    assert snapshot is not None and snapshot.summary is not None
    return snapshot.summary.additional_properties


def test_what_is_fit_is_published(world: BranchWorld) -> None:
    ids = world.land(3)
    contract = Contract(world, set())
    done = publish(world, contract)
    assert (done.became, contract.judged, world.rows()) == ("published", [ids], Counter(ids))
    said = json.loads(summary(world, done.snapshot_id)[PUBLISHED_KEY])
    assert (said["verdict"], said["judged_by"], said["checked_rows"], said["gate"]) == ("passed", "one", 3, 0)
    assert publish(world, contract).became == "nothing new"


def test_what_is_not_fit_is_held(world: BranchWorld) -> None:
    good = world.land(2)
    assert publish(world, Contract(world, set())).became == "published"
    bad = world.land(3)
    done = publish(world, Contract(world, {bad[1]}))
    assert (done.became, world.rows()) == ("held", Counter(good))
    held = gate(world).held
    assert held is not None
    assert (held.rows, held.reasons, held.judged_by) == (3, (f"id {bad[1]} is not accepted",), "one")
    assert {str(p): tuple(r) for p, r in held.ranges.items()} == {"payments-0": (2, 5)}
    (told,) = [each for each in map(_held_text, world.table().metadata.snapshots) if each]
    assert (told["verdict"], told["reasons"]) == ("held", list(held.reasons))


def _held_text(snapshot) -> dict | None:
    text = snapshot.summary.additional_properties.get(HELD_KEY)
    return json.loads(text) if text else None


def test_what_could_not_be_evaluated_is_held_and_judged_each_time(world: BranchWorld) -> None:
    ids = world.land(2)
    contract = Contract(world, set(ids))
    contract.unevaluated = True
    assert (publish(world, contract).became, world.rows()) == ("held", Counter())
    held = gate(world).held
    assert held is not None and held.unevaluated
    assert (publish(world, contract).became, contract.judged) == ("still held", [ids, ids])
    contract.bad.clear()
    assert (publish(world, contract).became, world.rows()) == ("published", Counter(ids))


def test_what_lands_behind_it_waits_and_is_not_judged_each_time(world: BranchWorld) -> None:
    bad = world.land(2)
    contract = Contract(world, set(bad))
    publish(world, contract)
    head = world.table().metadata.current_snapshot_id
    world.land(2)
    for _ in range(3):
        assert publish(world, contract).became == "still held"
    assert len(contract.judged) == 1
    assert world.table().metadata.current_snapshot_id == head
    assert world.rows() == Counter()


def test_another_contract_lets_it_pass(world: BranchWorld) -> None:
    ids = world.land(2)
    publish(world, Contract(world, set(ids)))
    ids += world.land(1)
    assert publish(world, Contract(world, set(), "two")).became == "published"
    assert (world.rows(), gate(world)) == (Counter(ids), Gate(0))


def test_another_contract_that_does_not_let_it_pass_says_so(world: BranchWorld) -> None:
    ids = world.land(2)
    publish(world, Contract(world, {ids[0]}))
    since = gate(world).held.since  # pyright: ignore[reportOptionalMemberAccess]
    ids += world.land(1)
    assert publish(world, Contract(world, {ids[1]}, "two")).became == "held"
    held = gate(world).held
    assert held is not None
    assert (held.rows, held.since, held.reasons) == (3, since, (f"id {ids[1]} is not accepted",))


class TestRelease:
    def test_it_publishes_what_is_held_and_nothing_behind_it(self, world: BranchWorld) -> None:
        bad = world.land(2)
        contract = Contract(world, set(bad))
        publish(world, contract)
        more = world.land(2)
        done = let_go(world)
        assert (done.became, world.rows(), gate(world)) == ("published", Counter(bad), Gate(1))
        said = json.loads(summary(world, done.snapshot_id)[PUBLISHED_KEY])
        assert (said["verdict"], said["why"], said["by"]) == ("released", "known and harmless", "tester")
        assert said["reasons"] == [f"id {each} is not accepted" for each in bad]
        assert "tester: known and harmless" in summary(world, done.snapshot_id)["frazil.stamp"]
        assert publish(world, contract).became == "published"
        assert contract.judged[-1] == more
        assert world.rows() == Counter(bad + more)

    def test_nothing_is_held(self, world: BranchWorld) -> None:
        world.land(1)
        with pytest.raises(FrazilError, match="no rows are quarantined"):
            let_go(world)
        assert world.rows() == Counter()

    @pytest.mark.parametrize("name", ["publish_before_commit", "inside_publish", "publish_after_commit"])
    def test_killed(self, world: BranchWorld, name: str) -> None:
        bad = world.land(2)
        publish(world, Contract(world, set(bad)))
        with AtStep(name), pytest.raises(Killed):
            let_go(world)
        world.lose_state()
        if name == "publish_after_commit":
            with pytest.raises(FrazilError, match="no rows are quarantined"):
                let_go(world)
        else:
            assert world.rows() == Counter()
            let_go(world)
        assert (world.rows(), gate(world)) == (Counter(bad), Gate(1))

    def test_what_was_judged_before_is_judged_again(self, world: BranchWorld) -> None:
        """A check that began before the release does not publish, or hold, what it saw then."""
        bad = world.land(2)
        publish(world, Contract(world, set(bad)))
        contract = Contract(world, set(bad), "two")

        def meanwhile() -> None:
            # As by somebody who sees no lease of ours.
            world.lose_state()
            let_go(world)

        contract.meanwhile = meanwhile
        assert publish(world, contract).became == "nothing new"
        assert (world.rows(), gate(world)) == (Counter(bad), Gate(1))


@pytest.mark.parametrize("name", FIT)
def test_killed_with_a_fit_interval(world: BranchWorld, name: str) -> None:
    ids = world.land(3)
    with AtStep(name) as armed, pytest.raises(Killed):
        publish(world, Contract(world, set()))
    assert armed.passed
    assert world.rows() == Counter()
    world.lose_state()
    assert publish(world, Contract(world, set())).became == "published"
    assert world.rows() == Counter(ids)


@pytest.mark.parametrize("name", UNFIT)
def test_killed_with_an_unfit_interval(world: BranchWorld, name: str) -> None:
    ids = world.land(3)
    with AtStep(name) as armed, pytest.raises(Killed):
        publish(world, Contract(world, set(ids)))
    assert armed.passed
    assert (world.rows(), gate(world).held) == (Counter(), None)
    world.lose_state()
    assert publish(world, Contract(world, set(ids))).became == "held"
    assert world.rows() == Counter()


def test_killed_once_it_is_held(world: BranchWorld) -> None:
    ids = world.land(3)
    with AtStep("publish_after_hold"), pytest.raises(Killed):
        publish(world, Contract(world, set(ids)))
    world.lose_state()
    assert publish(world, Contract(world, set(ids))).became == "still held"
    assert world.rows() == Counter()


def test_only_what_was_judged_is_published(world: BranchWorld) -> None:
    """The stream lands bad rows while good ones are judged."""
    good = world.land(2)
    contract = Contract(world, {good[-1] + 1})
    bad: list[int] = []
    contract.meanwhile = lambda: bad.extend(world.land(1))
    assert publish(world, contract).became == "published"
    assert (bad, world.rows()) == ([good[-1] + 1], Counter(good))
    contract.meanwhile = lambda: None
    assert publish(world, contract).became == "held"
    assert world.rows() == Counter(good)


def test_main_may_be_written_while_it_is_judged(world: BranchWorld) -> None:
    ids = world.land(2)
    contract = Contract(world, set())
    contract.meanwhile = lambda: ids.extend(world.append_to_main(1))
    assert publish(world, contract).became == "published"
    assert world.rows() == Counter(ids)
    assert len(contract.judged) == 1


def test_it_cannot_be_judged(world: BranchWorld) -> None:
    world.land(1)

    def judge(interval: Interval) -> Verdict:
        raise FrazilError("the engine is gone")

    with pytest.raises(FrazilError, match="the engine is gone"):
        publish_if_fit(world.spec, world.settings, world.catalog(), "tester", judge, "x")
    assert (world.rows(), gate(world)) == (Counter(), Gate())


def test_a_rollback_of_main_stops_the_gate(world: BranchWorld) -> None:
    world.append_to_main(1)
    before = world.table().metadata.current_snapshot_id or 0
    world.land(1)
    publish(world, Contract(world, set()))
    with world.table().manage_snapshots() as change:
        change.rollback_to_snapshot(before)
    with pytest.raises(RolledBackError, match="was rolled back"):
        publish(world, Contract(world, set()))


def test_without_a_gate_in_the_file_what_is_held_is_not_published(world: BranchWorld) -> None:
    good = world.land(1)
    publish(world, Contract(world, set()))
    bad = world.land(2)
    publish(world, Contract(world, set(bad)))
    more = world.land(1)
    with pytest.raises(FrazilError, match=r"2 rows of branch ingest .*id 2000001 is not accepted") as refused:
        world.publish()
    assert "frazil release payments" in (refused.value.fix or "") and "`publish` back" in (refused.value.fix or "")
    assert world.rows() == Counter(good)
    let_go(world)
    world.publish()
    assert world.rows() == Counter(good + bad + more)


class TestMovedBranch:
    """The branch is moved back behind what is held, and the stream lands its records again."""

    @staticmethod
    def held_and_moved(world: BranchWorld, contract: Contract) -> list[int]:
        """What is held, after a publication, and is not on the branch any more."""
        world.land(2)
        publish(world, contract)
        before = world.table().metadata.refs["ingest"].snapshot_id
        bad = world.land(2)
        contract.bad = set(bad)
        assert publish(world, contract).became == "held"
        table = world.table()
        moved = SetSnapshotRefUpdate(**{"ref-name": "ingest", "type": "branch", "snapshot-id": before})
        table.catalog.commit_table(table, (), (moved,))
        return bad

    @staticmethod
    def land_again(world: BranchWorld) -> list[int]:
        """As a driver after `frazil accept --rollback reland`."""
        target = world.target()
        past = target.history()
        assert past.rolled_back and past.stamped_ancestor is not None
        decided = past.stamped_ancestor.decided(Decision("rollback_reland", removed=past.removed))
        target.restamp(signed_answer(decided, world.epochs["payments"], "tester: bad"))
        world.ends["payments"] = 2
        return world.land(2)

    def test_nothing_is_held_where_nothing_stands(self, world: BranchWorld) -> None:
        contract = Contract(world, set())
        self.held_and_moved(world, contract)
        done = publish(world, contract)
        assert (done.became, done.gate.held) == ("nothing new", None)
        ahead = branch_ahead(world.table().metadata, "payments")
        assert ahead is not None and ahead.held is None

    def test_what_stands_there_now_is_judged(self, world: BranchWorld) -> None:
        contract = Contract(world, set())
        bad = self.held_and_moved(world, contract)
        before = world.rows()
        again = self.land_again(world)
        with pytest.raises(FrazilError, match="no rows are quarantined"):
            let_go(world)
        contract.bad = set()
        assert publish(world, contract).became == "published"
        assert (contract.judged[-1], world.rows()) == (again, before + Counter(again))
        assert again == bad, "the same records"

    def test_it_is_held_anew_for_the_same_reasons(self, world: BranchWorld) -> None:
        contract = Contract(world, set())
        self.held_and_moved(world, contract)
        before, first = world.rows(), gate(world).held
        again = self.land_again(world)
        assert publish(world, contract).became == "held"
        held = gate(world).held
        assert held is not None and first is not None
        assert held.until > first.until and held.since > first.since
        assert let_go(world).became == "published"
        assert world.rows() == before + Counter(again)
        assert publish(world, contract).became == "nothing new"
