"""Functions that expressions may call: a closed list, so that none reads a file or the network, or is random."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.records.expressions import (
    nested_functions,
    number_functions,
    text_functions,
    time_functions,
)
from jobs.records.expressions.calls import Function

GROUPS: Mapping[str, tuple[Function, ...]] = {
    "numbers": number_functions.FUNCTIONS,
    "texts": text_functions.FUNCTIONS,
    "dates and times": time_functions.FUNCTIONS,
    "structs, lists and maps": nested_functions.FUNCTIONS,
}
FUNCTIONS: Mapping[str, Function] = {each.name: each for group in GROUPS.values() for each in group}
CONDITIONALS: Mapping[str, str] = {
    "coalesce(value, …)": "the first that is not null",
    "nullif(value, other)": "null where both are equal, else the value",
    "if(condition, value, other)": "as CASE with one condition",
    "try(value)": "null where it fails",
    "header(name)": "the record's last header of that name, as text",
    "now()": "the batch's time, the same for all of its rows; also current_timestamp, and current_date in UTC",
}
"""Calls that are bound separately, because they are lazy or read something other than columns of the row."""
MEANT: Mapping[str, str] = {
    "substring": "substr",
    "len": "length",
    "char_length": "length",
    "ucase": "upper",
    "lcase": "lower",
    "strpos": "position",
    "instr": "position",
    "array_length": "cardinality",
    "size": "cardinality",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "iff": "if",
    "iif": "if",
    "ceiling": "ceil",
    "pow": "power",
    "log": "ln",
    "to_timestamp": "parse_timestamp",
    "strptime": "parse_timestamp",
    "datediff": "date_diff",
    "rlike": "regexp_like",
    "regexp_matches": "regexp_like",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "safe_cast": "try_cast",
    "current_time": "now",
}
"""Names of functions in other engines, for the suggestion in a problem."""
AGGREGATES = frozenset(
    {
        *("count", "sum", "avg", "min", "max", "any_value", "array_agg", "string_agg", "first", "last", "stddev"),
        *("variance", "median", "row_number", "lag", "lead"),
    }
)
VOLATILE = frozenset({"random", "rand", "uuid", "gen_random_uuid", "newid", "setseed"})
OUTSIDE = frozenset(
    {
        *("read_csv", "read_csv_auto", "read_parquet", "read_json", "read_text", "read_blob", "glob", "getenv"),
        *("load_extension", "http_get", "sqlite_scan", "parquet_scan"),
    }
)
