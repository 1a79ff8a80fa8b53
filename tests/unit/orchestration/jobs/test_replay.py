"""Replays as Dagster runs, on real tables: what is told of them, what they leave, and how they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.dead_letters.replay.opening import replay_session
from orchestration.jobs.replay import ReplayConfig, replay_job, replay_run_config, replay_tags
from orchestration.sensors.reconcile import acting_runs
from tests.helpers.dead_letters import BROKEN, GOOD, UNKNOWN, DeadLetterWorld
from tests.unit.orchestration.dead_letter_deployment import DEAD, execute, failure_of, metadata_of, reported


def run(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance, **config: Any) -> Any:
    return execute(
        dead_letters, instance, replay_job, replay_run_config(ReplayConfig(stream="payments", **{"by": "jo", **config}))
    )


def logged(instance: dg.DagsterInstance, run_id: str) -> str:
    return "\n".join(entry.user_message for entry in instance.all_logs(run_id) if entry.dagster_event is None)


def test_a_dry_run_changes_nothing(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    dead_letters.add([GOOD] * 3 + [BROKEN] * 2)
    before = dead_letters.dead().metadata.current_snapshot_id
    result = run(dead_letters, instance, dry_run=True)
    assert result.success
    told = metadata_of(result, "replay")
    assert told["dry_run"] is True
    assert (told["letters_selected"], told["letters_landed"], told["letters_failed_again"]) == (5, 3, 2)
    assert told["result"] == "payments: 3 of 5 dead letters would come back; nothing was changed"
    assert told["next"] == "launch it again with dry_run: false"
    assert (dead_letters.dead().metadata.current_snapshot_id, dead_letters.landed()) == (before, {})


def test_a_replay_lands_and_tells(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    offsets = dead_letters.add([GOOD] * 3 + [BROKEN] * 2)
    result = run(dead_letters, instance, dry_run=False, reason="schema corrected")
    assert result.success
    told = metadata_of(result, "replay")
    assert {name: value for name, value in told.items() if name.startswith("letters_") and value} == {
        "letters_selected": 5,
        "letters_landed": 3,
        "letters_failed_again": 2,
        "letters_per_second": told["letters_per_second"],
    }
    (row,) = [record.data for record in told["failed_by_reason"]]
    assert (row["stage"], row["letters"]) == ("decode_value", 2)
    assert row["such_as"].startswith("topic payments.v1, partition ")
    assert told["snapshot_id"] == str(dead_letters.sink().metadata.current_snapshot_id)
    assert dead_letters.landed() == {f"p-{offset}": 1 for offset in offsets[:3]}
    lives = dead_letters.lives()
    assert {life["run_id"] for life in lives.values()} == {result.run_id}
    assert {life["changed_by"] for life in lives.values()} == {"jo"}
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    tags = {"frazil/stream": "payments", "frazil/action": "replay", "frazil/reason": "schema corrected"}
    assert {**tags, "frazil/by": "jo"}.items() <= stored.tags.items()
    assert "5 of 5 dead letters; 3 came back, 2 failed again" in logged(instance, result.run_id)
    # The asset, and what its check says, are told at once; the supervisor would do so within minutes.
    asset = reported(instance)
    assert (asset["dead_letters_replayed"], asset["dead_letters_failed_again"]) == (3, 2)
    assert asset["run_id"] == result.run_id
    again = metadata_of(run(dead_letters, instance, dry_run=False, states=["new"]), "replay")
    assert (again["letters_selected"], again["letters_landed"]) == (0, 0)
    assert "no dead letter fits the selection" in again["result"]


def test_a_correction_and_a_selection(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    dead_letters.add([UNKNOWN] * 2)
    dead_letters.add([BROKEN])
    correction = "decode: {unknown_fields: ignore}"
    result = run(dead_letters, instance, dry_run=False, correction=correction, reasons=["was_unknown"], limit=1)
    told = metadata_of(result, "replay")
    assert (told["letters_selected"], told["letters_landed"]) == (1, 1)
    assert "unknown_fields: ignore" in told["correction"]
    assert dead_letters.states() == {"new": 2, "replayed": 1}


def test_parked_letters_plot(dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
    dead_letters.add([BROKEN] * 4)
    assert metadata_of(run(dead_letters, instance, dry_run=False), "replay")["letters_failed_again"] == 4
    told = metadata_of(run(dead_letters, instance, dry_run=False), "replay")
    assert (told["letters_parked"], told["letters_failed_again"]) == (4, 0)
    check = dg.AssetCheckKey(DEAD, "letters_waiting")
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
    assert record.status.value == "FAILED"
    assert record.event is not None
    description = record.event.dagster_event.event_specific_data.description  # type: ignore[union-attr]
    assert "4 dead letters are exhausted" in str(description)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"states": ["lost"]}, "lost is no state of a dead letter"),
        ({"where": "colour = 'red'"}, "there is no column"),
        ({"since": "yesterday"}, "'yesterday' is no time"),
        ({"offsets": ["a b"]}, "is no place in Kafka"),
        ({"correction": "table: {name: x.y}"}, "a correction cannot change it"),
        ({"correction": "decode: ["}, "correction:1"),
    ],
)
def test_what_means_nothing_ends_the_run_with_a_sentence(
    dead_letters: DeadLetterWorld, instance: dg.DagsterInstance, config: dict[str, Any], said: str
) -> None:
    dead_letters.add([GOOD])
    failed = failure_of(run(dead_letters, instance, dry_run=False, **config))
    assert said in failed.description
    assert failed.metadata["next"].value
    assert dead_letters.states() == {"new": 1}


def test_a_second_replay_is_refused_and_names_the_first(
    dead_letters: DeadLetterWorld, instance: dg.DagsterInstance
) -> None:
    dead_letters.add([GOOD])
    with replay_session(*dead_letters.given):
        failed = failure_of(run(dead_letters, instance, dry_run=False))
    assert "are being replayed by process" in failed.description


def test_letters_that_cannot_be_read_fail_the_run_and_the_others_come_back(
    dead_letters: DeadLetterWorld, instance: dg.DagsterInstance
) -> None:
    dead_letters.add([GOOD] * 2)
    dead_letters.add([GOOD])
    (file, *_) = [task.file for task in dead_letters.dead().scan().plan_files() if task.file.record_count == 1]
    Path(file.file_path.removeprefix("file://")).write_bytes(b"nothing")
    failed = failure_of(run(dead_letters, instance, dry_run=False))
    assert "cannot be read" in failed.description
    assert (failed.metadata["letters_landed"].value, failed.metadata["letters_unreadable"].value) == (2, 1)
    assert sum(dead_letters.landed().values()) == 2


def test_a_replay_under_way_does_not_hold_its_stream_up(instance: dg.DagsterInstance) -> None:
    config = ReplayConfig(stream="payments")
    instance.create_run_for_job(
        replay_job, run_config=replay_run_config(config), tags=replay_tags(config), status=dg.DagsterRunStatus.STARTED
    )
    assert acting_runs(instance) == {}
