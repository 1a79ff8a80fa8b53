"""A real catalog on SQLite in a temporary folder, and a way to append what a writer made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.config.values.partitioning import parse_partition_expr
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table

MakeTable = Callable[..., Table]
Append = Callable[[Table, Iterable[DataFile]], None]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    yield made
    made.close()


@pytest.fixture
def make_table(catalog: SqlCatalog) -> MakeTable:
    """Makes a table from a schema, partition expressions and properties."""

    def make(schema: Schema, *partition_by: str, name: str = "orders.payments", **properties: str) -> Table:
        spec = partition_spec([parse_partition_expr(text) for text in partition_by], schema)
        return ensure_table(catalog, name, schema, spec, create_table_properties(properties))

    return make


@pytest.fixture
def append() -> Append:
    """Commits data files through PyIceberg's own transaction."""

    def commit(table: Table, files: Iterable[DataFile]) -> None:
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
            for file in files:
                update.append_data_file(file)

    return commit
