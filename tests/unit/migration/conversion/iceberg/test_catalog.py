"""Section `catalog`: each type, addresses of databases, and properties that are secrets or misspelt."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.services.catalog import CatalogSettings
from jobs.migration.conversion.draft import Draft
from jobs.migration.conversion.iceberg.catalog import connect_catalog
from tests.unit.migration.conversion.drafts import connector_of, converted


def drafted(**keys: str) -> Draft:
    return converted(connect_catalog, connector_of("C", {f"iceberg.{key}": value for key, value in keys.items()}))


def properties(draft: Draft) -> dict[str, Any]:
    catalog = draft.settings.get("catalog")
    CatalogSettings.model_validate(catalog)
    return catalog["properties"]


def catalog(**keys: str) -> Draft:
    return drafted(**{f"catalog.{key.replace('__', '.')}": value for key, value in keys.items()})


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("type", "rest", "rest"),
        ("type", "HIVE", "hive"),
        ("type", "glue", "glue"),
        ("catalog-impl", "org.apache.iceberg.rest.RESTCatalog", "rest"),
        ("catalog-impl", "org.apache.iceberg.hive.HiveCatalog", "hive"),
        ("catalog-impl", "org.apache.iceberg.aws.glue.GlueCatalog", "glue"),
    ],
)
def test_types_by_name_and_by_class(key: str, value: str, kind: str) -> None:
    draft = drafted(**{f"catalog.{key}": value})
    assert properties(draft)["type"] == kind
    assert not any(question.blocks for question in draft.questions)


@pytest.mark.parametrize(
    ("uri", "more", "expected"),
    [
        ("jdbc:postgresql://h:5432/d", {}, "postgresql+psycopg://h:5432/d"),
        ("jdbc:postgresql://h/d?ssl=true&sslrootcert=/ca.pem", {}, "postgresql+psycopg://h/d?sslmode=verify-full&sslrootcert=/ca.pem"),
        ("jdbc:postgresql://h/d?user=a&password=hunter2", {}, "postgresql+psycopg://a@h/d"),
        ("jdbc:postgresql://h/d", {"jdbc.user": "a@b", "jdbc.password": "hunter2"}, "postgresql+psycopg://a%40b@h/d"),
        ("jdbc:postgresql://h/d", {"jdbc.user": "${file:/x:u}", "jdbc.password": "hunter2"}, "postgresql+psycopg://${env:CATALOG_USER}@h/d"),
        ("jdbc:mysql://h:3306/d", {}, "mysql+pymysql://h:3306/d"),
        ("jdbc:sqlite:/var/lib/c.db", {}, "sqlite:////var/lib/c.db"),
    ],
)  # fmt: skip
def test_addresses_of_databases(uri: str, more: dict[str, str], expected: str) -> None:
    draft = drafted(**{"catalog.type": "jdbc", "catalog.uri": uri}, **{f"catalog.{k}": v for k, v in more.items()})
    found = properties(draft)
    assert found["uri"] == expected
    assert ("password" in found) == ("hunter2" in uri + str(more))
    assert "hunter2" not in str(found) + repr(draft.settings.secrets)
    assert any("must stay iceberg" in note for note in draft.notes)


@pytest.mark.parametrize("uri", ["jdbc:oracle:thin:@h:1521/d", "postgresql://h/d", "{{ uri }}"])
def test_an_unknown_database_is_to_decide(uri: str) -> None:
    draft = catalog(type="jdbc", uri=uri)
    properties(draft)
    assert any(question.blocks for question in draft.questions)


@pytest.mark.parametrize("kind", ["hadoop", "nessie"])
def test_catalogs_without_a_history_have_a_way_out_and_no_address(kind: str) -> None:
    draft = catalog(type=kind, uri="http://nessie:19120/api/v2", warehouse="s3://w", ref="main")
    found = properties(draft)
    assert found["uri"] == "https://undecided.invalid/catalog"
    assert "warehouse" not in found
    (question,) = [question for question in draft.questions if question.blocks]
    assert "register each table in a supported catalog" in question.text


def test_a_catalog_of_somebody_else_is_to_decide() -> None:
    draft = drafted(**{"catalog.catalog-impl": "com.acme.OurCatalog", "catalog.uri": "http://x"})
    properties(draft)
    assert any("does not know its class" in question.text for question in draft.questions)


def test_secrets_and_references_become_variables() -> None:
    draft = drafted(
        **{
            "catalog.type": "rest",
            "catalog.uri": "https://me:hunter2@catalog.example",
            "catalog.credential": "hunter3:hunter4",
            "catalog.header.Authorization": "Bearer hunter5",
            "catalog.s3.access-key-id": "${aws:lake:key}",
            "catalog.warehouse": "${env:WAREHOUSE}",
        }
    )
    assert properties(draft) == {
        "type": "rest",
        "uri": "${env:CATALOG_URI}",
        "credential": "${env:CATALOG_CREDENTIAL}",
        "header.Authorization": "${env:CATALOG_HEADER_AUTHORIZATION}",
        "s3.access-key-id": "${env:CATALOG_S3_ACCESS_KEY_ID}",
        "warehouse": "${env:WAREHOUSE}",
    }
    assert "hunter" not in repr(draft.settings.secrets)
    assert [one.was for one in draft.settings.secrets][3:] == [
        "config provider aws, lake key",
        "environment variable WAREHOUSE",
    ]


def test_a_misspelt_property_is_left_out_and_asked_for() -> None:
    draft = drafted(**{"catalog.type": "rest", "catalog.uri": "http://x", "catalog.s3.end-point": "http://s3"})
    assert "s3.end-point" not in properties(draft)
    assert any("did you mean iceberg.catalog.s3.endpoint" in question.text for question in draft.questions)


@pytest.mark.parametrize(
    ("keys", "virtual"),
    [
        ({"s3.endpoint": "http://s3", "s3.path-style-access": "true"}, None),
        ({"s3.endpoint": "http://s3", "s3.path-style-access": "False"}, "true"),
        ({"s3.endpoint": "http://s3"}, "true"),
        ({}, None),
    ],
)
def test_the_style_of_addresses_stays(keys: dict[str, str], virtual: str | None) -> None:
    draft = drafted(
        **{"catalog.type": "rest", "catalog.uri": "http://x"}, **{f"catalog.{k}": v for k, v in keys.items()}
    )
    assert properties(draft).get("s3.force-virtual-addressing") == virtual


def test_keys_of_hadoop_have_counterparts() -> None:
    draft = drafted(
        **{
            "catalog.type": "hive",
            "catalog.uri": "thrift://m:9083",
            "hadoop.fs.s3a.endpoint": "http://s3",
            "hadoop.fs.s3a.secret.key": "hunter2",
            "hadoop.fs.s3a.path.style.access": "true",
            "hadoop.dfs.replication": "2",
        }
    )
    found = properties(draft)
    assert (found["s3.endpoint"], found["s3.secret-access-key"]) == ("http://s3", "${env:CATALOG_S3_SECRET_ACCESS_KEY}")
    assert list(draft.keys.unanswered()) == ["connector.class"]


@pytest.mark.parametrize(("name", "here"), [("lake", "lake"), ("my-lake", "my_lake"), ("1st", "_1st")])
def test_names_have_letters_that_a_catalog_may_have(name: str, here: str) -> None:
    draft = drafted(**{"catalog": name, "catalog.type": "rest", "catalog.uri": "http://x"})
    assert draft.settings.get("catalog", "name") == here
