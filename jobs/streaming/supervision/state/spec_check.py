"""Spec check: whether a stream's changed file can run, checked while its driver still runs under the former one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table, quick_catalog
from jobs.config.documents.base import LineInText, Location
from jobs.config.documents.validation import SpecError, located, shown_path
from jobs.config.documents.yaml_document import YamlDocument, YamlUnreadable, read_yaml
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.schema.opening_columns import has_landed, keeps_decoded, opening_columns
from jobs.tables.write.dry_run import check_new_table_writable, check_writable
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_remaking import is_as_made

_COLUMN = re.compile(r"Column (\w+)")


def check_spec(spec: StreamSpec, file: Path, settings: Settings) -> SpecError | None:
    """Reason why a driver with this configuration would end at its start; None if none is known.

    The checks are those of a start, as far as possible without the stream's lease. A start creates missing tables, and
    changes no existing one.

    Args:
        spec: Spec of the file.
        file: Path of the file, for the lines of errors.
        settings: Settings with the catalog.

    Raises:
        FrazilError: The catalog does not answer within seconds.
    """
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet:
        return None
    if spec.own_columns and not spec.coordinator_has_rows:
        # Its other tables are checked as records come for them.
        return None
    return spec_refusal(spec.for_table(spec.table.name), file, find_table(catalog, spec.table.name))


def spec_refusal(spec: StreamSpec, file: Path, table: Table | None) -> SpecError | None:
    """Reason why the stream's table cannot take what its file declares; None if it can, or does not exist yet."""
    found = list(_misfits(spec, table))
    if not found:
        return None
    fix = (
        f"`frazil schema apply {spec.stream}`, or correct {file.name}; it is rolled out by itself once `frazil "
        f"validate {spec.stream}` reports ok"
    )
    try:
        document = read_yaml(file, shown=shown_path(file))
    except (OSError, YamlUnreadable):
        # The file has changed since it was read.
        return SpecError([f"{file}: {text}" for _, text in found], fix=fix, path=file)
    placed = [((*at, *_line(document, text)) if at == _SCHEMA else at, text) for at, text in found]
    return SpecError(located(document, placed, file).problems, fix=fix, path=file)


_SCHEMA: Location = ("decode", "schema")


def _misfits(spec: StreamSpec, table: Table | None) -> Iterator[tuple[Location, str]]:
    try:
        if table is None or is_as_made(table.metadata, spec.stream):
            if spec.decode.declared is None or (table is None and not spec.decode.declares_all):
                return
            # A start rebuilds an empty table as frazil created it.
            schema = spec.table_schema if table is None else spec.table_schema_beside(table.schema(), table.properties)
            partitions = partition_spec(spec.table.partition_by, schema)
            check_new_table_writable(spec.table.name, schema, partitions, spec.table.properties)
            return
        check_writable(spec.table.name, table.metadata)
    except FrazilError as problem:
        yield ("table",), problem.message
        return
    properties = table.properties
    if not spec.decode.declares_all:
        if spec.shapes and not keeps_decoded(spec, table.metadata) and not has_landed(spec, table.metadata):
            # The columns of values come from a registry, or from the first records, when the stream starts.
            return
        try:
            found = opening_columns(spec, table.metadata, None)
        except FrazilError as problem:
            yield ("table",), problem.message
            return
        yield from found.problems
        for said in (*found.refused, *map(str, found.unasked(spec))):
            yield ("transform",), f"table {spec.table.name} does not take the columns of the steps: {said}"
        if found.problems or found.refused or found.changes:
            # The next start decides about other changes.
            return
        properties = found.metadata.properties
    for sentence in spec.disagreements_with(table.schema(), properties=properties):
        yield _SCHEMA, f"table {spec.table.name} cannot hold what is declared: {sentence}"


def _line(document: YamlDocument, sentence: str) -> tuple[LineInText, ...]:
    """Lines of the schema text that declare the column of a sentence, if it has lines."""
    data = document.data
    schema = data.get("decode", {}).get("schema") if isinstance(data, dict) else None
    column = _COLUMN.search(sentence)
    if not isinstance(schema, str) or column is None:
        return ()
    declared = re.search(rf"(?:^|[,\n])\s*[`\"]?{re.escape(column[1])}\b", schema)
    return (LineInText(schema.count("\n", 0, declared.end())),) if declared else ()
