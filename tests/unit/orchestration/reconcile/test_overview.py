"""The table of all streams on the supervisor's page."""

from __future__ import annotations

import itertools
import time
from typing import Any

import dagster as dg
import pytest

from assets.stream_checks import CheckOutcome
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.context.unknown_fields import UnknownField, UnknownFieldsRecord
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import LastError, Recent
from orchestration.reconcile.decide import Action, Decision
from orchestration.reconcile.lag import Lag
from orchestration.reconcile.overview import Need, StreamRow, need_of, needs_markdown, overview_code, overview_metadata
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import (
    NONSENSE,
    World,
    dead_process,
    events,
    told,
    values,
    work,
)

SUPERVISOR = dg.AssetKey(["frazil", "supervisor"])


def table_of(event: dg.AssetMaterialization) -> list[Any]:
    """The rows of the table, by the names of its columns."""
    value = event.metadata["all_streams"]
    assert isinstance(value, dg.TableMetadataValue)
    return [record.data for record in value.records]


def test_one_table_says_it_all_and_what_needs_a_hand_stands_first(world: World) -> None:
    for stream in ("calm", "halted", "held", "gone", "away"):
        world.write(stream)
    world.drive(
        "calm",
        now=NOW,
        work=work(5, last_commit_at=NOW - 65, recent=Recent(100, 412_340, 412_340), position={}, lag_at=NOW - 2),
    )
    error = LastError("offsets are gone", "operator", NOW, "frazil accept halted --lost-offsets")
    world.drive("halted", now=NOW, state="failed", error=error, work=work(7000), **dead_process())
    world.drive("gone", now=NOW, work=work(69), since=NOW - 100, state_since=NOW - 90, **dead_process())
    world.drive("held", now=NOW, state="paused", work=work(3))
    write_control(LocalStore(world.folder("held")), ControlRequest("paused", by="jo", at=NOW))
    world.drive("away", now=NOW, state="retrying", work=work(1), error=LastError("no", "away", NOW, "frazil up"))
    (report,) = told(world.tick(NOW), SUPERVISOR)
    rows = table_of(report)
    assert [row["stream"] for row in rows] == ["halted", "gone", "held", "away", "calm"]
    halted, gone, held, away, calm = rows
    assert (halted["state"], halted["next"]) == (
        "halted",
        "frazil accept halted --lost-offsets; then frazil start halted",
    )
    assert (gone["state"], gone["rec/s"]) == ("dead", "–")
    assert (held["state"], held["next"]) == ("paused", "frazil resume held")
    assert (away["state"], away["next"]) == ("retrying", "frazil up")
    assert calm == {
        "stream": "calm",
        "state": "waiting",
        "since": "11m",
        "lag": "5",
        "rec/s": "4,123",
        "committed": "1m",
        "complete": "5s",
        "letters": "–",
        "next": "",
    }
    carried = values(report)
    assert (carried["as_of"], carried["streams_in_need"], carried["streams"]) == (NOW, 2, 5)
    lines = carried["needs_a_hand"].splitlines()[2:]
    assert [line.partition("]")[0] for line in lines] == ["| [halted", "| [gone", "| [held", "| [away"]
    assert lines[1] == "| [gone](../frazil/orders/gone) | **dead** | `frazil start gone` | 0s | 69 |"


def test_keys_that_are_left_out_are_no_trouble(orders: World) -> None:
    hash_ = orders.deployment.stream("orders").config_hash
    UnknownFieldsRecord(LocalStore(orders.folder("orders")), hash_).add(8, {"$.colour": UnknownField(3)}, NOW)
    orders.drive("orders", now=NOW, work=work())
    tick = orders.tick(NOW)
    assert [e.check_name for e in events(tick, dg.AssetCheckEvaluation) if not e.passed] == ["unknown_fields"]
    (report,) = told(tick, SUPERVISOR)
    assert "needs_a_hand" not in values(report)
    assert [(row["stream"], row["next"]) for row in table_of(report)] == [("orders", "")]


def test_a_stream_that_comes_to_need_somebody_is_told_at_once(orders: World) -> None:
    def told_at(at: float, **changes: Any) -> int:
        orders.drive("orders", now=NOW + at, work=work(lag_at=NOW + at), **changes)
        return len(told(orders.tick(NOW + at), SUPERVISOR))

    gone = dead_process()
    assert [told_at(0), told_at(10), told_at(20, state="retrying"), told_at(30, state="retrying")] == [1, 0, 0, 1]
    assert [told_at(40, state="retrying"), told_at(140, state="retrying"), told_at(150, state="retrying")] == [0, 0, 1]
    assert told_at(190, state="failed", **gone) == 1


def test_a_stream_that_cannot_be_looked_at_stands_first(world: World) -> None:
    for name in ("orders", "refunds"):
        world.write(name)
    world.drive("orders", now=NOW, work=work())
    world.drive("refunds", now=NOW, work=NONSENSE)
    (report,) = told(world.tick(NOW), SUPERVISOR)
    first, *_ = table_of(report)
    assert (first["stream"], first["state"]) == ("refunds", "not looked at")


def test_a_figure_that_is_old_says_so() -> None:
    rows = [StreamRow("orders", "dead", Need.SOON, lag=Lag(7012, NOW - 35, None))]
    assert "| 7,012\N{NO-BREAK SPACE}(35s\N{NO-BREAK SPACE}ago) |" in needs_markdown(rows, NOW)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (11_100, "3h5m"), (86_399, "23h59m"), (187_200, "2d4h")],
)
def test_ages_are_short(seconds: float, told: str) -> None:
    assert f"| {told} |" in needs_markdown([StreamRow("orders", "dead", Need.SOON, since=NOW - seconds)], NOW)


def test_who_is_needed_how_much() -> None:
    """Over every action and every mix of checks that do not pass."""
    fails, warns = CheckOutcome("a", False, "A.", "a"), CheckOutcome("b", False, "B.", "b", warn=True)
    for action, wrong in itertools.product(Action, ([], [fails], [warns], [warns, fails])):
        expected = Need.NONE if not wrong else Need.SOON if fails in wrong else Need.PERHAPS
        assert need_of(Decision(action, "so"), wrong) is (Need.NOW if action is Action.HALT else expected)
        suspended = need_of(Decision(action, "so"), wrong, suspended=True)
        assert suspended is (Need.NOW if action is Action.HALT else Need.SOON)


def test_a_suspended_table_needs_a_hand(orders: World) -> None:
    """Its stream goes on, and makes dead letters of that table's records: no state and no check says so."""
    orders.drive("orders", now=NOW, state_since=NOW, work=work())
    orders.tick(NOW)
    later = NOW + 200
    parked = work(parked={"orders.wires": int(NOW) * 1000, "orders.cards": int(NOW) * 1000})
    orders.drive("orders", now=later, state_since=later, work=parked)
    done = orders.tick(later)
    (overview,) = told(done, SUPERVISOR)
    command = "frazil accept orders --unpark orders.cards, once it takes commits"
    (line,) = values(overview)["needs_a_hand"].splitlines()[2:]
    assert "| **waiting (suspended)** | `frazil accept orders --unpark orders.cards` | 0s |" in line
    (report,) = [event for event in events(done, dg.AssetObservation) if "state" in values(event)]
    assert (values(report)["next"], list(values(report)["parked_tables"])) == (
        command,
        ["orders.wires", "orders.cards"],
    )


def test_a_name_cannot_break_the_table() -> None:
    row = StreamRow("a|b", "dead", Need.SOON, fix="frazil x | y\nz")
    (line,) = needs_markdown([row], NOW).splitlines()[2:]
    assert line == "| a\\|b | **dead** | `frazil x \\| y z` | – | – |"


def test_three_hundred_streams_fit() -> None:
    key = dg.AssetKey(["frazil", "payments_of_a_region", "card_payments_0123"])
    rows = [
        StreamRow(
            f"card-payments-{number:03}", "waiting", Need.NONE, key, NOW - 1, Lag(10**9, NOW), 12345.6, NOW, NOW, 123456
        )
        for number in range(300)
    ]
    began = time.process_time()
    told = overview_metadata(rows, NOW)
    assert len(told["all_streams"].records) == 300
    assert len(dg.serialize_value(told["all_streams"])) < 80_000
    in_need = needs_markdown(rows, NOW)
    assert len(in_need) < 1000
    shown = len(in_need.splitlines()) - 3
    assert shown >= 5
    assert in_need.endswith(f"| … {300 - shown} more | | | | |")
    assert time.process_time() - began < 10
    assert overview_code(rows) == overview_code(list(reversed(rows)))
