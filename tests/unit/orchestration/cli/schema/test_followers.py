"""`frazil schema`, `frazil validate` and replays of a stream whose tables follow its own one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.types import LongType, StringType

from jobs.clients.catalog.catalog import connect_catalog
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.preview.tables import tables_as_written
from jobs.streaming.supervision.state.spec_check import spec_refusal
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.main import main
from orchestration.cli.stream_files.validate.command import live_findings
from orchestration.cli.stream_files.validate.findings import Finding
from resources.deployment import Deployment
from tests.helpers.command import frazil as run
from tests.helpers.evolving_stream import SINK, EvolvingStream, rows_of
from tests.helpers.lane_stream import OWN, LaneStream, Log

ROUTE: dict[str, Any] = {
    "by": "type",
    "tables": [{"match": "a", "table": "lake.a"}, {"match": "b", "table": "lake.b", "columns": {"drop": ["n"]}}],
}
FIRST = [{"id": 1, "type": "a", "n": 1}, {"id": 2, "type": "b"}]
EVERY = {"id": "long", "type": "string", "n": "long"}


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaneStream:
    log: Log = {TopicPartition("events", 0): [json.dumps(each).encode() for each in FIRST]}
    made = LaneStream(tmp_path / "home", ROUTE, log, monkeypatch, evolve={"add": "propose"})
    made.land()
    made.produce("events", {"id": 3, "type": "a", "later": 1}, {"id": 4, "type": "b", "later": 2})
    made.land(1)
    assert {each for _, each in made.letters()} == {2, 3}
    return made


def test_a_proposed_change_is_made_in_every_table_and_finished_by_the_same_command(one: LaneStream) -> None:
    shown = run(one, "schema", "diff", "shop", "--json")
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    assert [each["says"] for each in facts["proposals"]] == ["add column later long"]
    assert [(each["table"], each["fits"], each["lacks"]) for each in facts["tables"]] == [
        ("lake.a", True, []),
        ("lake.b", True, []),
    ]
    made = run(one, "schema", "apply", "shop", "--yes")
    assert made.exit_code == 0, made.output
    assert "shop: table lake.b (schema 0) is to follow:\n  add column later long" in made.output
    assert one.columns(OWN) == one.columns("lake.a") == EVERY | {"later": "long"}
    assert one.columns("lake.b") == {"id": "long", "type": "string", "later": "long"}
    # As after a kill between two of them.
    with one.catalog.load_table("lake.b").update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("later")
    shown = run(one, "schema", "diff", "shop")
    assert (
        shown.exit_code == 0 and "Table lake.b gets with the stream's next start or batch: add column" in shown.output
    )
    said = run(one, "validate", "shop").output
    assert "table lake.b lacks columns of table lake.stream; the next run adds them: add column later long" in said
    made = run(one, "schema", "apply", "shop", "--yes", "--json")
    assert json.loads(made.stdout)["tables"] == [{"table": "lake.b", "changes": ["add column later long"]}]
    assert "later" in one.columns("lake.b")
    replayed = run(one, "replay", "shop")
    assert replayed.exit_code == 0, replayed.output
    assert {name: [at for *_, at in each] for name, each in one.placed().items() if name != f"{OWN}_dead"} == {
        "lake.a": [0, 2],
        "lake.b": [1, 3],
    }
    rows = one.catalog.load_table("lake.b").scan().to_arrow().to_pylist()
    assert {each["id"]: each["later"] for each in rows} == {2: None, 4: 2}


def test_what_another_table_cannot_take_is_refused_before_anything_is_changed(one: LaneStream) -> None:
    with one.catalog.load_table("lake.b").update_schema() as change:
        change.add_column("Later", StringType())
    made = run(one, "schema", "apply", "shop", "--yes")
    assert made.exit_code == 1 and "Nothing was changed" in made.output
    assert (
        "table lake.b, which has the columns of table lake.stream, cannot take them: later: the table calls it Later"
        in (" ".join(made.output.split()))
    )
    assert one.columns(OWN) == EVERY


def test_validate_and_diff_name_a_table_that_cannot_follow(one: LaneStream) -> None:
    assert "table lake.b" not in run(one, "validate", "shop").output
    with one.catalog.load_table("lake.b").update_schema() as change:
        change.rename_column("id", "Id")
    said = " ".join(run(one, "validate", "shop").output.split())
    assert "table lake.b cannot take the columns of table lake.stream: id: the table calls it Id" in said
    shown = run(one, "schema", "diff", "shop")
    assert shown.exit_code == 1 and "Table lake.b cannot take the columns of table lake.stream: id" in shown.output
    one.catalog.drop_table("lake.b")
    said = run(one, "validate", "shop").output
    assert "table lake.b does not exist yet; it is made with the columns of table lake.stream" in " ".join(said.split())


def test_what_would_have_to_be_one_commit_on_several_tables_is_refused(one: LaneStream) -> None:
    renamed = run(one, "schema", "apply", "shop", "--rename", "n=m", "--yes")
    said = " ".join(renamed.output.split())
    assert renamed.exit_code == 1 and "is one of all its tables of rows" in said
    assert "have the producers write the new name first" in said
    with one.catalog.load_table(OWN).update_schema() as change:
        change.add_column("x", LongType())
    asked = run(one, "schema", "diff", "shop", "--table", "lake.a")
    assert asked.exit_code == 2


def test_a_replay_alters_no_table_and_says_which_is_behind(one: LaneStream) -> None:
    for name in (OWN, "lake.a"):
        with one.catalog.load_table(name).update_schema() as change:
            change.add_column("later", LongType())
    replayed = run(one, "replay", "shop")
    said = " ".join(replayed.output.split())
    assert replayed.exit_code == 1, replayed.output
    assert "table lake.b does not have the columns of table lake.stream: add column later long" in said
    assert "frazil schema apply shop" in said
    assert "later" not in one.columns("lake.b")


def test_records_are_checked_before_they_come(one: LaneStream, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": "text", "type": "a"}\n')
    checked = run(one, "schema", "check", "shop", "--against", str(records))
    assert checked.exit_code == 1 and "wrong_type" in checked.output
    records.write_text('{"id": 7, "type": "a"}\n')
    assert run(one, "schema", "check", "shop", "--against", str(records)).exit_code == 0


def test_a_schema_is_held_against_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = LaneStream(
        tmp_path / "home",
        {"by": "type", "tables": [{"match": "a", "table": "lake.a"}]},
        {TopicPartition("events", 0): [b'{"id": 1, "type": "a"}']},
        monkeypatch,
    )
    one.land()
    file = one.home / "streams" / "shop.yaml"
    file.write_text(file.read_text().replace("schema: infer", "schema: registry").replace("value: json", "value: avro"))
    fields = [{"name": "id", "type": "long"}, {"name": "type", "type": "string"}, {"name": "more", "type": "long"}]
    (schema := tmp_path / "more.avsc").write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    checked = run(one, "schema", "check", "shop", "--against", str(schema), "--json")
    assert checked.exit_code == 0, checked.output
    with one.catalog.load_table("lake.a").update_schema() as change:
        change.add_column("More", StringType())
    checked = run(one, "schema", "check", "shop", "--against", str(schema), "--json")
    (found,) = [each for each in json.loads(checked.stdout)["differences"] if each["column"] == "more"]
    assert checked.exit_code == 1 and found["outcome"] == "dead_letter"
    assert "table lake.a, which has the same columns, cannot take it" in found["why"]


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
    said = f"table {SINK} lacks columns of the steps; the next run adds them: add column twice int"
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
