"""Checks of streams against the catalog: tables, partitions, dead-letter tables and names in `maintenance.tables`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import (
    CatalogUnusableError,
    NoCatalogYet,
    find_table,
    quick_catalog,
)
from jobs.clients.state_store.store_proof import prove_store
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.documents.base import Location, field_path
from jobs.config.settings.settings import Settings, embedded_catalog
from jobs.config.stream.column_problems import contract_problems_of, letter_contract_problems_of
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import misfit_fix
from jobs.maintenance.plan.table_selection import (
    ExistingTables,
    missing_namespace,
    name_correction,
    own_tables,
)
from jobs.quality.schema_checks.declared import identifier_sentence
from jobs.records.schema.column_names import unreadable_names
from jobs.records.schema.needs import column_name
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX
from jobs.tables.dead_letter_table.table import (
    ARROW_SCHEMA,
    DEAD_LETTER_SCHEMA,
    AlteredTableError,
    check_dead_letter_table,
)
from jobs.tables.write.dry_run import check_new_table_writable, check_writable
from jobs.tables.write.locations import state_in_the_way
from jobs.tables.write.partitioning import partition_spec, partition_texts
from jobs.tables.write.table_remaking import differs, is_as_made
from jobs.tables.write.table_sort_order import sort_order, sort_order_of, sort_order_text
from orchestration.cli.stream_files.validate.findings import Finding
from orchestration.cli.stream_files.validate.property_checks import property_problems
from orchestration.cli.stream_files.validate.service_checks import check_new_columns
from orchestration.cli.stream_files.validate.table_checks import (
    check_adoptable,
    check_equality_deletes,
    check_followers,
    check_lane_tables,
    followed_findings,
)

_CHECK_CATALOG = "check `catalog` in frazil.yaml, then run `frazil validate`"


def connected_catalog(settings: Settings) -> Catalog | NoCatalogYet | Finding:
    """Connect to the catalog; if that fails, return the reason why the tables cannot be checked."""
    try:
        return quick_catalog(settings)
    except NoCatalogYet as problem:
        folder = _missing_folder(settings)
        if folder is None:
            return problem
        sentence = f"catalog {settings.catalog.name}: there is no folder {folder} for its database"
        return Finding(None, "catalog", "wrong", sentence, "make the folder, or correct `catalog` in frazil.yaml")
    except FrazilError as problem:
        message = f"{problem.message.rstrip('.')}, so the tables were not checked"
        verdict = "wrong" if isinstance(problem, CatalogUnusableError) else "unchecked"
        return Finding(None, "catalog", verdict, message, problem.fix or _CHECK_CATALOG)


def _missing_folder(settings: Settings) -> Path | None:
    """Missing folder of the catalog's SQLite database; None for the embedded catalog, whose folder is created."""
    if settings.catalog == embedded_catalog(settings.home):
        return None
    uri = str(settings.catalog.properties["uri"])
    folder = Path(uri.removeprefix("sqlite:///").partition("?")[0]).parent
    return None if folder.is_dir() else folder


def check_state(settings: Settings) -> Iterator[Finding]:
    """Check that the state is outside the warehouse, and that the state store works."""
    warehouse = settings.catalog.properties.get("warehouse")
    if isinstance(warehouse, str):
        problem = state_in_the_way(warehouse, settings, f"the warehouse {warehouse}")
        if problem is not None:
            yield Finding(None, "settings", "wrong", problem.message, problem.fix)
    if settings.state_store is None:
        return
    try:
        store = state_store(settings)
        prove_store(store)
    except FrazilError as problem:
        yield Finding(None, "state", "wrong", problem.message, problem.fix)
    except OSError as problem:
        sentence = f"the state store cannot be reached: {problem.strerror or problem}"
        yield Finding(None, "state", "unchecked", sentence, "check `state` in frazil.yaml, then run `frazil validate`")
    else:
        yield Finding(None, "state", "ok", f"{store.place('')} keeps conditions of writes")


def check_new_table(spec: StreamSpec) -> Iterator[Finding]:
    """Check that the table could be created as declared, and then written."""
    if not spec.decode.declares_all:
        return
    schema = spec.table_schema
    try:
        check_new_table_writable(
            spec.table.name, schema, partition_spec(spec.table.partition_by, schema), spec.table.properties
        )
    except FrazilError as problem:
        fix = f"correct table.properties in streams/{spec.stream}.yaml, then run `frazil validate`"
        wrong = property_problems(spec.table.properties)
        for key, said in wrong.items():
            yield Finding(spec.stream, "spec", "wrong", f"table.properties: {key}: {said}", fix)
        if not wrong:
            yield Finding(spec.stream, "spec", "wrong", problem.message, problem.fix)


def _partition_names(spec: StreamSpec, table: Table | None) -> Iterator[Finding]:
    """Report names of partition fields that keep some engines from reading the table."""
    names = [each.name for each in table.spec().fields] if table else list(spec.table.partition_names)
    for name in names:
        # Manifests are Avro files, whose names are ASCII. Iceberg escapes other characters, but no letters and digits.
        if not make_compatible_name(name).isascii():
            sentence = f"table {spec.table.name}: DuckDB reads no table with a partition field called {name}"
            fix = "name it in partition_by of a new table, such as 'day(payer.at) as payer_at_day'"
            yield Finding(spec.stream, "table", "unchecked", sentence, fix)


def _unreadable_names(spec: StreamSpec, table: Table) -> Iterator[Finding]:
    """Report columns whose names keep engines from reading the table, or frazil from writing it."""
    for path, why in unreadable_names(table.metadata):
        sentence = f"table {spec.table.name}: {why}"
        fix = f"frazil schema apply {spec.stream} --rename {column_name(path)}=NEW"
        yield Finding(spec.stream, "table", "wrong", sentence, fix)


def check_table(spec: StreamSpec, settings: Settings, catalog: Catalog | NoCatalogYet) -> Iterator[Finding]:
    """Check that a stream's tables exist and fit what the stream declares."""
    name = spec.table.name
    try:
        table = None if isinstance(catalog, NoCatalogYet) else find_table(catalog, name)
        dead = None if isinstance(catalog, NoCatalogYet) else find_table(catalog, spec.dead_letter_table)
    except FrazilError as problem:
        yield Finding(spec.stream, "table", "unchecked", problem.message, problem.fix or _CHECK_CATALOG)
        return
    yield from _contract_findings(spec, letter_contract_problems_of(spec.contract, DEAD_LETTER_SCHEMA))
    if spec.own_columns:
        yield from check_lane_tables(spec, settings, None if isinstance(catalog, NoCatalogYet) else catalog)
    if not isinstance(catalog, NoCatalogYet):
        yield from check_adoptable(spec, catalog)
    has_rows, spec = spec.coordinator_has_rows or not spec.own_columns, spec.for_table(name)
    if has_rows and spec.tables_follow and table is not None and not isinstance(catalog, NoCatalogYet):
        yield from check_followers(spec, table.metadata, catalog)
    there = [each for each in (table, dead) if each is not None]
    yield from _check_places(spec, settings, there)
    if has_rows:
        yield from _partition_names(spec, table)
    if table is not None and has_rows:
        yield from check_equality_deletes(spec, table)
    for each in there:
        try:
            check_writable(".".join(each.name()), each.metadata)
        except FrazilError as problem:
            yield Finding(spec.stream, "table", "wrong", problem.message, problem.fix)
    if dead is not None and not _holds_dead_letters(dead):
        yield Finding(
            spec.stream,
            "table",
            "wrong",
            f"table {spec.dead_letter_table}, for the dead letters of stream {spec.stream}, is no dead-letter table",
            f"name another one in errors.dead_letters.table of stream {spec.stream}",
        )
    elif dead is not None:
        try:
            check_dead_letter_table(dead)
        except AlteredTableError as altered:
            yield Finding(spec.stream, "table", "wrong", altered.message, altered.fix or "")
    if table is None:
        yield Finding(
            spec.stream,
            "table",
            "unchecked",
            f"table {name} is not in catalog {settings.catalog.name} yet; the first run creates it as declared",
        )
        if has_rows:
            yield from check_new_columns(spec, settings)
        return
    if _holds_dead_letters(table):
        # Replays write stamps, too, under ids with a tilde, which no stream has.
        others = [stream for stream in _streams_on(table) if stream != spec.stream and "~" not in stream]
        whose = f"the dead-letter table of stream {others[0]}" if others else "a dead-letter table"
        yield Finding(
            spec.stream,
            "table",
            "wrong",
            f"table {name} is {whose}; rows do not go there",
            f"give table.name of stream {spec.stream} another name",
        )
        return
    if not has_rows:
        yield Finding(spec.stream, "table", "ok", f"table {name} has the stream's stamps, and gets no rows")
        return
    yield from _contract_findings(spec, contract_problems_of(spec.contract, table.schema(), spec.evolution))
    if unreadable := list(_unreadable_names(spec, table)):
        yield from unreadable
        return
    properties: Mapping[str, str] = table.properties
    if not spec.decode.declares_all:
        told, found = followed_findings(spec, table.metadata)
        yield from told
        if found is None:
            # The stream's start takes the columns from a registry or from the first records.
            yield from check_new_columns(spec, settings)
        if told or found is None:
            return
        properties = found.metadata.properties
    new = spec.table_schema_beside(table.schema(), properties) if spec.decode.declared else table.schema()
    try:
        partitions = partition_spec(spec.table.partition_by, new)
    except FrazilError as problem:
        yield Finding(spec.stream, "table", "wrong", f"table {name}: {problem.message}", problem.fix)
        return
    if is_as_made(table.metadata, spec.stream) and differs(table.metadata, new, partitions):
        sentence = f"table {name} has no rows, and not the columns or partitions that the stream declares; the next run"
        yield Finding(spec.stream, "table", "unchecked", f"{sentence} makes it so")
        return
    wrong = spec.disagreements_with(table.schema(), properties=properties)
    fix = misfit_fix(spec, table.schema())
    yield from (Finding(spec.stream, "table", "wrong", f"table {name}: {sentence}", fix) for sentence in wrong)
    if wrong:
        return
    declared = partition_texts(partitions, new)
    actual = partition_texts(table.spec(), table.schema())
    if declared != actual:
        yield Finding(
            spec.stream,
            "table",
            "wrong",
            f"table {name} is partitioned by {_named(actual)}, and by {_named(declared)} in the file; frazil follows "
            "the table",
            f"correct table.partition_by of stream {spec.stream}, or alter table {name}",
        )
        return
    made_otherwise = list(_made_otherwise(spec, table, new))
    yield from made_otherwise
    if not made_otherwise:
        yield Finding(spec.stream, "table", "ok", f"table {name} fits the stream's columns")


def _made_otherwise(spec: StreamSpec, table: Table, new: Schema) -> Iterator[Finding]:
    """Report where an existing table differs from the stream's sort order, identifier fields or location."""
    name = spec.table.name
    declared = sort_order_text(sort_order(spec.table.sort_by, new), new)
    actual = sort_order_text(sort_order_of(table.metadata), table.schema())
    if spec.table.sort_by and declared != actual:
        yield Finding(
            spec.stream,
            "table",
            "wrong",
            f"table {name} is sorted by {actual}, and by {declared} in the file",
            f"{spec.apply_command}, or correct table.sort_by of stream {spec.stream}",
        )
    if other := identifier_sentence(spec, table.schema()):
        fix = f"frazil schema apply {spec.stream}, or correct table.identifier_fields of stream {spec.stream}"
        yield Finding(spec.stream, "table", "wrong", other, fix)
    if spec.table.location and _place(spec.table.location) != _place(table.location()):
        yield Finding(
            spec.stream,
            "table",
            "wrong",
            f"table {name} lies at {table.location()}, and the file has {spec.table.location}; location is for a new "
            "table",
            f"correct table.location of stream {spec.stream}",
        )


def _place(location: str) -> str:
    """Normalized location, as local paths can be written in several ways."""
    return re.sub(r"^file:/*", "/", location).rstrip("/")


def _contract_findings(spec: StreamSpec, problems: Sequence[tuple[Location, str]]) -> Iterator[Finding]:
    """Report problems of a contract. They change no row, so the other checks go on."""
    for place, problem in problems:
        fix = f"correct streams/{spec.stream}.yaml"
        yield Finding(spec.stream, "contract", "wrong", f"{field_path(place)}: {problem}", fix)


def _check_places(spec: StreamSpec, settings: Settings, tables: list[Table]) -> Iterator[Finding]:
    for table in tables:
        place = f"table {'.'.join(table.name())} at {table.location()}"
        if problem := state_in_the_way(table.location(), settings, place):
            yield Finding(spec.stream, "table", "wrong", problem.message, problem.fix)


def _holds_dead_letters(table: Table) -> bool:
    # Missing columns about a dead letter's status are added later.
    return set(ARROW_SCHEMA.names) <= {column.name for column in table.schema().columns}


def _streams_on(table: Table) -> list[str]:
    """Ids of the streams with stamps in the table's properties."""
    return sorted(key.removeprefix(PROPERTY_PREFIX) for key in table.properties if key.startswith(PROPERTY_PREFIX))


def _named(fields: list[str]) -> str:
    return ", ".join(fields) if fields else "nothing"


def check_names(specs: Sequence[StreamSpec], settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """Report names in `maintenance.tables` without a table, each with the likely correction.

    Args:
        specs: All streams of the deployment, whose tables may be named before they exist.
        settings: Settings of the deployment.
        catalog: Catalog with the tables.
    """
    existing, theirs = ExistingTables(catalog, settings), own_tables(settings, specs)
    told: set[str] = set()
    for name in (table.name for table in settings.maintenance.tables):
        namespace = name.rpartition(".")[0]
        if problem := existing.unlisted(namespace):
            if namespace not in told:
                told.add(namespace)
                yield Finding(None, "settings", "unchecked", f"maintenance.tables: {problem.message}", problem.fix)
        elif name.endswith(".*"):
            if missing := missing_namespace(settings, specs, existing, namespace):
                yield Finding(None, "settings", "wrong", missing.message, missing.fix)
        elif name not in existing and name not in theirs:
            sentence = f"maintenance.tables names {name}, and there is no such table in catalog {settings.catalog.name}"
            yield Finding(None, "settings", "wrong", sentence, name_correction(existing.nearest_table(name, theirs)))
