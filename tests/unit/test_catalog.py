"""The catalog that the settings name: not made by looking, and without a table that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.catalog import NoCatalogYet, connect_catalog, find_table, quick_catalog
from jobs.spec.settings import Settings
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
