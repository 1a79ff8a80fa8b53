"""Creation of a stream's tables, safe against concurrent attempts."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from pyiceberg.catalog import LOCATION, WAREHOUSE_LOCATION, Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import UUIDType

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.records.schema.column_names import name_problems, partition_names

_SWITCHES = ("write.parquet.stats-enabled.column", "write.parquet.dict-encoding-enabled.column")


def uuid_properties(schema: Schema, given: Collection[str] = ()) -> dict[str, str]:
    """Table properties that make Spark's compaction write uuid columns as frazil does."""
    ids = [field_id for field_id, field in index_by_id(schema).items() if isinstance(field.field_type, UUIDType)]
    names = [schema.find_column_name(field_id) for field_id in ids]
    wanted = [f"{switch}.{name}" for name in names for switch in _SWITCHES]
    return {switch: "false" for switch in wanted if switch not in given}


FORMAT_VERSION = "2"
_NO_COLUMNS = Schema()
_FILE_FORMAT = "write.format.default"

_PROPERTIES = {
    "write.parquet.compression-codec": "zstd",
    # A quarter less time than level 3. The files differ by a few per cent, and compaction rewrites them anyway.
    "write.parquet.compression-level": "1",
    # Compaction aims at this size as well. Up to some 50 GB per table it leaves enough files to spread a scan over.
    # Larger tables may set more.
    "write.target-file-size-bytes": str(128 * 1024 * 1024),
    # A stream makes a manifest per batch; unmerged, planning a scan reads all of them.
    "commit.manifest-merge.enabled": "true",
    # Each commit writes new table metadata; without these properties every version would stay for ever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # For Spark's commits beside a stream's: with the default of four attempts, all may collide with the stream's
    # commits. frazil's own commits do not use these properties.
    "commit.retry.num-retries": "20",
    "commit.retry.max-wait-ms": "2000",
}


def create_table_properties(extra: Mapping[str, str], schema: Schema = _NO_COLUMNS) -> dict[str, str]:
    """Properties of a new table: frazil's, overridden by the spec's.

    Raises:
        FrazilError: The spec asks for another format version, or another file format.
    """
    wanted = extra.get("format-version", FORMAT_VERSION)
    if str(wanted) != FORMAT_VERSION:
        raise FrazilError(
            f"table.properties: format-version {wanted} cannot be written; frazil writes version {FORMAT_VERSION}, as "
            "PyIceberg cannot write the manifests of version 3 yet",
            fix="remove format-version from table.properties",
        )
    files = str(extra.get(_FILE_FORMAT, "parquet"))
    if files.lower() != "parquet":
        raise FrazilError(
            f"table.properties: {_FILE_FORMAT} {files} cannot be written; frazil writes Parquet",
            fix=f"remove {_FILE_FORMAT} from table.properties",
        )
    given = {key: str(value) for key, value in extra.items()}
    return {"format-version": FORMAT_VERSION, **_PROPERTIES, **uuid_properties(schema), **given}


def ensure_table(
    catalog: Catalog,
    name: str,
    schema: Schema,
    spec: PartitionSpec,
    properties: Mapping[str, str],
    *,
    location: str | None = None,
    order: SortOrder = UNSORTED_SORT_ORDER,
) -> Table:
    """Load a table, or create it and its namespace. Concurrent callers all get the same table.

    Args:
        name: Full name, such as `orders.payments`.
        schema, spec, order: Schema of a new table; the ids of `spec` and `order` are those of `schema`.
        properties: Properties of a new table, see `create_table_properties`.

    Raises:
        FrazilError: The name has no namespace, the table's format version is not 2, or engines could not read a new
            table.
    """
    identifier = Catalog.identifier_to_tuple(name)
    if len(identifier) < 2:
        raise FrazilError(f"the table name '{name}' has no namespace", fix=f"write it as namespace.{name}")
    with contextlib.suppress(NoSuchTableError):
        return _numbered(catalog.load_table(identifier), name)
    refuse_names(name, schema, spec)
    for length in range(1, len(identifier)):
        ensure_namespace(catalog, identifier[:length])
    try:
        return catalog.create_table(
            identifier,
            schema=schema,
            location=location,
            partition_spec=spec,
            sort_order=order,
            properties=dict(properties),
        )
    except TableAlreadyExistsError:
        return catalog.load_table(identifier)


def refuse_names(name: str, schema: Schema, spec: PartitionSpec) -> None:
    """Refuse columns of a new table whose names would make it unreadable or unwritable."""
    if problems := [why for _, why in name_problems(schema, partition_names(schema, [spec]))]:
        raise FrazilError(
            f"table {name} cannot be made: {'; '.join(problems)}.",
            fix="name the columns, or with 'day(at) as NAME' the partition field, otherwise in the stream's file",
        )


def _numbered(table: Table, name: str) -> Table:
    refuse_format(table.metadata, name)
    return table


def refuse_format(metadata: TableMetadata, name: str) -> None:
    """Refuse a table that frazil cannot commit to."""
    if metadata.format_version < 2:
        # Sequence numbers tell expiry from rollback, and show what the ledger lacks.
        raise FrazilError(
            f"table {name} is of Iceberg's format version 1, whose commits have no sequence numbers.",
            fix=f"in Spark: ALTER TABLE {spark_name(name)} SET TBLPROPERTIES ('format-version' = '2')",
        )
    if metadata.format_version > 2:
        raise FrazilError(
            f"table {name} is of Iceberg's format version {metadata.format_version}, whose manifests PyIceberg cannot "
            f"write yet; frazil writes version {FORMAT_VERSION}.",
            fix="name another table; a format version cannot be lowered",
        )


def is_hive(catalog: Catalog | None) -> bool:
    """Whether the catalog is a Hive metastore. PyIceberg's client of it is an extra, so its module is not imported."""
    return any(base.__module__ == "pyiceberg.catalog.hive" for base in type(catalog).__mro__)


def create_namespace(catalog: Catalog, namespace: str | tuple[str, ...]) -> None:
    """Create a namespace, in Hive at the place of the catalog's warehouse."""
    warehouse = catalog.properties.get(WAREHOUSE_LOCATION)
    properties: dict[str, str] = {}
    if warehouse and is_hive(catalog):
        # As Iceberg's Java client does. A metastore would put a database without a location into its own warehouse.
        name = Catalog.namespace_to_string(namespace)
        properties[LOCATION] = f"{warehouse.rstrip('/')}/{name}.db"
    catalog.create_namespace(namespace, properties)


def ensure_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """Create the namespace of a table if it does not exist."""
    if catalog.namespace_exists(namespace):
        return
    try:
        create_namespace(catalog, namespace)
    except NamespaceAlreadyExistsError:
        return
    except Exception:
        # A SQL catalog raises its database's own error to the loser of a race.
        if not catalog.namespace_exists(namespace):
            raise
