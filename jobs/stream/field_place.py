"""Place of a column's field in records: the JSON path by which decoders know it."""

from __future__ import annotations

from pyiceberg.schema import Schema

from jobs.formats.decoder import WITHIN
from jobs.formats.problems import shown_key
from jobs.schema.needs import Path
from jobs.schema.schema_change import columns_of


def refused_places(schema: Schema, path: Path) -> tuple[str, ...]:
    """The JSON paths by which decoders know a field that gets no column; of one in a new field with a mark, too.

    Names may have points in them, so the path alone does not tell it from another field.

    Args:
        schema: The table's.
        path: The column's.
    """
    place = field_place(schema, path)
    return (place,) if not path[:-1] or path[:-1] in dict(columns_of(schema)) else (place, f"{place}{WITHIN}")


def field_place(schema: Schema, path: Path) -> str:
    """The JSON path of a column's field as decoders write it: `[]` for elements, `{}` for values of a map.

    Args:
        schema: The table's, which has what the column lies in.
        path: The column's.
    """
    columns, place = dict(columns_of(schema)), "$"
    for at, name in enumerate(path):
        above = columns.get(path[:at]) if at else None
        kind = above.field_type if above else None
        if kind is not None and not kind.is_primitive and not kind.is_struct:
            place += "[]" if name == "element" else "{}"
        else:
            # As decoders write it: what is no column may have any name.
            place += f".{name if path[: at + 1] in columns else shown_key(name)}"
    return place
