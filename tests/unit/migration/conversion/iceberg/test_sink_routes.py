"""Routes of an Iceberg sink: fields with odd names, and regular expressions that Java alone knows."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import ConvertedConnector, convert
from jobs.migration.files.plan import plan_import
from tests.unit.migration.test_import_secrets import BASE

REGEX = "iceberg.table.shop.orders.route-regex"


def converted(tmp_path: Path, **keys: str) -> ConvertedConnector:
    (tmp_path / "c.json").write_text(json.dumps(BASE | {key.replace("__", "."): v for key, v in keys.items()}))
    plan = plan_import(convert(read_sources([str(tmp_path / "c.json")])), tmp_path / "home")
    assert [file.path for file in plan.files] == ["streams/c.yaml", "frazil.yaml"], "it validates"
    return plan.conversion.connectors[0]


def route(one: ConvertedConnector) -> dict[str, Any]:
    return one.streams[0]["route"]


@pytest.mark.parametrize(
    ("field", "static", "dynamic"),
    [
        ("kind", "kind", "kind"),
        ("meta.table", "meta.table", "meta.table"),
        ("order", "order", '"order"'),
        ("a-b", "column:`a-b`", '"a-b"'),
        ("meta.table name", "column:meta.`table name`", 'meta."table name"'),
    ],
)
def test_fields_with_odd_names(field: str, static: str, dynamic: str, tmp_path: Path) -> None:
    own = {"iceberg__tables__route-field": field}
    assert route(converted(tmp_path, **own, **{REGEX: "x"}))["by"] == static
    found = route(converted(tmp_path, **own, **{"iceberg__tables__dynamic-enabled": "true"}))["by"]
    assert found == f"lower(regexp_replace({dynamic}, '^undecided[.]', ''))"


@pytest.mark.parametrize(
    "pattern", ["${REGEX}", r"[a-z&&[^b]]", r"\p{L}+", r"(?<n>a)\k<n>", r"\Qa.b\E", r"a\z", "[[:alpha:]]"]
)
def test_a_pattern_that_only_java_knows_is_to_decide_and_drops_nothing(pattern: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = converted(tmp_path, **{"iceberg__tables__route-field": "f", REGEX: pattern})
    assert one.outcome == "decide"
    assert {answer.key: str(answer.heading) for answer in one.answers}[REGEX] == "decide"
    assert route(one)["unmatched"] == "fail"


@pytest.mark.parametrize("pattern", ["a|b", "(?i)x", "a++", r"\d{2}", "^a$"])
def test_a_pattern_of_both_stays(pattern: str, tmp_path: Path) -> None:
    one = converted(tmp_path, **{"iceberg__tables__route-field": "f", REGEX: pattern})
    assert (one.outcome, route(one)["tables"][0]["match"], route(one)["unmatched"]) == ("converted", pattern, "drop")
