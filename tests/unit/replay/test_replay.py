"""Letters come back once, with their life told, whatever the order of what happens."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.transforms import BucketTransform

from jobs.commit.errors import StreamStopped
from jobs.deadletter.letters import UnreadableLettersError, count_letters
from jobs.deadletter.selection import Selection, SelectionError, parse_offsets
from jobs.deadletter.table_upkeep import AlteredTableError
from jobs.errors import FrazilError
from jobs.spec.correction import parse_correction
from orchestration.cli.main import main
from tests.unit.deadletter.letters_world import BROKEN, GOOD, SEEN, UNKNOWN, LettersWorld, value_of


def test_what_decodes_now_lands_once_and_the_rest_says_why(world: LettersWorld) -> None:
    world.add([GOOD, BROKEN, GOOD, UNKNOWN])
    result = world.replay()
    assert (result.selected, result.replayed, result.failed_again, result.parked) == (4, 2, 2, 0)
    assert {(reason.error_class, reason.count) for reason in result.reasons} == {
        ("malformed_json", 1),
        ("unknown_field", 1),
    }
    assert world.landed() == {"p-0": 1, "p-2": 1}
    (row,) = world.sink().scan("id == 'p-2'").to_arrow().to_pylist()
    assert (row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) == ("payments.v1", 0, 2)
    assert row["_kafka_timestamp"] == SEEN + timedelta(seconds=2)
    lives = world.lives()
    back, broken = lives[0], lives[1]
    assert (back["state"], back["attempts"], back["changed_by"]) == ("replayed", 1, "tester")
    assert back["replay"] == broken["replay"] == result.replay
    assert result.snapshots == (back["replay_snapshot_id"],)
    assert world.sink().metadata.snapshot_by_id(back["replay_snapshot_id"]) is not None
    assert (broken["state"], broken["attempts"], broken["replay_snapshot_id"]) == ("failed_again", 1, None)
    assert (broken["error_class"], broken["replay_error_class"]) == ("was_broken", "malformed_json")
    assert broken["value"] == value_of(BROKEN, 1)
    assert broken["replay_message"]


def test_a_second_replay_is_a_no_op_for_what_landed_and_parks_what_fails(world: LettersWorld) -> None:
    world.add([GOOD, BROKEN])
    world.replay()
    second = world.replay()
    assert (second.selected, second.replayed, second.parked) == (1, 0, 1)
    third = world.replay()
    assert (third.selected, third.replayed, third.snapshots) == (0, 0, ())
    assert third.there_is is not None
    assert third.there_is.sentence() == "1 replayed (1 was_good), 1 parked (1 was_broken)"
    assert world.landed() == {"p-0": 1}
    assert (world.lives()[1]["state"], world.lives()[1]["attempts"]) == ("parked", 2)
    asked_for = world.replay(selection=Selection(states=("parked",)))
    assert (asked_for.selected, world.lives()[1]["attempts"]) == (1, 3)


def test_a_dry_run_touches_nothing(world: LettersWorld) -> None:
    world.add([GOOD, BROKEN, BROKEN, GOOD])
    before = world.sink().metadata_location, world.dead().metadata_location
    result = world.dry_run()
    assert (result.selected, result.replayed, result.failed_again) == (4, 2, 2)
    (reason,) = result.reasons
    assert (reason.stage, reason.error_class, reason.count) == ("decode_value", "malformed_json", 2)
    assert reason.example == ("payments.v1", 1, 1)
    assert (world.sink().metadata_location, world.dead().metadata_location) == before
    assert not world.folder.exists()


def test_a_correction_counts_for_one_replay_and_is_kept(world: LettersWorld) -> None:
    world.add([UNKNOWN])
    correction = parse_correction(world.spec_file, "decode: {unknown_fields: ignore}")
    assert world.dry_run(correction=correction).replayed == 1
    result = world.replay(correction=correction)
    assert (result.replayed, result.correction) == (1, "decode:\n  unknown_fields: ignore\n")
    assert world.lives()[0]["correction"] == result.correction
    assert world.spec.decode.unknown_fields == "fail"


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
def test_a_selection_means_what_it_says(world: LettersWorld, selection: Selection, offsets: set[int]) -> None:
    world.add([GOOD, BROKEN, GOOD])
    world.add([BROKEN], seen=SEEN + timedelta(hours=2))
    result = world.replay(selection=selection)
    assert {at for at, row in world.lives().items() if row["state"] is not None} == offsets
    assert result.selected == len(offsets)
    assert (result.there_is is None) == bool(offsets)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("offset >", "cannot be read at character"),
        ("colour = 'red'", "there is no column colour"),
        ("offset = 'x'", "Could not convert x into a long"),
        ("headers = 1", "Cannot convert"),
    ],
)
def test_a_predicate_that_means_nothing_is_told(world: LettersWorld, where: str, said: str) -> None:
    for ask in (world.replay, world.dry_run):
        with pytest.raises(SelectionError, match=said) as refused:
            ask(selection=Selection(where=where))
        assert refused.value.fix


def test_a_record_whose_row_stands_in_the_table_is_not_landed_again(world: LettersWorld) -> None:
    world.add([GOOD, GOOD, GOOD])
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
    world.append(world.sink(), stands)
    result = world.replay()
    assert (result.replayed, result.standing) == (2, 1)
    assert world.landed() == {"p-0": 1, "p-1": 1, "p-2": 1, "another record": 1}
    assert world.states() == {"replayed": 3}
    assert "stood in the table" in world.lives()[1]["note"]


@pytest.mark.parametrize("kafka_columns", [True, False])
@pytest.mark.parametrize("most", [1, 100])
def test_two_letters_of_one_record_land_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_columns: bool, most: int
) -> None:
    monkeypatch.setattr("jobs.replay.run.MAX_LETTERS", most)
    world = LettersWorld(tmp_path, kafka_columns)
    world.add([GOOD])
    world.offsets = 0
    world.add([GOOD], seen=SEEN + timedelta(days=1))
    result = world.replay()
    assert (result.replayed, result.standing) == (1, 1)
    assert world.landed() == {"p-0": 1}
    world.close()


def test_another_letter_of_a_record_that_fails_is_tried_for_itself(world: LettersWorld) -> None:
    world.add([BROKEN, GOOD], value=pa.array([None, value_of(GOOD, 1)], pa.binary()))
    world.offsets = 0
    world.add([GOOD, BROKEN], seen=SEEN + timedelta(days=1))
    assert world.dry_run().replayed == 2
    result = world.replay()
    assert (result.replayed, result.standing, result.failed_again) == (2, 1, 1)
    assert world.landed() == {"p-0": 1, "p-1": 1}
    states = sorted((row["offset"], row["state"]) for row in world.dead().scan().to_arrow().to_pylist())
    assert states == [(0, "failed_again"), (0, "replayed"), (1, "replayed"), (1, "replayed")]


def test_small_batches_land_all(world: LettersWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.replay.run.MAX_LETTERS", 3)
    for day in range(3):
        world.add([GOOD, BROKEN, GOOD, GOOD], seen=SEEN + timedelta(days=day))
    result = world.replay()
    assert (result.replayed, result.failed_again) == (9, 3)
    assert len(result.snapshots) == 4
    assert set(world.landed().values()) == {1}
    assert len(world.landed()) == 9
    assert world.states() == {"replayed": 9, "failed_again": 3}
    ids = {row["replay_snapshot_id"] for row in world.lives().values() if row["state"] == "replayed"}
    assert ids == set(result.snapshots)


def test_the_rate_is_kept(world: LettersWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("jobs.replay.run.time.sleep", pauses.append)
    world.add([GOOD] * 12)
    began = time.monotonic()
    assert world.replay(rate=1.0).replayed == 12
    took = time.monotonic() - began
    assert len(pauses) == 2
    for passed, pause in zip((5, 10), pauses, strict=True):
        assert max(0.0, passed - took) <= pause <= passed


def test_the_rate_of_a_correction_counts(world: LettersWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("jobs.replay.run.time.sleep", pauses.append)
    world.add([GOOD] * 12)
    assert world.replay(correction=parse_correction(world.spec_file, "errors: {replay: {rate: 1}}")).replayed == 12
    assert len(pauses) == 2


def test_a_letter_without_its_value_says_so_and_the_others_go_on(world: LettersWorld) -> None:
    world.add([GOOD, GOOD], value=pa.array([None, value_of(GOOD, 1)], pa.binary()))
    result = world.replay()
    assert (result.replayed, result.reasons[0].error_class) == (1, "letter_unreadable")
    assert "altered or damaged" in world.lives()[0]["replay_message"]


def test_a_file_that_cannot_be_read_is_told_and_the_others_go_on(world: LettersWorld) -> None:
    world.add([GOOD])
    world.add([GOOD], seen=SEEN + timedelta(days=1))
    paths = sorted(task.file.file_path for task in world.dead().scan().plan_files())
    damaged = next(p for p in paths if "2026-03-01" in p).removeprefix("file://")
    with Path(damaged).open("r+b") as file:
        file.truncate(40)
    result = world.replay()
    assert (result.replayed, result.unreadable) == (1, 1)
    assert damaged in result.problems[0]
    assert world.landed() == {"p-1": 1}


def damage(world: LettersWorld, day: str) -> Path:
    """Spoil the data file with the letters of that day; returns its path."""
    (found,) = [task.file.file_path for task in world.dead().scan().plan_files() if day in task.file.file_path]
    damaged = Path(found.removeprefix("file://"))
    damaged.write_bytes(b"rubbish")
    return damaged


def test_a_damaged_file_between_the_others_is_in_nobody_s_way(world: LettersWorld) -> None:
    """By the offsets in its statistics it may hold letters that are in other files."""
    world.add([GOOD] * 4)
    world.add([GOOD] * 4, seen=SEEN + timedelta(days=1))
    world.add([GOOD, BROKEN, GOOD, GOOD], seen=SEEN + timedelta(days=2))
    damaged = damage(world, "2026-03-02")
    result = world.replay()
    assert (result.replayed, result.failed_again, result.unreadable) == (7, 1, 4)
    again = world.replay()
    assert (again.selected, again.parked, again.unreadable) == (1, 1, 4)
    assert set(world.landed()) == {f"p-{offset}" for offset in (0, 1, 2, 3, 8, 10, 11)}
    assert set(world.landed().values()) == {1}
    # Only damaged ones are left.
    last = CliRunner().invoke(main, ["--home", str(world.home), "replay", "payments"])
    assert last.exit_code == 1, last.output
    assert "no letter that can be read fits the selection" in last.output
    assert str(damaged) in last.output


def test_letters_that_are_in_a_damaged_file_only_are_not_said_to_be_told(
    world: LettersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add([GOOD])
    world.add([GOOD], seen=SEEN + timedelta(days=1))
    spoilt: list[tuple[Path, bytes]] = []

    def spoil(name: str) -> None:
        if name == "replay_after_files" and not spoilt:
            (path,) = [t.file.file_path for t in world.dead().scan().plan_files() if "2026-03-01" in t.file.file_path]
            file = Path(path.removeprefix("file://"))
            spoilt.append((file, file.read_bytes()))
            file.write_bytes(b"rubbish")

    monkeypatch.setattr("jobs.replay.run.step", spoil)
    with pytest.raises(UnreadableLettersError):
        world.replay()
    (file, content) = spoilt[0]
    file.write_bytes(content)
    assert world.replay().selected == 0
    assert world.landed() == {"p-0": 1, "p-1": 1}
    assert world.states() == {"replayed": 2}


def test_letters_of_very_many_partitions_come_back(world: LettersWorld) -> None:
    world.add([GOOD] * 600, partition=pa.array(range(600), pa.int32()))
    assert world.replay().replayed == 600
    assert world.states() == {"replayed": 600}
    assert set(world.landed().values()) == {1}


def test_a_replay_of_nothing_commits_nothing(world: LettersWorld) -> None:
    world.add([GOOD, GOOD])
    assert world.replay().replayed == 2
    before = world.sink().metadata_location, world.dead().metadata_location
    result = world.replay()
    assert (result.selected, result.replay) == (0, "")
    assert result.there_is is not None
    assert result.there_is.sentence() == "2 replayed (2 was_good)"
    assert (world.sink().metadata_location, world.dead().metadata_location) == before


def test_a_rollback_is_told_also_if_no_letter_fits(world: LettersWorld) -> None:
    world.add([GOOD])
    before = world.sink().metadata.snapshots
    world.append(world.sink(), pa.record_batch({"id": ["another"]}))
    first = world.sink().metadata.current_snapshot_id
    assert not before
    assert first is not None
    world.replay()
    world.sink().manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(StreamStopped, match="was rolled back"):
        world.replay()


def test_a_table_that_was_altered_by_hand_is_told(world: LettersWorld) -> None:
    world.add([GOOD])
    with world.dead().update_schema() as update:
        update.rename_column("value", "payload")
    for ask in (world.replay, world.dry_run):
        with pytest.raises(AlteredTableError, match="column value is missing") as refused:
            ask()
        assert "orders.payments_dead" in str(refused.value)
    assert world.landed() == {}


def test_a_correction_that_the_table_cannot_hold_is_told(world: LettersWorld) -> None:
    world.add([GOOD])
    correction = parse_correction(world.spec_file, "decode: {schema: 'id string not null, amount string'}")
    with pytest.raises(FrazilError, match="cannot hold what the correction declares: Column amount is declared"):
        world.replay(correction=correction)


def test_without_coordinates_a_lost_record_stops_the_replay(tmp_path: Path) -> None:
    world = LettersWorld(tmp_path, kafka_columns=False)
    world.add([GOOD])
    process = world.start("replay_after_commit=kill")
    assert process.wait() == -signal.SIGKILL
    assert "step replay_after_commit: SIGKILL" in process.said()
    for record in world.folder.glob("pending-*.json"):
        record.unlink()
    with pytest.raises(StreamStopped, match="its letters do not know it, its pending record is lost"):
        world.replay()
    assert world.landed() == {"p-0": 1}
    world.close()


def test_a_table_that_is_repartitioned_meanwhile_gets_files_of_its_own(
    world: LettersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add([GOOD, BROKEN])
    passed: list[str] = []

    def repartition(name: str) -> None:
        passed.append(name)
        if len(passed) == 1:
            with world.connect().load_table("orders.payments").update_spec() as update:
                update.add_field("id", BucketTransform(4), "bucket")

    monkeypatch.setattr("jobs.replay.run.step", repartition)
    result = world.replay()
    assert (result.replayed, result.failed_again) == (1, 1)
    assert passed == ["replay_after_files"] * 2, "its files no longer fit, and are written anew"
    files = list((world.home / ".frazil").rglob("orders*/payments/data/**/*.parquet"))
    assert len(files) == 1, "those that no longer fit are gone"
    assert world.landed() == {"p-0": 1}
    assert not list(world.folder.glob("pending-*"))


def test_letters_without_coordinates_come_back_only_where_they_are_named(world: LettersWorld) -> None:
    world.add([GOOD] * 2, reason="no_coordinates")
    world.add([GOOD])
    assert (world.dry_run().replayed, world.replay().replayed) == (1, 1)
    plain = world.replay(selection=Selection(where="offset < 2"))
    assert (plain.selected, plain.there_is and plain.there_is.by(1)["no_coordinates"]) == (0, 2)
    assert count_letters(world.dead(), "payments", Selection()).by(1) == {"no_coordinates": 2}
    named = Selection(reasons=("no_coordinates",))
    assert (world.dry_run(selection=named).replayed, world.replay(selection=named).replayed) == (2, 2)
    assert set(world.landed().values()) == {1}
