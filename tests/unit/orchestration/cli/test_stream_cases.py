"""`frazil test`: cases that pass, fail, are written, and files that are refused."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from tests.unit.orchestration.deployments import deployment_in

CASES = """\
# Payments as the shop sends them.
cases:
  - name: an amount in euros lands
    records:
      - value: {id: p-1, amount: 12.50, created_at: 2026-01-31T08:00:00Z}
      - value: no json
    rows:
      - {id: p-1, amount: 12.5, created_at: 2026-01-31T09:00:00+01:00}
    dead_letters:
      - {class: malformed_json, stage: decode_value, message: JSON}

  # The other one.
  - name: an amount is a number
    records:
      - value: {id: p-2, amount: many, created_at: 2026-01-31T08:00:00Z}
    dead_letters:
      - {class: wrong_type, field: $.amount}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = deployment_in(tmp_path, "payments", "refunds")
    (made / "streams" / "tests").mkdir()
    return made


def cases(home: Path, text: str, stream: str = "payments") -> Path:
    path = home / "streams" / "tests" / f"{stream}.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def frazil(home: Path, *arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), "test", *arguments])
    assert result.exit_code == expect, result.output
    assert "Traceback" not in result.output
    return result


def facts(home: Path, *arguments: str, expect: int = 0) -> dict[str, Any]:
    return json.loads(frazil(home, *arguments, "--json", expect=expect).stdout)


def test_cases_that_pass_touch_nothing(home: Path) -> None:
    path = cases(home, CASES)
    assert frazil(home).stdout.splitlines() == [
        "ok      payments: an amount in euros lands",
        "ok      payments: an amount is a number",
        "2 cases, all passed",
    ]
    found = facts(home, "payments")
    assert (found["passed"], found["failed"]) == (2, 0)
    first, second = found["streams"][0]["cases"]
    assert (first["line"], second["line"], first["passed"]) == (3, 13, True)
    assert first["rows"][0]["table"] == "orders.payments" and first["rows"][0]["row"]["amount"] == "12.50"
    assert second["dead_letters"][0]["class"] == "wrong_type"
    assert frazil(home, "--write").stdout.endswith("2 cases, all passed\n") and path.read_text() == CASES
    assert not (home / ".frazil" / "catalog.db").exists()


def test_a_failure_says_what_differs_and_where(home: Path) -> None:
    path = cases(home, CASES.replace("amount: 12.5,", "amount: 12.51,").replace("field: $.amount", "field: $.id"))
    lines = frazil(home, expect=1).stdout.splitlines()
    assert lines[0] == f"FAILED  payments: an amount in euros lands ({path}:3)"
    assert lines[1] == "        row 1 (record 1): amount: expected 12.51, got 12.50"
    assert lines[3] == "        dead letter 1 (record 1): field: expected $.id, got $.amount"
    assert lines[-1] == "2 cases, 2 failed"
    assert facts(home, expect=1)["failed"] == 2


def test_expectations_are_written_and_then_hold(home: Path) -> None:
    text = CASES.replace("amount: 12.5,", "amount: 12.51,")
    path = cases(home, text + "  - name: a new one\n    records:\n      - value: {id: '0123', amount: 7, "
                 "created_at: 2026-01-31T08:00:00Z}\n      - value: ~\n  # The end.\n")  # fmt: skip
    written = frazil(home, "--write").stdout.splitlines()
    assert written[0] == "written payments: an amount in euros lands"
    assert written[1:] == [
        "ok      payments: an amount is a number",
        "written payments: a new one",
        "3 cases, all passed",
    ]
    now = path.read_text()
    assert now.startswith("# Payments as the shop sends them.\n") and "\n  # The other one.\n" in now
    assert now.endswith("  # The end.\n")
    assert (
        "    rows:\n      - id: p-1\n        amount: 12.50\n        created_at: 2026-01-31T08:00:00Z\n"
        "    dead_letters:\n      - class: malformed_json\n" in now
    )
    assert "      - id: 0123\n        amount: 7.00\n" in now
    assert CASES[CASES.index("  # The other one.") :] in now
    assert frazil(home).stdout.endswith("3 cases, all passed\n")
    assert frazil(home, "--write").stdout.endswith("3 cases, all passed\n") and path.read_text() == now


def test_a_case_in_which_nothing_comes_out(home: Path) -> None:
    path = cases(home, "cases:\n- name: a tombstone\n  records:\n  - value: ~\n  rows:\n  - {id: x}")
    assert "row 1 is expected and missing" in frazil(home, expect=1).stdout
    frazil(home, "--write")
    assert path.read_text() == "cases:\n- name: a tombstone\n  records:\n  - value: ~\n  rows: []\n"
    frazil(home)


def test_a_case_on_one_line_is_not_written(home: Path) -> None:
    path = cases(home, "cases: [{name: a, records: [{value: x}]}]\n")
    assert "the case is written on one line" in frazil(home, "--write", expect=1).stderr
    assert path.read_text() == "cases: [{name: a, records: [{value: x}]}]\n"


@pytest.mark.parametrize(
    "other",
    [
        "  - name: b\n    records: &r\n      - value: no json\n    rows: *rows\n",
        "  - <<: *case\n    name: b\n    dead_letters: []\n",
    ],
)
def test_a_case_that_shares_values_with_others_is_not_written(home: Path, other: str) -> None:
    text = "cases:\n  - &case\n    name: a\n    records:\n      - value: no json\n    rows: &rows\n      - {id: x}\n"
    path = cases(home, text + other)
    before = path.read_text()
    assert "they share values by anchors" in frazil(home, "--write", expect=1).stderr
    assert path.read_text() == before


def test_a_text_with_a_separator_of_lines_is_written_as_it_is(home: Path) -> None:
    value = 'value: {id: "a\\u2028b", amount: 1, created_at: 2026-01-31T08:00:00Z}'
    path = cases(home, f"cases:\n  - name: a\n    records:\n      - {value}\n")
    frazil(home, "--write")
    frazil(home)
    path.write_bytes(b"cases:\r\n  - name: a\r\n    records:\r\n      - value: no json\r\n")
    frazil(home, "--write")
    assert path.read_bytes().startswith(b"cases:\r\n  - name: a\r\n    records:\r\n      - value: no json\r\n    dead")


def test_files_with_problems_do_not_keep_others_from_running(home: Path) -> None:
    cases(home, "cases:\n  - nam: a\n    records: [{value: 1}]\n")
    cases(home, CASES, "refunds")
    result = frazil(home, expect=1)
    assert "payments.yaml:2:5: cases[0].nam: unknown key; did you mean 'name'?" in result.stderr
    assert result.stdout.count("ok      refunds:") == 2
    found = facts(home, expect=1)
    assert found["streams"][0]["problems"] and found["passed"] == 2


def test_wrong_lines_are_named_once_with_the_command_that_looks_at_them_again(home: Path) -> None:
    cases(home, "cases:\n  - name: a\n    records:\n      - {id: p-1}\n")
    said = frazil(home, expect=1)
    assert said.stderr.count("streams/tests/payments.yaml:") == 1
    assert "payments.yaml:4:10: cases[0].records[0].id: unknown key; known here: value" in said.stderr
    assert "Next: correct the lines, then frazil test payments" in said.stderr
    assert said.stdout == "no case was run; 1 of 1 files could not be run\n"


def test_a_case_that_cannot_be_run(home: Path) -> None:
    cases(home, "cases:\n  - name: a\n    records:\n      - {value: 1, topic: other}\n")
    shown = frazil(home, expect=1).stdout
    assert "is of topic other, and the stream reads payments.v1" in shown and "        Next: write topic: NAME" in shown


def test_streams_without_cases(home: Path) -> None:
    assert "There are no cases in" in frazil(home, expect=1).stderr
    cases(home, CASES)
    assert "stream refunds has no cases" in frazil(home, "refunds", expect=1).stderr
    assert "There is no stream 'paiments'" in frazil(home, "paiments", expect=1).stderr
    cases(home, CASES, "other")
    assert "There is no stream 'other'" in frazil(home, expect=1).stderr
