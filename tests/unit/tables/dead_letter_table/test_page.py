"""Letters to look at: by cause, a page at a time, and nothing that is masked."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from jobs.records.formats.interface.decoder import Failure
from jobs.tables.dead_letter_table.page import MOST_CAUSES, Cause, dead_letter_page
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.table import STATES
from orchestration.cli.main import main
from tests.helpers.dead_letters import BROKEN, GOOD, SEEN, DeadLetterWorld

ALL = Selection(states=STATES)


def fill(
    dead_letters: DeadLetterWorld,
    letters: Sequence[tuple[str, str | None, str, bytes | None]],
    first_ms: int = int(SEEN.timestamp() * 1000),
) -> None:
    """Letters of `(class, field, message, value)` with consecutive offsets, in one data file."""
    first, dead_letters.offsets = dead_letters.offsets, dead_letters.offsets + len(letters)
    count = len(letters)
    records = pa.record_batch(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array([each[3] for each in letters], pa.binary()),
            "topic": pa.array([f"t{(first + i) % 2}" for i in range(count)]),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([(first_ms + 1000 * i) * 1000 for i in range(count)]).cast(pa.timestamp("us", "UTC")),
        }
    )
    failures = [Failure(i, "decode_value", each[0], each[2], each[1]) for i, each in enumerate(letters)]
    rows = dead_letter_rows(
        records, failures, stream="payments", config_hash="abc", batch_id=1, epoch=1, first_seen=datetime.now(UTC)
    )
    dead_letters.append(dead_letters.dead(), rows)


def frazil(dead_letters: DeadLetterWorld, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(dead_letters.home), *arguments], catch_exceptions=False)


@pytest.mark.parametrize("seed", range(4))
def test_the_pages_hold_every_letter_once_in_order(dead_letters: DeadLetterWorld, seed: int) -> None:
    chance = random.Random(seed)
    letters: list[tuple[str, str | None, str, bytes | None]] = []
    for number in range(chance.randrange(1, 120)):
        name = chance.choice(["wrong_type", "malformed_json"])
        field = chance.choice([None, "$.a", f"$.items[{number}].n"])
        message = chance.choice(["needs int, found a string", f"needs date, found '{number}'", "bad"])
        letters.append((name, field, message, b'{"n": %d}' % number))
    half = len(letters) // 2
    for part in (letters[:half], letters[half:]):
        if part:
            fill(dead_letters, part)
    expected: dict[Cause, list[tuple[str, int]]] = {}
    for offset, (name, field, message, _) in enumerate(letters):
        needs = {"needs int": "needs int, found a string", "needs dat": "needs date"}.get(message[:9], "")
        path = "" if field is None else "$.a" if field == "$.a" else "$.items[].n"
        expected.setdefault(Cause(name, "decode_value", path, needs), []).append((f"t{offset % 2}", offset))
    first = dead_letter_page(dead_letters.dead(), dead_letters.spec, ALL, of_each=4)
    assert first.counts == {cause: len(places) for cause, places in expected.items()}
    assert list(first.counts.values()) == sorted(first.counts.values(), reverse=True)
    met: dict[Cause, list[tuple[str, int]]] = {cause: [] for cause in expected}
    for number in range(1, first.pages + 1):
        page = dead_letter_page(dead_letters.dead(), dead_letters.spec, ALL, page=number, of_each=4)
        for cause, shown in page.letters.items():
            assert 1 <= len(shown) <= 4
            met[cause] += [(letter.topic, letter.offset) for letter in shown]
            assert {letter.value for letter in shown} == {f'{{"n": {letter.offset}}}' for letter in shown}
            assert [letter.message for letter in shown] == [letters[letter.offset][2] for letter in shown]
    assert met == {cause: sorted(places) for cause, places in expected.items()}
    assert dead_letter_page(dead_letters.dead(), dead_letters.spec, ALL, page=first.pages + 1, of_each=4).letters == {}


def test_causes_beyond_the_most_frequent_are_counted(dead_letters: DeadLetterWorld) -> None:
    fill(dead_letters, [("unknown_field", f"$.key{i}", "is not declared", b"{}") for i in range(MOST_CAUSES + 7)])
    page = dead_letter_page(dead_letters.dead(), dead_letters.spec, ALL)
    assert (len(page.counts), page.others) == (MOST_CAUSES, 7)
    assert "7 dead letters of other causes" in frazil(dead_letters, "letters", "payments").output


def test_the_command_shows_why_and_where_and_what(dead_letters: DeadLetterWorld) -> None:
    needs = "needs decimal(12,2), found a string"
    fill(dead_letters, [("wrong_type", "$.amount", needs, b'{"amount": "x%d"}' % i) for i in range(5)])
    fill(dead_letters, [("malformed_json", None, "needs one valid JSON object: \x1b[31m", b"\x1b[2J\xff" + b"y" * 400)])
    shown = frazil(dead_letters, "letters", "payments").output
    assert f"5 × wrong_type in decode_value at $.amount: {needs}\n" in shown
    assert f'  topic t0, partition 0, offset 0: $.amount: {needs}\n    {{"amount": "x0"}}' in shown
    assert "Next: frazil letters payments … --page 2" in shown
    assert "\x1b" not in shown
    assert "\\x1b[2J\\xffyyy" in shown
    assert "yyy… (405 bytes)" in shown
    second = frazil(dead_letters, "letters", "payments", "--page", "2").output
    assert ("offset 3" in second, "offset 0: " in second) == (True, False)
    assert "malformed" not in second.split("\n\n", 1)[1]
    facts = json.loads(
        frazil(dead_letters, "letters", "payments", "--json", "--limit", "1", "--reason", "wrong_type").stdout
    )
    (cause,) = facts["causes"]
    assert (cause["letters"], cause["reason"], cause["field"], facts["pages"]) == (5, "wrong_type", "$.amount", 5)
    (letter,) = cause["shown"]
    assert (letter["topic"], letter["offset"], letter["value"], letter["state"]) == ("t0", 0, '{"amount": "x0"}', "new")
    refused = frazil(dead_letters, "letters", "payments", "--page", "2", "--dismiss", "no")
    assert (refused.exit_code, "--page is for listing" in refused.output) == (1, True)


def test_a_time_beyond_the_year_9999_which_earlier_versions_kept_is_none(dead_letters: DeadLetterWorld) -> None:
    fill(dead_letters, [("wrong_type", "$.amount", "needs int, found a string", b"{}")], first_ms=1_731_508_712_229_224)
    (letters,) = dead_letter_page(dead_letters.dead(), dead_letters.spec, ALL).letters.values()
    assert [(each.offset, each.timestamp) for each in letters] == [(0, None)]


def test_the_last_replay_is_told_beside_the_first_failure(dead_letters: DeadLetterWorld) -> None:
    dead_letters.add([GOOD, BROKEN])
    dead_letters.replay()
    shown = frazil(dead_letters, "letters", "payments").output
    assert "offset 1, failed_again: $.a: bad\n    last replay: malformed_json: " in shown
    assert "offset 0, replayed: $.a: bad\n" in shown


def masking(dead_letters: DeadLetterWorld, mask: str) -> None:
    text = dead_letters.spec_file.read_text()
    dead_letters.spec_file.write_text(
        text.replace("park_after: 2}", f"park_after: 2}}, dead_letters: {{mask: {mask}}}")
    )


def test_a_mask_counts_also_for_letters_that_are_older(dead_letters: DeadLetterWorld) -> None:
    secret = "4000-1234"
    value = json.dumps({"id": "p", "card": {"number": secret}}).encode()
    fill(dead_letters, [
        ("unknown_field", "$.card", "is not declared", value),
        ("wrong_type", "$.card.number", f"needs int, found '{secret}'", value),
        ("malformed_json", None, "needs one valid JSON object: x", b'{"card": {"number": "%s"' % secret.encode()),
    ])  # fmt: skip
    connect = pa.table({"epoch": pa.nulls(1, pa.int64())})
    rows: list[dict[str, Any]] = dead_letters.dead().scan().to_arrow().slice(0, 1).to_pylist()
    said = f"VALUE_CONVERTER, DataException: no such card {secret}"
    rows[0] |= {"offset": 9, "epoch": connect.column("epoch")[0].as_py(), "message": said, "field": None}
    dead_letters.dead().append(pa.Table.from_pylist(rows, dead_letters.dead().schema().as_arrow()))
    assert secret in frazil(dead_letters, "letters", "payments").output
    masking(dead_letters, "{columns: [card.number]}")
    for more in ((), ("--json",)):
        shown = frazil(dead_letters, "letters", "payments", *more).output
        assert secret not in shown
        assert "[masked]" in shown
        assert "what was found is masked" in shown


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_shown(dead_letters: DeadLetterWorld) -> None:
    fill(dead_letters, [("wrong_type", "$.a", "bad", b"{}")])
    fill(dead_letters, [("missing_field", "$.b", "bad", b"{}")])
    files = sorted(task.file.file_path for task in dead_letters.dead().scan().plan_files())
    Path(files[0].removeprefix("file://")).write_bytes(b"nothing")
    page = dead_letter_page(dead_letters.dead(), dead_letters.spec, ALL)
    assert (sum(page.counts.values()), len(page.unreadable)) == (1, 1)
    shown = frazil(dead_letters, "letters", "payments").output
    assert shown.count("cannot be read") == 1
