"""`frazil discard`, and what the other commands say of what was discarded."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from tests.unit.quality.publishing.discard_world import DiscardWorld


@pytest.fixture
def world(tmp_path: Path) -> DiscardWorld:
    made = DiscardWorld(tmp_path / "home")
    made.bad = set(made.land(3))
    assert made.publish_gated().became == "held"
    return made


def frazil(world: DiscardWorld, *arguments: str, status: int = 0) -> Result:
    done = CliRunner().invoke(main, ["--home", str(world.home), *arguments])
    assert done.exit_code == status, done.output
    return done


def test_it_is_shown_and_done(world: DiscardWorld) -> None:
    shown = frazil(world, "discard", "payments", "--dry-run").stdout
    assert "To be discarded: 3 rows of branch ingest, which become 3 dead letters in orders.payments_dead" in shown
    assert "offsets payments-0 [0, 3)" in shown
    assert "id 2000000 is not accepted" in shown
    assert world.letters() == []
    done = frazil(world, "discard", "payments", "--reason", "a load test", "--yes", "--without-kafka").stdout
    assert "Discarded: 3 rows of branch ingest. 3 dead letters are in orders.payments_dead" in done
    assert "3 dead letters keep the row as JSON" in done
    assert "frazil replay payments --reason discarded" in done
    assert {each["stage"] for each in world.letters()} == {"discarded_row"}
    assert (world.rows(), world.gate.held) == (Counter(), None)
    again = frazil(world, "discard", "payments", "--reason", "twice", "--without-kafka", status=1)
    assert "no rows are quarantined" in again.output


def test_its_facts(world: DiscardWorld) -> None:
    first = world.table().metadata.refs["ingest"].snapshot_id
    asked = "--reason", "x", "--yes", "--without-kafka", "--json", "--through", str(first)
    facts = json.loads(frazil(world, "discard", "payments", *asked).stdout)
    assert (facts["done"], facts["rows"], facts["letters"], facts["letters_as_rows"]) == (True, 3, 3, 3)
    assert (facts["from"], facts["to"]) == ({"payments": {"0": 0}}, {"payments": {"0": 3}})
    assert (facts["why"], facts["snapshots"]) == ("x", [first])


def test_other_commands_know_it(world: DiscardWorld) -> None:
    held = frazil(world, "publish", "payments", "--dry-run").stdout
    assert "frazil discard payments --reason TEXT" in held
    assert "frazil discard payments" in frazil(world, "status", "payments").stdout
    frazil(world, "discard", "payments", "--reason", "a load test", "--yes", "--without-kafka")
    letters = frazil(world, "letters", "payments").stdout
    assert "discarded" in letters
    assert "a load test" in letters
    plain = frazil(world, "replay", "payments").stdout
    assert "means no letters" in plain or "no dead letter" in plain
    back = frazil(world, "replay", "payments", "--reason", "discarded", "--dry-run").stdout
    assert "3 of 3 dead letters would come back" in back
