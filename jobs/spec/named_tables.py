"""Tables named by the values of records: which names they get, and which values may name one."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from jobs.spec.fields import table_name

VALUE = "{value}"
LONGEST = 100
"""Characters of a value that names a table."""

SAFE = re.compile(rf"[A-Za-z0-9_]{{1,{LONGEST}}}")
"""Values that name a table: what every catalog and every engine takes without quotes."""


def _to(value: str) -> str:
    namespace, _, last = value.rpartition(".")
    if value.count(VALUE) != 1 or VALUE in namespace:
        raise ValueError(f"must have {VALUE} once, in the table's own name, such as events.{VALUE}; found '{value}'")
    table_name(f"{namespace}.{last.replace(VALUE, 'x')}" if namespace else last.replace(VALUE, "x"))
    return value


NameOfTables = Annotated[str, AfterValidator(_to)]


def named_table(to: str, value: str) -> str:
    """The table of a value, which is safe."""
    return to.replace(VALUE, value)


def value_of_table(to: str, name: str) -> str | None:
    """The value that a table is named by; None if no value names it."""
    before, _, after = to.partition(VALUE)
    if not name.startswith(before) or not name.endswith(after):
        return None
    value = name[len(before) : len(name) - len(after)]
    return value if SAFE.fullmatch(value) else None
