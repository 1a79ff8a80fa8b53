"""Masked columns of a table: those whose values no sample may show, since the stream's mask hides them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.schema import Schema

from jobs.schema.name_matching import aliases_of
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.spec.mask import NO_MASK
from jobs.spec.models import StreamSpec

Path = tuple[str, ...]


def masked_columns(
    spec: StreamSpec, schema: Schema, properties: Mapping[str, str], table: str | None = None
) -> tuple[Path, ...]:
    """Paths of columns of a stream's table that hold what `errors.mask` keeps out of dead letters; rather too many.

    Args:
        schema: Of the table.
        properties: Of the table; its name mapping tells which further names columns have in records.
        table: Its name; None for the stream's own.
    """
    return tuple(dict.fromkeys(_masked(spec, schema, properties, table or spec.table.name)))


def _masked(spec: StreamSpec, schema: Schema, properties: Mapping[str, str], table: str) -> Iterator[Path]:
    mask, columns = spec.errors.mask, spec.record_columns
    if spec.chain and mask != NO_MASK:
        # A step may have put what is masked under any name.
        yield from ((each.name,) for each in schema.fields if each.name not in spec.kafka_columns.coordinates)
    aliases = aliases_of(schema, properties, table)
    for path in mask.paths:
        yield path
        first = path[0].casefold()
        # A column of another case, or that the table's name mapping lets take the key.
        yield from ((each.name, *path[1:]) for each in schema.fields if each.name.casefold() == first)
        yield from ((of[0],) for of, names in aliases if first in {name.casefold() for name in names})
    if mask.paths and EXTRA_COLUMN in {each.name for each in schema.fields}:
        yield (EXTRA_COLUMN,)
    if mask.key:
        yield from ((name,) for name in sorted(columns.key_names))
    hidden = {*mask.headers}
    yield from ((each.name,) for each in columns.headers if each.header in hidden)
    if hidden and columns.kafka.headers is not None:
        yield (columns.kafka.headers,)
