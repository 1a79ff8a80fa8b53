"""Tables that lack what the steps of their stream make: told before the start, applied where the start does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jobs.catalog import connect_catalog
from jobs.preview.tables import tables_as_written
from jobs.stream.new_rows import NewColumns
from jobs.supervise.spec_check import spec_refusal
from orchestration.cli.main import main
from orchestration.cli.validate.command import live_findings
from orchestration.cli.validate.findings import Finding
from resources.deployment import Deployment
from tests.helpers.evolving_stream import SINK, EvolvingStream, rows_of

COMPUTED = [{"compute": {"twice": "n * 2"}}]
RENAMED = [{"rename": {"n": "number"}}]
FILE = "streams/payments.yaml"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    EvolvingStream(tmp_path, columns="id string, n int not null").land({"id": "a", "n": 1})
    return tmp_path


def write(home: Path, transform: list[Any], **evolve: str) -> Deployment:
    file = home / FILE
    file.parent.mkdir(exist_ok=True)
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "infer"},
        "transform": transform,
        "table": {"name": SINK},
        "errors": {"dead_letters": {"table": "orders.payments_dead"}, "stop_above": "off"},
        "evolve": evolve,
    }
    file.write_text(json.dumps(document, indent=2))
    return Deployment.at(home)


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "schema", *words])


def finding(made: Deployment) -> Finding:
    (found,) = (each for each in live_findings([made.stream("payments")], made.settings()) if each.subject == "table")
    return found


def refusal(made: Deployment) -> str | None:
    with connect_catalog(made.settings()) as catalog:
        said = spec_refusal(made.stream("payments"), made.home / FILE, catalog.load_table(SINK))
    return said and said.message


def written(made: Deployment) -> list[str]:
    """The columns that the table of a preview has."""
    with connect_catalog(made.settings()) as catalog:
        own, _ = tables_as_written(made.stream("payments"), catalog, lambda: NewColumns(rows_of("wrong int")))
    assert own.state == "there"
    return [each for each in own.metadata.schema().column_names if not each.startswith("_kafka")]


def test_what_the_next_start_adds_is_told(home: Path) -> None:
    made = write(home, COMPUTED)
    said = f"table {SINK} lacks what the steps make; the next run makes it so: add column twice int"
    assert (finding(made).verdict, finding(made).sentence) == ("unchecked", said)
    assert refusal(made) is None
    assert written(made) == ["id", "n", "twice"]
    shown = typed(home, "diff", "payments")
    assert shown.exit_code == 0
    assert said[1:] in shown.stdout


def test_what_the_policy_leaves_is_applied_by_hand(home: Path) -> None:
    made = write(home, COMPUTED, add="ignore")
    assert (finding(made).verdict, finding(made).fix) == ("wrong", "frazil schema apply payments")
    assert "add column twice int, which evolve.add leaves to you" in finding(made).sentence
    assert "add column twice int" in (refusal(made) or "")
    assert typed(home, "diff", "payments").exit_code == 1
    told = json.loads(typed(home, "apply", "payments", "--json").stdout)
    assert (told["done"], told["changes"]) == (False, ["add column twice int"])
    done = typed(home, "apply", "payments", "--yes")
    assert done.exit_code == 0, done.output
    assert "Done: table orders.payments has schema 1." in done.stdout
    assert (finding(made).verdict, refusal(made)) == ("ok", None)
    assert typed(home, "diff", "payments").exit_code == 0
    assert "nothing to change" in typed(home, "apply", "payments").stdout


def test_a_required_column_that_the_steps_make_no_more_is_relaxed_by_hand(home: Path) -> None:
    made = write(home, RENAMED)
    assert finding(made).verdict == "wrong"
    assert finding(made).fix == "frazil schema apply payments, or correct streams/payments.yaml"
    assert "n: int of the table is not among the fields, which requires it" in finding(made).sentence
    assert "n: int of the table" in (refusal(made) or "")
    refused = typed(home, "apply", "payments", "--rename", "n=m", "--yes")
    assert refused.exit_code == 1
    assert "transform.0.rename.n in the stream's file: there is no column 'n' at this step" in refused.stderr
    assert "Next: correct streams/payments.yaml first" in refused.stderr
    done = typed(home, "apply", "payments", "--yes")
    assert done.exit_code == 0, done.output
    assert (finding(made).verdict, refusal(made)) == ("ok", None)
    assert written(made) == ["id", "n", "number"]


def test_a_step_that_is_broken_is_told_with_its_place(home: Path) -> None:
    made = write(home, [{"rename": {"m": "number"}}])
    assert "transform[0].rename.m: there is no column 'm' at this step" in finding(made).sentence
    assert f"{FILE}:" in (refusal(made) or "")
