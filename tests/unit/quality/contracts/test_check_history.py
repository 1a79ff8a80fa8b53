"""The history keeps what came of each expectation, check by check, bounded and masked, and loses nothing in silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.quality.contracts import check_history as module
from jobs.quality.contracts.check_history import (
    CheckHistory,
    KeptCheck,
    KeptResult,
    read_history,
    shares,
)
from jobs.quality.contracts.check_result import CheckedRows
from jobs.tables.dead_letter_table.masking import MARK
from tests.helpers.check_world import CONTRACT, CheckWorld

SECRET = "48151.62"
MOST = {"expect_column_max_to_be_between": {"column": "amount", "max_value": 1}, "name": "greatest"}


@pytest.fixture
def world(tmp_path: Path) -> CheckWorld:
    return CheckWorld(tmp_path / "home")


def store(world: CheckWorld) -> LocalStore:
    found = stream_folder(world.landed.settings, "orders").store
    assert isinstance(found, LocalStore)
    return found


def history(world: CheckWorld, *names: str, last: int = 30) -> CheckHistory:
    contract = world.spec.contract
    assert contract is not None
    expected = {"rows": [each.name for each in contract.expectations]}
    return read_history(store(world), {"rows": expected["rows"]}, names=names, last=last)


def test_each_check_adds_a_result_to_each_expectation(world: CheckWorld) -> None:
    first, second = world.land(0, [1.0, None, 3.0]), 0
    world.check(by="root@vm")
    assert not world.check().outcomes, "where nothing is new, nothing is added"
    second = world.land(3, [5.0, -1.0, None, None])
    world.check(record=False, by="Dagster, run 17")
    is_set, positive = history(world).expectations
    assert (is_set.name, positive.name) == ("amount_is_set", "amount_is_positive") and is_set.expected
    (one, result), (other, newest) = is_set.results
    assert (one.by, one.head, one.since, one.found, one.rows) == ("root@vm", first, None, "table", 3)
    assert (other.by, other.head, other.since, other.snapshots, other.rows) == ("Dagster, run 17", second, first, 1, 4)
    assert (one.scope, one.engine, one.table, one.branch, one.role) == (
        "increment", "pandas", "lake.orders", "main", "rows",
    )  # fmt: skip
    assert one.at < other.at and one.seconds > 0
    assert (result.passed, result.elements, result.unexpected, result.share) == (False, 3, 1, 1 / 3)
    assert (newest.passed, newest.elements, newest.unexpected, newest.share) == (False, 4, 2, 0.5)
    assert [(each.passed, each.unexpected) for _, each in positive.results] == [(True, 0), (False, 1)]
    assert list(shares(is_set)) == [1 / 3, 0.5]


def test_some_expectations_and_the_newest_results(world: CheckWorld) -> None:
    for number in range(4):
        world.land(number, [float(number)])
        world.check(only=["amount_is_set"] if number == 3 else ())
    (positive,) = history(world, "amount_is_positive", last=2).expectations
    # The last check was not about it, so its newest two are of those before.
    assert [check.rows for check, _ in positive.results] == [1, 1]
    assert len(history(world).expectations[0].results) == 4
    heads = [snapshot.snapshot_id for snapshot in world.table.metadata.snapshots]
    assert [check.head for check, _ in positive.results] == heads[1:3]


def test_an_expectation_that_the_contract_lost_is_told_and_one_that_is_new_has_nothing(world: CheckWorld) -> None:
    world.land(0, [1.0])
    world.check()
    found = read_history(store(world), {"rows": ["amount_is_set", "brand_new"]}, last=5)
    assert [(each.name, each.expected, len(each.results)) for each in found.expectations] == [
        ("amount_is_set", True, 1),
        ("brand_new", True, 0),
        ("amount_is_positive", False, 1),
    ]
    gone = read_history(store(world), {"rows": []}, names=["amount_is_positive"], last=5)
    assert [(each.name, len(each.results)) for each in gone.expectations] == [("amount_is_positive", 1)]
    assert read_history(store(world), {"dead_letters": []}, last=5).expectations == []


def test_what_could_not_be_evaluated_has_no_share(world: CheckWorld) -> None:
    world.land(0, [1.0])
    with world.table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("amount")
    world.check()
    is_set = history(world).expectations[0]
    assert list(shares(is_set)) == [None]
    assert "amount" in (is_set.results[0][1].problem or "")


def test_an_expectation_about_all_rows_has_no_share_either(tmp_path: Path) -> None:
    world = CheckWorld(tmp_path / "home", {"expectations": [MOST]})
    for number, amount in enumerate([0.5, 2.0]):
        world.land(number, [amount])
        world.check()
    (greatest,) = history(world).expectations
    assert [(each.share, each.observed) for _, each in greatest.results] == [(None, "0.5"), (None, "2")]
    assert list(shares(greatest)) == [0.0, 1.0]


def test_nothing_that_is_masked_is_kept_and_no_condition_nor_sample(tmp_path: Path) -> None:
    contract = {"expectations": [*CONTRACT["expectations"], MOST]}
    mask = {"errors": {"dead_letters": {"table": "lake.orders_dead", "mask": {"columns": ["amount"]}}}}
    world = CheckWorld(tmp_path / "home", contract, **mask)
    world.land(0, [float(SECRET), -float(SECRET)])
    world.check(rows=CheckedRows("condition", f"amount > -{SECRET}0 and _kafka_offset < 77"))
    keys = store(world).keys("checks/*/*.json")
    assert len(keys) == 1
    text = (store(world).get(keys[0]) or b"").decode()
    assert SECRET not in text and MARK in text and "_kafka_offset" not in text and '"condition"' in text


def test_a_mask_that_comes_later_hides_what_was_observed_before(tmp_path: Path) -> None:
    world = CheckWorld(tmp_path / "home", {"expectations": [MOST]})
    world.land(0, [float(SECRET)])
    world.check()
    found = read_history(store(world), {"rows": ["greatest"]}, last=5, masked=[("amount",)])
    assert [each.observed for _, each in found.expectations[0].results] == [MARK]


def test_it_is_bounded_and_the_newest_stay(world: CheckWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHECKS", 3)
    for number in range(5):
        world.land(number, [float(number)])
        world.check()
    assert len(store(world).keys("checks/rows/*.json")) == 3
    heads = [snapshot.snapshot_id for snapshot in world.table.metadata.snapshots]
    assert [check.head for check, _ in history(world).expectations[0].results] == heads[2:]


def test_a_document_that_nobody_can_read_is_named_and_the_others_are_shown(world: CheckWorld) -> None:
    world.land(0, [1.0])
    world.check()
    store(world).put("checks/rows/00000000000001-aaaaaa.json", b"{}")
    store(world).put("checks/rows/99999999999999-aaaaaa.json", b"\xff")
    found = history(world)
    assert [len(each.results) for each in found.expectations] == [1, 1]
    assert [place[-26:] for place in found.damaged] == ["99999999999999-aaaaaa.json", "00000000000001-aaaaaa.json"]


def test_one_of_a_later_form_is_left_out(world: CheckWorld) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    later = KeptCheck(2, at, 1.0, "x", "lake.orders", "rows", "main", None, 1, "table")
    store(world).put("checks/rows/00000000000001-aaaaaa.json", msgspec.json.encode(later))
    assert len(history(world).damaged) == 1


def test_what_is_written_today_is_read_tomorrow() -> None:
    """The form of documents that deployments have."""
    text = b"""{"v":1,"at":"2026-03-01T12:00:00Z","seconds":1.5,"by":"root@vm","table":"lake.orders","role":"rows",
      "branch":"main","engine":"spark","rows":12,"scope":"increment","found":"files","since":17,"head":18,"snapshots":1,
      "results":[{"name":"n","type":"t","severity":"info","passed":false,"columns":["a"],"elements":10,"unexpected":1,
      "share":0.1}]}"""
    check = msgspec.json.decode(text, type=KeptCheck)
    assert check.at == datetime(2026, 3, 1, 12, tzinfo=UTC) and check.seconds == timedelta(seconds=1.5).total_seconds()
    assert check.results == (KeptResult("n", "t", "info", False, ("a",), None, 10, 1, 0.1),)


def test_a_history_that_cannot_be_written_is_told_and_changes_nothing_else(world: CheckWorld) -> None:
    world.land(0, [1.0])
    folder = stream_folder(world.landed.settings, "orders").root
    folder.mkdir(parents=True)
    (folder / "checks").write_text("a file stands where the folder should")
    found = world.check()
    assert found.recorded and "checks" in found.not_kept
