"""What a catalog's own error may show."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.runtime.opening import connect_catalog
from jobs.spec.settings import Settings, load_settings


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
