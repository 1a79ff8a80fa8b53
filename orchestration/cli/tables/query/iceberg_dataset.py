"""Iceberg table as a pyarrow dataset: a scan of it reads the asked columns, one data file at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, Table

# Batches that Arrow reads ahead. Few, so that a reader that stops early has read little.
_READ_AHEAD = 2


class IcebergDataset(ds.InMemoryDataset):
    """Rows of a table's snapshot as a pyarrow dataset, which DuckDB can scan.

    DuckDB calls `scanner` with the columns and the conditions of a query. Data files are planned when the first batch
    is requested, and read one after the other, none after the last requested batch.

    Attributes:
        failure: Exception that ended a read; DuckDB replaces it by one of its own.
    """

    def __init__(self, table: Table, scan: DataScan) -> None:
        """Create the dataset of a scan.

        Args:
            table: The scanned table.
            scan: Scan with snapshot, columns, row filter and limit.
        """
        super().__init__(_arrow_schema(scan).empty_table())
        self.failure: Exception | None = None
        self._table: Table = table
        self._scan: DataScan = scan

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_: Any,
    ) -> ds.Scanner:
        """Scanner of these columns in the rows that meet the condition.

        Args:
            columns: Names of top-level columns; None for all.
            filter: Condition over columns of the dataset, which need not be in `columns`.
        """
        wanted = self.schema.names if columns is None else list(columns)
        read = {*wanted, *(self._columns_of(filter) if filter is not None else ())} or {self.schema.names[0]}
        scan = self._scan.select(*read)
        schema = _arrow_schema(scan)
        return ds.Scanner.from_batches(
            self._batches(scan, schema),
            schema=schema,
            columns=wanted,
            filter=filter,
            batch_readahead=_READ_AHEAD,
            fragment_readahead=1,
        )

    def _columns_of(self, condition: pc.Expression) -> Iterator[str]:
        """Columns of a condition, found by leaving each out: without it, Arrow cannot bind the condition."""
        for index, name in enumerate(self.schema.names):
            try:
                ds.Scanner.from_batches(iter(()), schema=self.schema.remove(index), columns=[], filter=condition)
            except pa.ArrowInvalid:
                yield name

    def _batches(self, scan: DataScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        left = scan.limit
        try:
            # The limit counts over all files, so each file's scan gets the rest of it.
            for task in scan.plan_files():
                if left == 0:
                    return
                files = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter, limit=left)
                for batch in files.to_record_batches([task]):
                    left = None if left is None else left - batch.num_rows
                    # Files of one table may differ in the width of string offsets.
                    yield batch.cast(schema)
        except Exception as problem:
            self.failure = problem
            raise


def _arrow_schema(scan: DataScan) -> pa.Schema:
    return schema_to_pyarrow(scan.projection(), include_field_ids=False)
