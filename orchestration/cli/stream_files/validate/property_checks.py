"""Checks of the Iceberg properties that a stream's file gives to new tables: whether frazil can write such tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.base.errors import FrazilError
from jobs.config.documents.base import Location, Problem, field_path
from jobs.config.documents.validation import FileProblem, SpecError, shown_path
from jobs.config.documents.yaml_document import YamlUnreadable, read_yaml
from jobs.tables.write.dry_run import check_new_table_writable
from orchestration.cli.stream_files.validate.findings import Finding, findings_in

# Most properties concern files, so any column will do.
_ONE_COLUMN = Schema(NestedField(1, "id", LongType(), required=False))


def property_problems(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties with which frazil could not write a table, by name, each with a sentence about the problem."""
    if _refusal(properties) is None:
        return {}
    return {key: said for key, value in properties.items() if (said := _refusal({key: value})) is not None}


def findings_in_stream(error: SpecError) -> list[Finding]:
    """Findings about a stream's file: errors of its model, and table properties that prevent writes."""
    places = list(error.places)
    if error.path is None or len(places) < len(error.problems):
        return findings_in(error, "spec")
    try:
        document = read_yaml(error.path, shown=shown_path(error.path))
    except YamlUnreadable:
        return findings_in(error, "spec")
    for place, said in _problems_in(document.data):
        places.append(FileProblem(document.shown, *document.mark_of(place), f"{field_path(place)}: {said}"))
    ordered = sorted(places, key=lambda each: (each.line, each.column))
    return findings_in(SpecError(ordered, fix=error.fix or "", path=error.path, stream=error.stream), "spec")


def _problems_in(data: Any) -> Iterator[Problem]:
    for place, block in _blocks(data):
        properties = block.get("properties") if isinstance(block, dict) else None
        if isinstance(properties, dict):
            given = {str(key): str(value) for key, value in properties.items() if isinstance(value, (str, int, float))}
            yield from (((*place, "properties", key), said) for key, said in property_problems(given).items())


def _blocks(data: Any) -> Iterator[tuple[Location, Any]]:
    """Yield the blocks of a stream's file that declare a table, each with its location."""
    if not isinstance(data, dict):
        return
    yield ("table",), data.get("table")
    route, event_time = data.get("route"), data.get("event_time")
    tables = route.get("tables") if isinstance(route, dict) else None
    for number, block in enumerate(tables if isinstance(tables, list) else ()):
        yield ("route", "tables", number), block
    if isinstance(event_time, dict):
        yield ("event_time", "late"), event_time.get("late")


def _refusal(properties: Mapping[str, str]) -> str | None:
    try:
        check_new_table_writable("new", _ONE_COLUMN, UNPARTITIONED_PARTITION_SPEC, properties)
    except FrazilError as problem:
        return problem.message.removeprefix("table.properties: ").removeprefix("table new: ")
    return None
