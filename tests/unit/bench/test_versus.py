"""The arithmetic of the comparison: the steady part, shares of CPU, spreads and ratios, and the tables made of them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from bench.checksum import Checksum
from bench.versus.formats import Format
from bench.versus.measurement import (
    Commit,
    Reading,
    Run,
    Side,
    Spread,
    interpolated,
    ratios,
    seconds_between,
    steady_stretch,
)
from bench.versus.report import as_json, by_format, fastest, formats_text, markdown, trials_text
from bench.versus.row_check import Rows, check_formats, flat
from bench.versus.sides import connect_commit_seconds
from jobs.base.errors import FrazilError


def commits(*records: int, every: float = 10.0) -> tuple[Commit, ...]:
    return tuple(Commit(1000.0 + every * (n + 1), count, 2, 100 * count) for n, count in enumerate(records))


def run(
    side: Side = "frazil", *records: int, number: int = 1, cpu_rate: float = 1.5, commit_seconds: float | None = 0.5
) -> Run:
    """One whose CPU grows evenly, with a commit every ten seconds."""
    found = commits(*(records or (100, 100, 100, 100)))
    end = found[-1].at + 5
    readings = tuple(
        Reading(at, cpu_rate * (at - 1000), 0.1 * (at - 1000), int(at) if at % 2 == 0 else None)
        for at in (1000 + n * 0.5 for n in range(int(2 * (end - 1000)) + 1))
    )
    total = sum(commit.records for commit in found)
    return Run(side, number, 1000.0, found, readings, 170 * total, commit_seconds, {})


def test_the_steady_part_begins_after_a_quarter_and_two_commits() -> None:
    assert steady_stretch(commits(100, 100, 100, 100)) == (1, 3)
    assert steady_stretch(commits(10, 10, 10, 10, 100, 100, 100)) == (4, 6)
    assert steady_stretch(commits(90, 10, 10, 10)) == (1, 3)


def test_a_last_commit_that_is_smaller_ends_it_one_earlier() -> None:
    assert steady_stretch(commits(50, 100, 100, 100, 94)) == (1, 3)
    assert steady_stretch(commits(50, 100, 100, 100, 96)) == (1, 4)


@pytest.mark.parametrize("few", [(), (100,), (100, 100), (100, 100, 10)])
def test_too_few_commits_have_no_steady_part(few: tuple[int, ...]) -> None:
    assert steady_stretch(commits(*few)) is None


def test_cpu_is_read_off_the_line_between_two_readings() -> None:
    readings = [Reading(10, 1, 0), Reading(12, 5, 2), Reading(13, 5, 3)]
    assert interpolated(readings, 11.5, "cpu") == 4
    assert interpolated(readings, 11, "broker_cpu") == 1
    assert interpolated(readings, 12, "cpu") == 5
    assert interpolated(readings, 9, "cpu") == 1
    assert interpolated(readings, 99, "broker_cpu") == 3


def test_both_parts_end_with_a_commit_and_not_with_the_process() -> None:
    measured = run("frazil", 100, 200, 200, 200, 20)
    assert (measured.whole.records, measured.whole.seconds, measured.whole.cpu) == (720, 50, 75)
    steady = measured.steady
    assert steady is not None
    assert (steady.records, steady.seconds, steady.cpu, steady.broker_cpu) == (400, 20, 30, pytest.approx(2))
    assert steady.figures["records_per_second"] == 20
    assert steady.figures["mb_per_cpu_second"] == pytest.approx(400 * 170 / 30 / 1e6)
    other = measured.figures["other"]
    assert other is not None
    assert (other["files"], other["commits"], other["seconds_between_commits"]) == (10, 5, 10)
    assert measured.peak_memory == 1054


def test_the_time_between_commits_of_one_commit_is_none() -> None:
    assert seconds_between(commits(5)) == 0


def test_ratios_are_of_neighbours() -> None:
    runs = [
        run("frazil", number=1, cpu_rate=1),
        run("connect", number=1, cpu_rate=3),
        run("frazil", number=2, cpu_rate=2),
        run("connect", number=2, cpu_rate=4),
        run("frazil", number=3, cpu_rate=2),
    ]
    assert ratios(runs, "whole", "records_per_cpu_second", "connect") == Spread(2, 2.5, 3)
    assert ratios(runs, "whole", "records_per_second", "connect") == Spread(1, 1, 1)
    assert ratios(runs, "whole", "records_per_second", "connect-bare") is None


def test_a_spread_of_one_is_that_one() -> None:
    assert Spread.of([3.0]) == Spread(3, 3, 3)
    assert Spread.of([4.0, 1.0, 2.0]) == Spread(1, 2, 4)


def test_tables_hold_medians_spreads_and_ratios() -> None:
    runs = [
        run("frazil", number=1, cpu_rate=1),
        run("connect", number=1, cpu_rate=3, commit_seconds=None),
        run("frazil", number=2, cpu_rate=2),
        run("connect", number=2, cpu_rate=4, commit_seconds=None),
    ]
    lines = markdown(runs).splitlines()
    assert lines[0] == "**Whole run: from the start of the process to the last commit**"
    assert lines[2] == "|  | Connect sink | frazil | ratio |"
    assert "| records per second | 10 | 10 | **1.00 ×** (1.00 – 1.00) |" in lines
    assert "| records per CPU-second | 2.92 (2.50 – 3.33) | 7.50 (5 – 10) | **2.50 ×** (2.00 – 3.00) |" in lines
    assert "| CPU-seconds | 140 (120 – 160) | 60 (40 – 80) |  |" in lines
    assert "| seconds in commits | not told | 0.50 |" in lines
    assert "| share of the time in commits | not told | 1.2% |" in lines


def test_one_side_alone_has_no_ratio() -> None:
    lines = markdown([run("connect", 100, 100)]).splitlines()
    assert "|  | Connect sink |" in lines
    assert "| records per second | 10 |" in lines
    assert not any("×" in line for line in lines)


def test_the_fastest_tasks_are_found_and_all_are_shown() -> None:
    trials = {1: run("connect", 100, 100, 100, 100), 2: run("connect", 200, 200, 200, 200, cpu_rate=2)}
    assert fastest(trials) == 2
    lines = trials_text(trials).splitlines()
    assert "|  | 1 task | 2 tasks |" in lines
    assert "| steady part, records per CPU-second | 6.67 | 10 |" in lines
    assert trials_text({}) == ""


def test_the_formats_stand_beside_each_other() -> None:
    def of(format_: Format, side: Side, number: int, cpu_rate: float) -> Run:
        return replace(run(side, number=number, cpu_rate=cpu_rate), format=format_)

    runs = [
        each
        for number in (1, 2)
        for each in (
            of("json", "connect", number, 4),
            of("json", "frazil", number, 1),
            of("avro", "connect", number, 6),
            of("avro", "frazil", number, 2),
            of("protobuf", "frazil", number, 0.5 * number),
        )
    ]
    lines = formats_text(runs).splitlines()
    assert lines[2].startswith("|  | whole run, records per second | whole run, records per CPU-second | steady part,")
    assert [line.split(" | ")[0].strip("| ") for line in lines[4:]] == [
        "Connect sink, json",
        "Connect sink, avro",
        "frazil, json",
        "frazil, avro",
        "frazil, protobuf",
        "frazil, avro : frazil, json",
        "frazil, protobuf : frazil, json",
        "frazil, protobuf : Connect sink, json",
    ]
    assert lines[-3].split(" | ")[1:3] == ["**1.00 ×** (1.00 – 1.00)", "**0.50 ×** (0.50 – 0.50)"]
    assert lines[-1].split(" | ")[2] == "**6.00 ×** (4.00 – 8.00)"
    assert formats_text(by_format(runs)["avro"]) == ""


def test_rows_that_differ_between_formats_are_refused() -> None:
    def rows(values: int) -> Rows:
        return Rows(2, Decimal(1), Checksum(2, 3 * values), Checksum(2, values))

    bare = Rows(2, Decimal(1), None)
    check_formats({"json": [rows(1), bare, rows(1)], "avro": [rows(1)]})
    with pytest.raises(FrazilError, match=r"the rows of the formats differ in some column: json .*, avro "):
        check_formats({"json": [rows(1)], "avro": [rows(2)]})


def test_every_reading_is_kept() -> None:
    (found,) = as_json([run()])
    assert len(found["readings"]) == 91
    assert found["figures"]["whole"]["records_per_second"] == 10


def test_the_workers_log_tells_the_time_in_commits() -> None:
    report = (
        "INFO Received metrics report: CommitReport{tableName=t, commitMetrics=CommitMetricsResult{"
        "totalDuration=TimerResult{timeUnit=NANOSECONDS, totalDuration=PT%s, count=1}, attempts=1}}\n"
    )
    assert connect_commit_seconds(report % "0.073565529S" + "INFO else\n" + report % "1M2.5S") == pytest.approx(
        62.573565529
    )
    assert connect_commit_seconds("INFO nothing\n") is None


def test_structs_and_lists_become_columns_that_can_be_hashed() -> None:
    rows = pa.RecordBatch.from_pylist([{"a": {"b": 1, "c": {"d": "x"}}, "tags": ["p", "q"]}, {"a": None, "tags": None}])
    large = rows.cast(pa.schema([rows.schema.field("a"), pa.field("tags", pa.large_list(pa.large_string()))]))
    assert [each.to_pylist() for each in flat([large])] == [each.to_pylist() for each in flat([rows])]
    (found,) = flat([rows])
    assert found.to_pylist() == [{"a.b": 1, "a.c.d": "x", "tags": "p\x1fq"}, {"a.b": None, "a.c.d": None, "tags": None}]
