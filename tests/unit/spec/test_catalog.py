"""The catalog in the settings: what it may say, and what is refused with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pyiceberg
import pytest
from pydantic import ValidationError
from pyiceberg.catalog import rest

from jobs.spec.catalog import CatalogSettings
from jobs.spec.catalog_properties import known_properties, nearest_property
from jobs.spec.settings import load_settings
from jobs.spec.validation import SpecError

# Of columns in Glue, classes of Hive, and rows in DynamoDB.
_NO_PROPERTIES = ("iceberg.field.", "org.apache.", "p.")
PG = "postgresql+psycopg://frazil@db:5432/lake"


def catalog(**properties: str) -> CatalogSettings:
    return CatalogSettings.model_validate({"properties": {key.replace("__", "."): v for key, v in properties.items()}})


def problems(home: Path, *lines: str) -> list[str]:
    text = "catalog:\n  properties:\n" + "".join(f"    {line}\n" for line in lines)
    (home / "frazil.yaml").write_text(text)
    with pytest.raises(SpecError) as error:
        load_settings(None, home=home)
    return list(error.value.problems)


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        (("uri: https://c", "s3.server-side-encryption: aws:kms"), 4, "have the bucket encrypt what comes"),
        (("type: rest", "uri: thrift://c"), 4, "must begin with http:// or https:// for the type rest"),
        (("type: hive", "uri: https://c"), 4, "must begin with thrift:// for the type hive"),
        (("type: rest", "uri: https://c", "snapshot-loading-mode: refs"), 5, "must be all, or be left out"),
        (("type: rest", "uri: https://c", "password: ${env:X}"), 5, "is for a catalog of the type sql"),
        (("type: sql", "uri: postgresql://db/lake", "password: ${env:X}"), 5, "is that of the user in uri"),
        (("type: sql", "uri: 'postgresql://a:${env:X}@db/l'", "password: ${env:X}"), 5, "is that of the user in uri"),
        (("type: sql", f"uri: {PG}", "password: hunter2"), 5, "write ${env:NAME}"),
    ],
)
def test_a_property_that_cannot_be_is_told_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], line: int, said: str
) -> None:
    (problem,) = problems(tmp_path, *lines)
    assert f"frazil.yaml:{line}: catalog.properties." in problem
    assert said in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("s3.endpont", "s3.endpoint"),
        ("S3.Endpoint", "s3.endpoint"),
        ("s3.access_key_id", "s3.access-key-id"),
        ("access-key-id", "s3.access-key-id"),
        ("zzz", None),
        ("s3.some-new-switch", None),
    ],
)
def test_a_name_that_is_near_to_a_known_one_is_doubted_and_kept(name: str, near: str | None) -> None:
    made = CatalogSettings.model_validate({"properties": {"type": "rest", "uri": "https://c", name: "1"}})
    doubt = f"catalog.properties.{name} is no property of a catalog that frazil knows; did you mean '{near}'?"
    assert list(made.doubts) == ([doubt] if near else [])
    assert made.revealed()[name] == "1"


@pytest.mark.parametrize("name", ["credental", "tokn", "pasword", "s3.secretaccesskey"])
def test_a_literal_under_a_name_that_is_near_to_a_secret_one_is_refused(name: str) -> None:
    properties = {"type": "rest", "uri": "https://c", name: "hidden"}
    with pytest.raises(ValidationError, match=r"did you mean .+ If so, a secret must not stand in the file") as found:
        CatalogSettings.model_validate({"properties": properties})
    assert "hidden" not in str(found.value)
    reference = CatalogSettings.model_validate({"properties": properties | {name: "${env:HIDDEN}"}})
    assert len(list(reference.doubts)) == 1


def test_a_class_of_somebody_else_has_properties_of_its_own() -> None:
    made = CatalogSettings.model_validate({"properties": {"py-catalog-impl": "a.B", "credentail": "1"}})
    assert list(made.doubts) == []


@pytest.mark.parametrize(
    "name",
    ["header.X-Iceberg-Access-Delegation", "table-default.write.format.default", "jdbc.sslmode", "rest.auth.type"],
)
def test_names_that_whoever_writes_them_chooses(name: str) -> None:
    assert nearest_property(name) is None


def test_what_pyiceberg_reads_is_known() -> None:
    """Of the names that it declares as constants, those of properties are doubted by nobody."""
    folder = Path(pyiceberg.__file__).parent
    declared: set[str] = set()
    # Not imported: their clients may not be installed.
    for module in ("io/__init__", "catalog/glue", "catalog/hive", "catalog/dynamodb", "catalog/bigquery_metastore"):
        names = re.findall(r'^[A-Z0-9_]+ = "([a-z0-9_.-]+)"$', (folder / f"{module}.py").read_text(), re.MULTILINE)
        declared |= {name for name in names if "." in name and not name.startswith(_NO_PROPERTIES)}
    assert len(declared) > 60
    assert {name for name in declared if nearest_property(name)} == set()
    assert {
        rest.OAUTH2_SERVER_URI,
        rest.SCAN_PLANNING_MODE,
        rest.PAGE_SIZE,
        rest.SIGV4,
        rest.PREFIX,
    } <= known_properties()


def test_a_password_is_put_where_the_uri_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_PG", "p@ss/w:rd%")
    made = catalog(type="sql", uri=PG, password="${env:FRAZIL_T_PG}", warehouse="file:///w")
    assert made.revealed() == {
        "type": "sql",
        "uri": "postgresql+psycopg://frazil:p%40ss%2Fw%3Ard%25@db:5432/lake",
        "warehouse": "file:///w",
    }
    assert "p@ss" not in repr(made) + made.model_dump_json()


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({"type": "REST", "uri": "https://c"}, "rest"),
        ({"uri": "https://c"}, "rest"),
        ({"uri": "thrift://c:9083"}, "hive"),
        ({"uri": "sqlite:////c.db"}, "sql"),
        ({"uri": PG}, "sql"),
        ({"uri": "${env:URI}"}, ""),
        ({"type": "glue"}, "glue"),
    ],
)
def test_the_type_is_told_by_the_uri_where_it_is_left_out(properties: dict[str, str], kind: str) -> None:
    assert catalog(**properties).kind == kind


def test_a_catalog_is_frozen() -> None:
    with pytest.raises(ValidationError):
        catalog(type="glue").name = "x"  # pyright: ignore[reportAttributeAccessIssue]
