"""What people decide about letters, and the commands that they decide with."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from pyiceberg.table.name_mapping import MappedField, NameMapping

from jobs.base.errors import FrazilError
from jobs.dead_letters.expiry.dead_letter_states import (
    StateChange,
    change_dead_letters,
    set_states_by_rows,
    settle_lost_replay,
)
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.dead_letter_table.selection import Selection, SelectionError, parse_offsets
from orchestration.cli.main import main
from tests.helpers.dead_letters import BROKEN, GOOD, UNKNOWN, DeadLetterWorld
from tests.helpers.lane_stream import LaneStream
from tests.helpers.problem_places import without_columns


def frazil(dead_letters: DeadLetterWorld, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(dead_letters.home), *arguments], catch_exceptions=False)


def facts(dead_letters: DeadLetterWorld, *arguments: str) -> dict[str, Any]:
    result = frazil(dead_letters, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_letters_are_counted_by_state_and_reason(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, BROKEN])
    dead_letters.replay()
    assert facts(dead_letters, "letters", "payments")["letters"] == [
        {"state": "failed_again", "reason": "was_broken", "letters": 2},
        {"state": "replayed", "reason": "was_good", "letters": 1},
    ]
    shown = frazil(dead_letters, "letters", "payments", "--reason", "was_broken").output
    assert shown.split("\n\n")[0].split() == ["reason", "failed_again", "all", "was_broken", "2", "2"]


def test_a_letter_is_dismissed_by_whom_and_why_and_restored(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, GOOD])
    assert (
        facts(dead_letters, "letters", "payments", "--dismiss", "test data", "--reason", "was_broken")["changed"] == 1
    )
    letter = dead_letters.lives()[1]
    assert (letter["state"], letter["note"]) == ("dismissed", "test data")
    assert "@" in letter["changed_by"]
    assert dead_letters.replay().selected == 2
    assert facts(dead_letters, "letters", "payments", "--dismiss", "all of them", "--state", "all")["changed"] == 0
    assert facts(dead_letters, "letters", "payments", "--restore", "they count after all")["changed"] == 1
    assert dead_letters.states() == {"replayed": 2, "new": 1}


def test_a_parked_letter_that_is_restored_has_its_attempts_again(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN])
    dead_letters.replay()
    assert dead_letters.replay().parked == 1
    assert facts(dead_letters, "letters", "payments", "--restore", "the schema is another")["changed"] == 1
    assert dead_letters.lives()[0]["attempts"] == 0
    assert (dead_letters.replay().failed_again, dead_letters.lives()[0]["state"]) == (1, "failed_again")


@pytest.mark.parametrize(
    "arguments", [["--dismiss", " "], ["--dismiss", "a", "--restore", "b"], ["--expire", "--dismiss", "a"]]
)
def test_a_decision_is_one_and_has_a_reason(dead_letters: DeadLetterWorld, arguments: list[str]) -> None:
    refused = frazil(dead_letters, "letters", "payments", *arguments)
    assert refused.exit_code == 1
    assert "one decision at a time, and each with a reason" in refused.output


def test_old_letters_are_deleted_by_the_command_as_each_night(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN] * 2, seen=datetime.now(UTC) - timedelta(days=45))
    dead_letters.add([GOOD], seen=datetime.now(UTC))
    refused = frazil(dead_letters, "letters", "payments", "--expire")
    assert (refused.exit_code, "keeps its dead letters for ever" in refused.output) == (1, True)
    text = dead_letters.spec_file.read_text()
    dead_letters.spec_file.write_text(text.replace("park_after: 2}", "park_after: 2}, dead_letters: {keep: 30d}"))
    dry = frazil(dead_letters, "letters", "payments", "--expire", "--dry-run").output
    assert "2 dead letters first seen before" in dry
    assert "would be deleted, of which 2 had never come back" in dry
    assert dead_letters.states() == {"new": 3}
    assert facts(dead_letters, "letters", "payments", "--expire")["changed"] == 2
    assert dead_letters.states() == {"new": 1}
    alone = frazil(dead_letters, "letters", "payments", "--expire", "--reason", "was_broken")
    assert "--expire goes by age alone" in alone.output
    assert "--dry-run goes with a decision" in frazil(dead_letters, "letters", "payments", "--dry-run").output


def test_a_dry_run_counts_the_letters_of_a_decision(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([BROKEN, UNKNOWN])
    before = dead_letters.states()
    for decision, count in (("--dismiss", 2), ("--restore", 0), ("--after-rollback", 2)):
        dry = frazil(dead_letters, "letters", "payments", decision, "why", "--dry-run")
        assert (dry.exit_code, dry.output.splitlines()[0]) == (
            0,
            f"payments: the decision would be about {count} dead letters. Nothing was changed.",
        )
        found = facts(dead_letters, "letters", "payments", decision, "why", "--dry-run")
        assert (found["changed"], found["would_change"]) == (0, count)
    assert dead_letters.states() == before
    lost = frazil(dead_letters, "letters", "payments", "--settle-lost", "why")
    assert lost.exit_code == 2 and "--settle-lost why --yes" in lost.output


def test_the_replay_command_tells_what_it_did(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN, UNKNOWN])
    dry = frazil(dead_letters, "replay", "payments", "--dry-run").output
    assert "1 of 3 dead letters would come back; nothing was changed" in dry
    assert "1 × malformed_json in decode_value, such as topic payments.v1, partition 1, offset 1" in dry
    patch = dead_letters.home / "patch.yaml"
    patch.write_text("decode: {unknown_fields: ignore}\n")
    done = frazil(dead_letters, "replay", "payments", "--correction", str(patch)).output
    assert "with the correction:\n  decode:\n    unknown_fields: ignore" in done
    assert "2 of 3 dead letters came back" in done
    assert "left out of 1 records, as no column takes it: $.colour" in done
    assert "red" not in dry + done
    nothing = frazil(dead_letters, "replay", "payments", "--reason", "typo")
    assert nothing.exit_code == 0
    assert "no dead letter fits the selection; nothing to do. All dead letters: 2 replayed" in nothing.output
    told = facts(dead_letters, "replay", "payments")
    assert (told["selected"], told["parked"], told["replayed"]) == (1, 1, 0)


def test_the_dry_run_of_a_stream_with_a_registry(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    (dead_letters.home / "frazil.yaml").write_text("registry: {url: 'http://localhost:1'}\n")
    text = dead_letters.spec_file.read_text().replace("value: json", "value: avro").replace("unknown_fields: fail", "")
    dead_letters.spec_file.write_text(text.replace("id string not null, amount decimal(12,2)", "table"))
    done = frazil(dead_letters, "replay", "payments", "--dry-run")
    assert done.exit_code == 0, done
    assert "0 of 1 dead letters would come back; nothing was changed" in done.output


def test_a_correction_that_is_none_is_told_by_file_and_line(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    patch = dead_letters.home / "patch.yaml"
    for text, said in (
        (
            "decode:\n  unknown_fields: maybe\n",
            "patch.yaml:2: decode.unknown_fields: must be 'ignore', 'fail' or 'keep'",
        ),
        ("decode:\n  shema: id string\n", "patch.yaml:2: decode.shema: unknown key; did you mean 'schema'?"),
        ("decode:\n  schema: id strin\n", "patch.yaml:2: decode.schema: "),
        ("# c\ntable: {name: a.b}\n", "patch.yaml:2: table: a correction cannot change it; it may change decode"),
        ("errors:\n  dead_letters: {table: a.b}\n", "patch.yaml:2: errors.dead_letters: a correction cannot change it"),
        ("errors: {tolerance: all}\n", "patch.yaml:1: errors.tolerance: it does not matter to a replay: records that"),
        ("errors:\n  replay: {automatic: true}\n", "patch.yaml:2: errors.replay.automatic: it does not matter to a"),
        ("errors: {stop_above: off}\n", "patch.yaml:1: errors.stop_above: it does not matter to a replay"),
        ("decode: [\n", "patch.yaml:2: is not YAML"),
        ("- a\n", "patch.yaml:1: must be a mapping of keys to values"),
        ("", "patch.yaml:1: the file is empty"),
    ):
        patch.write_text(text)
        refused = frazil(dead_letters, "replay", "payments", "--correction", str(patch))
        assert (refused.exit_code, said in without_columns(refused.output)) == (1, True), refused.output
    assert (
        "cannot be read"
        in frazil(dead_letters, "replay", "payments", "--correction", str(dead_letters.home / "none")).output
    )
    assert dead_letters.states() == {"new": 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "'yesterday' is no time"),
        (["--until", "31.1.2026"], "--until: '31.1.2026' is no time"),
        (["--since", "2999-01-01"], "2999-01-01 is still to come"),
        (["--offsets", "a b"], "'a b' is no place in Kafka"),
        (["--offsets", "t:0:9-3"], "ends before it begins"),
        (["--where", "nothing ="], "cannot be read"),
        (["--from-topic", "q", "--reason", "x"], "has no selection"),
        (["--from-topic", "q", "--to-topic", "t"], "it takes neither --from-topic nor --correction"),
    ],
)
def test_what_means_nothing_is_told(dead_letters: DeadLetterWorld, arguments: list[str], said: str) -> None:
    dead_letters.add([GOOD])
    refused = frazil(dead_letters, "replay", "payments", *arguments)
    assert (refused.exit_code, said in without_columns(refused.output)) == (1, True), refused.output
    assert "Next:" in refused.output


def test_offsets_are_read_with_the_last_one_included() -> None:
    assert parse_offsets("t:3:17-42").range == (17, 43)
    assert parse_offsets("t:3:-4").range == (0, 5)
    assert parse_offsets("t").partition is None
    with pytest.raises(SelectionError, match="no state of a dead letter"):
        Selection(states=("lost",))


def test_after_a_rollback_letters_are_set_to_what_the_rows_say(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD])
    dead_letters.replay()
    kept = dead_letters.sink().metadata.current_snapshot_id
    assert kept is not None
    dead_letters.add([GOOD, BROKEN])
    dead_letters.replay()
    sink = dead_letters.sink()
    sink.manage_snapshots().set_current_snapshot(snapshot_id=kept).commit()
    assert dead_letters.landed() == {"p-0": 1}
    with pytest.raises(RolledBackError, match=r"table orders\.payments was rolled back") as stopped:
        dead_letters.replay()
    assert "frazil letters payments --after-rollback WHY" in str(stopped.value)
    assert set_states_by_rows(*dead_letters.given, "me", "rolled back") == 1
    assert dead_letters.states() == {"replayed": 1, "new": 1, "failed_again": 1}
    assert dead_letters.replay().replayed == 1
    assert dead_letters.landed() == {"p-0": 1, "p-1": 1}


def test_after_a_rollback_of_the_letters_their_rows_tell(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, GOOD, BROKEN])
    kept = dead_letters.dead().metadata.current_snapshot_id
    assert kept is not None
    dead_letters.replay()
    dead_letters.dead().manage_snapshots().set_current_snapshot(snapshot_id=kept).commit()
    with pytest.raises(RolledBackError, match=r"table orders\.payments_dead was rolled back"):
        dead_letters.replay()
    assert set_states_by_rows(*dead_letters.given, "me", "rolled back") == 2
    assert dead_letters.states() == {"replayed": 2, "new": 1}
    assert dead_letters.replay().replayed == 0
    assert dead_letters.landed() == {"p-0": 1, "p-1": 1}


def test_a_lost_record_without_coordinates_is_settled_by_a_person(tmp_path: Path) -> None:
    dead_letters = DeadLetterWorld(tmp_path, kafka_columns=False)
    dead_letters.add([GOOD, GOOD])
    process = dead_letters.start("replay_after_commit=kill", "--limit", "1")
    assert process.wait() == -signal.SIGKILL, process.said()
    for left in dead_letters.folder.glob("pending-*"):
        left.unlink()
    with pytest.raises(FrazilError, match="its pending record is lost"):
        change_dead_letters(
            *dead_letters.given,
            Selection(),
            StateChange("dismissed", "me", "landed"),
        )
    assert settle_lost_replay(*dead_letters.given, "me: I look after it") == 0
    (landed,) = dead_letters.landed()
    where = f"offset = {landed.removeprefix('p-')}"
    landed_one = Selection(where=where)
    assert (
        change_dead_letters(
            *dead_letters.given,
            landed_one,
            StateChange("dismissed", "me", "landed"),
        )
        == 1
    )
    assert dead_letters.replay().replayed == 1
    assert dead_letters.landed() == {"p-0": 1, "p-1": 1}
    dead_letters.close()


SECRET = "4000-1234"


def shown(home: Path) -> dict[str, dict[str, Any]]:
    """The letters by their topics."""
    result = CliRunner().invoke(main, ["--home", str(home), "letters", "shop", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    causes = json.loads(result.stdout)["causes"]
    return {letter["topic"]: letter for cause in causes for letter in cause["shown"]}


def aliased(one: LaneStream, name: str, column: str, alias: str) -> None:
    """Lets records write a column under another name as well."""
    table = one.catalog.load_table(name)
    mapped = [
        MappedField.model_validate(
            {"field-id": each.field_id, "names": [each.name, *([alias] if each.name == column else [])]}
        )
        for each in table.schema().fields
    ]
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": NameMapping(mapped).model_dump_json()})


def test_a_letter_is_masked_by_the_names_of_its_own_topics_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = {"by": "topic", "tables": [{"match": name, "table": f"lake.{name}"} for name in ("a", "b", "c")]}
    one = LaneStream(tmp_path / "home", route, {}, monkeypatch)
    for topic in ("a", "b"):
        one.produce(topic, {"id": 1, "card": "x"})
    one.land()
    aliased(one, "lake.a", "card", "pan")
    for topic in ("a", "b", "no_table"):
        one.produce(topic, {"id": "not a number", "pan": SECRET})
    one.produce("c", b'{"pan": "%s", no JSON' % SECRET.encode())
    one.land(1)
    assert {topic: SECRET in letter["value"] for topic, letter in shown(one.home).items()} == dict.fromkeys(
        ("a", "b", "no_table", "c"), True
    )
    file = one.home / "streams" / "shop.yaml"
    spec = yaml.safe_load(file.read_text())
    spec["errors"]["dead_letters"] = {"mask": {"columns": ["card"]}}
    file.write_text(yaml.safe_dump(spec))
    found = shown(one.home)
    # What is no JSON shows nothing; the field that is called so in other tables is none that is masked.
    assert {topic: each["value"] is not None and SECRET in each["value"] for topic, each in found.items()} == {
        "a": False,
        "b": True,
        "no_table": True,
        "c": False,
    }
    assert "[masked]" in found["a"]["value"] and found["a"]["masked"] == "value"
    assert found["b"]["masked"] is None
