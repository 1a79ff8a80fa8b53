"""Catalogs of vendors as their documentation configures them: no property doubted, none lost on the way to Spark."""

from __future__ import annotations

import pytest

from jobs.clients.spark.catalog_conf import catalog_conf, catalog_sets
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import SparkSettings

VENDORS: dict[str, dict[str, str]] = {
    "Polaris": {
        "uri": "https://polaris.example.com/api/catalog",
        "warehouse": "lake",
        "credential": "${env:CREDENTIAL}",
        "scope": "PRINCIPAL_ROLE:ALL",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "token-refresh-enabled": "true",
    },
    "Snowflake Open Catalog": {
        "uri": "https://org-account.snowflakecomputing.com/polaris/api/catalog",
        "warehouse": "lake",
        "credential": "${env:CREDENTIAL}",
        "scope": "PRINCIPAL_ROLE:frazil",
    },
    "Unity Catalog": {
        "uri": "https://dbc.example.com/api/2.1/unity-catalog/iceberg-rest",
        "warehouse": "main",
        "token": "${env:CREDENTIAL}",
    },
    "Lakekeeper": {
        "uri": "https://lakekeeper.example.com/catalog",
        "warehouse": "lake",
        "credential": "${env:CREDENTIAL}",
        "oauth2-server-uri": "https://idp.example.com/realms/lake/protocol/openid-connect/token",
        "scope": "lakekeeper",
        "audience": "lakekeeper",
    },
    "Gravitino": {"uri": "http://gravitino.example.com:9001/iceberg", "prefix": "lake"},
    "Glue by REST": {
        "uri": "https://glue.eu-central-1.amazonaws.com/iceberg",
        "warehouse": "123456789012",
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "glue",
        "rest.signing-region": "eu-central-1",
    },
    "S3 Tables": {
        "uri": "https://s3tables.eu-central-1.amazonaws.com/iceberg",
        "warehouse": "arn:aws:s3tables:eu-central-1:123456789012:bucket/lake",
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "s3tables",
        "rest.signing-region": "eu-central-1",
    },
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendor_s_rest_catalog(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIAL", "id:of-a-client")
    catalog = CatalogSettings.model_validate({"name": "lake", "properties": {"type": "rest", **VENDORS[vendor]}})
    assert list(catalog.doubts) == []
    assert "of-a-client" not in repr(catalog)
    assert catalog_sets(catalog, SparkSettings()) == ("aws",)
    given = catalog.revealed()
    spark = catalog_conf("lake", given)
    assert {key: spark.get(key) for key in given} == given
    assert spark["header.X-Iceberg-Access-Delegation"] == "vended-credentials"


def test_glue_s_own_client() -> None:
    properties = {
        "type": "glue",
        "glue.region": "eu-central-1",
        "glue.id": "123456789012",
        "glue.skip-archive": "true",
        "warehouse": "s3://lake/warehouse",
    }
    catalog = CatalogSettings.model_validate({"name": "lake", "properties": properties})
    assert list(catalog.doubts) == []
    assert catalog_sets(catalog, SparkSettings()) == ("aws",)
    expected = {**properties, "client.region": "eu-central-1", "cache-enabled": "false"}
    del expected["glue.region"]
    assert catalog_conf("lake", catalog.revealed()) == expected
