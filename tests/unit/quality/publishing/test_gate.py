"""The gate of a stream's publications as data."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.quality.publishing.gate import (
    MOST_REASONS,
    Gate,
    Verdict,
    gate_property,
)
from jobs.quality.publishing.interval import Interval
from jobs.tables.commit.history.discards import DISCARDS_PREFIX, Discards
from jobs.tables.commit.stamp.errors import DamagedPropertyError
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
P0 = TopicPartition("payments", 0)
INTERVAL = Interval("ingest", 3, 9, 77, ranges={P0: OffsetRange(0, 5)}, first_at=NOW - timedelta(hours=1))
UNFIT = Verdict(False, ("amount is 12 times null",), "abc", 5)


def through_properties(gate: Gate) -> Gate:
    return Gate.of({gate_property("s"): gate.to_json()}, "s")


def test_a_table_without_the_property_has_an_open_gate() -> None:
    assert Gate.of({}, "s") == Gate(0, None)


@pytest.mark.parametrize("gate", [Gate(), Gate(7), Gate(2).holding(INTERVAL, UNFIT, NOW)])
def test_it_is_read_as_it_was_written(gate: Gate) -> None:
    assert through_properties(gate) == gate


def test_another_version_s_is_refused() -> None:
    with pytest.raises(FrazilError, match="written by another version"):
        Gate.of({gate_property("s"): '{"v":2,"generation":1}'}, "s")


@pytest.mark.parametrize(
    "text", ["garbage", "{}", "[]", '{"v":1}', '{"v":1,"generation":0,"held":{"after":1}}', "~2~{"]
)
@pytest.mark.parametrize(("name", "read"), [(gate_property("s"), Gate.of), (DISCARDS_PREFIX + "s", Discards.of)])
def test_a_damaged_property_is_told_by_its_name(name: str, read: Any, text: str) -> None:
    with pytest.raises(DamagedPropertyError) as refused:
        read({name: text}, "s", "a.b")
    assert f"the property {name} of table a.b is damaged" in refused.value.message
    assert f"ALTER TABLE a.b UNSET TBLPROPERTIES ('{name}')" in (refused.value.fix or "")


def test_since_when_something_is_held_is_told_from_the_first_time() -> None:
    first = Gate().holding(INTERVAL, UNFIT, NOW)
    grown = replace(INTERVAL, until=12)
    again = first.holding(grown, UNFIT, NOW + timedelta(hours=2))
    assert again.held is not None
    assert (again.held.since, again.held.until, again.generation) == (NOW, 12, 0)
    other = first.holding(replace(INTERVAL, after=9, until=12), UNFIT, NOW + timedelta(hours=2))
    assert other.held is not None
    assert other.held.since == NOW + timedelta(hours=2)


def test_what_is_held_is_judged_again_by_another_contract_only() -> None:
    gate = Gate().holding(INTERVAL, UNFIT, NOW)
    assert gate.still_holds(3, "abc")
    assert not gate.still_holds(3, "def")
    assert not gate.still_holds(9, "abc")
    assert not Gate().still_holds(3, "abc")


def test_what_could_not_be_evaluated_is_judged_again() -> None:
    problem = Verdict(False, ("keys could not be evaluated: nobody knows why",), "abc", 5, unevaluated=True)
    gate = through_properties(Gate().holding(INTERVAL, problem, NOW))
    assert gate.held is not None and gate.held.unevaluated
    assert not gate.still_holds(3, "abc")
    assert gate.holds_as(replace(INTERVAL, until=20), problem), "that would say nothing new"
    assert not gate.holds_as(replace(INTERVAL, after=9), problem)
    assert not gate.holds_as(INTERVAL, UNFIT) and not gate.holds_as(INTERVAL, replace(problem, passed=True))
    assert not gate.holds_as(INTERVAL, replace(problem, judged_by="def"))
    assert not Gate().holds_as(INTERVAL, problem)
    many = replace(problem, reasons=tuple(f"{n} could not be evaluated: x" for n in range(MOST_REASONS + 3)))
    assert through_properties(Gate().holding(INTERVAL, many, NOW)).holds_as(INTERVAL, many)


@pytest.mark.parametrize(
    ("reasons", "again"),
    [
        (["keys could not be evaluated: could not evaluate: the disk"], True),
        (["keys could not be evaluated: x", "a (b): 1 of 2 rows are not accepted"], False),
        (["a (b): 1 of 2 rows are not accepted"], False),
        ([], False),
    ],
)
def test_what_an_earlier_release_holds_since_it_could_not_be_evaluated(reasons: list[str], again: bool) -> None:
    held = {
        "after": 3, "until": 9, "rows": 5, "ranges": [["payments", 0, 0, 5]], "first": None,
        "since": "2026-11-01T12:00:00+00:00", "reasons": reasons, "by": "abc",
    }  # fmt: skip
    text = json.dumps({"v": 1, "generation": 2, "held": held})
    gate = Gate.of({gate_property("s"): text}, "s")
    assert gate.still_holds(3, "abc") is not again
    # What an earlier release reads is what it wrote.
    kept = json.loads(gate.to_json())
    assert {name: each for name, each in kept["held"].items() if name != "unevaluated"} == held and kept["v"] == 1


def test_a_decision_raises_the_generation_and_a_publication_does_not() -> None:
    gate = Gate(4).holding(INTERVAL, UNFIT, NOW)
    assert gate.decided() == Gate(5)
    assert gate.open() == Gate(4)


def test_reasons_are_bounded() -> None:
    many = Verdict(False, tuple(f"reason {number}" for number in range(1000)))
    held = Gate().holding(INTERVAL, many, NOW).held
    assert held is not None
    assert held.reasons == many.reasons[:MOST_REASONS]
