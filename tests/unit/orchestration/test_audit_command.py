"""`frazil audit`, the check and the jobs of it, on real tables."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result
from pyiceberg.expressions import EqualTo

from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_table import read_ledger
from orchestration.cli.main import main
from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.helpers.real_stream import DEAD, SINK, RealStream, dead_rows
from tests.helpers.stream_history import FAILED, ROW, TOMBSTONE

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

KEY = dg.AssetKey(["frazil", "orders", "payments"])


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW, TOMBSTONE])
    made.land([ROW, ROW, ROW], partition=1)
    return made


def command(stream: RealStream, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["--home", str(stream.home), "audit", "payments", *arguments], env={"COLUMNS": "200"}
    )


def facts(stream: RealStream, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = command(stream, "--json", *arguments)
    return result.exit_code, json.loads(result.stdout)


def test_a_complete_stream(stream):
    result = command(stream)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        *("table", "topic", "partitions", "ranges", "counted", "read", "landed", "dead", "tombstones", "filtered"),
        *("rows", "found", "missing", "doubled"),
    ]
    assert lines[1].split() == [SINK, "payments", "0,", "1", *["2", "7", "5", "1", "1", "0", "5", "0", "0"]]
    assert lines[2].split() == [DEAD, "payments", "0", *["1", "1", "0", "1", "0", "0", "1", "0", "0"]]
    assert lines[-1] == (
        "payments: complete. 7 records were read; each is a row, a dead letter, a tombstone or filtered, once."
    )
    said = re.sub(r"\([-0-9: ]+ UTC\)", "(THEN)", command(stream).stdout)
    assert said.splitlines() == [
        "? Kafka was not asked whether the stream can go on: The local broker is not running.",
        "payments: nothing is new since the last audit (THEN). What was counted before was not counted again: "
        "frazil audit payments --full, or --since 24h.",
    ]


def test_the_facts(stream):
    code, document = facts(stream)
    assert code == 0
    assert (document["verdict"], document["records_audited"], document["rows_scanned"]) == ("complete", 7, 6)
    assert (
        document["tables"][0]["partitions"][0] | {"start": 0, "end": 4, "rows": 2, "read": 4}
        == (document["tables"][0]["partitions"][0])
    )


def test_what_is_missing_and_doubled(stream):
    stream.table().append(stream.sink_rows(next(iter(stream.position)), [0]))
    stream.table().delete(EqualTo("id", "p-1-2"))
    result = command(stream)
    assert result.exit_code == 1
    assert (
        f"! {SINK} payments-0 [0, 4): 1 row too many, of offsets that stand there more often than they were read"
        in result.stdout
    )
    assert f"! {SINK} payments-1 [0, 3): 1 of 3 rows that were landed are not there: offsets [2, 3)" in result.stdout
    assert "took out 1" in result.stdout and "added 1" in result.stdout
    code, document = facts(stream, "--table", SINK)
    assert code == 1 and (document["missing"], document["doubled"]) == (1, 1)
    assert {(p["kind"], p["partition"], tuple(map(tuple, p["offsets"]))) for p in document["problems"]} == {
        ("missing", 1, ((2, 3),)),
        ("doubled", 0, ((0, 1),)),
    }


def test_table_sums_and_list_say_the_same(stream):
    """Rows that are gone, that are there again, and one of a record that failed."""
    p0, p1 = sorted(stream.position)
    stream.table().append(stream.sink_rows(p0, [0, 1]))
    stream.table().append(stream.sink_rows(p1, [0, 0]))
    stream.table().delete(EqualTo("id", "p-1-2"))
    stream.table(DEAD).delete(EqualTo("offset", 1))
    stream.table(DEAD).append(dead_rows(p1, [0]))
    _, document = facts(stream)
    kinds = [(each["kind"], each["table"], each["partition"], each["records"]) for each in document["problems"]]
    assert set(kinds) == {
        ("doubled", SINK, 0, 1),
        ("doubled", SINK, 1, 2),
        ("missing", DEAD, 0, 1),
        ("missing", SINK, 1, 1),
        ("unexpected", DEAD, 1, 1),
        ("unexpected", SINK, 0, 1),
    }
    assert len(kinds) == 6
    assert (document["missing"], document["doubled"]) == (2, 5)
    for table in document["tables"]:
        lines = table["partitions"]
        assert table["missing"] == sum(each["missing"] for each in lines)
        assert table["doubled"] == sum(each["doubled"] for each in lines)
    assert sum(table["missing"] for table in document["tables"]) == document["missing"]
    assert sum(table["doubled"] for table in document["tables"]) == document["doubled"]
    printed = [line.split() for line in command(stream).stdout.splitlines() if line.startswith((SINK, DEAD))]
    assert [int(cells[-2]) for cells in printed] == [1, 1] and sum(int(cells[-1]) for cells in printed) == 5


def test_damage_to_what_was_audited_is_said_and_counted_on_demand(stream):
    assert command(stream).exit_code == 0
    stream.table().append(stream.sink_rows(next(iter(stream.position)), [0]))
    for _ in range(2):
        # It stays said, also when the stream has gone on and was audited meanwhile.
        stream.land([ROW])
        result = command(stream)
        assert result.exit_code == 0
        assert f"others have changed rows of table {SINK} since it was audited last" in result.stdout
        assert "Next: frazil audit payments --full, or --since 24h" in " ".join(result.stdout.split())
    code, document = facts(stream, "--since", "24h")
    assert (code, [each["kind"] for each in document["problems"]]) == (1, ["doubled"])
    assert (document["since"] is not None, document["records_audited"]) == (True, 9)
    later = (datetime.now(UTC) - timedelta(milliseconds=1)).isoformat()
    code, document = facts(stream, "--since", later)
    assert (code, document["records_audited"], document["rows_scanned"]) == (0, 0, 0)
    assert facts(stream, "--full")[0] == 1


def test_what_since_cannot_be(stream):
    for text, said in (("yesterday", "'yesterday' is no time"), ("2999-01-01", "2999-01-01 is still to come")):
        result = command(stream, "--since", text)
        assert result.exit_code == 1 and said in result.stderr and "Next: write it as 24h or 7d" in result.stderr
    result = command(stream, "--since", "1h", "--full")
    assert result.exit_code == 1 and "--full counts everything" in result.stderr


def test_a_stream_that_landed_only_from_a_queue_of_connect(tmp_path):
    made = RealStream(tmp_path)
    target = Target(made.catalog(), SINK, "payments~connect")
    target.read()
    at = TopicPartition("connect-dlq", 0)
    stamp = Stamp("payments~connect", "batch", 0, 1, "c", start={at: 0}, position={at: 3}, totals=Counts(3, 2, 1))
    target.restamp(stamp)
    result = command(made)
    assert result.exit_code == 0
    assert "from dead-letter topics of Kafka Connect came 2 rows and 1 dead letter" in result.stdout
    assert result.stdout.splitlines()[-1] == "payments: nothing of its own topics has landed yet."
    assert facts(made)[1]["connect_queue"]["landed"] == 2


def test_what_cannot_be_asked(stream, tmp_path):
    result = command(stream, "--table", "orders.other")
    assert result.exit_code == 1 and "orders.other is no table of stream payments" in result.stderr
    assert command(stream, "--never").exit_code == 2


def test_a_stream_that_never_ran(tmp_path):
    folder = tmp_path / "streams"
    folder.mkdir()
    (folder / "payments.yaml").write_text(
        "stream: payments\nsource: {topics: [payments]}\ndecode: {value: json, schema: id string}\n"
        "table: {name: orders.payments}\n"
    )
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "audit", "payments"])
    assert result.exit_code == 1 and "Next: frazil run payments" in result.stderr


def executed(stream: RealStream, job: str) -> dg.ExecuteInProcessResult:
    found = build_definitions(Deployment(stream.home)).resolve_job_def(job)
    with dg.DagsterInstance.ephemeral() as instance:
        return found.execute_in_process(instance=instance, raise_on_error=False)


def test_the_job_audits_every_stream_and_one_that_fails_hides_no_other(stream):
    (stream.home / "streams" / "orders.yaml").write_text(
        "stream: orders\nsource: {topics: [orders]}\ndecode: {value: json, schema: id string}\n"
        "table: {name: orders.orders}\n"
    )
    (evaluation,) = (each for each in checks(executed(stream, "frazil_audit")) if each.asset_key == KEY)
    assert evaluation.passed and evaluation.check_name == "exactly_once"
    metadata: dict[str, Any] = {name: each.value for name, each in evaluation.metadata.items()}
    assert (metadata["audited_records"], metadata["missing_records"], metadata["doubled_records"]) == (7, 0, 0)
    assert metadata["audit_seconds"] > 0
    stream.table().append(stream.sink_rows(next(iter(stream.position)), [3]))
    stream.land([ROW])
    stream.table().append(stream.sink_rows(next(iter(stream.position)), [4, 4]))
    (stream.home / "streams" / "orders.yaml").unlink()
    (stream.home / "streams" / "broken.yaml").write_text("stream: [")
    (evaluation,) = checks(executed(stream, "frazil_audit"))
    assert not evaluation.passed
    assert "| doubled | 2 | orders.payments payments-0 [4, 5)" in str(evaluation.metadata["what_is_wrong"].value)


def test_an_unanswered_rollback_is_status_1_and_a_red_check(stream):
    assert command(stream).exit_code == 0
    table = stream.table()
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.metadata.snapshots[0].snapshot_id).commit()
    result = command(stream)
    assert result.exit_code == 1 and "Next: frazil accept payments --rollback keep, or reland" in result.stdout
    code, document = facts(stream)
    assert (code, document["verdict"]) == (1, "incomplete")
    (evaluation,) = checks(executed(stream, "frazil_audit"))
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)


def checks(result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    return list(result.get_asset_check_evaluations())


def test_a_stream_that_cannot_be_audited_hides_no_other(stream):
    other = stream.home / "streams" / "another.yaml"
    other.write_text(
        "stream: another\nsource: {topics: [another]}\ndecode: {value: json, schema: id string}\n"
        "table: {name: orders.another}\n"
    )
    found = build_definitions(Deployment(stream.home)).resolve_job_def("frazil_audit")
    other.unlink()
    with dg.DagsterInstance.ephemeral() as instance:
        result = found.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert [(each.asset_key, each.passed) for each in checks(result)] == [(KEY, True)]


def test_a_stream_whose_file_broke_is_audited_as_it_was(stream):
    found = build_definitions(Deployment(stream.home)).resolve_job_def("frazil_audit")
    (stream.home / "streams" / "payments.yaml").write_text("stream: [")
    with dg.DagsterInstance.ephemeral() as instance:
        result = found.execute_in_process(instance=instance, raise_on_error=False)
    assert [(each.asset_key, each.passed) for each in checks(result)] == [(KEY, True)]


def test_the_hourly_job_notes_the_stamps(stream):
    assert executed(stream, "frazil_ledger").success
    assert len(read_ledger(stream.catalog(), stream.settings, "payments")) == 3
    (stream.home / "streams" / "broken.yaml").write_text("stream: [")
    stream.land([ROW])
    # A broken file is told of elsewhere, and is no reason for this job to be red for every stream.
    assert executed(stream, "frazil_ledger").success
    assert len(read_ledger(stream.catalog(), stream.settings, "payments")) == 4


def test_both_schedules_run_by_themselves(stream):
    definitions = build_definitions(Deployment(stream.home))
    schedules = [each for each in definitions.schedules or () if isinstance(each, dg.ScheduleDefinition)]
    found = {each.name: (each.cron_schedule, each.default_status) for each in schedules}
    assert found["frazil_ledger_hourly"] == ("47 * * * *", dg.DefaultScheduleStatus.RUNNING)
    assert found["frazil_audit_daily"] == ("23 3 * * *", dg.DefaultScheduleStatus.RUNNING)
