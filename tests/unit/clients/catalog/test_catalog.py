"""The catalog that the settings name: not made by looking, and what is wrong where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.catalog.catalog import (
    CatalogUnavailableError,
    CatalogUnusableError,
    NoCatalogYet,
    connect_catalog,
    find_table,
    quick_catalog,
)
from jobs.config.redaction import redacted
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import Settings
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Deployment.at(deployment_in(tmp_path, "payments")).prepared_settings()


def test_a_catalog_that_nobody_made_is_not_made_by_looking(settings: Settings) -> None:
    with pytest.raises(NoCatalogYet):
        quick_catalog(settings)
    assert list((settings.home / ".frazil").iterdir()) == []


def test_a_table_that_is_not_there(settings: Settings) -> None:
    with connect_catalog(settings) as catalog:
        assert find_table(catalog, "no.such") is None


@pytest.mark.parametrize(
    ("properties", "said", "fix"),
    [
        ({"type": "rest"}, "properties.uri is missing", "frazil validate"),
        ({"type": "sql"}, "properties.uri is missing", "frazil validate"),
        ({"type": "glue"}, "its driver is not installed: No module named 'boto3'", "pip install 'pyiceberg[glue]'"),
        ({"type": "sql", "uri": "postgresql+pg8000://me@db/x"}, "No module named 'pg8000'", "pip install 'frazil"),
    ],
)
def test_a_catalog_that_can_never_be_used_as_it_is_set(
    settings: Settings, properties: dict[str, str], said: str, fix: str
) -> None:
    catalog = CatalogSettings.model_validate({"properties": properties})
    with pytest.raises(CatalogUnusableError) as told:
        connect_catalog(settings.model_copy(update={"catalog": catalog}))
    assert said in told.value.message
    assert fix in (told.value.fix or "")


def test_a_password_is_not_shown_in_the_form_of_a_uri_either(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_T_PG", "p@ss word")
    uri = "postgresql+psycopg://frazil@127.0.0.1:1/lake"
    catalog = CatalogSettings.model_validate({"properties": {"uri": uri, "password": "${env:FRAZIL_T_PG}"}})
    changed = settings.model_copy(update={"catalog": catalog})
    with pytest.raises(CatalogUnavailableError, match="connection") as told:
        connect_catalog(changed)
    assert "ss word" not in str(told.value)
    assert (
        redacted(changed, catalog.revealed()["uri"])
        == "postgresql+psycopg://frazil:${env:FRAZIL_T_PG}@127.0.0.1:1/lake"
    )
