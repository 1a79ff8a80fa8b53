"""The catalog as Spark is told of it."""

from __future__ import annotations

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.spark.catalog_conf import catalog_conf


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"type": "sql", "uri": "sqlite:////data/catalog.db?timeout=30", "warehouse": "file:///w"},
            {"type": "jdbc", "uri": "jdbc:sqlite:/data/catalog.db?journal_mode=WAL&busy_timeout=30000"},
        ),
        (
            {"type": "sql", "uri": "postgresql+psycopg2://me:p%40ss@db:5433/lake?sslmode=require"},
            {"uri": "jdbc:postgresql://db:5433/lake?sslmode=require", "jdbc.user": "me", "jdbc.password": "p@ss"},
        ),
        ({"uri": "https://catalog/api", "token": "t"}, {"type": "rest", "uri": "https://catalog/api", "token": "t"}),
        ({"type": "rest", "uri": "http://c", "s3.region": "eu"}, {"type": "rest", "client.region": "eu"}),
        ({"type": "glue", "warehouse": "s3://w"}, {"type": "glue", "warehouse": "s3://w"}),
        (
            {"type": "hive", "uri": "thrift://h:9083", "warehouse": "s3://b/w"},
            {
                "type": "hive",
                "uri": "thrift://h:9083",
                "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
                "hadoop.iceberg.hive.table-property-max-size": "4000",
            },
        ),
        (
            {"type": "sql", "uri": "postgresql://me@db/lake?connect_timeout=3&sslrootcert=/etc/ca.pem"},
            {
                "uri": "jdbc:postgresql://db/lake?connectTimeout=3&sslrootcert=/etc/ca.pem",
                "jdbc.user": "me",
                "jdbc.password": None,
                "io-impl": None,
                "jdbc.schema-version": "V1",
            },
        ),
        (
            {"type": "sql", "uri": "postgresql://me:a/b@c@db/lake", "warehouse": "s3://b/w", "pool_pre_ping": "true"},
            {
                "uri": "jdbc:postgresql://db/lake",
                "jdbc.password": "a/b@c",
                "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
                "pool_pre_ping": None,
            },
        ),
        (
            {"type": "REST", "uri": "https://c", "ssl.cabundle": "/ca.pem", "s3.endpoint": "http://s:9000"},
            {
                "type": "rest",
                "ssl.cabundle": None,
                "s3.path-style-access": "true",
                "client.region": "us-east-1",
                "header.X-Iceberg-Access-Delegation": "vended-credentials",
                "io-impl": None,
            },
        ),
        (
            {"uri": "https://c", "header.X-Iceberg-Access-Delegation": "remote-signing", "s3.request-timeout": "2.5"},
            {
                "header.X-Iceberg-Access-Delegation": "remote-signing",
                "http-client.apache.socket-timeout-ms": "2500",
                "s3.request-timeout": None,
            },
        ),
        (
            {"uri": "https://c", "client.role-arn": "arn:r", "client.region": "eu", "s3.role-session-name": "f"},
            {
                "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                "client.assume-role.arn": "arn:r",
                "client.assume-role.region": "eu",
                "client.assume-role.session-name": "f",
            },
        ),
        (
            {
                "uri": "https://c",
                "s3.server-side-encryption": "aws:kms",
                "s3.sse-kms-key-id": "k",
                "s3.anonymous": "true",
            },
            {
                "s3.sse.type": "kms",
                "s3.sse.key": "k",
                "client.credentials-provider": ("software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider"),
            },
        ),
        (
            {"uri": "https://c", "s3.endpoint": "http://s", "s3.force-virtual-addressing": "true", "s3.region": "eu"},
            {"s3.path-style-access": "false", "client.region": "eu"},
        ),
    ],
)
def test_the_catalog_in_the_words_of_java(properties: dict[str, str], expected: dict[str, str]) -> None:
    found = catalog_conf("lake", properties)
    assert {key: found.get(key) for key in expected} == expected
    assert found["cache-enabled"] == "false"


def test_a_catalog_that_java_does_not_have() -> None:
    with pytest.raises(FrazilError, match="cannot be configured for a catalog of type dynamodb") as told:
        catalog_conf("lake", {"type": "dynamodb"})
    assert "spark.sql.catalog.lake.type" in (told.value.fix or "")
