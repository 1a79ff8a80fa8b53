"""Mistakes planted into a stream's file, many at once: one run reports each of them at its line."""

# ruff: noqa: E501 (a table reads best with one case a line)

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.documents.judgement import judge
from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.settings.stream_rules import STREAM_RULES
from jobs.config.stream.models import StreamSpec

GOOD = """\
stream: payments
description: Card payments
owner: team:payments
source:
  topics: [payments]
  start: earliest
  max_records_per_batch: 100_000
  max_bytes_per_batch: 64MB
  options:
    client.rack: rack-a
decode:
  value: json
  unknown_fields: ignore
  schema: |
    id string not null,
    payer string not null,
    amount decimal(12,2) not null,
    created_at timestamptz not null,
    document string,
    kind string
  headers:
    trace: string
transform:
  - where: amount > 0
  - drop_headers: [debug]
  - compute:
      total: amount * 2
  - cast:
      document: string
  - mask:
      columns: [payer]
rules:
  - name: has_kind
    expect: kind is not null
  - name: is_small
    expect: amount < 1000
    severity: warn
table:
  name: orders.payments
  partition_by:
    - day(created_at)
    - bucket(16, id)
  sort_by:
    - id desc
    - created_at
  identifier_fields:
    - id
  branch: main
  kafka_columns:
    key: true
  properties:
    write.target-file-size-bytes: 1000000
errors:
  tolerance: data
  retry:
    timeout: 5m
  stop_above:
    ratio: 0.05
  dead_letters:
    table: orders.payments_dead
    keep: 30d
    mask:
      columns:
        - card.number
        - id
  replay:
    park_after: 3
trigger:
  every: 10s
group: small
freshness:
  warn: 1h
  fail: 6h
slo:
  lag_records: 1000
  lag_time: 15m
  dead_letter_ratio: 0.1
  unknown_fields: [$.debug]
restart:
  max_restarts: 7
  first_delay: 10s
maintenance:
  compact:
    target: 128MB
    fragment: 1/8
    strategy: sort
    sort_by:
      - created_at
  expire:
    keep: 7d
    min_snapshots: 5
  orphans:
    older_than: 7d
  windows:
    - 22:00-05:00
event_time:
  column: created_at
  grace: 10m
contract:
  check:
    every: 1h
  expectations:
    - expect_column_values_to_not_be_null:
        column: kind
      severity: critical
    - expect_column_values_to_be_between:
        column: amount
        min_value: 0
"""


@dataclass(frozen=True)
class Mistake:
    """One way to spoil the file.

    Attributes:
        right: A line of the file, without its indentation.
        wrong: What stands in its place.
        says: A part of the sentence about it.
        at: Which of the lines that read so, from 0.
        needs: A line that has to be right, or this one cannot be judged.
    """

    right: str
    wrong: str
    says: str
    at: int = 0
    needs: str | None = None


MISTAKES = [
    Mistake("stream: payments", "stream: Payments", "must start with a small letter"),
    Mistake("owner: team:payments", "owner: [team]", "must be text; found a list; write team"),
    Mistake("topics: [payments]", "topics: payments", "must be a list; found 'payments'; write [payments]"),
    Mistake("topics: [payments]", "topics: [pay ments]", "is not the name of a topic"),
    Mistake("start: earliest", "start: erliest", "did you mean 'earliest'?"),
    Mistake("max_records_per_batch: 100_000", "max_records_per_batch: 10k", "must be a whole number; found '10k'; write 10000"),
    Mistake("max_bytes_per_batch: 64MB", "max_bytes_per_batch: 64 megabytes", "write 64MB"),
    Mistake("max_bytes_per_batch: 64MB", "max_byte_per_batch: 64MB", "unknown key; did you mean 'max_bytes_per_batch'?"),
    Mistake("client.rack: rack-a", "client.rak: rack-a", "unknown option; did you mean 'client.rack'?"),
    Mistake("value: json", "value: JSN", "did you mean 'json'?"),
    Mistake("unknown_fields: ignore", "unknown_fields: ignored", "did you mean 'ignore'?"),
    Mistake("unknown_fields: ignore", "unknown_field: ignore", "unknown key; did you mean 'unknown_fields'?"),
    Mistake("document string,", "document strin,", "'strin' is not a type"),
    Mistake("document string,", "document string nul,", "follows a complete column"),
    Mistake("- where: amount > 0", "- where: amout > 0", "there is no column 'amout'; did you mean amount?"),
    Mistake("- where: amount > 0", "- where: amount > and", "the expression is wrong at column"),
    Mistake("- where: amount > 0", "- wher: amount > 0", "unknown key; did you mean 'where'?"),
    Mistake("expect: kind is not null", "expect: kindd is not null", "there is no column 'kindd'"),
    Mistake("- name: has_kind", "- name: Has Kind", "must be a name of small letters"),
    Mistake("severity: warn", "severity: warning", "did you mean 'warn'?"),
    Mistake("name: orders.payments", "name: payments", "must be namespace.table"),
    Mistake("- day(created_at)", "- days(created_at)", "unknown transform 'days'"),
    Mistake("- day(created_at)", "- day(creatd_at)", "no column 'creatd_at' in decode.schema"),
    Mistake("- bucket(16, id)", "- bucket(id)", "needs a number and a column"),
    Mistake("- bucket(16, id)", "- month(id)", "month cannot take the column 'id'"),
    Mistake("- id desc", "- idd desc", "no column 'idd' in decode.schema"),
    Mistake("- id desc", "- 17", "must be a column, such as"),
    Mistake("- id", "- kind", "'kind' may be null, and an identifier is always there"),
    Mistake("- id", "- nope", "the stream has no column 'nope'"),
    Mistake("branch: main", "branch: my branch", "must be a branch's name"),
    Mistake("key: true", "key: [a]", "must be text; found a list"),
    Mistake("write.target-file-size-bytes: 1000000", "write.target-file-size-bytes: null", "must be a single value"),
    Mistake("write.target-file-size-bytes: 1000000", "a: '${env:SECRET}'", "secrets belong in frazil.yaml"),
    Mistake("tolerance: data", "tolerance: dta", "did you mean 'data'?"),
    Mistake("timeout: 5m", "timeout: 5 minutes", "write 5m"),
    Mistake("timeout: 5m", "timout: 5m", "unknown key; did you mean 'timeout'?"),
    Mistake("ratio: 0.05", "ratio: 5%", "must be a number; found '5%'; write 0.05"),
    Mistake("ratio: 0.05", "ratio: 5", "must be less than or equal to 1; found 5; write 0.05"),
    Mistake("table: orders.payments_dead", "table: orders.payments", "must be another table than the stream's own", needs="name: orders.payments"),
    Mistake("table: orders.payments_dead", "tabel: orders.payments_dead", "unknown key; did you mean 'table'?"),
    Mistake("keep: 30d", "keep: 1h", "must be at least 1d"),
    Mistake("- id", "- ID", "'ID' is not in the schema, which has 'id'", at=1),
    Mistake("- card.number", "- card number", "is not a path of keys"),
    Mistake("park_after: 3", "park_after: 0", "must be greater than 0; found 0"),
    Mistake("every: 10s", "every: 10", "needs a unit; write 10s"),
    Mistake("group: small", "group: Small", "must be a name of lower-case letters"),
    Mistake("warn: 1h", "warn: 30s", "must be at least 60s"),
    Mistake("warn: 1h", "warn: 7h", "must be shorter than fail"),
    Mistake("lag_records: 1000", "lag_records: '1,000'", "must be a whole number; found '1,000'; write 1000"),
    Mistake("lag_time: 15m", "lag_time: PT15M", "write 15m"),
    Mistake("dead_letter_ratio: 0.1", "dead_letter_ratio: 10%", "must be a number; found '10%'; write 0.1"),
    Mistake("unknown_fields: [$.debug]", "unknown_fields: [debug]", "must be the path of a key such as $.debug"),
    Mistake("max_restarts: 7", 'max_restarts: "7"', "must be a whole number; found '7'; write 7"),
    Mistake("first_delay: 10s", "first_delay: 1h", "must not be longer than longest_delay"),
    Mistake("target: 128MB", "target: 128", "needs a unit; write 128B, 128MB or 128GB"),
    Mistake("fragment: 1/8", "fragment: 2", "must be above 0 and below 1"),
    Mistake("strategy: sort", "strategy: orc", "must be 'binpack', 'sort' or 'zorder'; found 'orc'"),
    Mistake("- created_at", "- creatd_at", "no column 'creatd_at' in decode.schema", at=1),
    Mistake("keep: 7d", "keep: 7 days", "write 7d"),
    Mistake("min_snapshots: 5", "min_snapshots: 0", "must be greater than 0; found 0"),
    Mistake("older_than: 7d", "older_than: 1d", "must be at least 3d"),
    Mistake("- 22:00-05:00", "- 22:00", "must be two times of the day"),
    Mistake("column: created_at", "column: creatd_at", "creatd_at"),
    Mistake("grace: 10m", "grace: ten minutes", "must be a whole number with a unit"),
    Mistake("every: 1h", "every: 1s", "must be at least 1m"),
    Mistake("column: kind", "column: kinds", "the rows have no column 'kinds'"),
    Mistake("severity: critical", "severity: citical", "must be critical, warning or info; did you mean 'critical'?"),
    Mistake("- expect_column_values_to_be_between:", "- expect_column_values_to_be_betwen:", "unknown expectation; did you mean"),
    Mistake("description: Card payments", "descripton: Card payments", "unknown key; did you mean 'description'?"),
    Mistake("description: Card payments", "topics: [payments]", "this key of Kafka Connect is source.topics"),
    Mistake("description: Card payments", "connector.class: io.x", "this key of Kafka Connect is not needed"),
]  # fmt: skip

NEEDED = {mistake.needs for mistake in MISTAKES}
# Where one of these is wrong, what the file says of columns is judged by nothing.
_UNDECIDABLE = {"value: json"}


def spoiled(mistakes: list[Mistake]) -> tuple[str, list[int]]:
    """The file with mistakes in it, and the line of each."""
    lines: list[str] = [*GOOD.splitlines()]
    places: list[int] = []
    for mistake in mistakes:
        found = [number for number, line in enumerate(GOOD.splitlines()) if line.strip() == mistake.right]
        number = found[mistake.at]
        lines[number] = lines[number].replace(mistake.right, mistake.wrong)
        places.append(number + 1)
    return "\n".join(lines) + "\n", places


def problems_of(folder: Path, text: str) -> list[str]:
    file = folder / "payments.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        load_stream(file)
    return list(error.value.problems)


def test_the_file_is_good_without_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "payments.yaml").write_text(GOOD)
    assert load_stream(tmp_path / "payments.yaml").stream == "payments"
    assert len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.wrong)
def test_each_mistake_alone_is_one_problem(tmp_path: Path, mistake: Mistake) -> None:
    text, (line,) = spoiled([mistake])
    (problem,) = problems_of(tmp_path, text)
    assert re.search(rf"payments\.yaml:{line}:\d+: ", problem), problem
    assert mistake.says in problem


@pytest.mark.parametrize("seed", range(60))
def test_one_run_reports_all_mistakes_at_their_lines(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    chosen: list[Mistake] = []
    for mistake in draw.sample(MISTAKES, len(MISTAKES)):
        taken = {(each.right, each.at) for each in chosen}
        lines = {right for right, _ in taken} | {each.needs for each in chosen}
        if (mistake.right, mistake.at) in taken or mistake.needs in lines or mistake.right in lines & NEEDED:
            continue
        if mistake.right not in _UNDECIDABLE:
            chosen.append(mistake)
    chosen = chosen[: draw.choice([2, 3, 5, 8, 13, 21, 34])]
    text, lines = spoiled(chosen)
    problems = problems_of(tmp_path, text)
    missing = [
        (line, mistake.wrong, mistake.says)
        for line, mistake in zip(lines, chosen, strict=True)
        if not any(f"payments.yaml:{line}:" in problem and mistake.says in problem for problem in problems)
    ]
    assert not missing, "\n".join(problems)
    # Nothing that only follows from a mistake is reported beside it.
    assert len(problems) == len(chosen), "\n".join(problems)


def test_the_message_shows_twenty_problems_and_how_many_more(tmp_path: Path) -> None:
    text = GOOD + "".join(f"unknown_{number}: 1\n" for number in range(23))
    file = tmp_path / "payments.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as error:
        load_stream(file)
    assert len(error.value.problems) == 23
    *shown, more, fix = str(error.value).splitlines()
    assert [len(shown), more, fix] == [20, "… and 3 more", "  Next: frazil validate"]


def test_a_key_twice_hides_no_other_mistake(tmp_path: Path) -> None:
    text = GOOD.replace("owner: team:payments\n", "owner: a\nowner: b\n").replace("every: 10s", "every: 10")
    first, second = problems_of(tmp_path, text)
    assert "payments.yaml:4:1: the key 'owner' is here twice (first in line 3)" in first
    assert "trigger.every: needs a unit" in second


def test_what_stands_below_a_misspelt_key_is_judged_too(tmp_path: Path) -> None:
    text = GOOD.replace("maintenance:", "maintenence:").replace("older_than: 7d", "older_then: 1d")
    assert [problem.split(": ")[1:3] for problem in problems_of(tmp_path, text)] == [
        ["maintenence", "unknown key; did you mean 'maintenance'?"],
        ["maintenence.orphans.older_then", "unknown key; did you mean 'older_than'?"],
        ["maintenence.orphans.older_then", "must be at least 3d"],
    ]


def _blocks(data: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each key of the file with the place of its block."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield above, str(key)
            yield from _blocks(value, (*above, key))
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from _blocks(value, (*above, at))


# Keys that are names of somebody's own, of options, or of properties.
_OWN_NAMES = {"headers", "properties", "options", "compute", "cast"}
_KEYS = [
    (above, key)
    for above, key in _blocks(yaml.safe_load(GOOD))
    if _OWN_NAMES.isdisjoint(above) and not (above and str(above[-1]).startswith("expect_")) and len(key) > 3
]


@pytest.mark.parametrize(("above", "key"), _KEYS, ids=lambda value: str(value))
def test_a_misspelt_key_at_every_level_gets_the_right_one(above: tuple[str | int, ...], key: str) -> None:
    data = yaml.safe_load(GOOD)
    block = data
    for part in above:
        block = block[part]
    misspelt = key[:2] + key[3] + key[2] + key[4:] if key[2] != key[3] else key[:3] + key[4:]
    for name in list(block):
        value = block.pop(name)
        block[misspelt if name == key else name] = value
    _, found = judge(data, StreamSpec, context={"base": Path()}, show_values=True, rules=STREAM_RULES)
    assert ((*above, misspelt), f"unknown key; did you mean '{key}'?") in found or any(
        place == (*above, misspelt) and f"did you mean '{key}'?" in text for place, text in found
    ), found


@pytest.mark.parametrize(
    "steps", ["&t [{drop: *t}]", "&t [*t, *t, *t]", "[&s {compute: *s, where: *s}]", "[{cast: &c {a: *c}}]"]
)
def test_a_value_that_holds_itself_is_a_problem_as_any_other(tmp_path: Path, steps: str) -> None:
    text = GOOD[: GOOD.index("transform:")] + f"transform: {steps}\n" + GOOD[GOOD.index("rules:") :]
    assert all("payments.yaml:23:" in problem for problem in problems_of(tmp_path, text))
