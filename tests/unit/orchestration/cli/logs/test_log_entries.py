"""Entries of logs: continued lines, order of several files, rotation, files that are cut or begun again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.config.settings.settings import Settings
from jobs.streaming.driver.process.logs import cap_output, driver_log, start_logging
from orchestration.cli.streams.logs.log_entries import (
    FollowedLog,
    followed_entries,
    newest_entries,
    parse_entries,
)

FIRST = "2026-01-31T08:00:00.123Z INFO jobs.a: begins"
FAILED = "2026-01-31T08:00:01.000Z ERROR jobs.b: fails"
KEEPER = "2026-01-31T08:00:02Z watchdog of attempt 1: it is started again"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = driver_log(tmp_path)
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[logging.Logger]:
    """A logger of the product, whose log file is begun anew after two kilobytes."""
    handler = start_logging(tmp_path, Settings.embedded(tmp_path), file_bytes=2_000)
    yield logging.getLogger("jobs.test_log_entries")
    logging.getLogger().removeHandler(handler)
    handler.close()


def test_lines_without_a_time_belong_to_their_entry(tmp_path: Path) -> None:
    lines = [FIRST, FAILED, "Traceback …", "  line 1"]
    first, second = parse_entries(lines, tmp_path / "driver.log", "now")
    assert (first.text, second.text) == (FIRST, f"{FAILED}\nTraceback …\n  line 1")
    assert second.facts == {
        "at": "2026-01-31T08:00:01.000Z",
        "level": "ERROR",
        "logger": "jobs.b",
        "message": "fails\nTraceback …\n  line 1",
        "file": str(tmp_path / "driver.log"),
    }


def test_printed_lines_have_the_time_of_what_follows(tmp_path: Path) -> None:
    lines = ["WARNING: a JVM", KEEPER, "", "error: no memory", "at all"]
    entries = list(parse_entries(lines, tmp_path / "driver.out", "now"))
    assert [(entry.at, entry.text, entry.timed) for entry in entries] == [
        ("2026-01-31T08:00:02Z", "WARNING: a JVM", False),
        ("2026-01-31T08:00:02Z", KEEPER, True),
        ("now", "error: no memory\nat all", False),
    ]
    assert entries[0].facts["at"] is None and entries[1].facts["level"] is None
    assert entries[1].facts["message"] == "watchdog of attempt 1: it is started again"


def test_newest_of_several_files_in_order(log: Path) -> None:
    output = log.with_name("driver.out")
    log.with_name("driver.log.2").write_text(f"{FIRST}\n")
    log.with_name("driver.log.1").write_text(f"{FAILED}\nTraceback …\n")
    log.write_text("2026-01-31T08:00:03.000Z INFO jobs.a: goes on\n")
    output.write_text(f"{KEEPER}\n")
    entries = newest_entries([log, output], 10)
    assert [entry.at[17:19] for entry in entries] == ["00", "01", "02", "03"]
    assert [entry.at[17:19] for entry in newest_entries([log, output], 3)] == ["01", "02", "03"]
    assert newest_entries([log, output], 0) == [] == newest_entries([log.with_name("none.log")], 5)
    output.write_text("error: why it did not start\n")
    assert newest_entries([log, output], 1)[0].text == "error: why it did not start"


def test_follow_through_rotation(tmp_path: Path, logged: logging.Logger) -> None:
    followed = FollowedLog(driver_log(tmp_path))
    seen: list[str] = []
    for number in range(200):
        logged.info("record %d", number)
        if number % 7 == 0:
            seen += [entry.text for entry in followed_entries([followed])]
    seen += [entry.text for entry in followed_entries([followed])]
    assert driver_log(tmp_path).with_name("driver.log.4").exists()
    assert [line.rsplit(" ", 1)[1] for line in seen] == [str(number) for number in range(200)]
    followed.close()


def test_follow_from_the_end_a_file_that_begins_later_or_is_cut(log: Path) -> None:
    missing = FollowedLog(log)
    missing.skip_to_end()
    assert missing.new_lines() == []
    log.write_bytes(b"first\nhalf")
    assert missing.new_lines() == ["first"]
    with log.open("ab") as file:
        file.write(b" a line\n")
    assert missing.new_lines() == ["half a line"]
    at_end = FollowedLog(log)
    at_end.skip_to_end()
    assert at_end.new_lines() == []
    log.write_bytes(log.read_bytes() + b"x" * 50 + b"\n" + b"y" * 50 + b"\n")
    assert at_end.new_lines() == ["x" * 50, "y" * 50]
    assert cap_output(log, 60)
    assert at_end.new_lines() == []
    with log.open("ab") as file:
        file.write(b"after the cut\n")
    assert at_end.new_lines() == ["after the cut"]
    log.replace(log.with_name("driver.log.1"))
    assert at_end.new_lines() == []
    log.write_bytes(b"begun anew\n")
    assert at_end.new_lines() == ["begun anew"]
    missing.close()
    at_end.close()
