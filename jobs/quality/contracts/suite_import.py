"""Import of a Great Expectations suite (JSON) as the `contract:` block of a stream's file."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from jobs.base.errors import FrazilError
from jobs.config.contract.contract import default_name
from jobs.config.contract.expectation_catalogue import argument_problems, expectation_types, left_out
from jobs.config.documents.base import field_path

_WIDTH = 118
# Arguments of Great Expectations itself: its reporting, and the parser of a row_condition.
_NOT_ARGUMENTS = frozenset({
    "batch_id", "result_format", "catch_exceptions", "include_config", "meta", "notes", "description", "severity",
    "condition_parser", "auto", "profiler_config", "windows", "id", "rendered_content",
})  # fmt: skip
_SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class ImportedSuite:
    """Result of importing a suite.

    Attributes:
        text: The `contract:` block, with a comment for each omitted expectation.
        taken: Number of imported expectations.
        left: Omitted expectations, each with the reason.
    """

    text: str
    taken: int
    left: tuple[tuple[str, str], ...]


def import_suite(text: str, shown: str) -> ImportedSuite:
    """Convert a suite in the format of Great Expectations 1.x or 0.x to a contract.

    Args:
        text: JSON of the suite.
        shown: Name of the file for messages.

    Raises:
        FrazilError: The text is no suite.
    """
    name, expectations = _suite(text, shown)
    lines: list[str] = []
    left: list[tuple[str, str]] = []
    taken: dict[str, int] = {}
    for kind, given, entry in expectations:
        arguments, problem = _arguments(kind, given)
        if problem is not None:
            left.append((kind, problem))
            lines += [*_comment(f"{kind} is not taken over: {problem}"), *_comment(json.dumps(given, default=str))]
            continue
        called = default_name(kind, arguments)
        taken[called] = taken.get(called, 0) + 1
        written: dict[str, Any] = {kind: arguments}
        if taken[called] > 1:
            written["name"] = f"{called}_{taken[called]}"
        if entry.get("severity") in _SEVERITIES:
            written["severity"] = entry["severity"]
        if isinstance(entry.get("meta"), Mapping) and entry["meta"]:
            written["meta"] = entry["meta"]
        dumped = yaml.safe_dump([written], sort_keys=False, allow_unicode=True, default_flow_style=None, width=_WIDTH)
        lines.append(textwrap.indent(dumped.rstrip(), "    "))
    head = [f"# From the suite '{' '.join(name.split())}' of Great Expectations."] if name else []
    if taken:
        head += ["contract:", "  expectations:"]
    else:
        head.append("# None of its expectations can be one of a contract.")
    return ImportedSuite("\n".join([*head, *lines]) + "\n", sum(taken.values()), tuple(left))


def _suite(text: str, shown: str) -> tuple[str, list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]]:
    fix = "give the JSON file of a suite, which has a list of `expectations`"
    try:
        suite = json.loads(text)
    except ValueError as error:
        raise FrazilError(f"{shown} is no JSON: {error}", fix=fix) from None
    listed = suite.get("expectations") if isinstance(suite, dict) else None
    if not isinstance(listed, list):
        raise FrazilError(f"{shown} is no suite of Great Expectations: it has no list of `expectations`", fix=fix)
    found: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
    for number, entry in enumerate(listed):
        # The key is type in 1.x, and expectation_type in 0.x.
        kind = (entry.get("type") or entry.get("expectation_type")) if isinstance(entry, dict) else None
        given = entry.get("kwargs", {}) if isinstance(entry, dict) else None
        if not isinstance(kind, str) or not isinstance(given, dict):
            raise FrazilError(f"{shown}: expectations[{number}] has no type, or no kwargs", fix=fix)
        found.append((kind, given, entry))
    return str(suite.get("name") or suite.get("expectation_suite_name") or ""), found


def _arguments(kind: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Arguments in a contract's form, and why they cannot be."""
    if kind not in expectation_types():
        return {}, left_out().get(kind, "it is none of Great Expectations' own; write its condition with others")
    if given.get("row_condition") is not None and given.get("condition_parser") in ("pandas", "spark"):
        return {}, f'its row_condition is one of {given["condition_parser"]} alone; write it as col("…") == …'
    # A missing value was written as null.
    arguments = {name: value for name, value in given.items() if value is not None and name not in _NOT_ARGUMENTS}
    problems = argument_problems(kind, arguments)
    return arguments, "; ".join(f"{field_path(place)}: {said}" if place else said for place, said in problems) or None


def _comment(text: str) -> Iterator[str]:
    lead = "    # "
    yield from textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=lead, subsequent_indent=lead)
