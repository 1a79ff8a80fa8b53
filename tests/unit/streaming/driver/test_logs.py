from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.threads import CURRENT_STREAM, background_thread
from jobs.clients.spark.log import spark_log_option
from jobs.config.redaction import RedactingFormatter
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.error_handling import Errors, dead_letter_secrets
from jobs.streaming.driver.process.logs import (
    FILE_BYTES,
    FILES,
    cap_output,
    driver_log,
    driver_output,
    spark_log,
    start_logging,
    stream_logging,
)


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Path]:
    """The log of this process, for the length of a test, on pytest's own handlers."""
    names = ("", "jobs", "__main__")
    before = {name: logging.getLogger(name).level for name in names}
    handler = start_logging(tmp_path, Settings.embedded(tmp_path))
    yield driver_log(tmp_path)
    logging.getLogger().removeHandler(handler)
    handler.close()
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_a_line_says_when_in_utc_and_who(logged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    logging.getLogger("jobs.streaming.driver.batch.batch").info("batch %d", 7)
    logging.getLogger("pyiceberg.catalog").info("of no interest")
    logging.getLogger("pyiceberg.catalog").warning("of interest")
    lines = logged.read_text().splitlines()
    assert len(lines) == 2
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(when + r" INFO jobs\.streaming\.driver\.batch\.batch: batch 7", lines[0])
    assert lines[1].endswith("WARNING pyiceberg.catalog: of interest")


def test_py4js_stack_traces_stay_out(logged: Path) -> None:
    record = logging.LogRecord("root", logging.ERROR, f"lib{os.sep}py4j{os.sep}x.py", 1, "Exception while", None, None)
    logging.getLogger().handle(record)
    assert logged.read_text() == ""


def test_it_rotates_and_what_is_kept_is_bounded(tmp_path: Path) -> None:
    handler = start_logging(tmp_path, Settings.embedded(tmp_path), file_bytes=10_000)
    try:
        for number in range(2_000):
            logging.getLogger("jobs.streaming.driver.batch.batch").info("batch %d: %s", number, "x" * 40)
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    files = sorted(file.name for file in driver_log(tmp_path).parent.iterdir())
    assert files == ["driver.log", "driver.log.1", "driver.log.2", "driver.log.3", "driver.log.4"]
    assert all(file.stat().st_size <= 10_000 for file in driver_log(tmp_path).parent.iterdir())
    assert "batch 1999:" in driver_log(tmp_path).read_text()


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    with pytest.raises(FrazilError, match=r"the driver's log .*/logs/driver.log cannot be written: "):
        start_logging(tmp_path, Settings.embedded(tmp_path))
    settings = Settings.embedded(tmp_path)
    root = settings.state / "streams" / "payments"
    root.mkdir(parents=True)
    (root / "logs").write_text("")
    with pytest.raises(FrazilError, match=r"log4j2.properties cannot be written: "):
        spark_log_option(spark_log(settings.state / "streams" / "payments"), FILE_BYTES, FILES)


def test_sparks_option_names_a_file_that_sends_its_log_to_a_bounded_file_alone(tmp_path: Path) -> None:
    state = tmp_path / "with blank, ${dollar}, 50%d and ü𝄞"
    settings = Settings.embedded(tmp_path).model_copy(update={"state": state})
    option = spark_log_option(spark_log(settings.state / "streams" / "payments"), FILE_BYTES, FILES)
    assert re.fullmatch(r"-Dlog4j2\.configurationFile=file:///[^\s\"'\\$]+", option)
    configuration = Path(unquote(urlparse(option.partition("=")[2]).path))
    log = spark_log(settings.state / "streams" / "payments")
    assert configuration == log.parent / "log4j2.properties"
    values = dict(line.split(" = ", 1) for line in configuration.read_text("ascii").splitlines() if " = " in line)
    written = values["appender.file.fileName"].encode("ascii").decode("unicode_escape")
    assert written.encode("utf-16", "surrogatepass").decode("utf-16").replace("$${", "${") == str(log)
    assert "50%%d" in values["appender.file.filePattern"] and values["appender.file.filePattern"].endswith(".%i")
    assert values["rootLogger.level"] == "warn"
    assert values["appender.file.policies.size.size"] == "10000000"
    assert values["appender.file.strategy.max"] == "4"
    assert not any("Console" in value for value in values.values())


WRITER = """
import os, sys
for word in sys.stdin:
    os.write(1, (word.strip() * 10 + "\\n").encode())
    print("written", file=sys.stderr, flush=True)
"""


def test_output_is_shortened_under_a_process_that_goes_on_writing(tmp_path: Path) -> None:
    path = driver_output(tmp_path)
    path.parent.mkdir()
    with path.open("ab") as output:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE, text=True
        )
    assert writer.stdin and writer.stderr

    def write(word: str) -> None:
        assert writer.stdin and writer.stderr
        writer.stdin.write(f"{word}\n")
        writer.stdin.flush()
        assert writer.stderr.readline() == "written\n"

    with writer:
        assert not cap_output(path, 200)
        for number in range(10, 40):
            write(f"<{number}>")
        inode = path.stat().st_ino
        assert cap_output(path, 200)
        assert path.stat().st_ino == inode
        assert path.read_text().splitlines() == ["(what was here before was dropped)", "<38>" * 10, "<39>" * 10]
        write("<40>")
        assert path.read_text().splitlines()[-2:] == ["<39>" * 10, "<40>" * 10]
        assert not cap_output(path, 200)
        writer.stdin.close()


def test_output_that_is_not_there_needs_no_shortening(tmp_path: Path) -> None:
    assert not cap_output(driver_output(tmp_path))


def test_a_secret_that_an_error_quotes_is_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "hunter2")
    (tmp_path / "frazil.yaml").write_text("spark: {conf: {spark.x.password: '${env:A_PASSWORD}'}}\n")
    formatter = RedactingFormatter(load_settings(None, home=tmp_path))
    try:
        raise ValueError("cannot log in with hunter2")
    except ValueError:
        record = logging.LogRecord("jobs", logging.ERROR, "", 1, "tried %r", ("hunter2",), sys.exc_info())
    line = formatter.format(record)
    assert "hunter2" not in line
    assert "ValueError: cannot log in with ${env:A_PASSWORD}" in line


def test_a_secret_of_a_streams_own_file_is_not_logged_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC_PASSWORD", "hunter3")
    security = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "u", "password": "${env:TOPIC_PASSWORD}"}
    topic = {"name": "letters", "kafka": {"bootstrap_servers": "kafka:9093", "security": security}}
    errors = Errors.model_validate({"dead_letters": {"topic": topic}})
    formatter = RedactingFormatter(load_settings(None, home=tmp_path), also=dead_letter_secrets(errors))
    record = logging.LogRecord("jobs", logging.ERROR, "", 1, "refused hunter3", (), None)
    assert "refused ${env:TOPIC_PASSWORD}" in formatter.format(record)


def test_lines_of_a_stream_stand_in_its_log_whatever_thread_says_them(logged: Path, tmp_path: Path) -> None:
    settings, said = Settings.embedded(tmp_path), logging.getLogger("jobs.streaming.driver.batch.batch")

    def carry(stream: str) -> None:
        CURRENT_STREAM.set(stream)
        with stream_logging(tmp_path / stream, settings, stream, ()):
            said.info("%s itself", stream)
            helper = background_thread(said.info, "helper", "%s by a thread", stream)
            helper.start()
            helper.join()
        said.info("%s is over", stream)

    for stream in ("one", "two"):
        thread = background_thread(carry, stream, stream)
        thread.start()
        thread.join()
    said.info("nobody")
    for stream in ("one", "two"):
        lines = driver_log(tmp_path / stream).read_text().splitlines()
        assert [line.partition(": ")[2] for line in lines] == [f"{stream} itself", f"{stream} by a thread"]
    assert len(logged.read_text().splitlines()) == 7
