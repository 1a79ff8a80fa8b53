"""What can be an identifier field, and columns that are optional but for those."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema

from jobs.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.schema.identifier_fields import (
    identifier_names,
    identifier_problem,
    optional_columns,
    with_identifier_fields,
)
from jobs.schema.parser import parse_schema

TABLE = (
    "id string not null, n long, at timestamptz not null, f float not null, d double not null, "
    "payer struct<id long not null, name string, home struct<zip string not null>> not null, "
    "other struct<id long not null>, items list<struct<sku string not null> not null> not null, "
    "m map<string, struct<v int not null> not null> not null"
)


def schema(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("id", None),
        ("at", None),
        ("payer.id", None),
        ("n", "'n' may be null"),
        ("f", "'f' is a float"),
        ("d", "'d' is a double"),
        ("payer", "'payer' is no single value"),
        ("payer.name", "'payer.name' may be null"),
        ("payer.home.zip", "'payer.home' may be null"),
        ("other.id", "'other' may be null"),
        ("items", "'items' is no single value"),
        ("items.element.sku", "'items' has no columns within it"),
        ("m.key", "'m' has no columns within it"),
        ("ids", "no column 'ids'; did you mean 'id'?"),
        ("payer.idd", "no column 'payer.idd'; did you mean 'payer.id'?"),
        ("id.x", "'id' has no columns within it"),
    ],
)
def test_what_iceberg_allows(path: str, problem: str | None) -> None:
    rows = schema(TABLE)
    found = identifier_problem(tuple(path.split(".")), rows)
    assert found is None if problem is None else problem in (found or "")
    if problem is None:
        # Iceberg's own model takes it, too.
        assert identifier_names(with_identifier_fields(rows, [path])) == [path]
    elif path in rows._name_to_id:
        with pytest.raises(ValueError, match=r"(?i)identifier field"):
            with_identifier_fields(rows, [path])


def test_columns_are_optional_but_for_identifier_fields_and_what_they_are_in() -> None:
    rows = schema("id long not null, s struct<k int not null, v int not null> not null, l list<int not null> not null")
    made = optional_columns(rows, [("s", "k")])
    assert schema_text(made.as_struct()) == "struct<id long, s struct<k int not null, v int> not null, l list<int>>"
    assert [each.field_id for each in made.fields] == [each.field_id for each in rows.fields]
