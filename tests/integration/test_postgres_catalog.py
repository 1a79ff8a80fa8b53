"""A catalog in PostgreSQL by itself: who logs in, many who make its tables at once, and connections that are cut."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Literal

from jobs.clients.catalog.catalog import CatalogUnavailableError, connect_catalog
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import Settings
from tests.helpers.catalogs import database_catalog
from tests.helpers.database_server import PASSWORD, DatabaseServer
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.integration
ODD = "p@ss/w:rd %40'"


@pytest.fixture
def admin(database: DatabaseServer) -> Any:
    with psycopg.connect(database.url, password=PASSWORD, autocommit=True) as connection:
        yield connection


def settings_of(home: Path, catalog: dict[str, Any]) -> Settings:
    return Settings.embedded(home).model_copy(update={"catalog": CatalogSettings.model_validate(catalog)})


def connections(admin: Any, name: str) -> int:
    return admin.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()[0]


def test_a_password_of_any_characters_and_a_wrong_one(
    admin: Any, database: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.execute(SQL("CREATE ROLE odd SUPERUSER LOGIN PASSWORD {}").format(Literal(ODD)))
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", ODD)
    made = database_catalog(database, tmp_path / "warehouse")
    made["properties"]["uri"] = made["properties"]["uri"].replace("frazil@", "odd@")
    settings = settings_of(tmp_path, made)
    with connect_catalog(settings) as catalog:
        catalog.create_namespace("lake")
        assert catalog.list_namespaces() == [("lake",)]
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", "not this one")
    with pytest.raises(CatalogUnavailableError, match="password authentication failed") as told:
        connect_catalog(settings)
    assert "not this one" not in str(told.value)


# Of a client that fails within its constructor, as all but the first may, nobody can close the connection.
@pytest.mark.filterwarnings("ignore:.psycopg.Connection object:ResourceWarning")
def test_many_make_its_tables_at_once(admin: Any, database: DatabaseServer, tmp_path: Path) -> None:
    for table in ("iceberg_tables", "iceberg_namespace_properties"):
        admin.execute(f"DROP TABLE IF EXISTS {table}")
    settings = settings_of(tmp_path, database_catalog(database, tmp_path / "warehouse"))
    with ThreadPoolExecutor(6) as pool:
        for catalog in pool.map(lambda _: connect_catalog(settings), range(6)):
            assert catalog.list_namespaces() == []
    gc.collect()


def test_connections_that_were_cut_are_replaced_and_none_is_left_behind(
    admin: Any, database: DatabaseServer, tmp_path: Path
) -> None:
    made = database_catalog(database, tmp_path / "warehouse")
    made["properties"]["uri"] += f"?application_name={made['name']}"
    catalog = connect_catalog(settings_of(tmp_path, made))
    catalog.create_namespace("lake")
    assert connections(admin, made["name"]) == 1
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [made["name"]])
    wait_for(lambda: connections(admin, made["name"]) == 0, "the connection to end", 10)
    assert catalog.list_namespaces() == [("lake",)]
    del catalog
    gc.collect()
    wait_for(lambda: connections(admin, made["name"]) == 0, "the connection of a catalog that nobody has", 10)
