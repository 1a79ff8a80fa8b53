"""Mask of dead letters: parts of a failed record that its dead letter does not keep."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from jobs.config.documents.base import Flag, SpecModel

_PART = r"(?:[^\W\d]\w*|`(?:[^`]|``)+`)"
_PATH = re.compile(rf"{_PART}(?:\.{_PART})*")


@lru_cache(maxsize=256)
def path_parts(text: str) -> tuple[str, ...]:
    """Reads a path of keys: ``card.number``; a key with special characters is in backticks.

    Raises:
        ValueError: The text is no path.
    """
    text = text.strip()
    if not _PATH.fullmatch(text):
        raise ValueError(
            f"'{text}' is not a path of keys such as payer or card.number; put a key with other characters in backticks"
        )
    found = re.findall(_PART, text)
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in found)


def _path(value: str) -> str:
    path_parts(value)
    return value.strip()


def _header(value: str) -> str:
    if not value:
        raise ValueError("must be the name of a header")
    return value


class Mask(SpecModel):
    """Parts of a failed record that its dead letter does not keep.

    Args:
        columns: Paths of fields in the value, such as ``card.number``, declared or not. They reach through lists.
        headers: Exact names of headers.
        key: Leaves out the record's key.
    """

    example = "{columns: [card.number], headers: [authorization]}"

    columns: tuple[Annotated[str, AfterValidator(_path)], ...] = ()
    headers: tuple[Annotated[str, AfterValidator(_header)], ...] = ()
    key: Flag = False

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the columns, as keys from the top."""
        return tuple(path_parts(column) for column in self.columns)


NO_MASK = Mask()


def case_problem(path: tuple[str, ...], rows: Schema) -> str | None:
    """Return the problem if a path differs from a column only in case and so masks nothing by mistake; else None."""
    level: IcebergType = rows.as_struct()
    for part in path:
        while isinstance(level, (ListType, MapType)):
            level = level.element_type if isinstance(level, ListType) else level.value_type
        if not isinstance(level, StructType):
            return None
        by_name = {field.name: field for field in level.fields}
        if part in by_name:
            level = by_name[part].field_type
            continue
        alike = next((name for name in by_name if name.casefold() == part.casefold()), None)
        return f"'{part}' is not in the schema, which has '{alike}'; keys are exact" if alike else None
    return None
