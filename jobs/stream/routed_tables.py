"""Routed tables of a stream: made as its file says, and seen to hold its rows, before anything is read."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table
from jobs.write.table_sort_order import sort_order


def ensure_routed_tables(spec: StreamSpec, catalog: Catalog) -> None:
    """Create the tables of a stream's route that are not there, all with the columns that its file declares.

    Raises:
        FrazilError: One cannot hold them; the message names each column.
    """
    for target in spec.targets:
        if target.role != "rows" or target.coordinator:
            continue
        schema, settings = spec.table_schema, spec.table_settings(target.name)
        table = ensure_table(
            catalog,
            target.name,
            schema,
            partition_spec(settings.partition_by, schema),
            create_table_properties(settings.properties, schema),
            location=settings.location,
            order=sort_order(settings.sort_by, schema),
        )
        if differences := spec.disagreements_with(table.schema()):
            raise FrazilError(
                f"stream {spec.stream}: table {target.name} of its route cannot hold what the spec declares: "
                + "; ".join(differences),
                fix=f"alter table {target.name}, or correct decode.schema in streams/{spec.stream}.yaml; `frazil "
                f"schema apply {spec.stream}` alters {spec.table.name} alone",
            )
