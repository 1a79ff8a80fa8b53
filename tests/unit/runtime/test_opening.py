"""What a catalog's own error may show."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.runtime.opening import connect_catalog
from jobs.spec.settings import load_settings


def test_a_catalogs_error_does_not_show_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PW", "hunter2")
    (tmp_path / "frazil.yaml").write_text(
        "catalog: {name: lake, properties: {uri: 'mysql://me:${env:FRAZIL_TEST_PW}@db/lake', warehouse: /data}}\n"
    )
    with pytest.raises(FrazilError, match="catalog lake: ") as refused:
        connect_catalog(load_settings(None, home=tmp_path))
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__
