"""Dagster's instance of a deployment whose storage is a database server's."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from orchestration.cli.common.dagster_instance import make_instance


def written(home: Path, text: str) -> Path:
    (home / "dagster.yaml").write_text(text)
    return home


@pytest.mark.parametrize("kind", ["mysql", "custom"])
def test_nothing_is_made_where_a_server_has_the_storage(tmp_path: Path, kind: str) -> None:
    home = written(tmp_path, f"storage: {{{kind}: {{}}}}\n")
    make_instance(home)
    assert [path.name for path in home.iterdir()] == ["dagster.yaml"]


def test_who_lacks_the_client_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dagster_postgres", None)
    home = written(tmp_path, "storage: {postgres: {postgres_url: 'postgresql://db.internal/dagster'}}\n")
    with pytest.raises(FrazilError, match="Dagster's client for it is not installed") as caught:
        make_instance(home)
    assert caught.value.fix == "pip install 'frazil[dagster-postgres]'"
    assert str(home / "dagster.yaml") in caught.value.message


@pytest.mark.parametrize(
    ("postgres", "refused"),
    [
        ("{postgres_url: 'postgresql://db.internal/dagster'}", True),
        ("{postgres_url: 'postgresql+psycopg2://db.internal/dagster'}", False),
        ("{postgres_url: {env: DAGSTER_URL}}", False),
        ("{postgres_db: {hostname: db.internal}}", True),
        ("{postgres_db: {hostname: db.internal, scheme: postgresql}}", True),
        ("{postgres_db: {hostname: db.internal, scheme: postgresql+psycopg2}}", False),
    ],
)
def test_a_driver_that_dagster_fails_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: str, refused: bool
) -> None:
    client = types.ModuleType("dagster_postgres")
    client.__spec__ = ModuleSpec("dagster_postgres", None)
    monkeypatch.setitem(sys.modules, "dagster_postgres", client)
    home = written(tmp_path, f"storage: {{postgres: {postgres}}}\n")
    if not refused:
        make_instance(home)
        return
    with pytest.raises(FrazilError, match="names no driver for PostgreSQL") as caught:
        make_instance(home)
    assert f"scheme: postgresql+psycopg2 below postgres_db in {home}/dagster.yaml" in str(caught.value.fix)
