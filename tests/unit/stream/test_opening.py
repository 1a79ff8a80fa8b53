"""What a catalog's own error may show."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.catalog import connect_catalog
from jobs.commit.log_state import LogState
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings, load_settings
from jobs.stream.opening import ensure_tables
from jobs.stream.source_topics import TopicsAwaitedError, require_topics


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
    assert refused.value.fix == "create the topic, or correct source.topics in streams/payments.yaml"
