"""What is told of dead letters: numbers that plot, a table of reasons and states, and how many may wait."""

from __future__ import annotations

import dagster as dg
import pytest

from assets.dead_letters import LETTERS_WAITING, letters_waiting, tally_events, tally_markdown, tally_metadata
from jobs.config.stream.models import StreamSpec
from jobs.tables.dead_letter_table.tally import DeadLetterTally, LetterKind
from tests.helpers.dead_letters import DeadLetterWorld

KEY = dg.AssetKey(["frazil", "orders", "payments_dead"])
LETTERS = DeadLetterTally(
    7,
    {
        LetterKind("new", "wrong_type", "a"): 900,
        LetterKind("new", "wrong_type", "b"): 13,
        LetterKind("replayed", "wrong_type", "a"): 3,
        LetterKind("failed_again", "not|json", "a"): 20,
        LetterKind("dismissed", "other", "a"): 5,
    },
)


@pytest.fixture
def spec(dead_letters: DeadLetterWorld) -> StreamSpec:
    return dead_letters.spec


def test_every_number_is_there_every_time() -> None:
    names = {f"dead_letters_{state}" for state in ("new", "replayed", "failed_again", "parked", "dismissed")}
    names |= {"dead_letters_total", "dead_letters_waiting"}
    assert tally_metadata(DeadLetterTally()) == dict.fromkeys(names, 0)
    told = tally_metadata(LETTERS)
    assert {name: told[name] for name in names} == {
        "dead_letters_new": 913,
        "dead_letters_replayed": 3,
        "dead_letters_failed_again": 20,
        "dead_letters_parked": 0,
        "dead_letters_dismissed": 5,
        "dead_letters_total": 941,
        "dead_letters_waiting": 933,
    }


def test_the_table_has_reasons_by_states() -> None:
    assert tally_markdown(LETTERS).splitlines() == [
        "| reason | new | replayed | failed_again | dismissed | all |",
        "|---|---:|---:|---:|---:|---:|",
        "| wrong_type | 913 | 3 | 0 | 0 | 916 |",
        "| not\\|json | 0 | 0 | 20 | 0 | 20 |",
        "| other | 0 | 0 | 0 | 5 | 5 |",
        "| all | 913 | 3 | 20 | 5 | 941 |",
    ]


def test_many_reasons_are_summed_up() -> None:
    many = DeadLetterTally(1, {LetterKind("new", f"reason_{n:03}", "a"): n for n in range(1, 101)})
    lines = tally_markdown(many).splitlines()
    assert len(lines) == 24
    assert lines[2] == "| reason_100 | 100 | 100 |"
    assert lines[-2] == "| 80 others | 3,240 | 3,240 |"
    assert lines[-1] == "| all | 5,050 | 5,050 |"


def test_how_many_may_wait(spec: StreamSpec) -> None:
    def judged(read: int, **states: int):
        return letters_waiting(
            spec, DeadLetterTally(1, {LetterKind(s, "wrong_type", "a"): n for s, n in states.items()}), read
        )

    assert judged(0).passed
    assert judged(0, new=5).passed, "nobody knows of how many"
    assert judged(1000, new=50).passed, "5 % are allowed where the file does not say"
    above = judged(1000, new=40, failed_again=11)
    assert (above.passed, above.warn, above.name) == (False, True, LETTERS_WAITING)
    assert "51 dead letters wait, 5.10% of the 1,000 records" in above.sentence
    assert above.sentence.endswith("Next: frazil replay payments --dry-run")
    assert judged(1000, replayed=500, dismissed=500).passed
    assert judged(99, new=12).passed, "so few of so few may be chance"
    assert not judged(99, new=99).passed
    assert judged(2, new=2).passed
    parked = judged(100_000, parked=1)
    assert (parked.passed, parked.warn) == (False, True)
    assert parked.sentence.endswith("Next: frazil letters payments --state parked")
    unreadable = letters_waiting(spec, DeadLetterTally(1, {}, unreadable=4), 1000)
    assert not unreadable.passed
    assert "4 dead letters are in data files that cannot be read" in unreadable.sentence


def test_letters_of_a_parked_table_are_named_and_count_for_no_ratio(spec: StreamSpec) -> None:
    kinds = {
        LetterKind("new", "table_parked", "a", "orders.a"): 400,
        LetterKind("replayed", "table_parked", "a", "b"): 7,
    }
    judged = letters_waiting(spec, DeadLetterTally(1, {**kinds, LetterKind("new", "wrong_type", "a"): 2}), 1000)
    assert (judged.passed, judged.warn) == (False, True)
    assert judged.sentence.startswith(
        "400 dead letters wait for table orders.a, which is or was suspended. Next: frazil status"
    )
    assert judged.figures["waiting_for_orders.a"] == 400 and judged.figures["waiting_ratio"] == 0.002
    assert letters_waiting(spec, DeadLetterTally(1, dict(list(kinds.items())[1:])), 1000).passed


def test_the_file_says_how_many_may_wait(spec: StreamSpec) -> None:
    strict = spec.model_copy(update={"slo": spec.slo.model_copy(update={"dead_letter_ratio": 0.001})})
    letters = DeadLetterTally(1, {LetterKind("new", "wrong_type", "a"): 2})
    assert letters_waiting(spec, letters, 1000).passed
    assert not letters_waiting(strict, letters, 1000).passed


def test_a_report_is_a_materialization_and_a_check(spec: StreamSpec) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for event in tally_events(spec, KEY, LETTERS, 100_000, 941, {"run_id": "x"}):
            instance.report_runless_asset_event(event)
        told = instance.get_latest_materialization_event(KEY)
        assert told is not None
        assert told.asset_materialization is not None
        metadata = told.asset_materialization.metadata
        assert metadata["dead_letters_new"].value == 913
        assert isinstance(metadata["letters"], dg.MarkdownMetadataValue)
        assert metadata["snapshot_id"].value == "7"
        check = dg.AssetCheckKey(KEY, LETTERS_WAITING)
        record = instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
        assert record.status.value == "SUCCEEDED"
