"""The judge of a gated stream with real contracts: what readers of main are about to have, and what holds nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from jobs.quality.contracts.check import Check
from jobs.quality.contracts.gate_judge import ContractJudge
from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.gated import GateResult, publish_if_fit
from jobs.quality.publishing.interval import Interval
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.write.data_file_rows import UnreadableFileError
from tests.helpers.check_world import no_spark
from tests.unit.quality.publishing import discard_world
from tests.unit.quality.publishing.discard_world import BEGAN, DiscardWorld
from tests.unit.quality.publishing.test_discard_story import DiscardStory

KEYS = {"frazil_keys_to_be_unique": {"columns": ["id"]}, "name": "keys"}


class JudgedWorld(DiscardWorld):
    """As its base, with the judge that the product has; what is bad stands in the contract."""

    def __init__(self, home: Path, *expectations: dict[str, Any]) -> None:
        super().__init__(home)
        self.expectations = expectations or (KEYS,)
        self.agree()

    def agree(self) -> None:
        """Write the contract as it is now."""
        refused = {"column": "id", "value_set": sorted(self.bad) or [-(10**9)]}
        bad = {"expect_column_values_to_not_be_in_set": refused, "name": "not_bad"}
        self.write(contract={"expectations": [*self.expectations, *([bad] if self.bad else [])]})

    def contract_judge(self) -> ContractJudge:
        self.agree()
        return ContractJudge(self.spec, self.settings, self.catalog(), no_spark, by="x")

    def judge(self, interval: Interval) -> Verdict:
        return self.contract_judge()(interval)

    def publish_gated(self) -> GateResult:
        judge = self.contract_judge()
        return publish_if_fit(self.spec, self.settings, self.catalog(), "x", judge, judge.judged_by)

    def others_append(self, ids: list[int]) -> None:
        commit_once(self.table(), Append([self.data_file(ids)]), summary={}, properties={})


@pytest.fixture
def world(tmp_path: Path) -> JudgedWorld:
    return JudgedWorld(tmp_path / "home")


def test_what_was_discarded_and_comes_back_is_no_second_row(world: JudgedWorld) -> None:
    good = world.land(2)
    assert world.publish_gated().became == "published"
    bad = world.land(3)
    world.bad = {bad[1]}
    assert world.publish_gated().became == "held"
    world.discard()
    world.correct()
    world.replay()
    done = world.publish_gated()
    assert (done.became, world.gate.held) == ("published", None)
    assert world.rows() == Counter(good + bad)
    # The branch has them twice; nobody ever reads the first ones.
    check = Check(spec=world.spec, settings=world.settings, catalog=world.catalog(), spark=no_spark)
    (keys,) = check.run(world.spec.targets[0]).outcomes
    assert keys.passed, keys.observed


def test_a_key_that_another_writer_has_on_main_is_not_published_again(world: JudgedWorld) -> None:
    world.claim()
    world.others_append([1_000_001 + 1_000_000])
    ids = world.land(3)
    assert ids[1] == 2_000_001
    done = world.publish_gated()
    assert done.became == "held" and world.rows() == Counter([2_000_001])
    assert world.gate.held is not None and not world.gate.held.unevaluated
    assert world.gate.held.reasons == ("keys (frazil_keys_to_be_unique): 1 of 3 rows are not accepted",)


def test_what_was_deleted_on_main_may_come_again(world: JudgedWorld) -> None:
    ids = world.land(2)
    world.publish_gated()
    world.table().delete(f"id = {ids[0]}")
    again = world.land(1, "payments~replay")
    assert world.publish_gated().became == "published"
    assert world.rows() == Counter([ids[1], *again])


def test_two_rows_of_one_key_that_wait_are_held(world: JudgedWorld) -> None:
    first = world.land(1)
    world.bad = set(first)
    assert world.publish_gated().became == "held"
    world.land(1)
    world.bad = set()
    # Both wait, and are judged together.
    assert world.publish_gated().became == "published"


class JudgedStory(DiscardStory):
    """As its base, judged by the contract, keys included."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        JudgedStory.number += 1
        self.world = JudgedWorld(self.home / f"judged-{JudgedStory.number}")

    @rule()
    def check(self) -> None:
        """Whoever checks the branch sees what readers are about to have, so no key is there twice."""
        world = self.world
        if world.discards.unfinished:
            return
        made = Check(
            spec=world.spec, settings=world.settings, catalog=world.catalog(), spark=no_spark, only=["keys"]
        ).run(world.spec.targets[0])
        assert all(each.passed for each in made.outcomes), made.outcomes


def test_any_story_with_the_real_judge(tmp_path: Path) -> None:
    JudgedStory.home = tmp_path
    slow = [HealthCheck.too_slow]
    limits = settings(max_examples=6, stateful_step_count=10, deadline=None, suppress_health_check=slow)
    run_state_machine_as_test(JudgedStory, settings=limits)


def test_past_volumes_are_those_of_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ten_an_hour(offset: int) -> int:
        return int((BEGAN + timedelta(minutes=6 * offset)).timestamp()) * 1_000_000

    monkeypatch.setattr(discard_world, "micros", ten_an_hour)
    usual = {"frazil_volume_per_hour_to_be_usual": {"min_ratio": 0.8, "max_ratio": 1.5, "past": "4d"}, "name": "usual"}
    world = JudgedWorld(tmp_path / "home", usual)
    ids = world.land(5 * 240)
    assert world.publish_gated().became == "published"
    more = world.land(30)
    world.bad = {more[0]}
    assert world.publish_gated().became == "held"
    world.discard()
    world.correct()
    # Three hours are missing in main now, and the fourth comes.
    behind = world.land(11)
    done = world.publish_gated()
    assert done.became == "held" and done.verdict is not None
    assert done.verdict.reasons == ("usual (frazil_volume_per_hour_to_be_usual): not as expected",)
    # With them it is as ever, although the branch has their rows twice.
    world.replay()
    world.expectations = (usual, {"expect_table_row_count_to_be_between": {"min_value": 1}, "name": "some"})
    done = world.publish_gated()
    assert done.became == "published", done.gate
    assert world.rows() == Counter(ids + more + behind)


class TestAway:
    """What is away is no data's fault."""

    def test_storage_that_is_away_holds_nothing(self, world: JudgedWorld, tmp_path: Path) -> None:
        # A file that may have any key.
        ids = [1, 9_000_000]
        world.others_append(ids)
        (published,) = (each.file.file_path.removeprefix("file://") for each in world.table().scan().plan_files())
        shutil.move(published, tmp_path / "away")
        ids += world.land(1)
        with pytest.raises(UnreadableFileError, match="FileNotFoundError"):
            world.publish_gated()
        assert world.gate.held is None
        shutil.move(tmp_path / "away", published)
        assert world.publish_gated().became == "published" and world.rows() == Counter(ids)

    def test_what_could_not_be_evaluated_is_judged_again(
        self, world: JudgedWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = world.land(2)

        def broken(*_: object, **__: object) -> object:
            raise ValueError("nobody knows why")

        with monkeypatch.context() as patched:
            patched.setattr("jobs.quality.contracts.evaluation.unique_keys", broken)
            assert world.publish_gated().became == "held"
            held, head = world.gate.held, world.table().metadata.current_snapshot_id
            assert held is not None and held.unevaluated and "nobody knows why" in held.reasons[0]
            ids += world.land(1)
            # It is judged again, and says nothing new, so main is left as it is.
            again = world.publish_gated()
            assert (again.became, again.verdict is not None) == ("still held", True)
            assert (world.gate.held, world.table().metadata.current_snapshot_id) == (held, head)
        assert world.publish_gated().became == "published"
        assert (world.rows(), world.gate.held) == (Counter(ids), None)

    def test_one_that_failed_is_not_judged_again_for_another_that_was_not_evaluated(
        self, world: JudgedWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = world.land(2)
        world.bad = set(ids)

        def broken(*_: object, **__: object) -> object:
            raise ValueError("nobody knows why")

        monkeypatch.setattr("jobs.quality.contracts.evaluation.unique_keys", broken)
        assert world.publish_gated().became == "held"
        assert world.gate.held is not None and not world.gate.held.unevaluated
        again = world.publish_gated()
        assert (again.became, again.verdict) == ("still held", None)
