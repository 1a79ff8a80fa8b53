"""`frazil at` on real tables: every record of a history, by coordinates, by row, by snapshot and by time."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import load_catalog

from jobs.clients.state_store.epochs import (
    EpochRecord,
    Opener,
    keep_epoch,
    keep_file,
)
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import load_settings
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.lookup.source_record import SourceLogs
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.cli.main import main
from tests.helpers.event_stream import EventStream, write_file
from tests.helpers.real_stream import DEAD, SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, HOLE, ROW, TOMBSTONE
from tests.unit.quality.publishing.branch_world import BranchWorld


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW, TOMBSTONE])
    made.land([ROW, ROW, ROW], partition=1)
    made.land([ROW, HOLE, ROW])
    return made


def command(stream: RealStream, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(stream.home), "at", "payments", *arguments])


def facts(stream: RealStream, *arguments: str) -> dict[str, Any]:
    result = command(stream, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def record(stream: RealStream, offset: int, partition: int = 0, *arguments: str) -> dict[str, Any]:
    return facts(stream, "--partition", str(partition), "--offset", str(offset), *arguments)


def snapshot_ids(stream: RealStream, name: str | None = None) -> list[int]:
    return [each.snapshot_id for each in stream.table(name).snapshots()]


def read_by(stream: RealStream, line: str) -> pa.Table:
    """What the line of PyIceberg that is printed gives."""
    properties = stream.settings.catalog.revealed()
    return eval(line, {"load_catalog": lambda name: load_catalog(name, **properties)})


def expire_all_but_the_head(stream: RealStream, name: str) -> None:
    table = stream.table(name)
    old = [each.snapshot_id for each in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()


@pytest.mark.parametrize("filled", [False, True], ids=["stamps", "ledger"])
def test_every_record_of_a_stream(stream: RealStream, filled: bool) -> None:
    if filled:
        fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    first, second, third = snapshot_ids(stream)
    fates = {(0, 0): ("row", first), (0, 2): ("row", first), (1, 1): ("row", second), (0, 4): ("row", third)}
    fates |= {(0, 1): ("dead_letter", first), (0, 3): ("tombstone", first), (0, 5): ("no_record", third)}
    for (partition, offset), (fate, snapshot) in fates.items():
        found = record(stream, offset, partition)
        assert (found["fate"], found["landing"]["snapshot_id"]) == (fate, snapshot), (partition, offset)
        start, end = found["landing"]["start_offset"], found["landing"]["end_offset"]
        assert start <= offset < end
        assert not found["to_be_read_again"] and found["others"] == []
        if fate == "row":
            rows = read_by(stream, found["read"]["pyiceberg"])
            assert rows.column("id").to_pylist() == [f"p-{partition}-{offset}"]
            assert found["read"]["snapshot_id"] == snapshot and found["read"]["exact"]
    (letters,) = snapshot_ids(stream, DEAD)
    letter = record(stream, 1)
    assert (letter["table"], letter["letters_landing"]["snapshot_id"]) == (DEAD, letters)
    assert read_by(stream, letter["read"]["pyiceberg"]).column("offset").to_pylist() == [1]
    assert record(stream, 7)["fate"] == "not_read" and record(stream, 7)["stands_at"] == 7
    assert record(stream, 0, 5)["fate"] == "never_read"
    # Nothing was written by looking.
    assert stream.catalog().table_exists("frazil.ledger") is filled


def test_what_has_expired_is_found_by_the_ledger(stream: RealStream) -> None:
    first = snapshot_ids(stream)[0]
    before = record(stream, 2)
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    expire_all_but_the_head(stream, SINK)
    found = record(stream, 2)
    (left,) = snapshot_ids(stream)
    assert found["landing"] == before["landing"] | {"expired": True}
    assert found["landing"]["snapshot_id"] == first
    assert (found["read"]["snapshot_id"], found["read"]["exact"], found["fate"]) == (left, False, "row")
    assert read_by(stream, found["read"]["pyiceberg"]).column("id").to_pylist() == ["p-0-2"]
    said = command(stream, "--partition", "0", "--offset", "2").stdout
    assert f"snapshot {first}, which has expired" in said
    assert f"its snapshot has expired; the oldest that is left with its rows is {left}" in said
    by_id = facts(stream, "--snapshot", str(first))
    assert (by_id["kind"], by_id["epoch"], by_id["read"]["snapshot_id"]) == ("batch", 1, left)
    assert [(each["start_offset"], each["end_offset"]) for each in by_id["ranges"]] == [(0, 4)]


def test_without_a_ledger_an_expiry_leaves_the_range_unknown(stream: RealStream) -> None:
    expire_all_but_the_head(stream, SINK)
    found = record(stream, 2)
    assert found["fate"] == "unknown" and found["landing"]["kind"] == "unknown"
    assert record(stream, 4)["fate"] == "row"


def test_what_was_read_again_and_what_was_rolled_back(stream: RealStream) -> None:
    stream.reset(0, 2)
    assert record(stream, 2)["to_be_read_again"] and record(stream, 2)["fate"] == "row"
    assert not record(stream, 1)["to_be_read_again"]
    stream.land([ROW] * 5)
    found, again = record(stream, 2), snapshot_ids(stream)[-1]
    assert found["landing"]["snapshot_id"] == snapshot_ids(stream)[0]
    assert [each["snapshot_id"] for each in found["others"]] == [again]
    # What a rollback took out is known of a commit that was in the ledger before.
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    stream.roll_back(1, "reland")
    found = record(stream, 2)
    assert found["to_be_read_again"] and found["others"][0]["removed_at"] is not None
    assert record(stream, 6)["fate"] == "row", "the copy of before the reset stands"
    stream.land([ROW] * 8)
    gone = record(stream, 9)
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    stream.roll_back(1, "keep")
    found = record(stream, 9)
    assert (gone["fate"], found["fate"]) == ("row", "passed_over")
    assert "rollback keep, ada: wrong load" in found["sentence"]
    assert found["others"][0]["snapshot_id"] == gone["landing"]["snapshot_id"]


def test_a_row_deleted_since_and_a_letter_deleted_since(stream: RealStream) -> None:
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    stream.table().delete("id = 'p-1-1'")
    assert record(stream, 1, 1)["fate"] == "row", "the snapshot that landed it has it"
    expire_all_but_the_head(stream, SINK)
    found = record(stream, 1, 1)
    assert (found["fate"], found["deleted"], found["read"]) == ("row", True, None)
    assert "became a row, which was deleted since" in command(stream, "--partition", "1", "--offset", "1").stdout


def test_from_a_row_to_its_record_and_back(stream: RealStream) -> None:
    (found,) = facts_of_rows(stream, "id = 'p-1-2'")
    assert (found["topic"], found["partition"], found["offset"]) == (TOPIC, 1, 2)
    assert read_by(stream, found["read"]["pyiceberg"]).column("id").to_pylist() == ["p-1-2"]
    several = facts_of_rows(stream, "_kafka_partition = 1")
    assert sorted(each["offset"] for each in several) == [0, 1, 2]
    for wrong, said in [
        ("id = 'nobody'", "no row of table orders.payments fits"),
        ("_kafka_offset >= 0", "more than 5 rows"),
        ("id = 'nobody'", ".orders.payments LIMIT 10; or, if the record is a dead letter, frazil letters payments"),
        ("idx = 1", "cannot be asked of table orders.payments: there is no column idx"),
        ("id = ", "cannot be asked of table orders.payments: it cannot be read from character 1 on: id ="),
    ]:
        refused = command(stream, "--row", wrong)
        assert refused.exit_code == 1 and said in refused.stderr, refused.output


def facts_of_rows(stream: RealStream, row_filter: str) -> list[dict[str, Any]]:
    result = command(stream, "--row", row_filter, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_letter_is_found_by_a_row_of_the_letters(stream: RealStream) -> None:
    result = command(stream, "--table", "dead_letters", "--row", "offset = 1", "--json")
    (found,) = json.loads(result.stdout)
    assert (found["fate"], found["offset"]) == ("dead_letter", 1)


def test_rows_without_kafka_columns(tmp_path: Path) -> None:
    made = RealStream(tmp_path, kafka_columns=False)
    made.land([ROW, ROW])
    made.land([ROW, TOMBSTONE])
    assert record(made, 1)["fate"] == "row", "all records of the batch became rows"
    found = record(made, 2)
    assert (found["fate"], found["possible"]) == ("undecided", ["row", "tombstone"])
    refused = command(made, "--row", "id = 'p-0-1'")
    assert refused.exit_code == 1 and "do not say which records they are of" in refused.stderr


def test_who_landed_it_and_the_file_as_it_was(stream: RealStream) -> None:
    store = stream_folder(stream.settings, "payments").store
    config = stream.spec.config_hash
    refused = command(stream, "--partition", "0", "--offset", "0", "--config")
    assert refused.exit_code == 1 and "is not kept" in refused.stderr
    assert "Next: git log -p -- streams/payments.yaml, around 2" in refused.stderr
    keep_epoch(store, EpochRecord(1, Opener("Dagster run", run_id="abc-1"), config, "", 1.0, "host", 7))
    keep_file(store, config, "", "stream: payments  # as it was\n")
    found = record(stream, 0)
    assert found["landing"]["opened_by"]["run_id"] == "abc-1" and found["landing"]["file_kept"] == "exact"
    said = command(stream, "--partition", "0", "--offset", "0").stdout
    assert "Dagster run abc-1: process 7 on host" in said and "--config prints the stream's file as it was" in said
    for arguments in (
        ["--partition", "0", "--offset", "0"],
        ["--row", "id = 'p-0-0'"],
        ["--snapshot", str(snapshot_ids(stream)[0])],
    ):
        assert command(stream, *arguments, "--config").stdout == "stream: payments  # as it was\n"


def test_whether_kafka_still_has_the_record(stream: RealStream, monkeypatch: pytest.MonkeyPatch) -> None:
    told = command(stream, "--partition", "0", "--offset", "2")
    assert "was not asked whether it still has it: The local broker is not running." in told.stdout
    assert "-t payments -p 0 -o 2 -c 1" in told.stdout
    at = TopicPartition(TOPIC, 0)
    known = SourceLogs(stream.settings.kafka, {at: (1, 7)})
    monkeypatch.setattr("orchestration.cli.tables.at.command.source_logs", lambda *_: known)
    assert (
        "Kafka      has removed it: the log begins at offset 1"
        in command(stream, "--partition", "0", "--offset", "0").stdout
    )
    kept = command(stream, "--row", "id = 'p-0-2'")
    assert "Kafka      keeps offsets [1, 7) of the partition" in kept.stdout and " -o 2 -c 1" in kept.stdout
    source = record(stream, 0)["source"]
    assert (source["state"], source["first_offset"], source["end_offset"]) == ("removed", 1, 7)


def test_by_time_the_complete_and_the_current(stream: RealStream) -> None:
    hours = {1: "2026-01-01T01:00:00Z", 2: "2026-01-01T02:00:00Z"}
    for hour in hours:
        claim(stream, hour)
    *_, one, two = snapshot_ids(stream)
    found = facts(stream, "--timestamp", "2026-01-01T01:30:00Z")
    assert (found["complete"]["snapshot_id"], found["up_to"]["snapshot_id"]) == (two, one)
    assert found["current"] is None and found["older_have_expired"] is False
    found = facts(stream, "--timestamp", hours[1])
    assert (found["complete"]["snapshot_id"], found["up_to"]["snapshot_id"]) == (one, one)
    found = facts(stream, "--timestamp", "2026-01-01T00:30:00+00:00")
    assert (found["complete"]["snapshot_id"], found["up_to"]) == (one, None)
    now = stream.table().metadata.snapshots[0].timestamp_ms
    at = facts(stream, "--timestamp", datetime.fromtimestamp(now / 1000, UTC).isoformat())
    assert at["current"]["snapshot_id"] == snapshot_ids(stream)[0] and at["complete"] is None
    said = command(stream, "--timestamp", "2026-01-01T01:30:00Z").stdout
    assert "every record older than 2026-01-01 01:30:00 UTC is in (record time)" in said
    assert "was current at 2026-01-01 01:30:00 UTC (commit time)" in said


def claim(stream: RealStream, hour: int) -> None:
    target = Target(stream.catalog(), SINK, "payments")
    newest = target.read()
    assert newest is not None
    through = int(1_767_225_600_000 + hour * 3_600_000)

    def claimed(before: Stamp | None) -> Stamp:
        return replace(newest.claimed(newest.epoch + 1), valid_through_ms=through)

    target.claim(newest.epoch + 1, claimed)


def test_another_branch(stream: RealStream) -> None:
    first = snapshot_ids(stream)[0]
    stream.table().manage_snapshots().create_branch(first, "audit").commit()
    assert facts(stream, "--branch", "audit", "--partition", "0", "--offset", "0")["fate"] == "row"
    assert facts(stream, "--branch", "audit", "--partition", "1", "--offset", "0")["landing"] is None
    refused = command(stream, "--branch", "nope", "--partition", "0", "--offset", "0")
    assert refused.exit_code == 1 and "--branch audit or main" in refused.stderr


def test_a_stream_that_writes_a_branch_and_is_published(tmp_path: Path) -> None:
    world = BranchWorld(tmp_path / "home")
    world.land(3)

    def of(offset: int, *more: str) -> tuple[dict[str, Any], str]:
        at = ["--home", str(world.home), "at", "payments", "--partition", "0", "--offset", str(offset), *more]
        told = [CliRunner().invoke(main, [*at, *form]) for form in (["--json"], [])]
        assert [each.exit_code for each in told] == [0, 0], told[0].output
        return json.loads(told[0].stdout), told[1].stdout

    facts, said = of(1)
    assert (facts["fate"], facts["branch"], facts["published"]) == ("row", "ingest", {"in_main": False, "read": None})
    assert "it is on branch ingest only; frazil publish payments" in said
    assert facts["read"]["spark_by_time"] is None, "by time Iceberg goes along main"
    first = world.publish().snapshot_id
    world.land(2)
    second = world.publish().snapshot_id
    for offset, publication in ((1, first), (4, second)):
        facts, said = of(offset)
        assert facts["published"]["read"]["snapshot_id"] == publication and facts["published"]["read"]["exact"]
        assert f"has it since snapshot {publication}" in said
    table = world.table()
    table.maintenance.expire_snapshots().by_ids([first or 0]).commit()
    facts, said = of(1)
    assert facts["published"]["in_main"] and facts["published"]["read"]["snapshot_id"] == second
    assert not facts["published"]["read"]["exact"] and "has it since before snapshot" in said
    # What is asked of main itself are its own snapshots.
    assert of(1, "--branch", "main")[0]["landing"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Name a record, a row, a time or a snapshot: one of them"),
        (["--partition", "0"], "a record is named by --partition and --offset"),
        (["--partition", "0", "--offset", "1", "--snapshot", "5"], "one of them"),
        (["--snapshot", "5", "--row", "id = 'x'"], "one of them"),
        (["--timestamp", "yesterday"], "'yesterday' is no time"),
        (["--snapshot", "5"], "has no snapshot 5, and neither has the ledger"),
    ],
)
def test_what_means_nothing(stream: RealStream, arguments: list[str], said: str) -> None:
    refused = command(stream, *arguments)
    assert refused.exit_code == 1 and said in refused.stderr
    assert "Next: " in refused.stderr


def test_a_stream_that_never_ran(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "payments.yaml").write_text(
        "stream: payments\nsource: {topics: [a, b]}\ndecode: {value: json, schema: 'id string'}\n"
        "table: {name: orders.payments}\n"
    )
    runner = CliRunner()
    at = ["--home", str(tmp_path), "at", "payments", "--partition", "0", "--offset", "0"]
    assert "has several topics: a, b" in runner.invoke(main, at).stderr
    refused = runner.invoke(main, [*at, "--topic", "a"])
    assert refused.exit_code == 1 and "frazil run payments" in refused.stderr


def test_when_the_rows_of_a_snapshot_happened_and_how_late_they_were(tmp_path: Path) -> None:
    write_file(tmp_path)
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
    settings = load_settings(None, home=tmp_path)
    made = EventStream(settings, load_stream(tmp_path / "streams" / "payments.yaml"))

    def hour(at: int) -> datetime:
        return datetime(2026, 3, 1, at, tzinfo=UTC)

    made.land([hour(8), hour(12)], hour(11))
    made.land([hour(13), None, hour(9)], hour(12), late={hour(9): 1})
    snapshot = str(made.table.metadata.current_snapshot_id)
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "at", "payments", "--snapshot", snapshot])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "event time at from 2026-03-01 09:00:00 UTC to 2026-03-01 13:00:00 UTC" in lines, result.output
    assert any(line.startswith("late 1 records: 1 by up to 1h") for line in lines), result.output
    assert "watermark 2026-03-01 12:00:00 UTC" in lines
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "at", "payments", "--snapshot", snapshot, "--json"])
    told = json.loads(result.stdout)["event_time"]
    assert (told["least"], told["watermark_before"]) == (
        "2026-03-01T09:00:00.000+00:00",
        "2026-03-01T11:00:00.000+00:00",
    )
    assert (told["late"], told["late_by"]["1h"], told["late_dead_letters"]) == (1, 1, 0)
