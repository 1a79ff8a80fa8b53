"""Catalogue of expectations: written from Great Expectations itself, read without it.

``python -m tests.helpers.expectation_catalogue`` writes it anew, after an upgrade of Great Expectations.
"""

from __future__ import annotations

import inspect
import json
import typing
from pathlib import Path
from typing import Any

from jobs.config.contract.expectation_catalogue import FILE
from jobs.quality.contracts.gx import import_gx

_SQL_LIKE = "only SQL databases evaluate it; use expect_column_values_to_"
_TYPES = "it names types of pandas or of Spark, which differ; the table's schema holds the column's type already"
LEFT_OUT = {
    "expect_column_values_to_match_like_pattern": f"{_SQL_LIKE}match_regex",
    "expect_column_values_to_match_like_pattern_list": f"{_SQL_LIKE}match_regex_list",
    "expect_column_values_to_not_match_like_pattern": f"{_SQL_LIKE}not_match_regex",
    "expect_column_values_to_not_match_like_pattern_list": f"{_SQL_LIKE}not_match_regex_list",
    "expect_query_results_to_match_comparison": "it compares two queries of SQL databases",
    "expect_table_row_count_to_equal_other_table": "it counts another table of a SQL database",
    "unexpected_rows_expectation": "it is a query of SQL; say the same by an expectation with a row_condition",
    "expect_column_values_to_be_of_type": _TYPES,
    "expect_column_values_to_be_in_type_list": _TYPES,
    "expect_column_type_to_be": _TYPES,
    "expect_column_values_to_be_increasing": "it is about the order of rows, and rows of a table have none",
    "expect_column_values_to_be_decreasing": "it is about the order of rows, and rows of a table have none",
    "expect_column_values_to_be_dateutil_parseable": "only pandas evaluates it; use "
    "expect_column_values_to_match_strftime_format",
    "expect_multicolumn_values_to_be_unique": "Great Expectations does not evaluate it any more; use "
    "expect_select_column_values_to_be_unique_within_record",
}
"""Expectations that no contract can have, each with why."""

# What every expectation has and an entry of a contract says beside it, or not at all.
_NOT_ARGUMENTS = {
    "id", "meta", "notes", "result_format", "description", "catch_exceptions", "rendered_content", "severity",
    "windows", "batch_id", "condition_parser", "library_metadata",
}  # fmt: skip
# What an argument is, where its type in Great Expectations does not say it.
_KINDS = {
    "column_list": "columns",
    "column_set": "texts",
    "mostly": "share",
    "regex": "regex",
    "regex_list": "regexes",
    "row_condition": "condition",
    "value_set": "values",
    "value_pairs_set": "pairs",
    "quantile_ranges": "quantiles",
    "ignore_row_if": "choice",
    "column_index": "integer",
}
_IGNORE_ROW = ["all_values_are_missing", "any_value_is_missing", "never"]
_TRIED: dict[str, Any] = {
    "column": "a", "column_A": "a", "column_B": "b", "columns": ["a", "b"], "number": 1, "integer": 1, "values": [1],
    "texts": ["a"], "text": "a", "flag": True, "regex": "a", "regexes": ["a"], "pairs": [(1, 1)], "mapping": {"a": 1},
    "quantiles": {"quantiles": [0.5], "value_ranges": [[0, 1]]},
}  # fmt: skip


def build() -> dict[str, Any]:
    """The catalogue as Great Expectations has it: version, expectations with their arguments, those left out."""
    import_gx()
    import great_expectations
    from great_expectations import expectations

    found: dict[str, Any] = {}
    known: set[str] = set()
    kinds: list[Any] = [kind for _, kind in inspect.getmembers(expectations, inspect.isclass)]
    for kind in kinds:
        if not hasattr(kind, "expectation_type") or kind.__module__.split(".")[-2] != "core":
            continue
        # An abstract class has no type; its module has the name.
        name = kind.expectation_type or kind.__module__.split(".")[-1]
        known.add(name)
        if name not in LEFT_OUT:
            found[name] = _entry(kind)
    assert set(LEFT_OUT) <= known, set(LEFT_OUT) - known
    return {
        "great_expectations": ".".join(great_expectations.__version__.split(".")[:2]),
        "expectations": dict(sorted(found.items())),
        "left_out": dict(sorted(LEFT_OUT.items())),
    }


def _entry(kind: Any) -> dict[str, Any]:
    arguments = {
        name: _argument(kind.expectation_type, name, field)
        for name, field in kind.__fields__.items()
        if name not in _NOT_ARGUMENTS
    }
    # An expectation without any bound, or without what it compares with, could never fail.
    for name in ("regex", "column_set", "column_list", "partition_object", "threshold"):
        if name in arguments:
            arguments[name]["required"] = True
    entry: dict[str, Any] = {"arguments": arguments}
    if {"min_value", "max_value"} <= set(arguments) and "threshold" not in arguments:
        entry["one_of"] = ["min_value", "max_value"]
    given = [name for name, each in arguments.items() if each.get("required")] + entry.get("one_of", [])[:1]
    # Great Expectations itself has to take what is required, and nothing more.
    kind(**{name: _TRIED.get(name, _TRIED.get(arguments[name]["kind"], 1)) for name in given})
    return entry


def _argument(expectation: str, name: str, field: Any) -> dict[str, Any]:
    hint = field.outer_type_
    parts = [each for each in (typing.get_args(hint) or (hint,)) if each is not type(None) and each is not dict]
    choices = [word for each in parts if typing.get_origin(each) is typing.Literal for word in typing.get_args(each)]
    if typing.get_origin(hint) is typing.Literal:
        choices = list(typing.get_args(hint))
    found: dict[str, Any] = {"kind": _KINDS.get(name) or _kind(name, parts, choices)}
    if expectation == "expect_column_to_exist" and name == "column":
        found["kind"] = "text"
    if expectation == "expect_table_columns_to_match_ordered_list":
        found["kind"] = "texts"
    if expectation.startswith("expect_table_column_count"):
        found["kind"] = "integer"
    if found["kind"] == "choice":
        found["choices"] = choices or _IGNORE_ROW
    if field.required:
        found["required"] = True
    return found


def _kind(name: str, parts: list[Any], choices: list[str]) -> str:
    names = {getattr(each, "__name__", str(each)) for each in parts}
    if choices:
        return "choice"
    if name.startswith("column"):
        return "column"
    if {"date", "datetime"} & names and "float" in names:
        return "comparable"
    for kind, types in (
        ("number", {"float", "ConstrainedFloatValue"}), ("integer", {"int"}), ("flag", {"bool"}), ("text", {"str"}),
    ):  # fmt: skip
        if types & names:
            return kind
    if any(typing.get_origin(each) is list or each is list for each in parts):
        return "texts"
    return "mapping"


def written(catalogue: dict[str, Any]) -> str:
    """The catalogue as JSON, with a line for each argument."""
    return json.dumps(catalogue, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(FILE).write_text(written(build()), encoding="utf-8")
    print(f"{FILE} is written")
