"""Records of a stream: values, and the keys and headers that its rows have columns of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.errors import FrazilError
from jobs.formats.decoder_spec import ResolvedSchema, resolved
from jobs.formats.record_columns import HeaderColumn, RecordColumns
from jobs.generate.formats import generator_for
from jobs.generate.header_records import HeaderValues
from jobs.generate.record import HeaderGenerator, RecordGenerator
from jobs.generate.registry_records import OneSchema


def record_generator(
    stream: str,
    rows: ResolvedSchema,
    columns: RecordColumns,
    writer: OneSchema | None = None,
    key_writer: OneSchema | None = None,
) -> RecordGenerator:
    """What makes records that a stream lands, and bad ones.

    Args:
        stream: Its id.
        rows: What its values become, and their decoder.
        columns: Those that are not from the value.
        writer: The writer schema of values that name theirs.
        key_writer: The one of keys.

    Raises:
        FrazilError: Records of such formats, or columns, cannot be generated.
    """
    key = None
    if columns.key is not None:
        try:
            key = generator_for(resolved(columns.key.decoder), key_writer, name=f"{stream} key")
        except FrazilError as problem:
            raise FrazilError(f"keys: {problem.message}", fix=problem.fix) from None
    return RecordGenerator(generator_for(rows, writer, name=stream), key, tuple(_headers(columns.headers)))


def _headers(columns: Iterable[HeaderColumn]) -> Iterator[HeaderGenerator]:
    by_header: dict[str, list[HeaderColumn]] = {}
    for each in columns:
        by_header.setdefault(each.header, []).append(each)
    for header, several in by_header.items():
        kinds = {(each.column.type, each.as_bytes) for each in several}
        if len(kinds) > 1:
            named = " and ".join(each.name for each in several)
            raise FrazilError(f"header {header}: no value is known that fits all of the columns {named}.")
        yield HeaderGenerator(header, HeaderValues(several[0]), any(each.column.required for each in several))
