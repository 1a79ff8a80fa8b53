"""Column paths with wildcards: `payload.card`, `payload.*` (any one field), `**.secret` (at any depth).

Paths reach through lists: in `items list<struct<sku string>>`, `items.sku` is the field of every element. A name with
other characters stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from pyiceberg import types as ice

from jobs.records.transforms.columns import (
    Columns,
    Place,
    TransformProblem,
    no_column,
)

Path = tuple[str, ...]
"""The names of a column from the top, without wildcards."""

_PART = r"(?:\*\*|\*|[^\W\d]\w*|`(?:[^`]|``)+`)"
_WHOLE = re.compile(rf"{_PART}(?:\.{_PART})*")
_ANY, _DEEP = "*", "**"


@lru_cache(maxsize=512)
def parse_path(text: str) -> tuple[str, ...]:
    """Return the parts of a path; `*` and `**` are wildcards, a name in backticks keeps its first one as a mark.

    Raises:
        TransformProblem: The text is no path.
    """
    text = text.strip()
    if not _WHOLE.fullmatch(text):
        raise TransformProblem(
            f"'{text}' is no path of columns such as payload.card, payload.* or **.secret; "
            "put a name with other characters in backticks"
        )
    parts = tuple(re.findall(_PART, text))
    if parts[-1] == _DEEP:
        raise TransformProblem(f"'{text}' ends in **, which needs a name behind it, such as **.secret or **.*")
    return parts


def single(text: str) -> Path:
    """Return a path without wildcards.

    Raises:
        TransformProblem: The text is no path, or has a wildcard.
    """
    parts = parse_path(text)
    if _ANY in parts or _DEEP in parts:
        raise TransformProblem(f"'{text}' has a wildcard, and one column is meant here")
    return tuple(_name(each) for each in parts)


def selected(columns: Columns, texts: Iterable[str], key: str = "columns") -> tuple[Path, ...]:
    """Return the columns that some paths name, each once, in the order of the columns.

    Args:
        columns: The present columns.
        texts: The paths.
        key: Key of the paths in the step's block.

    Raises:
        TransformProblem: A path is invalid, or names no column.
    """
    found: set[Path] = set()
    for number, text in enumerate(texts):
        place: Place = (key, number)
        try:
            named = set(_matches(columns.fields, parse_path(text), ()))
        except TransformProblem as problem:
            raise TransformProblem(problem.message, place) from None
        if not named:
            raise TransformProblem(_missing(columns, parse_path(text), text), place)
        found |= named
    return tuple(path for path in _every(columns.fields, ()) if path in found)


def matched(columns: Columns, text: str) -> bool:
    """Return whether a path names a column at all.

    Raises:
        TransformProblem: The text is no path.
    """
    return any(True for _ in _matches(columns.fields, parse_path(text), ()))


def stands(text: str, path: Path) -> Literal["within", "above", "apart"]:
    """Return the position of a column relative to a path, whatever columns exist.

    Returns:
        `within` if the path names the column or one around it; `above` if the path may name one within it; else
        `apart`.

    Raises:
        TransformProblem: The text is no path.
    """
    parts = parse_path(text)
    at = _before(parts, {0})
    for name in path:
        at = _before(parts, {i if parts[i] == _DEEP else i + 1 for i in at if _takes(parts[i], name)})
        if len(parts) in at:
            return "within"
    return "above" if at else "apart"


def _before(parts: tuple[str, ...], at: set[int]) -> set[int]:
    """Return the parts that may come next; `**` may also match no name."""
    found = set(at)
    for i, part in enumerate(parts):
        if part == _DEEP and i in found:
            found.add(i + 1)
    return found


def _takes(part: str, name: str) -> bool:
    return part in (_ANY, _DEEP) or _name(part) == name


def field_at(columns: Columns, path: Path, place: Place = ()) -> ice.NestedField:
    """Return the column at a path; through lists it is the field of their elements.

    Raises:
        TransformProblem: There is none.
    """
    fields: tuple[ice.NestedField, ...] = columns.fields
    field: ice.NestedField | None = None
    for number, name in enumerate(path):
        field = next((each for each in fields if each.name == name), None)
        if field is None:
            raise TransformProblem(no_column(name, (each.name for each in fields), ".".join(path[:number])), place)
        fields = fields_of(field.field_type)
    if field is None:
        raise TransformProblem("a path needs a name", place)
    return field


def value_field(columns: Columns, text: str, place: Place = ()) -> tuple[Path, ice.NestedField]:
    """Return path and column of the one column that a path names; it must not be within a list, so a row has it once.

    Raises:
        TransformProblem: There is none.
    """
    try:
        path = single(text)
        field = field_at(columns, path)
    except TransformProblem as problem:
        raise TransformProblem(problem.message, place) from None
    for end in range(1, len(path)):
        if isinstance(field_at(columns, path[:end]).field_type, ice.ListType):
            raise TransformProblem(f"'{text}' is within a list, of which a row may have many or no elements", place)
    return path, field


def fields_of(kind: ice.IcebergType) -> tuple[ice.NestedField, ...]:
    """Return the fields of a struct, or of the structs in a list; none for other types."""
    while isinstance(kind, ice.ListType):
        kind = kind.element_type
    return kind.fields if isinstance(kind, ice.StructType) else ()


def shown(path: Path) -> str:
    """Return the path as dead letters show it."""
    return "$." + ".".join(path)


def _matches(fields: Iterable[ice.NestedField], parts: tuple[str, ...], above: Path) -> Iterator[Path]:
    part, rest = parts[0], parts[1:]
    if part == _DEEP:
        yield from _matches(fields, rest, above)
    for each in fields:
        here, below = (*above, each.name), fields_of(each.field_type)
        if part == _DEEP:
            yield from _matches(below, parts, here)
        elif part == _ANY or each.name == _name(part):
            if rest:
                yield from _matches(below, rest, here)
            else:
                yield here


def _every(fields: Iterable[ice.NestedField], above: Path) -> Iterator[Path]:
    for each in fields:
        yield (*above, each.name)
        yield from _every(fields_of(each.field_type), (*above, each.name))


def _missing(columns: Columns, parts: tuple[str, ...], text: str) -> str:
    if _ANY not in parts and _DEEP not in parts:
        try:
            field_at(columns, single(text))
        except TransformProblem as problem:
            return problem.message
    return f"no column at this step is named by '{text}'; there are {', '.join(columns.names) or 'none'}"


def _name(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part
