"""Field types of YAML files: single values with their checks and error sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator

from jobs.base.errors import FrazilError
from jobs.config.documents.base import (
    MAX_INT64,
    AnyInt,
    LineInText,
    Problem,
    problems_at,
)
from jobs.config.documents.secrets import scalar_text
from jobs.config.values.partitioning import PartitionExpr, parse_partition_expr
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError

# Between the columns of a list, as one schema text.
_JOINT = ", "


def _stream_id(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", value):
        raise ValueError(
            "must start with a small letter and go on with small letters, digits, _ and -, 63 at most; "
            "it names the checkpoint, the stamps and the assets"
        )
    return value


def table_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)+", value):
        raise ValueError(
            f"must be namespace.table, with letters, digits, _ and -, and at least one dot{refused_character(value)}"
        )
    return value


def refused_character(name: str, also: str = "") -> str:
    """Returns the first character that a table's name must not contain, as the end of a sentence; empty if none.

    Args:
        also: Further characters that this name may have.
    """
    for at, char in enumerate(name, 1):
        if not re.fullmatch(r"[A-Za-z0-9_.-]", char) and char not in also:
            shown = "a space" if char == " " else repr(char)
            return f"; found {shown}, character {at} of {name!r}"
    return ""


def schema_text(value: object) -> str:
    """Checks a schema text; a list of columns is first joined with commas."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    columns = [item.strip().rstrip(",") for item in items if isinstance(item, str)]
    if len(columns) != len(items):
        raise ValueError("must be the columns as text, or a list of texts with one column each")
    text = str(value) if isinstance(value, str) else _JOINT.join(columns)
    try:
        parse_schema(text)
    except SchemaTextError as error:
        mistakes = (error, *error.further)
        listed = not isinstance(value, str)
        found = _in_list(columns, mistakes) if listed else [_in_text(text, each) for each in mistakes]
        raise problems_at(found) from None
    return text


def _in_text(text: str, mistake: SchemaTextError) -> Problem:
    # Something missing at the end is reported in the line of the last word, not in the line below.
    return (LineInText(text.count("\n", 0, min(mistake.position, len(text.rstrip())))),), mistake.message


def _in_list(columns: list[str], mistakes: Iterable[SchemaTextError]) -> list[Problem]:
    """Problems at the columns of a list, with positions within the column's own text.

    A column that does not end, such as `amount decimal(12`, is wrong by itself. In the joined text, the column after it
    would be.
    """
    alone: list[Problem] = [
        ((index,), each.message) for index, column in enumerate(columns) for each in _mistakes(column)
    ]
    return alone or [_in_joined(columns, each) for each in mistakes]


def _mistakes(text: str) -> tuple[SchemaTextError, ...]:
    try:
        parse_schema(text)
    except SchemaTextError as error:
        return (error, *error.further)
    return ()


def _in_joined(columns: list[str], mistake: SchemaTextError) -> Problem:
    start = 0
    for index, column in enumerate(columns):
        if mistake.position <= start + len(column) or index == len(columns) - 1:
            place = SchemaTextError(mistake.problem, text=column, position=mistake.position - start, word=mistake.word)
            return (index,), place.message
        start += len(column) + len(_JOINT)
    return (0,), mistake.message


def _partition_expr(value: object) -> PartitionExpr:
    if isinstance(value, PartitionExpr):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a partition expression such as day(created_at)")
    try:
        return parse_partition_expr(value)
    except FrazilError as error:
        raise ValueError(error.message) from None


def _table_properties(value: object) -> Any:
    if not isinstance(value, dict):
        return value
    properties: dict[str, str] = {}
    problems: list[Problem] = []
    for key, item in value.items():
        try:
            properties[str(key)] = scalar_text(item)
            if "${" in properties[str(key)]:
                raise ValueError("everyone who reads the table reads its properties; secrets belong in frazil.yaml")
        except ValueError as error:
            problems.append(((str(key),), str(error)))
    if problems:
        raise problems_at(problems)
    return properties


_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):([0-9]{1,5})")


def _servers(value: object) -> Any:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise ValueError("must be host:port, or several of them")
    servers = [server.strip() for server in value.split(",") if server.strip()]
    for server in servers:
        match = _HOST_PORT.fullmatch(server)
        if match is None or not 0 < int(match[1]) < 65536:
            raise ValueError("must be host:port, or several separated by commas, without a scheme")
    if not servers:
        raise ValueError("must name at least one host:port")
    return ",".join(servers)


StreamId = Annotated[str, AfterValidator(_stream_id)]
TableName = Annotated[str, AfterValidator(table_name)]
Partition = Annotated[PartitionExpr, PlainValidator(_partition_expr), PlainSerializer(str, return_type=str)]
TableProperties = Annotated[dict[str, str], BeforeValidator(_table_properties)]
NonNegativeInt = Annotated[AnyInt, Field(ge=0, le=MAX_INT64)]
PositiveInt = Annotated[AnyInt, Field(gt=0, le=MAX_INT64)]
BootstrapServers = Annotated[str, BeforeValidator(_servers)]


def _branch_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", value):
        raise ValueError("must be a branch's name, such as ingest: a letter or _, then letters, digits, _ and -")
    return value


BranchName = Annotated[str, AfterValidator(_branch_name)]


def _table_location(value: str) -> str:
    if not re.fullmatch(r"(?:[a-z][a-z0-9+.-]*://?|/)[^\s$]*[^\s$/]/?", value):
        raise ValueError("must be a URI such as s3://bucket/orders/payments, or an absolute path")
    return value


TableLocation = Annotated[str, AfterValidator(_table_location)]
"""Location of a table, without secrets."""
