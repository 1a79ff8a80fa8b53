"""A correction may change the steps and rules of a stream: what they refused comes home, once, and as it was meant."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.settings.correction import parse_correction
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream

SCHEMA = "id string not null, amount string, rate double"
STEPS: list[Any] = [{"cast": {"amount": "decimal(12,2)"}}, {"compute": {"twice": "amount * 2"}}]
RULES = [{"name": "positive", "expect": "amount > 0"}]
RECORDS = [
    b'{"id": "good", "amount": "1.50", "rate": 2}',
    b'{"id": "commas", "amount": "-566,000", "rate": 2}',
    b'{"id": "text", "amount": "NaN", "rate": 2}',
    b'{"id": "bare", "amount": "7.25", "rate": NaN}',
    b'{"id": "rule", "amount": "-3.00", "rate": 2}',
]


class Corrected:
    """A stream with steps and rules whose letters are brought home by corrections."""

    def __init__(self, home: Path) -> None:
        decode = {"value": "json", "schema": SCHEMA}
        self.stream = RoutedStream(home, decode=decode, transform=STEPS, rules=RULES)
        self.file = home / "streams" / "payments.yaml"
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(yaml.safe_dump(self.stream.spec.model_dump(mode="json", exclude_defaults=True)))
        done = self.stream.land(*RECORDS)
        assert (done.counts.read, done.counts.landed, done.counts.dead) == (5, 1, 4)

    def replayed(self, correction: dict[str, Any]) -> tuple[int, int]:
        """How many letters came home, and how many failed again."""
        patch = parse_correction(self.file, yaml.safe_dump(correction))
        one = self.stream
        result = replay(one.spec, one.settings, one.catalog, ReplayRequest(correction=patch))
        return result.replayed, result.failed_again

    @property
    def rows(self) -> dict[str, tuple[Any, ...]]:
        """Amount, its double and the rate of each row, by id."""
        found = self.stream.table.scan().to_arrow().to_pylist()
        assert len(found) == len({each["_kafka_offset"] for each in found})
        return {each["id"]: (each["amount"], each["twice"], each["rate"]) for each in found}


def test_letters_of_steps_come_home_by_other_steps_and_rules(tmp_path: Path) -> None:
    one = Corrected(tmp_path / "home")
    assert one.stream.letters == {1: "wrong_type", 2: "wrong_type", 3: "malformed_json", 4: "rule_violated"}
    befores = one.stream.catalog.load_table(f"{SINK}_dead").scan().to_arrow().sort_by("offset").to_pylist()
    assert [json.loads(each["row_before"])["amount"] for each in befores if each["row_before"]] == [
        "-566,000",
        "NaN",
        "-3.00",
    ]
    # The rule alone: what it refused comes home, and nothing else.
    assert one.replayed({"rules": []}) == (1, 3)
    # Commas go, and a text that is no number is null: the steps of the correction take the place of the file's.
    read = {"compute": {"amount": "nullif(replace(amount, ',', ''), 'NaN')"}}
    assert one.replayed({"transform": [read, *STEPS], "rules": []}) == (2, 1)
    # A token that is no JSON: the whole value as text first.
    whole = [
        {"compute": {"text": r"regexp_replace(text, ':\s*NaN\b', ': null')"}},
        {"parse_json": {"column": "text", "schema": SCHEMA}},
        *STEPS,
    ]
    correction = {"decode": {"value": "string", "schema": "text string not null"}, "transform": whole, "rules": []}
    assert one.replayed(correction) == (1, 0)
    assert one.rows == {
        "good": (Decimal("1.50"), Decimal("3.00"), 2.0),
        "rule": (Decimal("-3.00"), Decimal("-6.00"), 2.0),
        "commas": (Decimal("-566000.00"), Decimal("-1132000.00"), 2.0),
        "text": (None, None, 2.0),
        "bare": (Decimal("7.25"), Decimal("14.50"), None),
    }
    assert one.replayed(correction) == (0, 0), "once"


def test_a_step_that_a_correction_leaves_out_leaves_no_column_null(tmp_path: Path) -> None:
    one = Corrected(tmp_path / "home")
    with pytest.raises(FrazilError, match="columns that the stream's file has: twice"):
        one.replayed({"transform": STEPS[:1]})
    assert set(one.rows) == {"good"}


def test_a_rule_that_a_correction_has_still_counts(tmp_path: Path) -> None:
    one = Corrected(tmp_path / "home")
    read = {"compute": {"amount": "replace(amount, ',', '')"}}
    rules = [{"name": "bounded", "expect": "amount > -1000"}]
    assert one.replayed({"transform": [read, *STEPS], "rules": rules}) == (1, 3)
    assert set(one.rows) == {"good", "rule"}
