"""What a catalog's own error may show."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.epochs import (
    COMMAND,
    DRIVER,
    Opener,
    read_epoch,
    read_file,
    read_settings,
)
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation, settings_of_generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.source_topics import TopicsAwaitedError, require_topics
from jobs.streaming.driver.opening.opening import ensure_tables, keep_opening
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE, driver_id
from jobs.streaming.supervision.documents.launches import SPEC_FILE
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp


def test_a_catalogs_error_does_not_show_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PW", "hunter2")
    (tmp_path / "frazil.yaml").write_text(
        "catalog: {name: lake, properties: {uri: 'mysql://me:${env:FRAZIL_TEST_PW}@db/lake', warehouse: /data}}\n"
    )
    with pytest.raises(FrazilError, match="catalog lake: ") as refused:
        connect_catalog(load_settings(None, home=tmp_path))
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_two_processes_that_make_a_catalog_at_once_both_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

    settings = Settings.embedded(tmp_path)
    made = SqlCatalog.create_tables

    def beaten(self: SqlCatalog) -> None:
        # Another process is through between the look and the making.
        monkeypatch.setattr(SqlCatalog, "create_tables", made)
        made(self)
        with self.engine.begin() as connection:
            SqlCatalogBaseTable.metadata.create_all(connection, checkfirst=False)

    monkeypatch.setattr(SqlCatalog, "create_tables", beaten)
    assert connect_catalog(settings).list_namespaces() == []


@pytest.mark.parametrize(
    ("there", "read", "refusal"),
    [
        ([], None, TopicsAwaitedError),
        ([], ["payments"], FrazilError),
        ([], ["refunds"], TopicsAwaitedError),
        (["payments"], None, None),
    ],
)
def test_a_topic_is_awaited_until_something_of_it_was_read(
    tmp_path: Path, there: list[str], read: list[str] | None, refusal: type[FrazilError] | None
) -> None:
    spec = StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string"},
            "table": {"name": "orders.payments"},
        }
    )
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        if read is not None:
            ensure_tables(spec, catalog)
            target = Target(catalog, spec.table.name, "payments")
            target.read()
            position = {TopicPartition(topic, 0): 7 for topic in read}
            stamp = Stamp("payments", "claim", -1, 1, spec.config_hash, start=position, position=position)
            target.claim(1, lambda newest: stamp)
        log = LogState(dict.fromkeys(there, "id"), {}, {})
        if refusal is None:
            require_topics(spec, log, catalog)
            return
        with pytest.raises(refusal, match="topic payments does not exist") as refused:
            require_topics(spec, log, catalog)
    assert type(refused.value) is refusal
    assert refused.value.fix == (
        "create the topic (`frazil generate payments` makes it on the local broker), or correct source.topics in "
        "streams/payments.yaml"
    )


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


def test_the_settings_are_kept_by_the_generation(tmp_path: Path, file: Path) -> None:
    stream = open_stream(tmp_path, file)
    keep_opening(stream, COMMAND)
    kept_settings = read_settings(stream.folder.store, stream.generation)
    assert kept_settings == settings_of_generation(stream.spec, stream.settings)


def test_no_value_of_a_secret_is_kept(tmp_path: Path, file: Path) -> None:
    stream = open_stream(tmp_path, file)
    keep_opening(stream, COMMAND)
    file.unlink()
    keep_opening(stream, COMMAND)
    folder = stream.folder.root
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    # File, settings and opening.
    assert len(texts) == 3 and not any("hunter2" in text for text in texts)
    assert any("${env:FRAZIL_TEST_PW}" in text for text in texts)
