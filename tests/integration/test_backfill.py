"""`frazil backfill` on the real broker: what a stream did not read is landed beside it, once, whatever is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from jobs.proof.audit.audit import audit
from jobs.streaming.operator.backfill_stream import backfill_id
from jobs.streaming.operator.reset import reset
from jobs.streaming.operator.reset_request import reset_request
from jobs.tables.commit.history.stamp_history import history
from orchestration.cli.main import main
from tests.helpers.forked import Forked, frazil
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

KINDS = {GOOD: 5, NULL_AMOUNT: 1, TRUNCATED: 1, TOMBSTONE: 1}
EACH = sum(KINDS.values())
KILLED_AT = (
    "after_anchor_claim", "before_backfill_pass", "after_backfill_pass", "after_tasks", "before_commit",
    "inside_anchor_commit", "after_anchor_commit", "inside_dead_letters_commit", "after_commits",
)  # fmt: skip


class Skipped:
    """A stream that began at the end of its topic, so that it has read nothing of what was there."""

    def __init__(self, one: Pipeline) -> None:
        self.one: Pipeline = one

    def typed(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["--home", str(self.one.home), "backfill", self.one.stream, *words])

    def facts(self, *words: str) -> Any:
        result = self.typed(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def killed(self, step: str, *words: str) -> None:
        command = ("--home", str(self.one.home), "backfill", self.one.stream, *words, "--yes")
        status = Forked(frazil, *command, env={"FRAZIL_STEPS": f"{step}=kill"}, folder=self.one.home).wait()
        assert status == -signal.SIGKILL, f"{step}: {status}"

    def assert_audited(self, *, full: bool = True) -> None:
        found = audit(self.one.spec(), self.one.settings(), self.one.catalog(), full=full, kafka=self.one.kafka)
        assert (found.verdict, found.problems, found.pending) == ("complete", [], []), found


def skipped(broker: str, home: Path, name: str, **document: Any) -> Skipped:
    one = Pipeline(home, broker, name)
    one.write_spec(source={"topics": [name], "start": "latest"}, errors={"stop_above": "off"}, **document)
    one.create_topic()
    return Skipped(one)


def test_what_a_stream_skipped_is_landed_once_beside_it(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    made = skipped(broker, tmp_path, "backfilled")
    one = made.one
    one.produce(dict.fromkeys(KINDS, 2) | {GOOD: 10})
    refused = made.typed("--from", "earliest", "--to", "latest")
    assert refused.exit_code == 1 and "no stream has run yet" in refused.stderr
    one.drain(spark)
    one.produce({GOOD: 4})
    one.drain(spark)
    assert sum(one.landed().values()) == 4

    plan = made.facts("--from", "earliest", "--to", "latest", "--dry-run")
    assert (plan["dry_run"], plan["offsets"], plan["rows_without_coordinates"]) == (True, 2 * EACH, 0)
    assert {each["reason"]: each["offsets"] for each in plan["left_out"]} == {"read": 2}
    assert history(one.table().metadata, backfill_id(one.stream)).newest is None, "nothing is claimed"
    asked = made.typed("--from", "earliest", "--to", "latest")
    assert asked.exit_code == 2 and "--yes" in asked.stderr

    done = made.facts("--from", "earliest", "--to", "latest", "--yes")
    assert {name: done[name] for name in ("read", "landed", "dead", "tombstones")} == {
        "read": 2 * EACH, "landed": 10, "dead": 4, "tombstones": 2,
    }  # fmt: skip
    one.assert_each_once()
    letters = one.dead_table().scan().to_arrow().to_pylist()
    assert {(each["stream"], each["batch_id"], each["epoch"]) for each in letters} == {(one.stream, None, None)}
    made.assert_audited()
    again = made.facts("--from", "earliest", "--to", "latest", "--yes")
    assert (again["offsets"], again["batches"], again["dry_run"]) == (0, 0, True)
    assert {each["reason"] for each in again["left_out"]} == {"read", "backfilled"}

    # What an operator skipped by a reset, and what the stream has not read yet.
    one.produce({GOOD: 6})
    reset(one.spec(), one.settings(), one.kafka, reset_request("latest"), "tester", "skip these")
    one.produce({GOOD: 2})
    plan = made.facts("--from", "0", "--to", "latest", "--topic", one.stream, "--dry-run")
    assert plan["offsets"] == 6
    assert {each["reason"] for each in plan["left_out"]} == {"read", "backfilled", "ahead"}
    assert made.facts("--from", "1h", "--to", "latest", "--yes", "--reason", "skipped")["landed"] == 6
    one.drain(spark)
    one.assert_each_once()
    made.assert_audited(full=False)

    # A rollback behind the backfills takes their rows out; the same command lands them again.
    table = one.table()
    first = next(
        each.parent_snapshot_id
        for each in table.metadata.snapshots
        if each.summary and backfill_id(one.stream) in str(each.summary.additional_properties)
    )
    assert first is not None, "the stream's own commits came before"
    with table.manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(first)
    answered = made.typed("--from", "earliest", "--to", "latest", "--yes")
    assert answered.exit_code == 1 and "was rolled back" in answered.stderr
    one.accept(rollback="keep")
    made.facts("--from", "earliest", "--to", "latest", "--yes")
    landed = one.landed()
    assert set(landed.values()) == {1} and len(landed) == 22
    made.assert_audited()


def test_killed_at_every_step_it_doubles_and_loses_nothing(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    made = skipped(broker, tmp_path, "backfill_killed")
    one = made.one
    for _ in range(len(KILLED_AT) + 1):
        one.produce(KINDS)
    one.drain(spark)
    end, each = EACH // 2, EACH // 2
    for step in KILLED_AT:
        made.killed(step, "--from", "earliest", "--to", str(end))
        made.facts("--from", "earliest", "--to", str(end), "--yes")
        landed = one.landed()
        assert set(landed.values()) == {1}, step
        assert {at for at, _ in landed.items() if at[2] >= end} == set(), step
        end += each
    # The pending record is lost between the tables: the batch runs again.
    made.killed("after_anchor_commit", "--from", "earliest", "--to", "latest")
    one.lose_state()
    facts = made.facts("--from", "earliest", "--to", "latest", "--yes")
    one.assert_each_once()
    assert facts["finished_earlier_batch"], facts
    made.assert_audited()


def test_what_a_backfill_does_not_land_stops_it(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    made = skipped(broker, tmp_path, "backfill_refused")
    one = made.one
    one.produce({GOOD: 4})
    one.drain(spark)
    for words, said in (
        (("--from", "5", "--to", "5"), "there is no offset from 5 to 5"),
        (("--from", "earliest", "--to", "latest", "--topic", "other"), "reads no other"),
        (("--from", "noon", "--to", "latest"), "'noon' is no time"),
    ):
        result = made.typed(*words)
        assert result.exit_code == 1 and said in result.stderr and "Next: " in result.stderr, (words, result.output)
    # Rows that name their offsets are of these records, whoever wrote them: a sink, or a queue.
    one.produce({GOOD: 2})
    one.drain(spark)
    rows = one.table()
    row = rows.scan(limit=1).to_arrow()
    at = {"_kafka_partition": 0, "_kafka_offset": 0}
    for name, value in at.items():
        place = row.schema.get_field_index(name)
        row = row.set_column(place, row.schema.field(place), pa.array([value], row.schema.field(place).type))
    rows.append(row)
    plan = made.facts("--from", "earliest", "--to", "latest", "--dry-run")
    assert (plan["offsets"], {each["reason"] for each in plan["left_out"]}) == (3, {"read", "rows"})
    made.facts("--from", "earliest", "--to", "latest", "--yes")
    one.assert_each_once()
