"""How a stream's file says what its values are: formats of one column, and what does not go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.formats.primitive.schema import COLUMN_TYPES
from jobs.spec.decode import Decode
from jobs.spec.loading import load_stream
from jobs.spec.validation import SpecError


@pytest.mark.parametrize(("value", "column"), COLUMN_TYPES.items())
def test_a_primitive_format_is_one_column_of_its_type(value: str, column: str) -> None:
    for schema in (f"value {column}", [f"`my value` {column} not null"]):
        made = Decode.model_validate({"value": value, "schema": schema}).declared
        assert made is not None
        assert [str(field.field_type) for field in made.schema.fields] == [column]
        assert (made.decoder.kind, dict(made.decoder.options)) == (value, {})


@pytest.mark.parametrize(
    ("value", "rest", "place", "message"),
    [
        ("int", {"schema": "n long"}, "schema", "values as int are one column of the type int, not long"),
        ("short", {"schema": "n struct<a int>"}, "schema", "values as short are one column of the type int, not"),
        ("bytes", {"schema": "b binary as hex"}, "schema", "one column of the type binary, not binary as hex"),
        ("string", {"schema": "a string, b string"}, "schema", "are one column, such as 'value string', not 2"),
        ("long", {"schema": "n long", "unknown_fields": "fail"}, "unknown_fields", "is about keys of JSON"),
    ],
)
def test_what_does_not_go_with_it_is_named(
    value: str, rest: dict[str, Any], place: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "payments.yaml"
    decode = {"value": value, **rest}
    stream = {"stream": "payments", "source": {"topics": ["p"]}, "table": {"name": "orders.payments"}}
    path.write_text(yaml.safe_dump(stream | {"decode": decode}))
    with pytest.raises(SpecError) as caught:
        load_stream(path)
    (problem,) = caught.value.problems
    assert f"decode.{place}: " in problem
    assert message in problem
