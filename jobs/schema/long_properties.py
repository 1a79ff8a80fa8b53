"""Long table properties: cut into numbered parts where a catalog cannot hold them, and put together again.

Hive's metastore keeps every property of an Iceberg table in a column that holds 4,000 characters in schemas made before
Hive 2.3; a stamp of 150 partitions passes that. Such a property is set as `~<number of parts>~<first part>`, and the
others as `frazil.part.<number>.<name>`, all in one commit. How many parts count stands in the first, so those of a
longer text before do no harm. Whatever is no longer than that is set as it always was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PART_PREFIX = "frazil.part."
_MARK = 10
_FIRST = re.compile(r"~(\d{1,6})~", re.ASCII)


def properties_in_parts(properties: Mapping[str, str], limit: int | None) -> dict[str, str]:
    """A table's properties, with those that are too long in parts.

    Args:
        limit: In bytes of UTF-8; None for none.
    """
    found: dict[str, str] = {}
    for name, text in properties.items():
        if limit is None or len(text.encode()) <= limit:
            found[name] = text
            continue
        # A character has four bytes at most.
        size = (limit - _MARK) // (1 if text.isascii() else 4)
        first, *others = (text[at : at + size] for at in range(0, len(text), size))
        found[name] = f"~{1 + len(others)}~{first}"
        found |= {f"{PART_PREFIX}{number}.{name}": part for number, part in enumerate(others, start=2)}
    return found


def whole_property(properties: Mapping[str, str], name: str) -> str | None:
    """A table property's whole text, also of a long one in parts; None if it is not there.

    Raises:
        ValueError: Parts of it are gone.
    """
    text = properties.get(name)
    mark = _FIRST.match(text) if text else None
    if text is None or mark is None:
        return text
    numbers = range(2, int(mark[1]) + 1)
    if missing := [number for number in numbers if f"{PART_PREFIX}{number}.{name}" not in properties]:
        raise ValueError(f"the table property {PART_PREFIX}{missing[0]}.{name} is gone, a part of {name}")
    return text[mark.end() :] + "".join(properties[f"{PART_PREFIX}{number}.{name}"] for number in numbers)
