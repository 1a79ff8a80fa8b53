"""Dynamic tables of a stream, as its coordinator's newest stamp lists them.

Values of records have named them, or the file names them and they are created with the columns of their first records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.protocol.refusals import is_forbidden
from jobs.tables.commit.schema.followers import following
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from jobs.tables.commit.stamp.target_directory import TargetDirectory
from jobs.tables.write.table_remaking import made_for


def with_named_tables(spec: StreamSpec, catalog: Catalog) -> StreamSpec:
    """The stream's spec with all of its targets: those of the file, and those in the coordinator's newest stamp.

    A table that was created for a batch that has not landed is no target yet. The catalog is asked only if the stream
    has dynamic tables.
    """
    if not spec.grows:
        return spec
    try:
        metadata = catalog.load_table(spec.coordinator).metadata
    except (NoSuchTableError, NoSuchNamespaceError):
        return spec.with_present_tables(())
    return with_tables_of(spec, history(as_written(metadata, spec.stream), spec.stream).newest, catalog)


def with_told_tables(spec: StreamSpec, coordinator: TableMetadata | None) -> StreamSpec:
    """The stream's spec with the dynamic tables that its coordinator lists; asks no catalog.

    Args:
        coordinator: The coordinator's metadata; None if the table does not exist or could not be loaded.
    """
    if coordinator is None or not spec.grows:
        return spec
    newest = history(as_written(coordinator, spec.stream), spec.stream).newest
    told = newest.targets if newest else ()
    return spec.with_present_tables(told).with_named_tables(told)


def with_tables_of(spec: StreamSpec, newest: Stamp | None, catalog: Catalog) -> StreamSpec:
    """The stream's spec with the dynamic tables in the coordinator's newest stamp.

    If the file has changed since that stamp, a listed table may have had another role, such as the dead-letter table.
    So tables that cannot hold the stream's rows are left out.
    """
    if not spec.grows:
        return spec
    spec = spec.with_present_tables(_present(spec, newest, catalog) if newest else ())
    if newest is None or spec.route is None or spec.route.to is None:
        return spec
    if newest.config == spec.config_hash:
        return spec.with_named_tables(newest.targets)
    new = set(spec.with_named_tables(newest.targets).named_tables) - set(spec.named_tables)
    return spec.with_named_tables(name for name in newest.targets if name in new and _may_hold(spec, name, catalog))


def _present(spec: StreamSpec, newest: Stamp, catalog: Catalog) -> set[str]:
    """Current names of the targets; a table that was renamed since is found by its uuid."""
    known = set(newest.targets)
    if not spec.own_columns or newest.config == spec.config_hash or spec.route is None:
        return known
    uuids = set(newest.targets.values())
    for name in spec.route.table_names:
        with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
            if name not in known and str(catalog.load_table(name).metadata.table_uuid) in uuids:
                known.add(name)
    return known


def _may_hold(spec: StreamSpec, name: str, catalog: Catalog) -> bool:
    """Whether a table can hold the stream's rows; assumed if it was dropped or may not be read."""
    try:
        metadata = catalog.load_table(name).metadata
        if made_for(metadata, spec.stream):
            return True
        if spec.tables_follow:
            own = stream_table(catalog, spec, spec.table.name).metadata
            return not following(spec, own, metadata, name).refused
        schema, properties = metadata.schema(), metadata.properties
        return not spec.for_table(name).disagreements_with(schema, name, properties=properties)
    except NoSuchTableError:
        return True
    except Exception as problem:
        if is_forbidden(problem):
            return True
        raise


def former_named_tables(spec: StreamSpec, catalog: Catalog) -> tuple[str, ...]:
    """Tables that were targets once and may be again, but are not in the coordinator's newest stamp.

    Args:
        spec: The stream's spec with its dynamic tables.
        catalog: Catalog with the coordinator, whose directory lists every table that ever was a target.
    """
    if not spec.grows or not catalog.table_exists(spec.coordinator):
        return ()
    directory = TargetDirectory.of(catalog.load_table(spec.coordinator).metadata.properties, spec.stream)
    every = spec.with_named_tables([name for name, _ in directory.entries]).target_names
    return tuple(name for name in every if name not in spec.target_names and catalog.table_exists(name))


def all_with_named_tables(specs: Iterable[StreamSpec], catalog: Catalog) -> list[StreamSpec]:
    """`with_named_tables` of several streams."""
    return [with_named_tables(each, catalog) for each in specs]


def belongs_to(metadata: TableMetadata, stream: str) -> bool:
    """Whether a table was created for a stream, given to it, or has its commits."""
    return made_for(metadata, stream) or property_key(stream) in metadata.properties
