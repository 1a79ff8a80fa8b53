"""Case files: what is read, with exact numbers, and what is refused by file and line."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import find_stream_file, load_streams
from jobs.streaming.cases.case_file import FIRST_TIMESTAMP, CaseFile, as_decimal, case_files, load_cases
from tests.helpers.problem_places import without_columns
from tests.unit.orchestration.deployments import deployment_in


def loaded(folder: Path, text: str) -> CaseFile:
    path = folder / "payments.yaml"
    path.write_text(textwrap.dedent(text))
    return load_cases(path)[0]


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as refused:
        loaded(folder, text)
    return [without_columns(problem).partition("payments.yaml:")[2] for problem in refused.value.problems]


def test_records_as_kafka_would_give_them(tmp_path: Path) -> None:
    (case,) = loaded(
        tmp_path,
        """\
        cases:
          - name: all forms
            records:
              - value: {id: p-1, amount: 12.50, whole: 9007199254740993, flag: yes, on: true, none: ~, l: [1, 2.0]}
                key: {id: p-1}
                headers: {trace: abc, raw: {hex: "00ff"}, none: ~, json: {a: 1.0}}
                timestamp: 2026-01-31T08:00:00.5+01:00
                topic: payments.v2
                partition: 3
                offset: 17
              - value: no json
                key: plain
              - value: ~
                key_hex: "0001"
              - value_hex: "ff 00"
                timestamp: 2026-01-31T08:00:00
              - value: "1.10"
        """,
    ).cases
    first, text, tombstone, raw, number = case.records
    assert first.value_bytes == (
        b'{"id":"p-1","amount":12.50,"whole":9007199254740993,"flag":"yes","on":true,"none":null,"l":[1,2.0]}'
    )
    assert first.key_bytes == b'{"id":"p-1"}' and (first.topic, first.partition, first.offset) == ("payments.v2", 3, 17)
    assert first.header_list == [("trace", b"abc"), ("raw", b"\x00\xff"), ("none", None), ("json", b'{"a":1.0}')]
    assert first.instant == datetime(2026, 1, 31, 7, 0, 0, 500_000, UTC)
    assert (text.value_bytes, text.key_bytes, text.instant) == (b"no json", b"plain", FIRST_TIMESTAMP)
    assert (tombstone.value_bytes, tombstone.key_bytes) == (None, b"\x00\x01")
    assert (raw.value_bytes, raw.key_bytes) == (b"\xff\x00", None)
    assert raw.instant == datetime(2026, 1, 31, 8, tzinfo=UTC) and number.value_bytes == b"1.10"


def test_expectations_keep_every_digit(tmp_path: Path) -> None:
    (case,) = loaded(
        tmp_path,
        """\
        cases:
          - name: exact
            records: [{value: {}}]
            rows: [{amount: 0.10000000000000000001, big: 1_000, text: "1.0", at: 2026-01-31}]
            dead_letters: [{class: wrong_type, message: amount}]
        """,
    ).cases
    (row,) = case.rows_by_table[None]
    assert row == {"amount": Decimal("0.10000000000000000001"), "big": 1000, "text": "1.0", "at": "2026-01-31"}
    assert case.dead_letters[0].error_class == "wrong_type" and case.dead_letters[0].stage is None
    (routed,) = loaded(
        tmp_path, "cases: [{name: r, records: [{value: 1}], rows: {orders.eu: [{id: a}], orders.us: []}}]"
    ).cases
    assert routed.rows_by_table == {"orders.eu": [{"id": "a"}], "orders.us": []}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: []", "1: cases: "),
        ("cass: []", "1: cass: unknown key; did you mean 'cases'?"),
        (
            "cases:\n  - name: a\n    records:\n      - valu: 1\n",
            "4: cases[0].records[0].valu: unknown key; did you mean 'value'?",
        ),
        ("cases:\n  - name: a\n    records: []\n", "3: cases[0].records: "),
        (
            "cases:\n  - name: a\n    records: [{key: a}]\n",
            "3: cases[0].records[0]: has one of value and value_hex; value: null is a tombstone",
        ),
        (
            "cases:\n  - name: a\n    records:\n      - {value: 1, value_hex: '00'}\n",
            "4: cases[0].records[0]: has one of value and value_hex; value: null is a tombstone",
        ),
        (
            "cases:\n  - name: a\n    records:\n      - value_hex: 'xyz'\n",
            "4: cases[0].records[0].value_hex: is no hexadecimal",
        ),
        (
            "cases:\n  - name: a\n    records:\n      - {value: 1, headers: {h: {hex: g}}}\n",
            "4: cases[0].records[0].headers.h.hex: is no hexadecimal",
        ),
        (
            "cases:\n  - name: a\n    records:\n      - {value: 1, key: 1, key_hex: '00'}\n",
            "4: cases[0].records[0].key_hex: stands beside key; give one of them",
        ),
        (
            "cases:\n  - name: a\n    records:\n      - value: 1\n        timestamp: yesterday\n",
            "5: cases[0].records[0].timestamp: is no instant, such as 2026-01-31T08:00:00Z",
        ),
        (
            "cases:\n  - name: a\n    records: [{value: 1}]\n    rows: [1]\n",
            "4: cases[0].rows[0]: must be a mapping of columns to values",
        ),
        (
            "cases:\n  - name: a\n    records: [{value: 1}]\n    rows: {orders.eu: 1}\n",
            "4: cases[0].rows.orders.eu: must be a list of rows",
        ),
        (
            "cases:\n  - name: a\n    records: [{value: 1}]\n    dead_letters: [{clas: x}]\n",
            "4: cases[0].dead_letters[0].clas: unknown key; did you mean 'class'?",
        ),
        (
            "cases:\n  - name: a\n    records: [{value: 1}]\n  - name: a\n    records: [{value: 1}]\n",
            "4: cases[1].name: the name 'a' is here twice",
        ),
        (
            "cases:\n  - name: a\n    records:\n      - {value: 1, offset: 3}\n      - {value: 2, offset: 3}\n",
            "5: cases[0].records[1].offset: is that of an earlier record of the partition",
        ),
    ],
)
def test_refused_by_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    assert any(problem.startswith(said) for problem in problems(tmp_path, text))


def test_case_files_are_no_streams(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    folder = home / "streams" / "tests"
    assert case_files(home / "streams") == {}
    folder.mkdir()
    (folder / "payments.yaml").write_text("cases: [{name: a, records: [{value: 1}]}]\n")
    (folder / "notes.txt").write_text("none")
    assert case_files(home / "streams") == {"payments": folder / "payments.yaml"}
    specs, errors = load_streams(home / "streams")
    assert [spec.stream for spec in specs] == ["payments"] and errors == []
    assert find_stream_file(home / "streams", "payments") == home / "streams" / "payments.yaml"


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, Decimal(1)), (0.1, Decimal("0.1")), ("2.50", Decimal("2.5")), ("x", None), (True, None), (None, None)],
)
def test_numbers(value: object, number: Decimal | None) -> None:
    assert as_decimal(value) == number
