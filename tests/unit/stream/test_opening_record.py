"""What a stream's opening keeps of its file: the text that was read, whoever opened it, and no secret's value."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.settings import Settings
from jobs.state.epochs import COMMAND, DRIVER, Opener, read_epoch, read_file
from jobs.state.stream_folder import stream_folder
from jobs.stream.open_stream import OpenStream
from jobs.stream.opening import keep_opening
from jobs.supervise.driver_session import DRIVER_VARIABLE, driver_id
from jobs.supervise.launches import SPEC_FILE

FILE = """\
# who to call: the payments team
stream: payments
source: {topics: [payments], start: latest}
decode: {value: json, schema: "id string not null"}
table: {name: orders.payments}
errors:
  dead_letters:
    topic:
      name: dead
      kafka:
        bootstrap_servers: broker:9092
        security: {protocol: SASL_SSL, mechanism: PLAIN, user: me, password: "${env:FRAZIL_TEST_PW}"}
"""


def open_stream(home: Path, file: Path, epoch: int = 3) -> OpenStream:
    settings = Settings.embedded(home)
    spec = load_stream(file)
    opened = SimpleNamespace(
        spec=spec,
        settings=settings,
        folder=stream_folder(settings, "payments"),
        epoch=epoch,
        config=spec.config_hash,
        generation=generation(spec, settings),
    )
    return cast(OpenStream, opened)


def kept(stream: OpenStream) -> str | None:
    return read_file(stream.folder.store, stream.config, stream.generation)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAZIL_TEST_PW", "hunter2")
    made = tmp_path / "streams" / "payments.yaml"
    made.parent.mkdir()
    made.write_text(FILE)
    return made


def test_the_file_of_the_stream_is_kept_as_it_is_with_who_opened_it(tmp_path: Path, file: Path) -> None:
    stream = open_stream(tmp_path, file)
    before = time.time()
    keep_opening(stream, COMMAND)
    assert kept(stream) == FILE
    record = read_epoch(stream.folder.store, 3)
    assert record is not None and before <= record.at <= time.time()
    assert (record.opener, record.config, record.generation, record.pid) == (
        COMMAND,
        stream.config,
        stream.generation,
        os.getpid(),
    )


def test_a_driver_keeps_what_it_was_launched_with(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRIVER_VARIABLE, driver_id("payments", 2))
    stream = open_stream(tmp_path, file)
    (stream.folder.root).mkdir(parents=True)
    (stream.folder.root / SPEC_FILE).write_text("# launched\n" + FILE)
    file.write_text(FILE.replace("id string", "id long"))
    keep_opening(stream, DRIVER)
    record = read_epoch(stream.folder.store, 3)
    assert record is not None and record.opener == Opener("driver", attempt=2)
    assert kept(stream) == "# launched\n" + FILE


@pytest.mark.parametrize("now", [FILE.replace("id string", "id long"), "stream: [", None])
def test_what_was_read_is_kept_also_if_its_file_is_another_by_now(
    tmp_path: Path, file: Path, now: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = open_stream(tmp_path, file)
    file.unlink() if now is None else file.write_text(now)
    keep_opening(stream, COMMAND)
    text = kept(stream)
    assert text is not None and text.startswith("# The stream's file had been changed")
    again = tmp_path / "again.yaml"
    again.write_text(text)
    spec: Any = load_stream(again)
    assert (spec.config_hash, generation(spec, stream.settings)) == (stream.config, stream.generation)


def test_no_value_of_a_secret_is_kept(tmp_path: Path, file: Path) -> None:
    stream = open_stream(tmp_path, file)
    keep_opening(stream, COMMAND)
    file.unlink()
    keep_opening(stream, COMMAND)
    folder = stream.folder.root
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert len(texts) == 2 and not any("hunter2" in text for text in texts)
    assert any("${env:FRAZIL_TEST_PW}" in text for text in texts)
