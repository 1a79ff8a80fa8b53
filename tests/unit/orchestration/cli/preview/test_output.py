"""Previews as a terminal and a program show them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.streaming.preview.difference import difference
from jobs.streaming.preview.record import StreamPreview
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from orchestration.cli.main import main
from orchestration.cli.stream_files.preview.output import (
    STATUS,
    difference_facts,
    preview_facts,
    print_difference,
    print_preview,
    shown_records,
    value_text,
)
from resources.deployment import Deployment
from tests.unit.streaming.preview.previews import previewed, spec_of

RANGES = {TopicPartition("payments", 0): OffsetRange(0, 6)}
STEPS: list[Any] = [{"cast": {"amount": "decimal(12,2)"}}, {"where": "kind is null or kind <> 'test'"}]
VALUES: list[Any] = [
    {"id": "a", "amount": "1.50", "kind": "sale"},
    {"id": "b", "amount": "-566,000"},
    {"id": "c", "kind": "test"},
    None,
    {"id": "e", "amount": "7,00", "kind": "sale", "note": "\x1b[31m"},
    {"id": "f", "amount": "9", "kind": "sale"},
]


def before() -> StreamPreview:
    rules = [{"name": "small", "expect": "amount < 5", "severity": "warn"}]
    return previewed(spec_of(transform=STEPS, rules=rules, table={"partition_by": ["kind"]}), VALUES)


def after() -> StreamPreview:
    steps = [{"compute": {"amount": "replace(amount, ',', '')"}}, STEPS[0], {"where": "kind = 'sale'"}]
    return previewed(spec_of(transform=[*steps, {"drop": "card"}]), VALUES)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r"  +", "  ", line.rstrip()) for line in capsys.readouterr().out.splitlines()]


def test_a_preview_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_preview(before(), "streams/payments.yaml", RANGES, 1)
    told = lines(capsys)
    assert re.fullmatch(
        r"payments: streams/payments\.yaml \(configuration \w{12}\) on 6 records: payments-0 \[0, 6\)", told[0]
    )
    assert told[1:4] == [
        "  2 landed, 2 dead letters, 1 tombstones, 1 filtered",
        "  1 broke the rule small, and landed",
        "  $.note is left out of 1 records: no column takes it",
    ]
    row = told.index("payments-0@5 lands in orders.payments, breaks small")
    assert told[row + 1].split() == ["column", "decoded", "landed"]
    assert [line.split() for line in told[row + 2 : row + 10]] == [
        ["id", "f", "f"],
        ["kind", "sale", "sale"],
        ["amount", "9", "9.00"],
        ["card", "null", "null"],
        ["_kafka_topic", "–", "payments"],
        ["_kafka_partition", "–", "0"],
        ["_kafka_offset", "–", "5"],
        ["_kafka_timestamp", "–", "2026-03-01T12:00:00+00:00"],
    ]
    assert "payments-0@2 is filtered" in told
    letters = told.index("2 × wrong_type in transform[0].cast at $.amount: needs decimal(12,2)")
    assert told[letters + 1].startswith("  payments-0@1: needs decimal(12,2), found ")
    assert told[letters + 2] == '  {"id": "b", "amount": "-566,000"}'
    assert told[letters + 3].startswith('  before the step: {"id":"b"')
    table = next(number for number, line in enumerate(told) if line.startswith("table  state"))
    assert told[table + 1].startswith("orders.payments  would be created  2  1  1  ")
    assert told[table + 2].startswith("orders.payments_dead  would be created  2  1  1  ")
    partition = told.index("orders.payments")
    assert told[partition + 2].startswith("  kind=sale  2  1  ")


def test_a_routed_row_stands_beside_itself_in_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    tables = [{"match": "INS", "table": "orders.a"}, {"match": ".*", "table": "orders.b"}]
    found = previewed(spec_of(route={"by": "kind", "tables": tables}), [{"id": "x", "kind": "INS"}])
    print_preview(found, "f", RANGES, 5)
    told = lines(capsys)
    row = told.index("payments-0@0 lands in orders.a, orders.b")
    assert told[row + 1].split() == ["column", "decoded", "orders.a", "orders.b"]
    assert told[row + 2].split() == ["id", "x", "x", "x"]


def test_a_preview_as_json() -> None:
    facts = json.loads(json.dumps(preview_facts(before(), "streams/payments.yaml", RANGES, 1)))
    assert set(facts) == {
        "stream", "file", "ranges", "config", "counts", "warned", "left_out", "changes", "notes", "tables", "rows",
        "letters",
    }  # fmt: skip
    assert facts["ranges"] == [{"topic": "payments", "partition": 0, "start": 0, "end": 6}]
    assert facts["counts"] == {
        "read": 6, "landed": 2, "dead": 2, "tombstones": 1, "filtered": 1, "not_read": 0,
    }  # fmt: skip
    assert (facts["warned"], facts["left_out"]) == ({"small": 1}, {"$.note": 1})
    landed, filtered = facts["rows"]
    assert (landed["offset"], landed["outcome"], landed["warned"]) == (5, "landed", ["small"])
    assert (landed["before"]["amount"], landed["after"]["orders.payments"]["amount"]) == ("9", "9.00")
    assert (filtered["offset"], filtered["outcome"], filtered["after"]) == (2, "filtered", {})
    (letter,) = facts["letters"]
    assert (letter["reason"], letter["stage"], letter["field"], letter["records"]) == (
        "wrong_type", "transform[0].cast", "$.amount", 2,
    )  # fmt: skip
    assert (letter["example"]["offset"], letter["example"]["value"]) == (1, '{"id": "b", "amount": "-566,000"}')
    own = facts["tables"][0]
    assert (own["table"], own["role"], own["state"], own["rows"], own["files"]) == (
        "orders.payments", "sink", "new", 2, 1,
    )  # fmt: skip
    assert own["partitions"][0]["partition"] == {"kind": "sale"} and own["bytes"] > 0


def test_a_difference_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now, then = before(), after()
    print_difference(now, then, ["one.yaml", "two.yaml"], RANGES, difference(now, then), 1)
    told = lines(capsys)
    assert told[0] == "payments: 6 records: payments-0 [0, 6)"
    assert any(line.startswith("now: one.yaml (configuration ") for line in told)
    assert any(line.startswith("then: two.yaml (configuration ") for line in told)
    dead = "dead: wrong_type in transform.cast at $.amount"
    assert f"1 × {dead} → landed in orders.payments, such as payments-0@4" in told
    assert f"1 × {dead} → filtered, such as payments-0@1" in told
    assert "2 × card in orders.payments is missing, such as payments-0@0: null" in told
    assert "card  orders.payments  string  –" in told
    assert "and 3 more records; --rows shows them" in told
    verdict = next(line for line in told if "would become something else" in line)
    assert verdict == "4 of 6 records would become something else."


def test_a_loss_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    now, then = after(), before()
    print_difference(now, then, ["one.yaml", "two.yaml"], {}, difference(now, then), 0)
    assert (
        "4 of 6 records would become something else, and 1 would land no more, or in fewer tables."
        in capsys.readouterr().out
    )


def test_no_difference_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    now = before()
    print_difference(now, before(), ["one.yaml", "two.yaml"], RANGES, difference(now, before()), 5)
    assert lines(capsys)[-1] == "Nothing would change: all 6 records become the same."


def test_a_difference_as_json() -> None:
    now, then = before(), after()
    facts = json.loads(
        json.dumps(difference_facts(now, then, ["one.yaml", "two.yaml"], RANGES, difference(now, then), 2))
    )
    assert set(facts) == {
        "stream", "ranges", "records", "verdict", "changed", "lost", "now", "then", "moves", "columns", "types", "rows",
    }  # fmt: skip
    assert (facts["verdict"], facts["records"], facts["changed"], facts["lost"]) == ("changed", 6, 4, 0)
    assert (facts["now"]["file"], facts["then"]["counts"]["landed"]) == ("one.yaml", 3)
    assert facts["types"] == [{"table": "orders.payments", "column": "card", "now": "string", "then": None}]
    assert {(each["from"], each["to"]): each["records"] for each in facts["moves"]} == {
        ("dead: wrong_type in transform.cast at $.amount", "landed in orders.payments"): 1,
        ("dead: wrong_type in transform.cast at $.amount", "filtered"): 1,
    }
    (card,) = facts["columns"]
    assert (card["column"], card["change"], card["records"], card["example"]["offset"]) == ("card", "removed", 2, 0)
    first, second = facts["rows"]
    assert (first["offset"], first["now"]["tables"], [each["column"] for each in first["columns"]]) == (
        0, ["orders.payments"], ["card"],
    )  # fmt: skip
    assert (second["now"]["reason"], second["now"]["stage"], second["then"]["outcome"]) == (
        "wrong_type", "transform[0].cast", "filtered",
    )  # fmt: skip


def test_a_difference_hides_what_either_file_masks(capsys: pytest.CaptureFixture[str]) -> None:
    values = [{"id": "a", "card": "4111"}]
    mask = spec_of(errors={"dead_letters": {"mask": {"columns": ["card"]}}}).errors.mask
    now = previewed(spec_of(), values, mask=mask)
    then = previewed(spec_of(transform=[{"compute": {"card": "card || '7'", "c2": "card"}}]), values, mask=mask)
    found = difference(now, then)
    assert found.verdict == "changed"
    print_difference(now, then, ["a", "b"], RANGES, found, 5)
    shown = capsys.readouterr().out + json.dumps(difference_facts(now, then, ["a", "b"], RANGES, found, 5))
    assert "4111" not in shown and "[masked] → " in shown


def test_every_verdict_has_a_status_of_its_own_and_none_is_that_of_an_error() -> None:
    assert STATUS == {"same": 0, "changed": 3, "lost": 4}


def test_the_newest_rows_are_shown() -> None:
    found = previewed(spec_of(transform=[{"where": "kind is null"}]), [{"id": str(n)} for n in range(5)])
    assert [each.at.offset for each in shown_records(found, 2)] == [3, 4]
    assert shown_records(found, 0) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (5, "5"),
        ("a\nb\x1b", "a\\nb\\x1b"),
        ("x" * 99, "x" * 59 + "…"),
        ({"a": [None, "é"]}, '{"a": [null, "é"]}'),
    ],
)
def test_a_value_does_nothing_to_the_terminal(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_the_command_says_what_is_wrong_with_it(deployment: Deployment) -> None:
    def said(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["--home", str(deployment.home), "preview", *words])
        return result.exit_code, result.stderr

    status, told = said("payments", "--last", "5", "--offsets", "payments.v1:0")
    assert status == 1 and "--last and --offsets both say" in told
    status, told = said("payments", "--diff", "nowhere.yaml")
    assert status == 2 and "nowhere.yaml" in told
    broken = deployment.home / "broken.yaml"
    broken.write_text("stream: payments\n")
    status, told = said("payments", "--diff", str(broken))
    assert status == 1 and "broken.yaml" in told and "source" in told
    status, told = said("other")
    assert status == 1 and "no stream 'other'" in told
    status, told = said("payments", "--offsets", "payments:x")
    assert status == 1 and "no place in Kafka" in told
    status, told = said("payments")
    assert status == 1 and "frazil up" in told
    assert said("payments", "--last", "0")[0] == 2
