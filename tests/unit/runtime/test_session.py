"""What Spark's UI and event log show of the settings: nothing secret."""

from __future__ import annotations

import re

import pytest

from jobs.runtime.session import REDACTED

CATALOG = "spark.sql.catalog.lake"


@pytest.mark.parametrize(
    "key",
    [
        f"{CATALOG}.jdbc.password",
        f"{CATALOG}.token",
        f"{CATALOG}.credential",
        f"{CATALOG}.oauth2.client-Secret",
        f"{CATALOG}.header.Authorization",
        f"{CATALOG}.header.X-Api-Key",
        f"{CATALOG}.s3.access-key-id",
        f"{CATALOG}.s3.secret-access-key",
        f"{CATALOG}.s3.session-token",
        f"{CATALOG}.client.access-key-id",
        f"{CATALOG}.adls.account-key",
        f"{CATALOG}.adls.auth.shared-key.account.key",
        f"{CATALOG}.adls.connection-string.store",
        f"{CATALOG}.adls.sas-token.store",
        f"{CATALOG}.gcs.oauth2.token",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.store",
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.password",
        "ssl.private.key",
    ],
)
def test_secrets_are_redacted(key: str) -> None:
    assert re.search(REDACTED, key)


@pytest.mark.parametrize("value", ["https://me:hunter2@catalog/api", "jdbc:mysql://db/lake?user=me&password=hunter2"])
def test_addresses_that_hold_one_are(value: str) -> None:
    assert re.search(REDACTED, value)


@pytest.mark.parametrize(
    "text",
    [
        f"{CATALOG}.uri",
        f"{CATALOG}.type",
        f"{CATALOG}.warehouse",
        f"{CATALOG}.jdbc.user",
        f"{CATALOG}.s3.region",
        f"{CATALOG}.s3.path-style-access",
        "kafka.sasl.mechanism",
        "kafka.bootstrap.servers",
        "spark.driver.memory",
        "spark.sql.session.timeZone",
        "https://catalog:8181/api",
        "jdbc:postgresql://db:5433/lake?sslmode=require",
        "s3://kansas/lake",
        "kafka://a:9092/b@c",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert not re.search(REDACTED, text)
