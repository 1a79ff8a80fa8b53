"""A check looks at what is new, says what is not as expected and where, and counts only what it evaluated whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.quality.contracts import check as module
from jobs.quality.contracts.check_result import CheckedRows
from jobs.quality.contracts.check_rows import RowBound
from jobs.quality.incremental_scan.arrow_rows import TooManyRowsError
from jobs.quality.incremental_scan.validated_position import reader_key, validated_position
from tests.helpers.check_world import CONTRACT, CheckWorld
from tests.helpers.landed_table import NAME

DEAD = f"{NAME}_dead"
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def world(tmp_path: Path) -> CheckWorld:
    return CheckWorld(tmp_path / "home")


def test_the_first_check_is_of_the_table_and_the_next_of_what_is_new(world: CheckWorld) -> None:
    world.land(0, [1.0, None, 3.0])
    first = world.check()
    assert (first.rows, first.engine, first.recorded) == (3, "pandas", True)
    assert "no check of its rows is recorded" in first.extent
    is_set, positive = first.outcomes
    assert (is_set.name, is_set.passed, is_set.unexpected, is_set.elements) == ("amount_is_set", False, 1, 3)
    assert positive.passed
    (sample,) = is_set.samples
    assert sample.coordinates == {"_kafka_topic": "orders", "_kafka_partition": 0, "_kafka_offset": 1}
    assert first.sql["amount_is_set"].startswith("SELECT * FROM frazil.lake.orders WHERE ")
    assert first.critical and first.failures == {"critical": 1}
    recorded = world.recorded
    assert recorded is not None and recorded.summary.rows == 3 and recorded.summary.failed == {"critical": 1}
    assert world.table.metadata.properties[reader_key("orders")] == str(recorded.snapshot_id)

    nothing = world.check()
    assert (
        not nothing.outcomes and nothing.not_recorded == "there is nothing new" and "Nothing is new" in nothing.extent
    )
    assert world.recorded == recorded

    world.land(3, [5.0, -1.0])
    second = world.check()
    assert second.rows == 2 and second.recorded and "1 new snapshot" in second.extent
    is_set, positive = second.outcomes
    assert is_set.passed and not positive.passed and positive.severity == "warning" and not second.critical
    (sample,) = positive.samples
    assert sample.coordinates["_kafka_offset"] == 4 and "-1" in sample.value
    assert "`_kafka_offset` >= 3" in second.sql["amount_is_positive"]


def test_nothing_new_lets_the_position_follow_a_compaction(world: CheckWorld) -> None:
    world.land(0, [1.0])
    world.check()
    before = world.recorded
    compacted = world.landed.compact()
    assert not world.check(record=False).outcomes and world.recorded == before
    assert not world.check().outcomes
    after = world.recorded
    assert before is not None and after is not None and after.snapshot_id == compacted
    assert (after.at, after.summary) == (before.at, before.summary)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"record": False}, "dry run"),
        ({"only": ["amount_is_set"]}, "only some expectations"),
        ({"rows": CheckedRows("condition", "amount > 0")}, "that meet a condition"),
    ],
)
def test_part_of_a_check_counts_for_nothing(world: CheckWorld, options: dict[str, Any], why: str) -> None:
    world.land(0, [1.0, None])
    found = world.check(**options)
    assert found.outcomes and not found.recorded and why in found.not_recorded
    assert world.recorded is None


def test_what_could_not_be_evaluated_is_looked_at_again(world: CheckWorld) -> None:
    world.land(0, [1.0])
    with world.table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("amount")
    found = world.check()
    assert all(not each.passed and each.problem for each in found.outcomes) and found.unevaluated
    assert not found.recorded and "amount_is_set could not be evaluated" in found.not_recorded
    assert world.recorded is None


def test_the_whole_table_and_rows_of_a_condition(world: CheckWorld) -> None:
    world.land(0, [1.0, None])
    world.check()
    world.land(2, [-3.0])
    some = world.check(rows=CheckedRows.of(whole=False, where="_kafka_offset < 2"))
    assert some.rows == 2 and some.extent == "Rows of lake.orders where _kafka_offset < 2."
    whole = world.check(rows=CheckedRows.of(whole=True, where=None))
    assert whole.rows == 3 and whole.recorded and whole.failures == {"critical": 1, "warning": 1}
    assert not world.check().outcomes, "all of it was checked"
    with pytest.raises(FrazilError, match="is no condition on table"):
        world.check(rows=CheckedRows.of(whole=False, where="nothing = 1"))


def test_a_stream_that_writes_a_branch_is_checked_there(tmp_path: Path) -> None:
    world = CheckWorld(tmp_path / "home", table={"name": NAME, "branch": "ingest"})
    base = world.land(0, [1.0])
    head = world.land(1, [None, 2.0])
    assert world.check().found is not None and world.recorded is None, "there is no such branch yet"
    world.table.manage_snapshots().create_branch(head, "ingest").commit()
    world.landed.roll_back(base)
    found = world.check()
    assert found.rows == 3 and found.recorded and found.failures == {"critical": 1}
    assert found.sql["amount_is_set"].startswith("SELECT * FROM frazil.lake.orders VERSION AS OF 'ingest' WHERE ")
    properties = world.table.metadata.properties
    assert validated_position(properties, "orders", "ingest") and world.recorded is None
    assert not world.check().outcomes
    assert world.check(branch="main").rows == 1


def test_an_unknown_expectation_is_told(world: CheckWorld) -> None:
    with pytest.raises(FrazilError, match="did you mean 'amount_is_set'"):
        world.check(only=["amount_is_se"])


def test_dead_letters_have_a_position_of_their_own(tmp_path: Path) -> None:
    letters = [
        {"expect_table_row_count_to_be_between": {"max_value": 1}, "name": "few_letters"},
        {
            "expect_column_values_to_not_be_in_set": {"column": "error_class", "value_set": ["oversize"]},
            "name": "sizes",
        },
    ]
    world = CheckWorld(tmp_path / "home", {**CONTRACT, "dead_letters": letters})
    assert world.check("dead_letters").found is None, "there is no table yet"
    world.landed.land_letters(DEAD, [{"offset": 0}])
    first = world.check("dead_letters")
    assert first.table == DEAD and first.rows == 1 and first.recorded and not first.failed
    world.landed.land_letters(DEAD, [{"offset": 4, "error_class": "oversize"}, {"offset": 5}])
    # Those of another stream that has its letters there, too.
    world.landed.land_letters(DEAD, [{"offset": 9}], stream="returns")
    second = world.check("dead_letters")
    assert second.rows == 2 and {each.name for each in second.failed} == {"few_letters", "sizes"}
    (sample,) = next(each for each in second.outcomes if each.name == "sizes").samples
    assert sample.coordinates == {"topic": "orders", "partition": 0, "offset": 4}
    whole = world.check("dead_letters", rows=CheckedRows("table"))
    assert whole.rows == 3, "the other stream's letters are not this contract's"


def test_masked_values_show_in_no_sample(tmp_path: Path) -> None:
    world = CheckWorld(tmp_path / "home", errors={"dead_letters": {"mask": {"columns": ["amount"]}}})
    world.land(0, [-271828.0])
    (outcome,) = world.check().failed
    assert outcome.samples[0].coordinates["_kafka_offset"] == 0
    assert "271828" not in repr(outcome)


def test_keys_are_held_against_the_table_before(tmp_path: Path) -> None:
    contract = {"expectations": [{"frazil_keys_to_be_unique": {"columns": ["id"]}, "name": "keys"}]}
    world = CheckWorld(tmp_path / "home", contract)
    world.land(0, [1.0, 2.0])
    assert not world.check().failed
    world.land(2, [3.0, 4.0], id=[1, 99])
    (outcome,) = world.check().failed
    assert outcome.unexpected == 1 and outcome.samples[0].coordinates["_kafka_offset"] == 2
    world.land(4, [3.0, 4.0], id=[5, 6])
    assert not world.check().failed, "the rows themselves are in the table, and are no doubles for that"


def test_more_rows_than_the_bound_are_not_for_pandas(world: CheckWorld) -> None:
    class Started(Exception):
        pass

    def start() -> None:
        raise Started

    world.land(0, [1.0] * 10)
    for bound in (RowBound(rows=9), RowBound(size=20)):
        with pytest.raises(Started):
            world.check(bound=bound, spark=start)
        with pytest.raises(TooManyRowsError, match="too many for pandas") as told:
            world.check(bound=bound, engine="pandas")
        assert told.value.fix == "check them with --engine spark"
    with pytest.raises(Started):
        world.check(engine="spark", spark=start)


def test_snapshots_that_expire_under_a_check_are_made_up_for(
    world: CheckWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.land(0, [1.0])
    world.check()
    position = world.recorded
    assert position is not None
    lost = world.land(1, [2.0, None])
    world.landed.compact()
    real: Callable[..., object] = module.loaded_rows
    seen: list[str] = []

    def expiring(*args: object, **options: object) -> object:
        if not seen:
            seen.append("expired")
            world.landed.expire(position.snapshot_id, lost, delete=True)
        return real(*args, **options)

    monkeypatch.setattr(module, "loaded_rows", expiring)
    found = world.check()
    assert seen and found.rows == 2 and found.found is not None and found.found.found == "offsets"
    assert found.recorded and found.failures == {"critical": 1}


def test_killed_before_it_is_recorded_the_same_rows_are_checked_again(world: CheckWorld, tmp_path: Path) -> None:
    world.land(0, [1.0, None])
    code = f"""
        from pathlib import Path
        from jobs.clients.catalog.catalog import connect_catalog
        from jobs.quality.contracts.check import Check
        from jobs.config.stream.models import StreamSpec
        from jobs.config.settings.settings import Settings
        settings = Settings.embedded(Path({str(tmp_path / "home")!r}))
        spec = StreamSpec.model_validate_json({world.spec.model_dump_json()!r})
        check = Check(spec=spec, settings=settings, catalog=connect_catalog(settings), spark=None)
        print(check.run(spec.targets[0]).rows, flush=True)
    """
    environment = {**os.environ, "FRAZIL_STEPS": "check_before_record=kill"}
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert world.recorded is None
    settings = world.landed.settings
    again = world.check()
    assert again.rows == 2 and again.recorded and again.failures == {"critical": 1}
    # The results of both are kept: they were found, whatever came of it.
    assert len(stream_folder(settings, "orders").store.keys("checks/rows/*.json")) == 2


def test_a_contract_that_expects_nothing_of_a_table_looks_at_nothing(world: CheckWorld) -> None:
    world.landed.land_letters(DEAD, [{"offset": 0}])
    found = world.check("dead_letters")
    assert found.found is None and not found.outcomes
