"""Letters come back once, with their life told, whatever the order of what happens."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.transforms import BucketTransform

from jobs.base.errors import FrazilError
from jobs.config.settings.correction import parse_correction
from jobs.dead_letters.replay.pipeline import ReplayPipeline
from jobs.dead_letters.replay.replay_state import ReplayOutcome
from jobs.tables.commit.stamp.errors import StreamStopped, UnaccountedRecordsError
from jobs.tables.dead_letter_table.reader import UnreadableDeadLettersError, count_dead_letters
from jobs.tables.dead_letter_table.selection import Selection, SelectionError, parse_offsets
from jobs.tables.dead_letter_table.table import AlteredTableError
from orchestration.cli.main import main
from tests.helpers.dead_letters import BROKEN, GOOD, SEEN, UNKNOWN, DeadLetterWorld, value_of


def test_what_decodes_now_lands_once_and_the_rest_says_why(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD, UNKNOWN])
    result = dead_letters.replay()
    assert (result.selected, result.replayed, result.failed_again, result.parked) == (4, 2, 2, 0)
    assert {(reason.error_class, reason.count) for reason in result.reasons} == {
        ("malformed_json", 1),
        ("unknown_field", 1),
    }
    assert dead_letters.landed() == {"p-0": 1, "p-2": 1}
    (row,) = dead_letters.sink().scan("id == 'p-2'").to_arrow().to_pylist()
    assert (row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) == ("payments.v1", 0, 2)
    assert row["_kafka_timestamp"] == SEEN + timedelta(seconds=2)
    lives = dead_letters.lives()
    back, broken = lives[0], lives[1]
    assert (back["state"], back["attempts"], back["changed_by"]) == ("replayed", 1, "tester")
    assert back["replay"] == broken["replay"] == result.replay
    assert result.snapshots == [back["replay_snapshot_id"]]
    assert dead_letters.sink().metadata.snapshot_by_id(back["replay_snapshot_id"]) is not None
    assert (broken["state"], broken["attempts"], broken["replay_snapshot_id"]) == ("failed_again", 1, None)
    assert (broken["error_class"], broken["replay_error_class"]) == ("was_broken", "malformed_json")
    assert broken["value"] == value_of(BROKEN, 1)
    assert broken["replay_message"]


def test_a_second_replay_is_a_no_op_for_what_landed_and_parks_what_fails(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN])
    dead_letters.replay()
    second = dead_letters.replay()
    assert (second.selected, second.replayed, second.parked) == (1, 0, 1)
    third = dead_letters.replay()
    assert (third.selected, third.replayed, third.snapshots) == (0, 0, [])
    assert third.there_is is not None
    assert third.there_is.sentence() == "1 replayed (1 was_good), 1 parked (1 was_broken)"
    assert dead_letters.landed() == {"p-0": 1}
    assert (dead_letters.lives()[1]["state"], dead_letters.lives()[1]["attempts"]) == ("parked", 2)
    asked_for = dead_letters.replay(selection=Selection(states=("parked",)))
    assert (asked_for.selected, dead_letters.lives()[1]["attempts"]) == (1, 3)


def test_a_dry_run_touches_nothing(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, BROKEN, GOOD])
    before = dead_letters.sink().metadata_location, dead_letters.dead().metadata_location
    result = dead_letters.dry_run()
    assert (result.selected, result.replayed, result.failed_again) == (4, 2, 2)
    (reason,) = result.reasons
    assert (reason.stage, reason.error_class, reason.count) == ("decode_value", "malformed_json", 2)
    assert reason.example == ("payments.v1", 1, 1)
    assert (dead_letters.sink().metadata_location, dead_letters.dead().metadata_location) == before
    assert not dead_letters.folder.exists()


def test_a_batch_that_does_not_add_up_is_not_committed(
    dead_letters: DeadLetterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD])
    process = ReplayPipeline.process

    def forgetful(pipeline: ReplayPipeline, *given: Any) -> tuple[Any, ReplayOutcome]:
        rows, outcome = process(pipeline, *given)
        return rows, replace(outcome, failures=[])

    with monkeypatch.context() as patch:
        patch.setattr(ReplayPipeline, "process", forgetful)
        with pytest.raises(UnaccountedRecordsError, match="of 3 dead letters 2 landed, 0 had landed already and 0"):
            dead_letters.replay()
    assert dead_letters.landed() == {}
    assert dead_letters.replay().replayed == 2


def test_a_correction_counts_for_one_replay_and_is_kept(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([UNKNOWN])
    correction = parse_correction(dead_letters.spec_file, "decode: {unknown_fields: ignore}")
    dry = dead_letters.dry_run(correction=correction)
    result = dead_letters.replay(correction=correction)
    assert (result.replayed, result.correction) == (1, "decode:\n  unknown_fields: ignore\n")
    for each in (dry, result):
        assert (each.replayed, each.unknown_fields) == (1, {"$.colour": 1})
        assert "left out of 1 records, as no column takes it: $.colour" in each.details
    assert dead_letters.lives()[0]["correction"] == result.correction
    assert dead_letters.spec.decode.unknown_fields == "fail"


def test_a_correction_leaves_columns_null_only_where_that_is_said(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([UNKNOWN, GOOD])
    text = "decode: {schema: id string not null, unknown_fields: ignore}"
    correction = parse_correction(dead_letters.spec_file, text)
    for ask in (dead_letters.dry_run, dead_letters.replay):
        with pytest.raises(FrazilError, match="leaves out columns that the stream's file has: amount") as refused:
            ask(correction=correction)
        assert "--fewer-columns" in (refused.value.fix or "")
    assert (dead_letters.states(), dead_letters.landed()) == ({"new": 2}, {})

    dry = dead_letters.dry_run(correction=correction, fewer_columns=True)
    lossy = dead_letters.replay(correction=correction, fewer_columns=True)
    for each in (dry, lossy):
        assert (each.replayed, each.null_columns) == (2, ("amount",))
        assert each.unknown_fields == {"$.amount": 2, "$.colour": 1}
        assert "null in these rows, as the correction leaves them out: amount" in each.details
    assert dead_letters.sink().scan().to_arrow().column("amount").null_count == 2

    # As the message says: what is to land anew is deleted first.
    way_on = "has to be deleted from its table first; then `frazil replay payments --state replayed`"
    anew = Selection(states=("replayed",))
    stands = dead_letters.replay(selection=anew)
    assert (stands.replayed, stands.standing) == (0, 2)
    for each in (lossy, stands):
        assert any(way_on in sentence for sentence in each.details)
    dead_letters.sink().delete("id == 'p-1'")
    again = dead_letters.replay(selection=anew)
    assert (again.replayed, again.standing) == (1, 1)
    amounts = {row["id"]: row["amount"] for row in dead_letters.sink().scan().to_arrow().to_pylist()}
    assert amounts == {"p-0": None, "p-1": 1}
    assert dead_letters.states() == {"replayed": 2}


@pytest.mark.parametrize(
    ("selection", "offsets"),
    [
        (Selection(reasons=("was_good",)), {0, 2}),
        (Selection(stages=("other",)), set()),
        (Selection(fields=("$.a",)), {0, 1, 2, 3}),
        (Selection(since=SEEN + timedelta(hours=1)), {3}),
        (Selection(until=SEEN + timedelta(hours=1)), {0, 1, 2}),
        (Selection(offsets=(parse_offsets("payments.v1:1"),)), {1, 3}),
        (Selection(offsets=(parse_offsets("payments.v1:0:1-2"), parse_offsets("payments.v1:1:3-"))), {2, 3}),
        (Selection(offsets=(parse_offsets("other"),)), set()),
        (Selection(where="offset > 1 and error_class = 'was_good'"), {2}),
        (Selection(where="timestamp < '2026-03-01T10:00:01+00:00'"), {0}),
        (Selection(limit=1), {0}),
        (Selection(states=("parked",)), set()),
    ],
)
def test_a_selection_means_what_it_says(dead_letters: DeadLetterWorld, selection: Selection, offsets: set[int]) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD])
    dead_letters.add([BROKEN], seen=SEEN + timedelta(hours=2))
    result = dead_letters.replay(selection=selection)
    assert {at for at, row in dead_letters.lives().items() if row["state"] is not None} == offsets
    assert result.selected == len(offsets)
    assert (result.there_is is None) == bool(offsets)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("offset >", "cannot be read from character"),
        ("colour = 'red'", "there is no column colour"),
        ("offset = 'x'", "column offset is a long, and 'x' is none"),
        ("headers = 1", "column headers is a list"),
    ],
)
def test_a_predicate_that_means_nothing_is_told(dead_letters: DeadLetterWorld, where: str, said: str) -> None:
    for ask in (dead_letters.replay, dead_letters.dry_run):
        with pytest.raises(SelectionError, match=said) as refused:
            ask(selection=Selection(where=where))
        assert refused.value.fix


def test_a_record_whose_row_stands_in_the_table_is_not_landed_again(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, GOOD, GOOD])
    stands = pa.record_batch(
        {
            "id": ["p-1", "another record"],
            "_kafka_topic": ["payments.v1"] * 2,
            "_kafka_partition": pa.array([1, 0], pa.int32()),
            "_kafka_offset": [1, 0],
            # A topic that was made anew has other records at the same offsets.
            "_kafka_timestamp": pa.array(
                [SEEN + timedelta(seconds=1), SEEN - timedelta(days=9)], pa.timestamp("us", "UTC")
            ),
        }
    )
    dead_letters.append(dead_letters.sink(), stands)
    result = dead_letters.replay()
    assert (result.replayed, result.standing) == (2, 1)
    assert dead_letters.landed() == {"p-0": 1, "p-1": 1, "p-2": 1, "another record": 1}
    assert dead_letters.states() == {"replayed": 3}
    assert "was in the table" in dead_letters.lives()[1]["note"]


@pytest.mark.parametrize("kafka_columns", [True, False])
@pytest.mark.parametrize("most", [1, 100])
def test_two_letters_of_one_record_land_it_once(tmp_path: Path, kafka_columns: bool, most: int) -> None:
    dead_letters = DeadLetterWorld(tmp_path, kafka_columns)
    dead_letters.add([GOOD])
    dead_letters.offsets = 0
    dead_letters.add([GOOD], seen=SEEN + timedelta(days=1))
    result = dead_letters.replay(most=most)
    assert (result.replayed, result.standing) == (1, 1)
    assert dead_letters.landed() == {"p-0": 1}
    dead_letters.close()


def test_another_letter_of_a_record_that_fails_is_tried_for_itself(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN, GOOD], value=pa.array([None, value_of(GOOD, 1)], pa.binary()))
    dead_letters.offsets = 0
    dead_letters.add([GOOD, BROKEN], seen=SEEN + timedelta(days=1))
    assert dead_letters.dry_run().replayed == 2
    result = dead_letters.replay()
    assert (result.replayed, result.standing, result.failed_again) == (2, 1, 1)
    assert dead_letters.landed() == {"p-0": 1, "p-1": 1}
    states = sorted((row["offset"], row["state"]) for row in dead_letters.dead().scan().to_arrow().to_pylist())
    assert states == [(0, "failed_again"), (0, "replayed"), (1, "replayed"), (1, "replayed")]


def test_small_batches_land_all(dead_letters: DeadLetterWorld) -> None:
    for day in range(3):
        dead_letters.add([GOOD, BROKEN, GOOD, GOOD], seen=SEEN + timedelta(days=day))
    result = dead_letters.replay(most=3)
    assert (result.replayed, result.failed_again) == (9, 3)
    assert len(result.snapshots) == 4
    assert set(dead_letters.landed().values()) == {1}
    assert len(dead_letters.landed()) == 9
    assert dead_letters.states() == {"replayed": 9, "failed_again": 3}
    ids = {row["replay_snapshot_id"] for row in dead_letters.lives().values() if row["state"] == "replayed"}
    assert ids == set(result.snapshots)


def test_the_rate_is_kept(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 12)
    began = time.monotonic()
    assert dead_letters.replay(rate=20.0, most=4).replayed == 12
    assert time.monotonic() - began >= 8 / 20, "the last batch waits for the eight letters before it"


def test_a_letter_without_its_value_says_so_and_the_others_go_on(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, GOOD], value=pa.array([None, value_of(GOOD, 1)], pa.binary()))
    result = dead_letters.replay()
    assert (result.replayed, result.reasons[0].error_class) == (1, "letter_unreadable")
    assert "the dead letter has no value" in dead_letters.lives()[0]["replay_message"]


def test_a_file_that_cannot_be_read_is_told_and_the_others_go_on(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    dead_letters.add([GOOD], seen=SEEN + timedelta(days=1))
    paths = sorted(task.file.file_path for task in dead_letters.dead().scan().plan_files())
    damaged = next(p for p in paths if "2026-03-01" in p).removeprefix("file://")
    with Path(damaged).open("r+b") as file:
        file.truncate(40)
    result = dead_letters.replay()
    assert (result.replayed, result.unreadable) == (1, 1)
    assert damaged in result.problems[0]
    assert dead_letters.landed() == {"p-1": 1}


def damage(dead_letters: DeadLetterWorld, day: str) -> Path:
    """Spoil the data file with the dead letters of that day; returns its path."""
    (found,) = [task.file.file_path for task in dead_letters.dead().scan().plan_files() if day in task.file.file_path]
    damaged = Path(found.removeprefix("file://"))
    damaged.write_bytes(b"rubbish")
    return damaged


def test_a_damaged_file_between_the_others_is_in_nobody_s_way(dead_letters: DeadLetterWorld) -> None:
    """By the offsets in its statistics it may hold letters that are in other files."""
    dead_letters.add([GOOD] * 4)
    dead_letters.add([GOOD] * 4, seen=SEEN + timedelta(days=1))
    dead_letters.add([GOOD, BROKEN, GOOD, GOOD], seen=SEEN + timedelta(days=2))
    damaged = damage(dead_letters, "2026-03-02")
    result = dead_letters.replay()
    assert (result.replayed, result.failed_again, result.unreadable) == (7, 1, 4)
    again = dead_letters.replay()
    assert (again.selected, again.parked, again.unreadable) == (1, 1, 4)
    assert set(dead_letters.landed()) == {f"p-{offset}" for offset in (0, 1, 2, 3, 8, 10, 11)}
    assert set(dead_letters.landed().values()) == {1}
    # Only damaged ones are left.
    last = CliRunner().invoke(main, ["--home", str(dead_letters.home), "replay", "payments"])
    assert last.exit_code == 1, last.output
    assert "no readable dead letter fits the selection" in last.output
    assert str(damaged) in last.output


def test_letters_that_are_in_a_damaged_file_only_are_not_said_to_be_told(
    dead_letters: DeadLetterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters.add([GOOD])
    dead_letters.add([GOOD], seen=SEEN + timedelta(days=1))
    spoilt: list[tuple[Path, bytes]] = []

    def spoil(name: str) -> None:
        if name == "replay_after_files" and not spoilt:
            (path,) = [
                t.file.file_path for t in dead_letters.dead().scan().plan_files() if "2026-03-01" in t.file.file_path
            ]
            file = Path(path.removeprefix("file://"))
            spoilt.append((file, file.read_bytes()))
            file.write_bytes(b"rubbish")

    monkeypatch.setattr("jobs.dead_letters.replay.run.step", spoil)
    with pytest.raises(UnreadableDeadLettersError):
        dead_letters.replay()
    (file, content) = spoilt[0]
    file.write_bytes(content)
    assert dead_letters.replay().selected == 0
    assert dead_letters.landed() == {"p-0": 1, "p-1": 1}
    assert dead_letters.states() == {"replayed": 2}


def test_letters_of_very_many_partitions_come_back(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 600, partition=pa.array(range(600), pa.int32()))
    assert dead_letters.replay().replayed == 600
    assert dead_letters.states() == {"replayed": 600}
    assert set(dead_letters.landed().values()) == {1}


def test_a_replay_of_nothing_commits_nothing(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, GOOD])
    assert dead_letters.replay().replayed == 2
    before = dead_letters.sink().metadata_location, dead_letters.dead().metadata_location
    result = dead_letters.replay()
    assert (result.selected, result.replay) == (0, "")
    assert result.there_is is not None
    assert result.there_is.sentence() == "2 replayed (2 was_good)"
    assert (dead_letters.sink().metadata_location, dead_letters.dead().metadata_location) == before


def test_a_rollback_is_told_also_if_no_letter_fits(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    before = dead_letters.sink().metadata.snapshots
    dead_letters.append(dead_letters.sink(), pa.record_batch({"id": ["another"]}))
    first = dead_letters.sink().metadata.current_snapshot_id
    assert not before
    assert first is not None
    dead_letters.replay()
    dead_letters.sink().manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(StreamStopped, match="was rolled back"):
        dead_letters.replay()


def test_a_table_that_was_altered_by_hand_is_told(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    with dead_letters.dead().update_schema() as update:
        update.rename_column("value", "payload")
    for ask in (dead_letters.replay, dead_letters.dry_run):
        with pytest.raises(AlteredTableError, match="column value is missing") as refused:
            ask()
        assert "orders.payments_dead" in str(refused.value)
    assert dead_letters.landed() == {}


def test_a_correction_that_the_table_cannot_hold_is_told(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    correction = parse_correction(dead_letters.spec_file, "decode: {schema: 'id string not null, amount string'}")
    with pytest.raises(FrazilError, match="cannot hold what the correction declares: Column amount is declared"):
        dead_letters.replay(correction=correction)


def test_without_coordinates_a_lost_record_stops_the_replay(tmp_path: Path) -> None:
    dead_letters = DeadLetterWorld(tmp_path, kafka_columns=False)
    dead_letters.add([GOOD])
    process = dead_letters.start("replay_after_commit=kill")
    assert process.wait() == -signal.SIGKILL
    assert "step replay_after_commit: SIGKILL" in process.said()
    for record in dead_letters.folder.glob("pending-*.json"):
        record.unlink()
    with pytest.raises(StreamStopped, match="its dead letters are not marked, its pending record is lost"):
        dead_letters.replay()
    assert dead_letters.landed() == {"p-0": 1}
    dead_letters.close()


def test_a_table_that_is_repartitioned_meanwhile_gets_files_of_its_own(
    dead_letters: DeadLetterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters.add([GOOD, BROKEN])
    passed: list[str] = []

    def repartition(name: str) -> None:
        passed.append(name)
        if len(passed) == 1:
            with dead_letters.connect().load_table("orders.payments").update_spec() as update:
                update.add_field("id", BucketTransform(4), "bucket")

    monkeypatch.setattr("jobs.dead_letters.replay.run.step", repartition)
    result = dead_letters.replay()
    assert (result.replayed, result.failed_again) == (1, 1)
    assert passed == ["replay_after_files"] * 2, "its files no longer fit, and are written anew"
    files = list((dead_letters.home / ".frazil").rglob("orders*/payments/data/**/*.parquet"))
    assert len(files) == 1, "those that no longer fit are gone"
    assert dead_letters.landed() == {"p-0": 1}
    assert not list(dead_letters.folder.glob("pending-*"))


def test_late_letters_land_however_late_they_are_and_only_where_they_are_named(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 2, reason="late")
    dead_letters.add([GOOD])
    assert dead_letters.replay().replayed == 1
    named = Selection(reasons=("late",))
    assert dead_letters.replay(selection=named).replayed == 2
    assert set(dead_letters.landed().values()) == {1}
    assert len(dead_letters.landed()) == 3


def test_letters_without_coordinates_come_back_only_where_they_are_named(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD] * 2, reason="no_coordinates")
    dead_letters.add([GOOD])
    assert (dead_letters.dry_run().replayed, dead_letters.replay().replayed) == (1, 1)
    plain = dead_letters.replay(selection=Selection(where="offset < 2"))
    assert (plain.selected, plain.there_is and plain.there_is.by(1)["no_coordinates"]) == (0, 2)
    assert count_dead_letters(dead_letters.dead(), "payments", Selection()).by(1) == {"no_coordinates": 2}
    named = Selection(reasons=("no_coordinates",))
    assert (dead_letters.dry_run(selection=named).replayed, dead_letters.replay(selection=named).replayed) == (2, 2)
    assert set(dead_letters.landed().values()) == {1}
